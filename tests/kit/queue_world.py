"""A small world around a queue core: a log in memory, users, and a placer with scripted answers. Every fold goes
through bytes, is checked against the table of lifecycle.py event by event, against the invariants, and against a
snapshot round trip. Every decision must leave the state unchanged."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import msgspec

from fairlead_bus.core import EventPosition, Input
from fairlead_queue.apply import handlers as evolving
from fairlead_queue.core import QueueCore
from fairlead_queue.invariants import check
from fairlead_queue.state import QueueState
from fairlead_schemas.queuefile.settings import (
    MODEL_LABEL,
    POOL_LABEL,
    PoolEntry,
    PoolSettings,
    QueueEntry,
    QueueRemoval,
    QueueSettings,
)
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import (
    COMMIT_BYTES_MAX,
    COMMIT_EVENTS_MAX,
    Commit,
    decode_commit,
    encode_commit,
)
from fairlead_schemas.wire.lifecycle import MOVES, next_state
from fairlead_schemas.wire.resources import Gpu, Inventory, Request
from tests.kit.commits import commit_of

SECOND = 1_000_000_000
SPEC = msgspec.Raw(b'{"command":["true"]}')
MOVING = {move.event for move in MOVES}


def request(gpus: int = 1, *, nodes: int = 1, cpu: int = 1, memory_mib: int = 1024, model: str = "") -> Request:
    """Build the request of each node of a job."""
    selector = (f"{MODEL_LABEL}={model}",) if model else ()
    return Request(nodes=nodes, gpu_milli=gpus * 1000, cpu_milli=cpu * 1000, memory_mib=memory_mib, selector=selector)


def inventory(
    gpus: int = 8, *, cpu: int = 64, memory_mib: int = 512 * 1024, model: str = "", pool: str = ""
) -> Inventory:
    """A machine."""
    devices = tuple(Gpu(uuid=f"g{i}", index=i, model="A100", memory_mib=40960) for i in range(gpus))
    labels = {label: word for label, word in ((MODEL_LABEL, model), (POOL_LABEL, pool)) if word}
    return Inventory(gpus=devices, cpu_milli=cpu * 1000, memory_mib=memory_mib, labels=labels)


def state_of(state: QueueState, job: str) -> str:
    """The state of a job, live or finished; "" for one that is not there."""
    live = state.jobs.get(job)
    return live.state if live is not None else state.finished.get(job, "")


def _checked(kind: type[ev.EventBase], handler: Any) -> Any:
    """A handler that is held against the table."""
    name = kind.__name__
    if name not in MOVING:
        return handler

    def fold(state: QueueState, event: Any, at: EventPosition) -> None:
        before = state_of(state, event.job)
        if handler is not None:
            handler(state, event, at)
        after = state_of(state, event.job)
        expected = next_state(before, name)
        if name == "JobSubmitted" and event.held:
            expected = "held"
        elif name == "JobSubmitted" and (event.start_at_ns > at.time_ns or after == "scheduled"):
            expected = "scheduled"
        assert after == expected, f"{event} led from {before} to {after}"

    return fold


CHECKED = {kind: _checked(kind, evolving.HANDLERS.get(kind)) for kinds in ev.EVENTS_OF.values() for kind in kinds}
CHECKED = {kind: handler for kind, handler in CHECKED.items() if handler is not None}


class QueueWorld:
    """The core, its log, its time."""

    def __init__(self, *, careful: bool = True) -> None:
        self.core = QueueCore()
        self.log: list[Commit] = []
        self.now = 1_000 * SECOND
        self.careful = careful
        self.asked = 0
        self.step()

    @property
    def state(self) -> QueueState:
        return self.core.state

    # -- the log

    def fold(self, writer: str, events: Sequence[Any], cursors: dict[str, int] | None = None) -> None:
        """One commit into the log and into the core."""
        commit = commit_of(list(events), writer=writer, n=len(self.log) + 1, at_ns=self.now, cursors=cursors)
        payload = encode_commit(commit)
        assert len(events) <= COMMIT_EVENTS_MAX
        assert len(payload) <= COMMIT_BYTES_MAX
        self.log.append(decode_commit(payload))
        if not self.careful:
            self.core.evolve(len(self.log), self.log[-1])
            return
        with patch.dict(evolving.HANDLERS, CHECKED):
            self.core.evolve(len(self.log), self.log[-1])
        check(self.state)
        data = self.core.snapshot()
        again = QueueCore.restore(data)
        check(again.state)
        assert again.snapshot() == data

    def decide(self, *inputs: Input) -> list[Any]:
        """Ask, and prove that asking changed nothing and that a restored core would say the same."""
        before = self.core.snapshot() if self.careful else b""
        decision = self.core.decide(inputs, self.now)
        assert decision.cursors == {each.source: each.position for each in inputs}
        if self.careful:
            assert self.core.snapshot() == before
            assert QueueCore.restore(before).decide(inputs, self.now) == decision
        return decision.events

    def step(self, *inputs: Input) -> list[Any]:
        """One cycle of the shell: decide, append, fold."""
        events = self.decide(*inputs)
        if events or inputs:
            self.fold("queue", events, {each.source: each.position for each in inputs})
        return events

    def settle(self, cycles_max: int = 1000) -> list[Any]:
        """Cycles until nothing more is decided now; what was decided, without the news of those who wait."""
        decided: list[Any] = []
        for _ in range(cycles_max):
            events = self.step()
            if not events:
                wake_at = self.core.wake_at()
                assert wake_at is None or wake_at > self.now
                return [event for event in decided if not isinstance(event, ev.JobDeferred)]
            decided.extend(events)
        raise AssertionError(f"still deciding after {cycles_max} cycles: {decided[-3:]}")

    def pass_time(self, seconds: float = 1) -> list[Any]:
        """Let time pass, so that the order is looked at again; what was decided."""
        self.now += int(seconds * SECOND)
        return self.settle()

    def charged(self, path: str, resource: str = "gpu") -> int:
        """What is charged to a queue."""
        queue = self.state.queues[path]
        return queue.node.usage[queue.pool.resources.index(resource)]

    # -- people

    def ask(self, *commands: Any) -> list[Any]:
        """One message of commands, decided in one cycle; all events of that commit."""
        self.asked += 1
        return self.step(Input("CMD", self.asked, list(commands)))

    def _id(self) -> str:
        self.asked += 1
        return f"c{self.asked}"

    def submission(self, gpus: int = 1, **more: Any) -> cmd.SubmitJob:
        """A submit command."""
        fields: dict[str, Any] = {"id": self._id(), "user": "ada", "name": "job", "queue": "default", "spec": SPEC}
        fields["request"] = more.pop("request", None) or request(gpus)
        return cmd.SubmitJob(**(fields | more))

    def submit(self, gpus: int = 1, **more: Any) -> str:
        """Submit one job, which must be accepted; its id. It may have been offered at once."""
        return next(e.job for e in self.ask(self.submission(gpus, **more)) if isinstance(e, ev.JobSubmitted))

    def one(self, command: Any) -> Any:
        """The one event that answers a command."""
        answers = [e for e in self.ask(command) if e.cause == f"cmd:{command.id}"]
        assert len(answers) == 1
        return answers[0]

    def cancel(self, job: str) -> Any:
        return self.one(cmd.CancelJob(id=self._id(), user="bob", job=job))

    def hold(self, job: str) -> Any:
        return self.one(cmd.HoldJob(id=self._id(), user="bob", job=job))

    def release(self, job: str) -> Any:
        return self.one(cmd.ReleaseJob(id=self._id(), user="bob", job=job))

    def hold_queue(self, path: str, reason: str = "") -> Any:
        return self.one(cmd.HoldQueue(id=self._id(), user="boss", path=path, reason=reason))

    def drain_queue(self, path: str, reason: str = "") -> Any:
        return self.one(cmd.DrainQueue(id=self._id(), user="boss", path=path, reason=reason))

    def release_queue(self, path: str) -> Any:
        return self.one(cmd.ReleaseQueue(id=self._id(), user="boss", path=path))

    def quota(self, path: str, gpus: int | None) -> Any:
        """A queue's maximum of GPUs."""
        return self.configure(path, maximum={} if gpus is None else {"gpu": gpus * 1000})

    def configure(self, path: str, **settings: Any) -> Any:
        """A queue's settings."""
        entry = QueueEntry(path=path, settings=QueueSettings(**settings))
        return self.apply(queues=(entry,))

    def pool(self, name: str = "default", **settings: Any) -> Any:
        """A pool's settings."""
        return self.apply(pools=(PoolEntry(pool=name, settings=PoolSettings(**settings)),))

    def tree(self, **queues: dict[str, Any]) -> Any:
        """Several queues in one change; "__" in a name stands for the slash of a path."""
        paths = {name.replace("__", "/"): settings for name, settings in queues.items()}
        entries = (QueueEntry(path=path, settings=QueueSettings(**settings)) for path, settings in paths.items())
        return self.apply(queues=tuple(entries))

    def remove(self, path: str, move_to: str = "") -> Any:
        """A queue goes."""
        return self.apply(remove=(QueueRemoval(path=path, move_to=move_to),))

    def move(self, job: str, queue: str) -> Any:
        return self.one(cmd.MoveJob(id=self._id(), user="bob", job=job, queue=queue))

    def apply(self, **change: Any) -> Any:
        """A change of queues and pools; its answer."""
        command = cmd.ApplyQueues(id=self._id(), user="bob", **change)
        answers = [e for e in self.ask(command) if isinstance(e, ev.QueuesApplied | ev.CommandRejected)]
        assert len(answers) == 1
        return answers[0]

    # -- the placer, as it is told

    def says(self, *events: Any) -> None:
        """The placer commits."""
        self.fold("placer", events)

    def node(self, name: str = "n1", **amounts: Any) -> None:
        self.says(
            ev.NodeJoined(
                cause=f"report:{name}:1", node=name, incarnation="i1", boot_id="b1", inventory=inventory(**amounts)
            )
        )

    def attempt(self, job: str) -> int:
        return self.state.jobs[job].attempt

    def place(self, *jobs: str) -> None:
        self.says(*(ev.JobPlaced(cause="1.0", job=job, attempt=self.attempt(job), parts=()) for job in jobs))

    def place_on(self, node: str, gpus: int, *jobs: str) -> None:
        """Each gets so many GPUs of a node, and starts."""
        part = ev.Part(node=node, gpus=tuple(f"g{i}" for i in range(gpus)))
        self.says(*(ev.JobPlaced(cause="1.0", job=job, attempt=self.attempt(job), parts=(part,)) for job in jobs))
        self.start(*jobs)

    def preempt(self, beneficiary: str, *victims: tuple[str, ev.YieldRule]) -> None:
        """These are asked to yield."""
        self.says(
            *(
                ev.PreemptionStarted(
                    cause="1.0", job=job, attempt=self.attempt(job), beneficiary=beneficiary, rule=rule
                )
                for job, rule in victims
            )
        )

    def yielded(self, job: str) -> None:
        """Its run has ended because it was asked to yield."""
        self.end(job, 143, "stopped", preempted=True)

    def decline(self, job: str) -> None:
        """Nobody is asked to yield to it."""
        self.says(ev.PreemptionDeclined(cause="1.0", job=job, attempt=max(1, self.attempt(job))))

    def reserve(self, job: str, *nodes: str) -> None:
        """Nodes are kept for it."""
        self.says(ev.ReservationMade(cause="1.0", job=job, attempt=self.attempt(job), nodes=nodes))

    def unreserve(self, job: str) -> None:
        """No nodes are kept for it."""
        self.says(ev.ReservationEnded(cause="1.0", job=job, attempt=self.attempt(job)))

    def start(self, *jobs: str) -> None:
        self.says(*(ev.RunStarted(cause="report:n1:2", job=job, attempt=self.attempt(job)) for job in jobs))

    def run(self, *jobs: str) -> None:
        """Place and start."""
        self.place(*jobs)
        self.start(*jobs)

    def end(self, job: str, exit_code: int | None = 0, outcome: ev.RunOutcome = "exited", **more: Any) -> None:
        fields: dict[str, Any] = {"released": ("n1",)} | more
        self.says(
            ev.RunEnded(
                cause="report:n1:3", job=job, attempt=self.attempt(job), outcome=outcome, exit_code=exit_code, **fields
            )
        )

    def refuse(self, *jobs: str) -> None:
        self.says(
            *(
                ev.JobUnplaceable(cause="1.0", job=job, attempt=self.attempt(job), reasons={"free_gpus": 1}, nodes=1)
                for job in jobs
            )
        )

    def give_back(self, *jobs: str) -> None:
        self.says(*(ev.OfferReturned(cause="1.0", job=job, attempt=self.attempt(job)) for job in jobs))

    def free_something(self) -> None:
        """Capacity came back somewhere."""
        self.says(ev.AllocationReleased(cause="report:n1:9", job="999999", attempt=1, node="n1"))

    # -- reading

    def said[E: ev.EventBase](self, kind: type[E]) -> list[E]:
        """All events of one type, in order."""
        return [event for commit in self.log for event in commit.events if isinstance(event, kind)]

    def restart(self) -> None:
        """The service starts again from a snapshot."""
        self.core = QueueCore.restore(self.core.snapshot())

    def of(self, job: str) -> str:
        """The job's state."""
        return state_of(self.state, job)

    def offered(self) -> list[str]:
        """Jobs with an open offer, in the order in which the placer takes them."""
        return [job.id for job in sorted(self.state.jobs.values(), key=lambda job: job.rank) if job.open]


def kinds(events: Sequence[Any]) -> list[str]:
    """The types of events, in order."""
    return [type(event).__name__ for event in events]
