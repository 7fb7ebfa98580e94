"""A live job, as the queue keeps it: small, mutable, changed by `evolve` only. No spec, ever.

`wait` says where a job that waits can be found; it is "" when it does not wait for an offer:

    line      in its lane's line: may be offered
    timer     until `timer_ns`: a start time, or the delay before another attempt
    returned  was recalled for quota: until capacity changes
    owed      the queue owes it an event (`End`, a hold that was asked for, an array's end)
"""

from typing import TYPE_CHECKING, NamedTuple

from fairlead_schemas.events import RunOutcome

if TYPE_CHECKING:
    from fairlead_queue.lanes import Lane


class End(NamedTuple):
    """How the current attempt ended and which event said so."""

    cause: str
    outcome: RunOutcome | None  # None: the offer was returned, or it never ran
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    drained: bool = False


class Job:
    """One single job or one element of an array, not finished yet."""

    __slots__ = (
        "attempt", "cause", "end", "failures", "hold", "hold_by", "id", "lane", "losses", "open", "parent", "rank",
        "recall", "retries", "start_at_ns", "starts", "state", "stop", "stop_by", "timer_ns", "total_ns", "wait",
    )  # fmt: skip

    def __init__(self, id: str, rank: int, lane: "Lane", cause: str) -> None:
        self.id = id
        self.rank = rank
        self.lane = lane
        #: Id of the event that made it wait: what an offer names as its cause.
        self.cause = cause
        self.state = "queued"
        #: The current attempt, from 1.
        self.attempt = 1
        #: Attempts allowed after a failed exit; how many have failed; losses and failed starts beside them.
        self.retries = self.failures = self.losses = self.starts = 0
        self.total_ns = self.start_at_ns = 0
        self.wait = ""
        self.timer_ns = 0
        #: True while the placer holds an offer of it.
        self.open = False
        #: "" | "hold" | "quota": the open offer was asked back.
        self.recall = ""
        #: A person wants it held as soon as its offer is back.
        self.hold = False
        self.hold_by = ""
        #: "" | "cancelled" | "time_limit"
        self.stop = ""
        self.stop_by = ""
        self.end: End | None = None
        self.parent: Array | None = None


class Array(Job):
    """An array: stands in line for its next unborn element, and counts those that were born."""

    __slots__ = ("cancelled", "ended", "failed", "first", "last", "live", "unstopped")

    def __init__(self, id: str, rank: int, lane: "Lane", cause: str, bounds: tuple[int, int]) -> None:
        super().__init__(id, rank, lane, cause)
        self.attempt = 0
        self.first, self.last = bounds
        #: Elements born and not ended, in order of birth.
        self.live: dict[str, Job] = {}
        self.ended = self.failed = self.cancelled = 0
        #: While it stops: live elements that have not been asked to.
        self.unstopped = 0

    @property
    def unborn(self) -> int:
        """Elements that have not come into being."""
        return self.last - self.first + 1 - self.ended - len(self.live)
