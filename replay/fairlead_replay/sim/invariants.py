"""Invariants that must hold at every commit (ARCHITECTURE.md, Invariants), judged by an observer that only reads
the log.

The observer folds with the services' cores, follows jobs by the table of moves, and keeps separate books for
quota and gangs. These books share no code with the parts under check. `Observer.take` is called for every
commit.
"""

from collections.abc import Callable

from fairlead_access import invariants as access_invariants
from fairlead_access.core import AccessCore
from fairlead_bus.log import Folded
from fairlead_bus.port import Stored
from fairlead_placer import invariants as placer_invariants
from fairlead_queue import invariants as queue_invariants
from fairlead_queue.core import QueueCore
from fairlead_replay.chain import Audit
from fairlead_replay.fold import CORES, FoldedCluster, state_hash
from fairlead_replay.sim.access_books import AccessBooks
from fairlead_replay.sim.idle_books import IdleBooks
from fairlead_replay.sim.run_books import LimitBooks, SavingBooks, YieldBooks, amounts, held, whole
from fairlead_replay.sim.services import ServiceBooks
from fairlead_replay.sim.volumes import StorageBooks
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, POOL_LABEL, QueueSettings
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.events import (
    AccessCommandRejected,
    CommandRejected,
    CommandRepeated,
    Event,
    GroupSynced,
    IdlePoliciesSet,
    JobCancelled,
    JobExtended,
    JobFailed,
    JobMoved,
    JobOffered,
    JobPlaced,
    JobRejected,
    JobSubmitted,
    JobSucceeded,
    LevelRaised,
    NodeChanged,
    NodeCommandRejected,
    NodeJoined,
    OfferReturned,
    PrincipalAdmitted,
    PrincipalSuspended,
    QueueConfigured,
    QueueDrained,
    QueueHeld,
    QueueReleased,
    QueueRemoved,
    QueuesApplied,
    RolesApplied,
    RunEnded,
    SessionOpened,
    TelemetryCommandRejected,
    TokenIssued,
    TokenRevoked,
)
from fairlead_schemas.wire.resources import Request
from fairlead_storage import state as storage_state
from fairlead_storage.core import StorageCore


class Violation(AssertionError):
    """An invariant does not hold; the message names it, the log sequence and what was found."""


def _closed_above(closed: set[str], path: str) -> str:
    """Return the queue, or the nearest above it, that is closed; "" for none."""
    while path and path not in closed:
        path = path.rpartition("/")[0]
    return path


