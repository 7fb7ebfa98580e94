"""Anything may be asked of a tree of queues that changes all the time, while a placer says what it likes, and every
promise holds.

As in `test_machine.py` the world checks the table of moves, the invariants and a snapshot round trip after every
commit. Here queues, users, pools and limits change under jobs that wait for each other, yield, miss deadlines and move;
and the placer's commits cross the queue's.
"""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlead_bus.core import Input
from fairlead_schemas import commands as cmd
from fairlead_schemas import events as ev
from fairlead_schemas.lifecycle import END_STATES
from fairlead_schemas.queues import (
    Ageing,
    Budget,
    PoolEntry,
    PoolSettings,
    Preemption,
    QueueEntry,
    QueueRemoval,
    QueueSettings,
)
from tests.queue.world import SECOND, World, request

PATHS = ("a", "b", "c", "c/x", "c/y")
pick = st.integers(0, 10**6)
amounts = st.dictionaries(
    st.sampled_from(["gpu", "gpu", "cpu", "gpu:a100"]), st.sampled_from([0, 2_000, 4_000, 9_000]), max_size=2
)
queue_settings = st.builds(
    QueueSettings, guaranteed=amounts, maximum=amounts, borrowing=amounts, lending=amounts,
    weight=st.sampled_from([1, 1, 3]), priority=st.sampled_from([0, 0, 5]),
    users=st.sampled_from([{}, {}, {"*": {"gpu": 2_000}}, {"ada": {"gpu": 1_000}}]),
    budget=st.sampled_from([None, None, Budget(gpu_milli_s=20_000, period="day"), Budget(gpu_milli_s=20_000, when_spent="demote")]),
    preemption=st.sampled_from([Preemption(protect_ns=0), Preemption(protect_ns=0, rebalance=True)]),
)  # fmt: skip
pool_settings = st.builds(
    PoolSettings, sequencer=st.sampled_from(["drf", "fifo", "lifo", "fairshare", "promised"]),
    half_life_ns=st.sampled_from([0, 600 * SECOND]), ageing=st.sampled_from([None, Ageing(every_ns=5 * SECOND, most=3)]),
    patience_ns=st.sampled_from([3 * SECOND, 300 * SECOND]),
)  # fmt: skip


class Watched(World):
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


