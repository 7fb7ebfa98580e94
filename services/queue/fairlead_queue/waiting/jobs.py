"""A live job, as the queue keeps it: small, mutable, changed by `evolve` only. No spec, ever.

`wait` says where a job that waits can be found; it is "" when it does not wait for an offer:

    line      in its lane's line: may be offered
    timer     until `timer_ns`: a start time, or the delay before another attempt
    array     an array of which as many elements live as may: until one ends
    jobs      until the jobs it depends on have ended
    returned  was withdrawn for quota: until capacity changes
    owed      the queue owes it an event (`End`, a hold that was asked for, an array's end)

Reclaims of idle runs requested by telemetry: kept with the run until the run ends or is used again. Pure data.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from fairlead_schemas.policies.idle import IdleAction, IdleRule
from fairlead_schemas.wire.events import RunOutcome, StartFault

if TYPE_CHECKING:
    from fairlead_queue.waiting.lanes import Lane


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
TELLS_ONLY = ("note", "warn")


def decisive(wishes: Sequence[IdleReclaim]) -> IdleReclaim:
    """Return the reclaim that counts when several policies request one: the first that waits for no other job, else the first."""
    return next((each for each in wishes if not each.on_demand), wishes[0])


#: What a job waits for that will never come: the other job has ended otherwise.
NEVER = "never"


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


class LiveJob:
    """Single job or element of an array that is not finished yet."""

    __slots__ = (
        "after",
        "aged",
        "ages_ns",
        "alarm_ns",
        "asked",
        "asked_ns",
        "asks",
        "attempt",
        "cause",
        "deadline_ns",
        "end",
        "every_ns",
        "failures",
        "hold",
        "hold_by",
        "id",
        "idle",
        "lane",
        "losses",
        "missing",
        "nodes",
        "notice_ns",
        "offered_ns",
        "open",
        "order",
        "parent",
        "price",
        "rank",
        "retries",
        "saved_ns",
        "since_ns",
        "slice_ns",
        "start_at_ns",
        "started_ns",
        "starts",
        "state",
        "stop",
        "stop_by",
        "stop_saves",
        "submitted_ns",
        "timer_ns",
        "total_ns",
        "used_ns",
        "user",
        "wait",
        "withdrawal",
        "yielders",
        "yields_by",
        "yields_to",
    )  # fmt: skip

    def __init__(self, id: str, order: int, lane: "Lane", cause: str) -> None:
        self.id = id
        #: Its position in its line (fairness/waiting_line.py); for an array it rises with each element that is born.
        self.order = order
        self.lane = lane
        self.user = ""
        #: Id of the event that made it wait: what an offer names as its cause.
        self.cause = cause
        self.state = "queued"
        #: The current attempt, from 1.
        self.attempt = 1
        #: Attempts allowed after a failed exit; failed attempts; then losses and failed starts, which are counted
        #: apart.
        self.retries = self.failures = self.losses = self.starts = 0
        self.total_ns = self.start_at_ns = self.deadline_ns = self.slice_ns = 0
        #: Run time of the earlier attempts that this one continues; when the current one started (0: it has not).
        self.used_ns = self.started_ns = 0
        #: Notice before its end, interval of its saves without a notice, and time at which its run last reported a
        #: save (0: never).
        self.notice_ns = self.every_ns = self.saved_ns = 0
        self.submitted_ns = 0
        #: Since when it waits (for an offer and then for a place), by how much its priority has risen meanwhile, and when it
        #: rises next (0: it does not).
        self.since_ns = self.aged = self.ages_ns = 0
        #: Jobs it waits for: {job: how it must end}.
        self.after: dict[str, str] | None = None
        self.wait = ""
        #: When it stops waiting by the clock or its run is over; when its deadline is missed.
        self.timer_ns = self.alarm_ns = 0
        #: True while the placer holds an offer of it; the rank of that, and since when.
        self.open = False
        self.rank = self.offered_ns = 0
        #: "" | "hold" | "quota" | "order": the open offer was asked back.
        self.withdrawal = ""
        #: A person wants it held as soon as its offer is back.
        self.hold = False
        self.hold_by = ""
        #: "" | "cancelled" | "time_limit" | "idle" | "reclaimed"
        self.stop = ""
        self.stop_by = ""
        #: Of one that was cancelled: it is to have its notice first.
        self.stop_saves = False
        #: The job that it was asked to yield to, and by which rule; how many were asked to yield to it and have not ended.
        self.yields_to = self.yields_by = ""
        self.yielders = 0
        #: While it waits: "" | "asked": the placer has been asked to make room | "declined": it could not; and when.
        self.asked = ""
        self.asked_ns = 0
        #: How often it got such an answer while it waited.
        self.asks = 0
        #: Policies that request its run's GPUs back because it is idle, in the order of their requests.
        self.idle: tuple[IdleReclaim, ...] = ()
        #: What its run counts for in budgets: milli-GPU times the price of the model (0: nothing, or it has no place).
        self.price = 0
        #: Units of its request that its placement has not; they are not charged.
        self.missing = 0
        #: Place of its run: the node of each of its units.
        self.nodes: tuple[str, ...] = ()
        self.end: AttemptEnd | None = None
        self.parent: Array | None = None

    @property
    def awaits_cancel(self) -> bool:
        """Return True until a cancel has been carried to it. A stop for a time limit does not count as one: agents hold
        it back until the run has had its time by their own clocks."""
        return self.state != "stopping" or self.stop == "time_limit"

    @property
    def had_its_time(self) -> bool:
        """Return True if its attempts together have run up to the notice of its time limit."""
        return 0 < self.total_ns <= self.used_ns + self.notice_ns


class Array(LiveJob):
    """Array of jobs: waits in line for its next unborn element, and counts those that were born."""

    __slots__ = ("cancelled", "ended", "failed", "first", "last", "limit", "live", "told", "unstopped")

    def __init__(self, id: str, order: int, lane: "Lane", cause: str, bounds: tuple[int, int]) -> None:
        super().__init__(id, order, lane, cause)
        self.attempt = 0
        self.first, self.last = bounds
        #: Elements that may live at once (0: all), and True if it was reported that the array waits for that limit.
        self.limit = 0
        self.told = False
        #: Elements born and not ended, in order of birth.
        self.live: dict[str, LiveJob] = {}
        self.ended = self.failed = self.cancelled = 0
        #: While it stops: live elements that have not been asked to.
        self.unstopped = 0

    @property
    def unborn(self) -> int:
        """Elements that have not come into being."""
        return self.last - self.first + 1 - self.ended - len(self.live)

    def is_unborn(self, element: str) -> bool:
        """True for the id of an element that has not come into being."""
        index = element.partition("_")[2]
        return index.isdecimal() and self.last - self.unborn < int(index) <= self.last

    @property
    def is_over(self) -> bool:
        """Nothing of it lives and nothing more will be born."""
        return not self.live and (self.unborn == 0 or self.state == "stopping")

    @property
    def full(self) -> bool:
        """True if as many elements live as may live at once."""
        return 0 < self.limit <= len(self.live)