class Books:
    """Limits of queues (I5), gangs (I6) and pools, by the events alone."""

    def __init__(self) -> None:
        self.settings: dict[str, QueueSettings] = {}
        self.requests: dict[str, tuple[str, str, Request]] = {}  # {job or array: (queue, user, request)}
        self.charged: dict[str, tuple[str, str, Request]] = {}  # {job: the same}
        self.placed: set[tuple[str, int]] = set()  # (job, attempt): a later rank for it comes too late
        self.pools: dict[str, str] = {}  # {node: pool}
        self.held: set[str] = set()  # queues of which nothing new may be offered
        self.drained: set[str] = set()  # queues that accept no further jobs

    def take(self, event: Event) -> str:
        """Book one event; returns what is wrong with it, "" if nothing is."""
        match event:
            case QueueConfigured():
                self.settings[event.path] = event.settings or QueueSettings()
            case JobSubmitted():
                if closed := _closed_above(self.drained, event.queue):
                    return f"{event.job} was submitted to {event.queue}, though {closed} is drained"
                self.requests[event.job] = (event.queue, event.user, event.request)
            case JobMoved():
                _, user, request = self.requests[event.job]
                self.requests[event.job] = (event.queue, user, request)
            case QueueRemoved():
                del self.settings[event.path]
                self._release(event.path)
                if event.move_to:  # what has ended in it is not asked for again
                    self._move_all(event.path, event.move_to)
            case QueueHeld():
                self.held.add(event.path)
            case QueueDrained():
                self.drained.add(event.path)
            case QueueReleased():
                self._release(event.path)
            case JobOffered() if (event.job, event.attempt) not in self.placed:
                closed = _closed_above(self.held, self.job_request(event.job)[0])
                if closed and event.job not in self.charged:  # else it is an open offer that is on its way back
                    return f"{event.job} was offered, though {closed} is held"
                return self._charge(event.job)
            case NodeJoined() | NodeChanged():
                self.pools[event.node] = event.inventory.labels.get(POOL_LABEL, DEFAULT_POOL)
            case JobPlaced():
                self.placed.add((event.job, event.attempt))
                wrong = whole(event, self.job_request(event.job)[2], self.pools)
                if event.job in self.charged and not wrong:
                    queue, user, request = self.charged[event.job]
                    self.charged[event.job] = (queue, user, held(request, event))
                return wrong
            case OfferReturned() | RunEnded() | JobCancelled() | JobFailed() | JobSucceeded():
                self.charged.pop(event.job, None)
            case _:
                pass
        return ""

    def _release(self, path: str) -> None:
        self.held.discard(path)
        self.drained.discard(path)

    def _move_all(self, path: str, to: str) -> None:
        for job, (queue, user, request) in self.requests.items():
            if queue == path:
                self.requests[job] = (to, user, request)

    def job_request(self, job: str) -> tuple[str, str, Request]:
        """(queue, user, request) of a job or an array's element."""
        return self.requests[array_of(job) or job]

    def exceeds(self, job: str) -> bool:
        """Return True if the job alone exceeds any limit above it."""
        queue, user, request = self.job_request(job)
        needs = {"gpu": request.gpu_milli_total, "cpu": request.cpu_milli_total}
        path, limits = queue, [self.settings[queue].users.get(user, self.settings[queue].users.get("*", {}))]
        while path:
            limits.append(self.settings[path].maximum)
            path = path.rpartition("/")[0]
        return any(needs[name] > most.get(name, needs[name]) for most in limits for name in needs)

    def _charge(self, job: str) -> str:
        """No queue on the way up, and no user, may hold more than the limits say."""
        again = job in self.charged
        self.charged[job] = queue, user, request = self.job_request(job)
        if again:  # another rank
            return ""
        # Where a limit was lowered under what runs, a job that needs nothing of that resource may still come.
        needs = amounts(request)
        path = queue
        while path:
            wrong = self._over(path, self.settings[path], needs)
            if wrong:
                return f"I5: offered {job}: {wrong}"
            path = path.rpartition("/")[0]
        limits = self.settings[queue].users
        most = limits.get(user, limits.get("*"))
        if most is not None:
            holds = self._held(lambda where, who: where == queue and who == user)
            if any(holds[name] > amount for name, amount in most.items() if needs[name]):
                return f"I5: offered {job}: user {user} holds {holds} in {queue}, may hold {most}"
        return ""

    def _over(self, path: str, settings: QueueSettings, needs: dict[str, int]) -> str:
        for name, amount in self._held(lambda where, who: where == path or where.startswith(f"{path}/")).items():
            most = settings.maximum.get(name)
            borrowing = settings.borrowing.get(name)
            if borrowing is not None:
                most = min(most if most is not None else amount, self.guaranteed(path, name) + borrowing)
            if most is not None and amount > most and needs[name]:
                return f"queue {path} holds {amount} of {name}, may hold {most}"
        return ""

    def guaranteed(self, path: str, name: str) -> int:
        """Return a queue's guaranteed amount: its own setting, else the sum of its children's guarantees."""
        own = self.settings[path].guaranteed.get(name)
        below = [other for other in self.settings if other.rpartition("/")[0] == path]
        return own if own is not None else sum(self.guaranteed(other, name) for other in below)

    def _held(self, counts: Callable[[str, str], bool]) -> dict[str, int]:
        found = {"gpu": 0, "cpu": 0, "memory": 0}
        for queue, user, request in self.charged.values():
            if counts(queue, user):
                found = {name: amount + found[name] for name, amount in amounts(request).items()}
        return found


