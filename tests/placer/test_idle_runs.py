"""Idle runs: the cheapest victims, whatever their loss; spared once they are active."""

from typing import Any

import pytest

from fairlead_placer.core import PlacerCore
from fairlead_schemas.policies.idle import IdleEvidence
from fairlead_schemas.wire import events as ev
from tests.kit.placer_world import PlacerWorld, placed, request
from tests.placer.preemption_requests import asked, made, running

EVIDENCE = (IdleEvidence(signal="gpu", highest=12, mean=3, threshold=50, samples=1200),)


def plea(job: str, *victims: tuple[str, int, ev.YieldRule], **more: Any) -> ev.PreemptionRequested:
    """The queue names who may yield: (job, GPU-seconds, by which rule)."""
    named = tuple(ev.Victim(job=v, attempt=1, rule=rule, gpu_s=gpu_s) for v, gpu_s, rule in victims)
    return ev.PreemptionRequested(cause="clock", job=job, attempt=1, victims=named, **more)


def lie_idle(world: PlacerWorld, *jobs: str, attempt: int = 1, rule: Any = "utilization") -> None:
    """Telemetry asks for them on demand."""
    world.fold(
        "telemetry",
        [
            ev.ReclaimRequested(
                cause="clock",
                job=job,
                attempt=attempt,
                scope="global",
                rule=rule,
                action="stop",
                on_demand=True,
                since_ns=1,
                evidence=EVIDENCE,
            )
            for job in jobs
        ],
    )


def used_again(world: PlacerWorld, job: str) -> None:
    """Record activity of the run."""
    world.fold("telemetry", [ev.JobActive(cause="clock", job=job, attempt=1, rule="utilization", reason="active")])


def extended(world: PlacerWorld, job: str) -> None:
    """Its owner extended it."""
    world.fold("telemetry", [ev.JobExtended(cause="cmd:c", job=job, attempt=1, until_ns=10**18, count=1)])


def test_idle_runs_are_preempted_before_runs_that_would_lose_less() -> None:
    """The loss of an idle run counts as zero; its node is kept, and the waiting job starts there."""
    world = running((4,), (4,))
    world.offer(request(4))
    lie_idle(world, "2")
    events = world.queue(plea("3", ("2", 10**6, "idle"), ("1", 1, "lower_priority")))
    assert (asked(events), made(events)) == (["2"], ("b",))
    assert [e.rule for e in events if isinstance(e, ev.PreemptionStarted)] == ["idle"]
    events = world.exit("b", "2", outcome="stopped", exit_code=None)
    assert placed(events) == {"3": ["b"]}


def test_only_as_many_idle_runs_are_preempted_as_needed() -> None:
    """One for a job that needs one, two for a job that needs both."""
    world = running((2, 2))
    world.offer(request(2))
    lie_idle(world, "1", "2")
    assert len(asked(world.queue(plea("3", ("1", 5, "idle"), ("2", 5, "idle"))))) == 1
    world = running((2, 2))
    world.offer(request(4))
    lie_idle(world, "1", "2")
    assert asked(world.queue(plea("3", ("1", 5, "idle"), ("2", 5, "idle")))) == ["1", "2"]


def test_a_gang_needs_its_nodes_whole() -> None:
    """An idle run on one node frees no room on two: another run is preempted as well."""
    world = running((4,), (2, 2))
    world.offer(request(4, nodes=2))
    lie_idle(world, "1", "2")
    assert asked(world.queue(plea("4", ("1", 9, "idle"), ("2", 9, "idle")))) == []
    events = world.queue(plea("4", ("1", 9, "idle"), ("2", 9, "idle"), ("3", 9, "lower_priority")))
    assert (asked(events), made(events)) == (["1", "2", "3"], ("a", "b"))


@pytest.mark.parametrize("withdraw", [used_again, extended])
@pytest.mark.parametrize("amounts", [{}, {"gpu": 4000}])
def test_a_run_that_is_active_again_is_spared(withdraw: Any, amounts: dict[str, int]) -> None:
    """Although the queue had nominated it earlier; also from a snapshot."""
    world = running((4,))
    world.offer(request(4))
    lie_idle(world, "1")
    withdraw(world, "1")
    world.core = PlacerCore.restore(world.core.snapshot())
    events = world.queue(plea("2", ("1", 5, "idle"), amounts=amounts, queue="q" if amounts else ""))
    assert [type(event) for event in events if not isinstance(event, ev.JobUnplaceable)] == [ev.PreemptionDeclined]
    lie_idle(world, "1", rule="interaction")
    world.core = PlacerCore.restore(world.core.snapshot())
    again = world.queue(plea("2", ("1", 5, "idle"), amounts=amounts, queue="q" if amounts else ""))
    assert asked(again) == ["1"]


def test_of_an_earlier_attempt_or_an_unknown_run_nothing_follows() -> None:
    """The state stays as it was."""
    world = running((4,))
    before = world.core.state.runs["1.1"].idle
    lie_idle(world, "1", attempt=2)
    lie_idle(world, "404")
    assert (before, world.core.state.runs["1.1"].idle) == ((), ())
