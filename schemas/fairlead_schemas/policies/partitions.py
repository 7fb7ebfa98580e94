"""Rules for a job whose node falls silent: the time for which its program may continue there, and the time of its
start elsewhere.

From outside it is impossible to know if a silent node still runs something. So its agent first ends the run,
with TERM, grace and KILL, and only later may another node have it. Otherwise the run is not started elsewhere
before a person has proof.
"""

import msgspec

from fairlead_schemas.units.quantities import DURATION_NS_MAX, format_duration
from fairlead_schemas.units.timestamps import MINUTE_NS, SECOND_NS
from fairlead_schemas.units.validation import FieldError

NEVER_NS = -1
NEVER = "never"
#: Defaults of nodes and of the placer (FAIRLEAD_SELF_FENCE_S and its like change them).
STOP_AFTER_NS = MINUTE_NS
GRACE_NS = 30 * SECOND_NS
MARGIN_NS = 30 * SECOND_NS
#: Agents beat every two seconds: what stops sooner stops for a restart of the placer.
STOP_AFTER_LEAST_NS = 10 * SECOND_NS

STOP, REPLACE, STRICT = "onPartition.stopAfter", "onPartition.replaceAfter", "strict"


class OnPartition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Durations of silence; 0: as the cluster does; -1: never."""

    #: The node's agent stops the run.
    stop_after_ns: int = 0
    #: It is started elsewhere; never sooner than its node counts as lost. Never: only with proof that it has ended there.
    replace_after_ns: int = 0

    @property
    def strict(self) -> bool:
        """True where only proof lets it be started elsewhere."""
        return self.replace_after_ns == NEVER_NS


AS_THE_CLUSTER = OnPartition()


def least_replace_ns(stop_after_ns: int) -> int:
    """The earliest that another node may have it: the stop, TERM to KILL, and a margin for the kill and slow clocks."""
    return (stop_after_ns or STOP_AFTER_NS) + GRACE_NS + MARGIN_NS


def fault_of(policy: OnPartition) -> FieldError | None:
    """The first thing that is wrong with it."""
    stop, replace = policy.stop_after_ns, policy.replace_after_ns
    if stop not in (0, NEVER_NS) and not STOP_AFTER_LEAST_NS <= stop <= DURATION_NS_MAX:
        least = format_duration(STOP_AFTER_LEAST_NS)
        return FieldError(field=STOP, message=f'expected at least {least}, or "never", found {_shown(stop)}')
    if stop == NEVER_NS and replace != NEVER_NS:
        message = 'expected a duration, or replaceAfter "never" with it: a run that is never stopped can be replaced only with proof'
        return FieldError(field=STOP, message=message)
    if replace in (0, NEVER_NS):
        return None
    least_ns = least_replace_ns(stop)
    if not least_ns <= replace <= DURATION_NS_MAX:
        least = f"{format_duration(least_ns)} ({format_duration(stop or STOP_AFTER_NS)} until it is stopped, {format_duration(GRACE_NS)} grace, {format_duration(MARGIN_NS)} margin)"
        return FieldError(field=REPLACE, message=f'expected at least {least}, or "never", found {_shown(replace)}')
    return None


def _shown(ns: int) -> str:
    return f'"{format_duration(ns)}"' if ns >= 0 else f"{ns} ns"
