"""Anything may be asked of a tree of queues that changes all the time, while a placer says what it likes, and every
promise holds.

As in `test_machine.py` the world checks the table of moves, the invariants and a snapshot round trip after every
commit. Here queues, users, pools and limits change under jobs that wait for each other, yield, miss deadlines and move;
and the placer's commits cross the queue's.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from fairlead_bus.core import Input
from fairlead_schemas.queuefile.settings import (
    Ageing,
    Budget,
    PoolEntry,
    PoolSettings,
    Preemption,
    QueueEntry,
    QueueRemoval,
    QueueSettings,
)
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, request
from tests.queue.live_jobs import LiveJobs

PATHS = ("a", "b", "c", "c/x", "c/y")
pick = st.integers(0, 10**6)
LIMITS: list[dict[str, Any]] = [
    {}, {}, {"maximum": {"gpu": 4_000}}, {"guaranteed": {"gpu": 2_000}}, {"guaranteed": {"gpu": 2_000}, "lending": {"gpu": 0}},
    {"guaranteed": {"gpu": 2_000}, "borrowing": {"gpu": 2_000}}, {"maximum": {"cpu": 3_000}}, {"maximum": {"gpu:a100": 4_000}},
    {"maximum": {"gpu": 1_000}}, {"users": {"*": {"gpu": 2_000}}}, {"users": {"ada": {"gpu": 1_000}}},
    {"budget": Budget(gpu_milli_s=20_000, period="day")}, {"budget": Budget(gpu_milli_s=20_000, when_spent="demote")},
    {"preemption": Preemption(protect_ns=0, rebalance=True)}, {"weight": 3, "priority": 5}, {"guaranteed": {"gpu": -1}},
]  # fmt: skip


def _settled(limits: dict[str, Any]) -> QueueSettings:
    """These limits, and runs that are not protected."""
    fields: dict[str, Any] = {"preemption": Preemption(protect_ns=0)} | limits
    return QueueSettings(**fields)


queue_settings = st.sampled_from(LIMITS).map(_settled)
pool_settings = st.builds(
    PoolSettings,
    sequencer=st.sampled_from(["drf", "fifo", "lifo", "fairshare", "promised"]),
    half_life_ns=st.sampled_from([0, 600 * SECOND]),
    ageing=st.sampled_from([None, Ageing(every_ns=5 * SECOND, most=3)]),
    patience_ns=st.sampled_from([3 * SECOND, 300 * SECOND]),
)


#: How a run may end: outcome, exit code, whether it yielded.
HOW: list[tuple[ev.RunOutcome, int | None, bool]] = [
    ("exited", 0, False),
    ("exited", 1, False),
    ("stopped", 143, True),
    ("node_lost", None, False),
]
jobs_of = st.fixed_dictionaries({
    "gpus": st.sampled_from([0, 1, 1, 2, 4, 5]), "queue": st.sampled_from(PATHS), "user": st.sampled_from(["ada", "b/ob"]),
    "priority": st.sampled_from([10, 50]), "total_ns": st.sampled_from([0, 0, 9 * SECOND]), "slice_ns": st.sampled_from([0, 0, SECOND]),
    "array": st.sampled_from([None, None, None, (0, 2)]), "array_limit": st.sampled_from([0, 1, 2]),
    "start_at_ns": st.sampled_from([0, 0, 0, 3 * SECOND]), "deadline_ns": st.sampled_from([0, 0, 0, 20 * SECOND]),
    "others": st.lists(st.tuples(pick, st.sampled_from(["succeeded", "failed", "ended"])), max_size=1) | st.just([]),
    "model": st.sampled_from(["", "a100", "a100"]),
})  # fmt: skip


class Watched(QueueWorld):
    """A world that sees every commit of the queue raise no charge above a limit."""

    def fold(self, writer: str, events: Any, cursors: dict[str, int] | None = None) -> None:
        before = {
            node.path: node.usage.copy() for pool in self.state.pools.values() for node in pool.tree.nodes.values()
        }
        super().fold(writer, events, cursors)
        reshaped = any(isinstance(e, ev.QueueConfigured | ev.QueueRemoved | ev.PoolConfigured) for e in events)
        for pool in self.state.pools.values():
            for node in pool.tree.nodes.values():
                for at, used in enumerate(node.usage):
                    if used > node.ceiling[at] and not reshaped:
                        assert used <= before[node.path][at], f"{node.path} was raised to {used} of {node.ceiling[at]}"


class TreeMachine(LiveJobs):
    """A queue core between people who change their minds and a random placer."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Watched()
        self.world.node("n1", gpus=8, model="a100")
        self.world.node("n2", gpus=4)
        self.world.apply(queues=tuple(QueueEntry(path=path, settings=QueueSettings()) for path in PATHS))
        self.back: set[str] = set()
        self.pleas: dict[str, ev.PreemptionRequested] = {}
        self.claims: set[str] = set()
        self.learn()

    # -- what the placer learns from the log

    def learn_one(self, event: ev.Event) -> None:
        match event:
            case ev.JobSubmitted():
                self.accepted.add(event.job)
            case ev.JobOffered():
                if event.job not in self.runs:  # else its new rank came too late
                    assert self.open.setdefault(event.job, event.attempt) == event.attempt
                    self.accepted.add(event.job)
            case ev.OfferWithdrawn() | ev.JobStopRequested() if event.job in self.open:
                self.back.add(event.job)
            case ev.PreemptionRequested():
                self.pleas[event.job] = event
            case ev.ReservationRequested():
                self.claims.add(event.job)
            case ev.JobSucceeded() | ev.JobFailed() | ev.JobCancelled():
                assert event.job not in self.ended, "two ends"
                assert event.job not in self.open and event.job not in self.runs
                self.ended.add(event.job)
            case _:
                pass

    def known(self, choice: int) -> str:
        jobs = [*sorted(self.world.state.jobs), *sorted(self.ended)[-3:], "404"]
        return jobs[choice % len(jobs)]

    # -- people

    @rule(jobs=st.lists(jobs_of, min_size=1, max_size=4))
    def submit(self, jobs: list[dict[str, Any]]) -> None:
        self.world.ask(*(self.world.submission(**self._fields(each)) for each in jobs))
        self.learn()

    def _fields(self, each: dict[str, Any]) -> dict[str, Any]:
        now, fields = self.world.now, dict(each)
        after = {self.known(choice): state for choice, state in fields.pop("others")}
        gpus, model = fields.pop("gpus"), fields.pop("model")
        for name in ("start_at_ns", "deadline_ns"):
            fields[name] = now + fields[name] if fields[name] else 0
        if fields["array"] is None:
            fields["array_limit"] = 0
        more = tuple(ev.Dependency(job=job, state=state) for job, state in after.items())
        return fields | {"request": request(gpus, model=model), "after": more, "retries": 1}

    @rule(choice=pick, kind=st.sampled_from([cmd.CancelJob, cmd.HoldJob, cmd.ReleaseJob]))
    def command(self, choice: int, kind: Any) -> None:
        self.ask(kind(id=self.new_id(), user="bob", job=self.known(choice)))

    @rule(choice=pick, path=st.sampled_from(PATHS))
    def move(self, choice: int, path: str) -> None:
        self.ask(cmd.MoveJob(id=self.new_id(), user="bob", job=self.known(choice), queue=path))

    @rule(
        kind=st.sampled_from(["queue", "queue", "queue", "remove", "pool"]),
        path=st.sampled_from(PATHS),
        changed=queue_settings,
        move_to=st.sampled_from(["", *PATHS]),
        reclaim=st.booleans(),
        pool=pool_settings,
    )
    def reshape(
        self, kind: str, path: str, changed: QueueSettings, move_to: str, reclaim: bool, pool: PoolSettings
    ) -> None:
        change: dict[str, Any] = {"pools": (PoolEntry(pool="default", settings=pool),)}
        if kind == "queue":
            change = {"queues": (QueueEntry(path=path, settings=changed),)}
        elif kind == "remove":
            change = {"remove": (QueueRemoval(path=path, move_to=move_to),)}
        self.ask(cmd.ApplyQueues(id=self.new_id(), reclaim=reclaim, **change))

    def new_id(self) -> str:
        self.number += 1
        return f"m{self.number}"

    def ask(self, *commands: Any) -> None:
        self.world.ask(*commands)
        self.learn()

    # -- the placer

    @rule(said=st.lists(st.tuples(pick, st.integers(0, 10)), min_size=1, max_size=6))
    def act(self, said: list[tuple[int, int]]) -> None:
        """Some things that a placer may say now."""
        events = [event for choice, action in said if (event := self._event(choice, action)) is not None]
        if events:
            self.world.says(*events)

    @rule(choice=pick, action=st.integers(0, 10), kind=st.sampled_from([None, cmd.CancelJob, cmd.HoldJob, cmd.MoveJob]))
    def cross(self, choice: int, action: int, kind: Any) -> None:
        """The queue decides, and before its commit is in the log the placer's is."""
        job = self.known(choice)
        asked = [] if kind is None else [kind(id="x", job=job, **({"queue": "b"} if kind is cmd.MoveJob else {}))]
        events = self.world.decide(*([Input("CMD", 1, asked)] if asked else []))
        event = self._event(choice, action)
        if event is not None:
            self.world.says(event)
        if events:
            self.world.fold("queue", events, {"CMD": 1} if asked else {})
        self.learn()

    def _event(self, choice: int, action: int) -> Any:
        makers = (
            self._place,
            self._place,
            self._place,
            self._start,
            self._start,
            self._end,
            self._end,
            self._refuse,
            self._give_back,
            self._answer,
            self._keep,
        )
        return makers[action](choice)

    def _place(self, choice: int) -> Any:
        if not self.open:
            return None
        job = sorted(self.open)[choice % len(self.open)]
        attempt = self.runs[job] = self.open.pop(job)
        self.back.discard(job)
        return ev.JobPlaced(cause="1.0", job=job, attempt=attempt, parts=(ev.Part(node="n1", gpus=("g1",)),))

    def _start(self, choice: int) -> Any:
        waiting = sorted(self.runs.keys() - self.started)
        if not waiting:
            return None
        job = waiting[choice % len(waiting)]
        self.started.add(job)
        return ev.RunStarted(cause="report:n1:1", job=job, attempt=self.runs[job])

    def _end(self, choice: int) -> Any:
        if not self.runs:
            return None
        job = sorted(self.runs)[choice % len(self.runs)]
        self.started.discard(job)
        outcome, code, yields = HOW[choice % len(HOW)]
        return ev.RunEnded(
            cause="report:n1:2",
            job=job,
            attempt=self.runs.pop(job),
            outcome=outcome,
            exit_code=code,
            preempted=yields,
            released=("n1",) if choice % 3 else (),
        )

    def _refuse(self, choice: int) -> Any:
        if not self.open:
            return None
        job = sorted(self.open)[choice % len(self.open)]
        return ev.JobUnplaceable(cause="1.0", job=job, attempt=self.open[job], reasons={}, nodes=2)

    def _give_back(self, choice: int) -> Any:
        if not self.back:
            return None
        job = sorted(self.back)[choice % len(self.back)]
        self.back.discard(job)
        return ev.OfferReturned(cause="1.0", job=job, attempt=self.open.pop(job))

    def _answer(self, choice: int) -> Any:
        if not self.pleas:
            return None
        plea = self.pleas.pop(sorted(self.pleas)[choice % len(self.pleas)])
        victim = plea.victims[choice % len(plea.victims)]
        if choice % 2 and self.runs.get(victim.job) == victim.attempt:
            return ev.PreemptionStarted(
                cause="1.0", job=victim.job, attempt=victim.attempt, beneficiary=plea.job, rule=victim.rule
            )
        return ev.PreemptionDeclined(cause="1.0", job=plea.job, attempt=plea.attempt)

    def _keep(self, choice: int) -> Any:
        waiting = sorted(self.claims & self.open.keys())
        if not waiting:
            return None
        job = waiting[choice % len(waiting)]
        if choice % 2:
            return ev.ReservationMade(cause="1.0", job=job, attempt=self.open[job], nodes=("n1",))
        self.claims.discard(job)
        return ev.ReservationEnded(cause="1.0", job=job, attempt=self.open[job])

    # -- time and the shell

    @rule(seconds=st.sampled_from([0.3, 1, 6, 130, 90_000]))
    def wait(self, seconds: float) -> None:
        self.world.now += int(seconds * SECOND)

    @rule()
    def settle(self) -> None:
        self.world.settle(cycles_max=300)
        self.learn()

    @rule(seconds=st.sampled_from([2, 6]))
    def go_on(self, seconds: int) -> None:
        """Time passes, and the order is looked at."""
        self.world.now += seconds * SECOND
        self.settle()

    @rule()
    def restart(self) -> None:
        self.world.restart()

    def teardown(self) -> None:
        """Check that every job ends once the limits are removed and every run succeeds."""
        self.world.careful = False
        entries = tuple(QueueEntry(path=path, settings=QueueSettings()) for path in self.world.state.queues)
        answer = self.world.apply(queues=entries)
        assert isinstance(answer, ev.QueuesApplied)
        self.learn()
        for _ in range(300):
            self.settle()
            if not self.world.state.jobs:
                return
            for job, live in list(self.world.state.jobs.items()):
                if live.state == "held":
                    self.ask(cmd.ReleaseJob(id=self.new_id(), job=job))
            for job in sorted(self.back):
                self.back.discard(job)
                self.world.says(ev.OfferReturned(cause="1.0", job=job, attempt=self.open.pop(job)))
            while (event := self._place(0)) is not None:
                self.world.says(event)
            while self.runs:
                job = min(self.runs)
                self.started.discard(job)
                self.world.says(
                    ev.RunEnded(
                        cause="report:n1:2",
                        job=job,
                        attempt=self.runs.pop(job),
                        outcome="exited",
                        exit_code=0,
                        released=("n1",),
                    )
                )
            self.world.now += 200 * SECOND
        raise AssertionError(
            f"these never end: {[(job.id, job.state, job.wait) for job in self.world.state.jobs.values()]}"
        )


SLOW_BY_NATURE = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
TestTreeMachine = pytest.mark.slow(TreeMachine.TestCase)
TestTreeMachine.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=SLOW_BY_NATURE
)
