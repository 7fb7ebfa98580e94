"""Follows every job through a log by the table of legal moves, and every run through its ranks. Pure.

It judges what writers wrote; it must not know why they wrote it, and uses no core of theirs: that is what
makes it a witness. Start at `Lives.fold`.
"""

from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.events import (
    Event,
    JobOffered,
    JobPlaced,
    JobRequeued,
    JobsRetired,
    JobSubmitted,
    RankEnded,
    RankStarted,
    RunEnded,
    RunStarted,
)
from fairlead_schemas.wire.lifecycle import END_STATES, MOVES, next_state

#: Events that move a job. What else names a job (AllocationReleased) says something about nodes.
MOVING: frozenset[str] = frozenset(move.event for move in MOVES)


class IllegalMove(ValueError):
    """The event cannot follow the events before it in the log."""


class AttemptProgress:
    """Authorised run with the progress of its ranks. Ranks are bits."""

    __slots__ = ("ended", "number", "over", "ranks", "running", "started")

    def __init__(self, number: int, ranks: int) -> None:
        self.number = number
        self.ranks = ranks
        self.started = 0
        self.ended = 0
        self.running = False
        self.over = False


class Lives:
    """State of every job, by the log alone: {job id: state} of all that are not retired."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        #: The newest run of each job that was placed at least once.
        self.attempts: dict[str, AttemptProgress] = {}
        #: First and last index of each array.
        self.arrays: dict[str, tuple[int, int]] = {}
        self.submitted = 0
        self.ended = 0

    def fold(self, commit: Commit) -> None:
        """Take one commit's events. Raises IllegalMove at the first that cannot be."""
        for event in commit.events:
            self.take(event, commit.at_ns)

    def take(self, event: Event, at_ns: int) -> None:
        """Take one event. Raises IllegalMove."""
        name = type(event).__name__
        if isinstance(event, JobsRetired):
            self._retire(event)
        elif name in MOVING:
            self._move(event, name, at_ns)

    def waiting_for(self) -> dict[str, str]:
        """{job: state} of everything that has not reached an end state."""
        return {job: state for job, state in self.states.items() if state not in END_STATES}

    def _move(self, event: Event, name: str, at_ns: int) -> None:
        job = str(getattr(event, "job"))  # noqa: B009 -- every event of MOVES names its job; the union does not know
        before = self.states.get(job, "")
        if isinstance(event, JobOffered) and before == "":
            self._born(job)
        try:
            after = next_state(before, name)
        except KeyError as error:
            raise IllegalMove(f"job {job}: {error.args[0]}") from None
        if isinstance(event, JobSubmitted):
            self.submitted += 1
            if event.array is not None:
                self.arrays[job] = event.array
            if event.held:
                after = "held"
            elif event.start_at_ns > at_ns:
                after = "scheduled"
        self._run(job, event)
        self.states[job] = after
        self.ended += after in END_STATES

    def _born(self, job: str) -> None:
        array = array_of(job)
        bounds = self.arrays.get(array) if array is not None else None
        if array is None or bounds is None:
            raise IllegalMove(f"job {job}: offered, but never submitted")
        index = int(job.rpartition("_")[2])
        if not bounds[0] <= index <= bounds[1]:
            raise IllegalMove(f"job {job}: array {array} has the elements {bounds[0]} to {bounds[1]}")
        if self.states.get(array, "") in END_STATES:
            raise IllegalMove(f"job {job}: array {array} had ended")

    def _run(self, job: str, event: Event) -> None:
        match event:
            case JobPlaced():
                self._placed(job, event)
            case RankStarted():
                self._rank(job, event.attempt, event.rank, "started")
            case RunStarted():
                attempt = self._current(job, event.attempt)
                if attempt.running:
                    raise IllegalMove(f"job {job}: attempt {event.attempt} started twice")
                if attempt.ranks > 1 and attempt.started != attempt.ranks:
                    raise IllegalMove(f"job {job}: attempt {event.attempt} runs, but not every rank has started")
                attempt.running = True
            case RankEnded():
                self._rank(job, event.attempt, event.rank, "ended")
            case RunEnded():
                attempt = self._current(job, event.attempt)
                attempt.over, attempt.ended = True, attempt.ranks
            case JobRequeued():
                self._requeued(job, event)
            case _:
                pass

    def _placed(self, job: str, event: JobPlaced) -> None:
        earlier = self.attempts.get(job)
        if earlier is not None and event.attempt <= earlier.number:
            raise IllegalMove(f"job {job}: attempt {event.attempt} placed, after attempt {earlier.number} was")
        if earlier is not None and not earlier.over:
            raise IllegalMove(f"job {job}: attempt {event.attempt} placed while attempt {earlier.number} is not over")
        nodes = [part.node for part in event.parts]
        if not nodes or len(set(nodes)) != len(nodes):
            raise IllegalMove(f"job {job}: placed on {nodes}: each part needs a node of its own")
        self.attempts[job] = AttemptProgress(event.attempt, (1 << len(nodes)) - 1)

    def _requeued(self, job: str, event: JobRequeued) -> None:
        run = self.attempts.get(job)
        if run is not None and event.attempt <= run.number:
            raise IllegalMove(f"job {job}: attempt {event.attempt} comes after attempt {run.number}")
        if run is not None and not run.over:
            raise IllegalMove(f"job {job}: requeued while attempt {run.number} is not over")

    def _current(self, job: str, number: int) -> AttemptProgress:
        attempt = self.attempts.get(job)
        if attempt is None or attempt.number != number:
            found = "none" if attempt is None else f"attempt {attempt.number}"
            raise IllegalMove(f"job {job}: word of a run of attempt {number}, but placed was {found}")
        if attempt.over:
            raise IllegalMove(f"job {job}: word of a run of attempt {number}, which is over")
        return attempt

    def _rank(self, job: str, number: int, rank: int, what: str) -> None:
        attempt = self._current(job, number)
        if not 0 <= rank < attempt.ranks.bit_length():  # a forged rank may be any number
            raise IllegalMove(f"job {job}: attempt {number} has no rank {rank}")
        bit, seen = 1 << rank, int(getattr(attempt, what))
        if bit & seen:
            raise IllegalMove(f"job {job}: rank {rank} of attempt {number} {what} twice")
        setattr(attempt, what, seen | bit)

    def _retire(self, event: JobsRetired) -> None:
        for job in event.jobs:
            if self.states.get(job) not in END_STATES:
                raise IllegalMove(f"job {job}: retired from state {self.states.get(job, '')!r}")
            del self.states[job]
            self.attempts.pop(job, None)
            self.arrays.pop(job, None)