class TreeMachine(RuleBasedStateMachine):
    """A queue core between people who change their minds and a random placer."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Watched()
        self.world.node("n1", gpus=8, model="a100")
        self.world.node("n2", gpus=4)
        self.world.apply(queues=tuple(QueueEntry(path=path, settings=QueueSettings()) for path in PATHS))
        self.open: dict[str, int] = {}
        self.back: set[str] = set()
        self.runs: dict[str, int] = {}
        self.started: set[str] = set()
        self.pleas: dict[str, ev.PreemptionRequested] = {}
        self.claims: set[str] = set()
        self.accepted: set[str] = set()
        self.ended: set[str] = set()
        self.seen = 0
        self.number = 0
        self.learn()

    # -- what the placer learns from the log

    def learn(self) -> None:
        for commit in self.world.log[self.seen :]:
            for event in commit.events:
                self._learn_one(event)
        self.seen = len(self.world.log)

    def _learn_one(self, event: Any) -> None:
        match event:
            case ev.JobSubmitted():
                self.accepted.add(event.job)
            case ev.JobOffered():
                if event.job not in self.runs:  # else its new rank came too late
                    assert self.open.setdefault(event.job, event.attempt) == event.attempt
                    self.accepted.add(event.job)
            case ev.JobRecalled() | ev.JobStopRequested() if event.job in self.open:
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

    @rule(
        gpus=st.integers(0, 5), path=st.sampled_from(PATHS), user=st.sampled_from(["ada", "b/ob"]),
        priority=st.sampled_from([10, 50]), limit=st.sampled_from([0, 9 * SECOND]), elements=st.sampled_from([0, 0, 0, 3]),
        most=st.integers(0, 2), times=st.tuples(st.sampled_from([0, 0, 3]), st.sampled_from([0, 0, 20]), st.sampled_from([0, 0, 2])),
        others=st.lists(st.tuples(pick, st.sampled_from(["succeeded", "failed", "ended"])), max_size=2), model=st.sampled_from(["", "a100"]),
    )  # fmt: skip
    def submit(
        self, gpus: int, path: str, user: str, priority: int, limit: int, elements: int, most: int,
        times: tuple[int, int, int], others: list[tuple[int, Any]], model: str,
    ) -> None:  # fmt: skip
        now, (start, deadline, slice_) = self.world.now, times
        after = {self.known(choice): state for choice, state in others}
        self.world.ask(
            self.world.submission(
                request=request(gpus, model=model), queue=path, user=user, priority=priority, total_ns=limit, retries=1,
                array=(0, elements - 1) if elements else None, array_limit=most if elements else 0,
                start_at_ns=now + start * SECOND if start else 0, deadline_ns=now + deadline * SECOND if deadline else 0,
                slice_ns=slice_ * SECOND, after=tuple(ev.Dependency(job=job, state=state) for job, state in after.items()),
            )
        )  # fmt: skip
        self.learn()

    @rule(choice=pick, kind=st.sampled_from([cmd.CancelJob, cmd.HoldJob, cmd.ReleaseJob]))
    def command(self, choice: int, kind: Any) -> None:
        self.ask(kind(id=self.new_id(), user="bob", job=self.known(choice)))

    @rule(choice=pick, path=st.sampled_from(PATHS))
    def move(self, choice: int, path: str) -> None:
        self.ask(cmd.MoveJob(id=self.new_id(), user="bob", job=self.known(choice), queue=path))

    @rule(
        changed=st.dictionaries(st.sampled_from(PATHS), queue_settings, min_size=1, max_size=2), reclaim=st.booleans()
    )
    def configure(self, changed: dict[str, QueueSettings], reclaim: bool) -> None:
        entries = tuple(QueueEntry(path=path, settings=each) for path, each in changed.items())
        self.ask(cmd.ApplyQueues(id=self.new_id(), queues=entries, reclaim=reclaim))

    @rule(path=st.sampled_from(PATHS), move_to=st.sampled_from(["", *PATHS]))
    def remove(self, path: str, move_to: str) -> None:
        self.ask(cmd.ApplyQueues(id=self.new_id(), remove=(QueueRemoval(path=path, move_to=move_to),)))

    @rule(changed=pool_settings)
    def pool(self, changed: PoolSettings) -> None:
        self.ask(cmd.ApplyQueues(id=self.new_id(), pools=(PoolEntry(pool="default", settings=changed),)))

    def new_id(self) -> str:
        self.number += 1
        return f"m{self.number}"

    def ask(self, *commands: Any) -> None:
        self.world.ask(*commands)
        self.learn()

    # -- the placer

    @rule(choice=pick, action=st.integers(0, 8))
    def act(self, choice: int, action: int) -> None:
        """One thing that a placer may say now."""
        event = self._event(choice, action)
        if event is not None:
            self.world.says(event)

    @rule(choice=pick, action=st.integers(0, 8), kind=st.sampled_from([None, cmd.CancelJob, cmd.HoldJob, cmd.MoveJob]))
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
        ends: tuple[tuple[ev.RunOutcome, int | None, bool], ...] = (
            ("exited", 0, False),
            ("exited", 1, False),
            ("stopped", 143, True),
            ("node_lost", None, False),
        )
        outcome, code, yields = ends[choice % 4]
        return ev.RunEnded(
            cause="report:n1:2", job=job, attempt=self.runs.pop(job), outcome=outcome, exit_code=code, preempted=yields,
            released=("n1",) if choice % 3 else (),
        )  # fmt: skip

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

    @rule()
    def restart(self) -> None:
        self.world.restart()

    # -- promises

    @precondition(lambda self: self.seen == len(self.world.log))
    @invariant()
    def every_accepted_job_is_live_or_has_ended_once(self) -> None:
        live = set(self.world.state.jobs)
        assert live | self.ended == self.accepted
        assert not live & self.ended
        assert set(self.world.state.finished.values()) <= END_STATES

    @invariant()
    def the_placer_and_the_queue_agree_on_open_offers(self) -> None:
        self.learn()
        assert set(self.open) == set(self.world.offered())

    def teardown(self) -> None:
        """Once the limits are gone and every run ends well, every job comes to its end."""
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
TestTreeMachine = TreeMachine.TestCase
TestTreeMachine.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=SLOW_BY_NATURE
)
