"""Facts about the current attempt of a live job: its end, and the reclaims of its idle run. Pure data."""

from collections.abc import Sequence

import msgspec

from fairlead_schemas.policies.idle import IdleAction, IdleRule
from fairlead_schemas.wire.events import RunOutcome, StartFault


class AttemptEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """End of the current attempt, and the event that reported it."""

    cause: str
    outcome: RunOutcome | None  # None: the offer was returned, or it never ran
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    drained: bool = False
    preempted: bool = False
    #: Nodes on which it has failed in the same way; () while that is one only.
    alike: tuple[str, ...] = ()
    #: Whose fault it is that it could not be started.
    fault: StartFault = ""
    #: True where a fault of one of its GPUs ended it.
    gpu_fault: bool = False


class IdleReclaim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Reclaim of a run by one idle policy."""

    #: The event that asked.
    cause: str
    scope: str
    rule: IdleRule
    action: IdleAction
    #: Only if a waiting job can use what it holds.
    on_demand: bool
    at_ns: int


#: Actions that ask for nothing: the owner is notified, or no one.
NOTIFY_ONLY = ("note", "warn")


def decisive(reclaims: Sequence[IdleReclaim]) -> IdleReclaim:
    """Return the reclaim that counts when several policies request one: the first that waits for no other job, else the first."""
    return next((each for each in reclaims if not each.on_demand), reclaims[0])