class Observer:
    """Folds the log as it grows. Raises Violation at the first commit that breaks an invariant."""

    def __init__(
        self, idle: IdleBooks | None = None, limits: LimitBooks | None = None, access: AccessBooks | None = None
    ) -> None:
        self.idle = idle or IdleBooks()
        self.access = access or AccessBooks()
        self.storage = StorageBooks()
        self.services = ServiceBooks()
        self.limits = limits or LimitBooks()
        self.cluster = FoldedCluster()
        self.books = Books()
        self.yields = YieldBooks(self.books.settings, self.books.job_request, self.books.guaranteed)
        self.savings = SavingBooks()
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
            what = self.audit.findings[0].what
            invariant, colon, rest = what.partition(": ")
            if colon and invariant == "I13":
                raise Violation(f"I13: sequence {folded.seq}: {rest}")
            raise Violation(f"I8: sequence {folded.seq}: {what}")
        try:
            self.cluster.evolve(folded.seq, commit)
            placer_invariants.check(self.cluster.placer.state)
            queue_invariants.check(self.cluster.queue.state)
        except placer_invariants.InvariantBroken as error:
            raise Violation(f"sequence {folded.seq}: {error}") from error
        except Exception as error:
            raise Violation(f"I8: sequence {folded.seq} does not fold: {type(error).__name__}: {error}") from error
        wrong = (
            self.yields.take(folded.seq, commit)
            or self.savings.take(commit)
            or self.idle.take(folded.seq, commit)
            or self.limits.take(commit)
            or self.access.take(folded.seq, commit)
            or self._access(commit)
            or self.storage.take(folded.seq, commit)
            or self._storage(commit)
            or self.services.take(folded.seq, commit)
        )
        if wrong:
            raise Violation(f"sequence {folded.seq}: {wrong}")
        for index, event in enumerate(commit.events):
            self._event(f"{folded.seq}.{index}", event)

    def _access(self, commit: Commit) -> str:
        if commit.writer != AccessCore.writer:
            return ""
        return next(access_invariants.broken(self.cluster.access.state), "")

    def _storage(self, commit: Commit) -> str:
        """Check the storage core after its own commits and those of the queue, whose queues own volumes."""
        if commit.writer not in (StorageCore.writer, QueueCore.writer) or not self.cluster.storage.state.volumes:
            return ""
        return next(storage_state.broken(self.cluster.storage.state), "")

    def _event(self, place: str, event: Event) -> None:
        self.events += 1
        wrong = self.books.take(event)
        if wrong:
            raise Violation(f"event {place}: {wrong}")
        if event.cause.startswith("cmd:"):
            name = type(event).__name__
            name_and_scope = f"{name} of {event.scope}" if isinstance(event, IdlePoliciesSet) else name
            self.answers.setdefault(event.cause[4:], []).append(name_and_scope)

    def compare(self, writer: str, sequence: int, state: bytes) -> None:
        """Compare a service's live state with the fold to exactly its sequence (invariant I7). Raises Violation if they
        differ.
        """
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
            scopes = [name for name in answers if name.startswith(IdlePoliciesSet.__name__)]  # one for each
            if not answers or len(final) + bool(scopes) > 1 or len({*scopes}) < len(scopes):
                raise Violation(f"I3: command {command} was accepted; what answers it: {answers}")
        waiting = self.lives.waiting_for()
        if waiting:
            raise Violation(f"I10: with no faults left these did not end: {waiting}")


FINAL_ANSWERS = frozenset(
    kind.__name__
    for kind in (
        JobSubmitted,
        JobRejected,
        CommandRejected,
        CommandRepeated,
        NodeCommandRejected,
        QueuesApplied,
        JobExtended,
        TelemetryCommandRejected,
        PrincipalAdmitted,
        PrincipalSuspended,
        LevelRaised,
        RolesApplied,
        GroupSynced,
        TokenIssued,
        TokenRevoked,
        SessionOpened,
        AccessCommandRejected,
    )
)


def _difference(expected: bytes, found: bytes) -> str:
    at = next(
        (i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), min(len(expected), len(found))
    )
    return f"; from byte {at}: …{expected[max(0, at - 40) : at + 60]!r} against …{found[max(0, at - 40) : at + 60]!r}"
