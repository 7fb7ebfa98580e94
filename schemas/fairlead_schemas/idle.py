"""Idle policies: the conditions under which a run counts as idle, the action taken, and the evidence for it.

Scopes are "global", "project:<name>" and "user:<name>". For each rule the narrowest policy that covers a run
applies, within the bounds of the wider ones. The telemetry service decides by the policies; the queue carries
out its requests.
"""

from typing import Literal

import msgspec

#: When a run counts as idle.
IdleRule = Literal[
    "utilization",  # every signal that is asked about stayed below its threshold
    "interaction",  # nobody typed in a terminal of it
    "lifetime",  # it has run for so long, whatever it does
]
#: What is done once the notice is over.
IdleAction = Literal[
    "note",  # it stands in the log, and nobody is told
    "warn",  # its owner is told
    "stop",  # it gets its checkpoint notice and grace, and ends
    "requeue",  # the same; it waits again for another attempt
    "shrink",  # its lease is cut: it ends then unless somebody extends it, whatever it does meanwhile
]
#: Whether it is done.
IdleMode = Literal[
    "dry_run",  # it is only said what would have been done, and what that would have saved
    "on_demand",  # only when somebody waits who can use those very GPUs
    "always",
]
#: What is looked at. One that is missing or stale counts as activity.
IdleSignal = Literal["gpu", "memory_traffic", "power", "gpu_links", "cpu", "network", "disk", "terminal", "proxy"]
#: Why a run counts as active again.
ActiveReason = Literal[
    "active",  # a signal rose
    "unseen",  # signals are missing, or stale: nobody can say that it is idle
    "extended",  # its owner extended it
    "policy",  # the policy that called it idle does not speak of it any more
]


class IdleEvidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Signal over the window that decided: its highest value on any GPU or rank, and the threshold that it had to stay
    below.
    """

    signal: IdleSignal
    #: In the signal's unit: thousandths of a GPU's time (gpu, memory_traffic), milliwatts above the GPU's rest (power), bytes per
    #: second (gpu_links, network, disk), milli-CPU (cpu), nanoseconds since somebody was there (terminal, proxy).
    highest: int
    mean: int
    threshold: int
    samples: int


class IdlePolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Idle policy for one rule at one scope."""

    rule: IdleRule
    action: IdleAction
    mode: IdleMode = "dry_run"
    #: {signal: threshold}, in the units of IdleEvidence; only for "utilization". Of a terminal or proxy, whose value is the time since
    #: somebody was there, the threshold is the least, not the most.
    below: dict[IdleSignal, int] = {}
    #: For how long: below the thresholds; without a person; since the start.
    after_ns: int
    #: Between telling the owner and acting.
    notice_ns: int
    #: Longest that one extension lasts, and how many there may be.
    extend_ns: int = 0
    extensions_max: int = 0
    #: Of "shrink": what is left of the lease.
    shrink_ns: int = 0
    #: Kinds of jobs that it speaks of; none: of all.
    kinds: tuple[Literal["batch", "session", "service"], ...] = ()
    #: Bounds for narrower scopes: the longest `after_ns` that they may set (0: this one), and whether they may set less than this mode
    #: or action at all.
    after_max_ns: int = 0
    may_soften: bool = False
