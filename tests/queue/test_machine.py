"""Anything may be asked in any order, by people and by the placer, and the promises hold.

The model is naive: a dict of what the placer holds, and sets of ids. After every commit the world
checks the table of moves, the invariants and a snapshot round trip; every decision leaves the state
alone and is the same from a restored core.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from fairlead_bus.core import Input
from fairlead_queue.limits import PARKED_OFFERS_MAX
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, request
from tests.queue.live_jobs import LiveJobs

QUOTAS = {"default": None, "small": 4000, "none": 0}
pick = st.integers(0, 10**6)


class QueueMachine(LiveJobs):
    """A queue core between random people and a random placer."""

    def __init__(self) -> None:
        super().__init__()
        self.world = QueueWorld()
        self.world.quota("small", 4)
        self.world.quota("none", 0)
        self.asked_back: dict[str, int] = {}
        self.placed_attempts: set[tuple[str, int]] = set()
        self.seen = len(self.world.log)

    # -- what the placer learns from the log

    def learn_one(self, event: ev.Event) -> None:
        match event:
            case ev.JobSubmitted():
                self.accepted.add(event.job)
            case ev.JobOffered() if event.job in self.open:
                assert self.open[event.job] == event.attempt
            case ev.JobOffered():
                assert event.job not in self.runs
                assert (event.job, event.attempt) not in self.placed_attempts, "offered again after it was placed"
                self.accepted.add(event.job)
                self.open[event.job] = event.attempt
            case ev.OfferWithdrawn() | ev.JobStopRequested() if event.job in self.open:
                self.asked_back[event.job] = event.attempt
            case ev.JobSucceeded() | ev.JobFailed() | ev.JobCancelled():
                assert event.job not in self.ended, "two ends"
                assert event.job not in self.open
                assert event.job not in self.runs
                self.ended.add(event.job)
            case _:
                pass

    def ask(self, make: Any) -> None:
        self.number += 1
        self.world.ask(make(f"m{self.number}"))
        self.learn()

    def known(self, choice: int) -> str:
        """Some job that exists, has existed, or does not."""
        jobs = [*sorted(self.world.state.jobs), *sorted(self.ended)[-3:], "1_7", "404"]
        return jobs[choice % len(jobs)]

    # -- people

    @rule(
        gpus=st.integers(0, 5),
        queue=st.sampled_from(sorted(QUOTAS)),
        priority=st.sampled_from([10, 50, 90]),
        retries=st.integers(0, 1),
        limit=st.sampled_from([0, 5 * SECOND]),
        delay=st.sampled_from([0, 0, 7 * SECOND]),
        elements=st.sampled_from([0, 0, 1, 3, 30]),
    )
    def submit(self, gpus: int, queue: str, priority: int, retries: int, limit: int, delay: int, elements: int) -> None:
        submission = self.world.submission(
            request=request(gpus),
            queue=queue,
            priority=priority,
            retries=retries,
            total_ns=limit,
            start_at_ns=self.world.now + delay if delay else 0,
            array=(0, elements - 1) if elements else None,
        )
        self.world.ask(submission)
        self.learn()

    @rule(choice=pick, kind=st.sampled_from([cmd.CancelJob, cmd.HoldJob, cmd.ReleaseJob]))
    def command(self, choice: int, kind: Any) -> None:
        job = self.known(choice)
        self.ask(lambda id_: kind(id=id_, user="bob", job=job))

    @rule(choice=pick)
    def cross(self, choice: int) -> None:
        """A cancel and a hold in one message: the second is decided upon the first."""
        job = self.known(choice)
        self.world.ask(cmd.HoldJob(id="x", job=job), cmd.CancelJob(id="y", job=job), cmd.ReleaseJob(id="z", job=job))
        self.learn()

    @precondition(lambda self: self.open or self.runs)
    @rule(choice=pick, kind=st.sampled_from([cmd.CancelJob, cmd.HoldJob]), code=st.sampled_from([0, 1]))
    def crossing(self, choice: int, kind: Any, code: int) -> None:
        """The queue decides, and before its commit is in the log the placer's is: about the very same job."""
        candidates = sorted(self.asked_back) or sorted(self.open.keys() | self.runs.keys())
        job = candidates[choice % len(candidates)]
        message = Input("CMD", 1, [kind(id="x", user="bob", job=job)])
        events = self.world.decide(message)
        if job in self.asked_back:
            self.give_back(sorted(self.asked_back).index(job))
        elif job in self.open:
            self.place(sorted(self.open).index(job))
            if choice % 3 == 0:
                self.start(sorted(self.runs.keys() - self.started).index(job))
        else:
            self.end(sorted(self.runs).index(job), code, True, False, "exited")
        self.world.fold("queue", events, {"CMD": 1})
        self.learn()

    # -- the placer

    @precondition(lambda self: self.open)
    @rule(choice=pick)
    def place(self, choice: int) -> None:
        job = sorted(self.open)[choice % len(self.open)]
        attempt = self.open.pop(job)
        self.asked_back.pop(job, None)
        self.runs[job] = attempt
        self.placed_attempts.add((job, attempt))
        self.world.says(ev.JobPlaced(cause="1.0", job=job, attempt=attempt, parts=()))

    @precondition(lambda self: self.open)
    @rule(choice=pick)
    def refuse(self, choice: int) -> None:
        job = sorted(self.open)[choice % len(self.open)]
        self.world.says(ev.JobUnplaceable(cause="1.0", job=job, attempt=self.open[job], reasons={}, nodes=1))

    @precondition(lambda self: self.asked_back)
    @rule(choice=pick)
    def give_back(self, choice: int) -> None:
        job = sorted(self.asked_back)[choice % len(self.asked_back)]
        attempt = self.asked_back.pop(job)
        del self.open[job]
        self.world.says(ev.OfferReturned(cause="1.0", job=job, attempt=attempt))

    @precondition(lambda self: self.runs.keys() - self.started)
    @rule(choice=pick)
    def start(self, choice: int) -> None:
        waiting = sorted(self.runs.keys() - self.started)
        job = waiting[choice % len(waiting)]
        self.started.add(job)
        self.world.says(ev.RunStarted(cause="report:n1:1", job=job, attempt=self.runs[job]))

    @precondition(lambda self: self.runs)
    @rule(
        choice=pick,
        code=st.sampled_from([0, 0, 1]),
        released=st.booleans(),
        drained=st.booleans(),
        outcome=st.sampled_from(["exited", "exited", "stopped", "start_failed", "node_lost", "exit_unknown"]),
    )
    def end(self, choice: int, code: int, released: bool, drained: bool, outcome: Any) -> None:
        job = sorted(self.runs)[choice % len(self.runs)]
        attempt = self.runs.pop(job)
        self.started.discard(job)
        self.world.says(
            ev.RunEnded(
                cause="report:n1:2",
                job=job,
                attempt=attempt,
                outcome=outcome,
                exit_code=code,
                drained=drained,
                preempted=outcome == "stopped" and not drained,
                released=("n1",) if released else (),
            )
        )

    # -- telemetry

    @precondition(lambda self: self.runs)
    @rule(
        choice=pick,
        action=st.sampled_from(["stop", "requeue", "shrink", "warn"]),
        on_demand=st.booleans(),
        idle=st.sampled_from(["utilization", "interaction"]),
        stale=st.booleans(),
    )
    def lie_idle(self, choice: int, action: Any, on_demand: bool, idle: Any, stale: bool) -> None:
        job = sorted(self.runs)[choice % len(self.runs)]
        event = ev.ReclaimRequested(
            cause="clock",
            job=job,
            attempt=self.runs[job] - stale,
            scope="global",
            rule=idle,
            action=action,
            on_demand=on_demand,
            since_ns=1,
            evidence=(),
        )
        self.world.fold("telemetry", [event])

    @precondition(lambda self: self.runs)
    @rule(choice=pick, idle=st.sampled_from(["utilization", "interaction"]), extend=st.booleans())
    def come_back(self, choice: int, idle: Any, extend: bool) -> None:
        job = sorted(self.runs)[choice % len(self.runs)]
        attempt = self.runs[job]
        used = ev.JobActive(cause="clock", job=job, attempt=attempt, rule=idle, reason="active")
        more = ev.JobExtended(cause="cmd:c", job=job, attempt=attempt, until_ns=10**18, count=1)
        self.world.fold("telemetry", [more if extend else used])

    @precondition(lambda self: self.runs and self.open)
    @rule(choice=pick)
    def yield_what_lies_idle(self, choice: int) -> None:
        """Let the placer preempt an idle run, whether the queue knows of its activity or not."""
        job, beneficiary = sorted(self.runs)[choice % len(self.runs)], sorted(self.open)[choice % len(self.open)]
        self.world.says(
            ev.PreemptionStarted(cause="1.0", job=job, attempt=self.runs[job], beneficiary=beneficiary, rule="idle")
        )

    @rule()
    def capacity(self) -> None:
        self.world.free_something()

    # -- time and the shell

    @rule(seconds=st.sampled_from([1, 5, 130, 700]))
    def wait(self, seconds: int) -> None:
        self.world.now += seconds * SECOND

    @rule()
    def settle(self) -> None:
        self.world.settle(cycles_max=200)
        self.learn()

    # -- promises

    @invariant()
    def quota_is_never_exceeded(self) -> None:
        for path, quota in QUOTAS.items():
            assert quota is None or self.world.charged(path) <= quota

    def teardown(self) -> None:
        """Check that every job ends once no stop is requested and every run succeeds."""
        for _ in range(400):
            self.settle()
            for job, live in list(self.world.state.jobs.items()):
                if live.state == "held":
                    self.ask(lambda id_, job=job: cmd.ReleaseJob(id=id_, job=job))
            for job in list(self.asked_back):
                self.give_back(sorted(self.asked_back).index(job))
            for job in list(self.open):
                self.place(sorted(self.open).index(job))
            for job in list(self.runs):
                self.end(sorted(self.runs).index(job), 0, True, False, "exited")
            self.world.now += 700 * SECOND
            if not self.runs and not self.open and self.world.settle() == []:
                break
        stuck = {job.id: job for job in self.world.state.jobs.values()}
        for job in stuck.values():
            quota = QUOTAS[job.lane.leaf.queue.path]
            assert quota is not None, f"{job.id} is stuck as {job.state}"
            assert job.lane.request_class.need[0] > quota, f"{job.id} is stuck as {job.state}"


assert PARKED_OFFERS_MAX < 30, "an array of 30 is to meet the bound of a parked class"
SLOW_BY_NATURE = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
TestQueueMachine = pytest.mark.slow(QueueMachine.TestCase)
TestQueueMachine.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=SLOW_BY_NATURE
)
