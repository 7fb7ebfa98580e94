"""What must hold at every commit (ARCHITECTURE.md, Invariants), judged by an observer that reads the log like anybody else.

It folds with the services' cores, follows jobs by the table of moves, and keeps books of its own for quota
and gangs, which share no code with what they check. `Observer.take` is called for every commit.
"""

from fairlead_bus.log import Folded
from fairlead_bus.port import Stored
from fairlead_placer import invariants as placer_invariants
from fairlead_replay.chain import Audit
from fairlead_replay.fold import CORES, Cluster, state_hash
from fairlead_schemas import subjects
from fairlead_schemas.commit import Commit
from fairlead_schemas.events import (
    CommandRejected,
    CommandRepeated,
    Event,
    JobCancelled,
    JobFailed,
    JobOffered,
    JobPlaced,
    JobRejected,
    JobSubmitted,
    JobSucceeded,
    NodeCommandRejected,
    OfferReturned,
    QueueConfigured,
    RunEnded,
)
from fairlead_schemas.ids import array_of
from fairlead_schemas.resources import Request


class Violation(AssertionError):
    """An invariant does not hold; the message names it, the log sequence and what was found."""


class Books:
    """Quota (I5) and gangs (I6), by the events alone."""

    def __init__(self) -> None:
        self.quotas: dict[str, int | None] = {}
        self.requests: dict[str, tuple[str, Request]] = {}  # {job or array: (queue, request)}
        self.charged: dict[str, dict[str, int]] = {}  # {queue: {job: milli-GPU}}

    def take(self, event: Event) -> str:
        """Book one event; returns what is wrong with it, "" if nothing is."""
        match event:
            case QueueConfigured():
                self.quotas[event.path] = event.gpu_quota_milli
            case JobSubmitted():
                self.requests[event.job] = (event.queue, event.request)
            case JobOffered():
                return self._charge(event.job)
            case JobPlaced():
                return self._whole(event)
            case OfferReturned() | RunEnded() | JobCancelled() | JobFailed() | JobSucceeded():
                queue, _ = self.asked(event.job)
                self.charged.get(queue, {}).pop(event.job, None)
            case _:
                pass
        return ""

    def asked(self, job: str) -> tuple[str, Request]:
        """(queue, request) of a job or an array's element."""
        return self.requests[array_of(job) or job]

    def _charge(self, job: str) -> str:
        queue, request = self.asked(job)
        charged = self.charged.setdefault(queue, {})
        charged[job] = request.gpu_milli_total
        quota, used = self.quotas[queue], sum(charged.values())
        if quota is not None and used > quota and request.gpu_milli_total:
            return f"I5: queue {queue} has a quota of {quota}, offered {job} with {used} charged: {charged}"
        return ""

    def _whole(self, event: JobPlaced) -> str:
        _, request = self.asked(event.job)
        if len(event.parts) != request.nodes:
            return f"I6: job {event.job} asks for {request.nodes} nodes, placed on {len(event.parts)}"
        for part in event.parts:
            if (len(part.gpus) * 1000, part.cpu_milli, part.memory_mib) != (
                request.gpu_milli, request.cpu_milli, request.memory_mib
            ):  # fmt: skip
                return f"I6: job {event.job} asks for {request}, got {part} on {part.node}"
        return ""


class Observer:
    """Folds the log as it grows. Raises Violation at the first commit that breaks an invariant."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.books = Books()
        self.audit = Audit()
        self.lives = self.audit.lives
        self.commits: list[Commit] = []
        self.answers: dict[str, list[str]] = {}  # {command id: types of the events it caused}
        self.events = 0

    def take(self, folded: Folded) -> None:
        """The next commit."""
        commit = folded.commit
        self.commits.append(commit)
        self.audit.take(Stored(folded.seq, subjects.log(folded.writer), folded.payload))
        if self.audit.findings:
            raise Violation(f"I8: sequence {folded.seq}: {self.audit.findings[0].what}")
        try:
            self.cluster.evolve(folded.seq, commit)
            placer_invariants.check(self.cluster.placer.state)
        except placer_invariants.InvariantBroken as error:
            raise Violation(f"sequence {folded.seq}: {error}") from error
        except Exception as error:
            raise Violation(f"I8: sequence {folded.seq} does not fold: {type(error).__name__}: {error}") from error
        for index, event in enumerate(commit.events):
            self._event(f"{folded.seq}.{index}", event)

    def _event(self, place: str, event: Event) -> None:
        self.events += 1
        wrong = self.books.take(event)
        if wrong:
            raise Violation(f"event {place}: {wrong}")
        if event.cause.startswith("cmd:"):
            self.answers.setdefault(event.cause[4:], []).append(type(event).__name__)

    def compare(self, writer: str, sequence: int, state: bytes) -> None:
        """I7: a service's live state against the fold to the very sequence at which it stands."""
        if sequence == self.cluster.sequence:
            expected = self.cluster.cores()[writer].snapshot()
        else:
            core = CORES[writer]()
            for place, commit in enumerate(self.commits[:sequence], start=1):
                core.evolve(place, commit)
            expected = core.snapshot()
        if expected != state:
            raise Violation(
                f"I7: {writer} at sequence {sequence}: live state {state_hash(state)[:12]}, "
                f"fold {state_hash(expected)[:12]}{_difference(expected, state)}"
            )

    def check_end(self, sent: list[str]) -> None:
        """I3 and I10, once the faults have stopped and time enough has passed."""
        for command in sent:
            answers = self.answers.get(command, [])
            final = [name for name in answers if name in FINAL_ANSWERS]
            if not answers or len(final) > 1:
                raise Violation(f"I3: command {command} was accepted; what answers it: {answers}")
        waiting = self.lives.waiting_for()
        if waiting:
            raise Violation(f"I10: with no faults left these did not end: {waiting}")


FINAL_ANSWERS = frozenset(
    kind.__name__ for kind in (JobSubmitted, JobRejected, CommandRejected, CommandRepeated, NodeCommandRejected)
)


def _difference(expected: bytes, found: bytes) -> str:
    at = next(
        (i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), min(len(expected), len(found))
    )
    return f"; from byte {at}: …{expected[max(0, at - 40) : at + 60]!r} against …{found[max(0, at - 40) : at + 60]!r}"
