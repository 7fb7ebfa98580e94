"""Runs that yield so that a queue's amounts come free, and that no set of victims holds one too many."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_bus.core import Input
from fairlead_placer.core import PlacerCore
from fairlead_placer.scheduling.preempt import charge_of
from fairlead_schemas.queuefile.settings import MODEL_LABEL
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.reports import ExitSeen, ReportBatch
from tests.kit.placer_world import PlacerWorld, cluster, names, placed, request


def plea(job: str, *victims: str, amounts: dict[str, int] | None = None) -> ev.PreemptionRequested:
    """The queue names who may yield, in order; what must come free under a queue, or nothing."""
    named = tuple(ev.Victim(job=v, attempt=1, rule="over_share", gpu_s=int(v) * 7 % 5) for v in victims)
    return ev.PreemptionRequested(
        cause="clock", job=job, attempt=1, victims=named, queue="research", amounts=amounts or {}
    )


def asked(events: list[ev.Event]) -> list[str]:
    """Return the runs to be preempted, in order."""
    return [e.job for e in events if isinstance(e, ev.PreemptionStarted)]


def running(*requests: Any) -> PlacerWorld:
    """A node on which these run, as jobs 1, 2, 3 …"""
    world = cluster(2, 16, labels={MODEL_LABEL: "H100"})
    for wanted in requests:
        world.offer(wanted)
    return world


# ---------------------------------------------------------------------------- amounts


def test_amounts_are_taken_from_the_first_and_no_more_than_must() -> None:
    """In order until they are covered; who is not needed in the end is spared. No node is kept for anybody."""
    world = running(request(1), request(1), request(4), request(4))
    events = world.queue(plea("77", "1", "2", "3", "4", amounts={"gpu": 4000}))
    cause = f"{len(world.log) - 1}.0"
    assert events == [
        ev.PreemptionStarted(cause=cause, job="3", attempt=1, beneficiary="77", rule="over_share"),
    ]
    assert (world.core.state.reservations, world.core.state.preemption_requests) == ({}, {})
    assert world.stops("n1")["3.1"] == "preempted"
    [ended] = world.exit("n1", "3", outcome="stopped", exit_code=None)
    assert isinstance(ended, ev.RunEnded)
    assert ended.preempted


def test_every_resource_must_be_covered() -> None:
    """GPU, CPU and memory, over all nodes of a gang."""
    world = running(request(2, cpu=1), request(0, cpu=8, memory_gib=4), request(1, nodes=2, cpu=2, memory_gib=8))
    wanted = {"gpu": 2000, "cpu": 4000, "memory": 16 * 1024}
    assert asked(world.queue(plea("77", "1", "2", "3", amounts=wanted))) == ["3"]
    world = running(request(2, cpu=1), request(0, cpu=8, memory_gib=4), request(1, nodes=2, cpu=2, memory_gib=8))
    assert asked(world.queue(plea("77", "2", "1", "3", amounts={"gpu": 3000, "cpu": 9000}))) == ["2", "1", "3"]


def test_a_model_is_covered_by_the_jobs_that_selected_it() -> None:
    """A GPU counts for its class if its job selects the model, and for GPUs as such."""
    world = running(request(4), request(2, selector=(f"{MODEL_LABEL}=H100",)))
    assert asked(world.queue(plea("77", "1", "2", amounts={"gpu:H100": 2000}))) == ["2"]
    assert charge_of(request(2, nodes=3, cpu=4, selector=("a=b", f"{MODEL_LABEL}=H100"))) == {
        "gpu": 6000,
        "cpu": 12_000,
        "memory": 3072,
        "gpu:H100": 6000,
    }


def test_nothing_is_preempted_if_the_amounts_do_not_suffice() -> None:
    """The request is declined without reasons, because nodes do not matter."""
    world = running(request(1), request(1))
    events = world.queue(plea("77", "1", "2", "55", amounts={"gpu": 3000}))
    assert events == [ev.PreemptionDeclined(cause=f"{len(world.log) - 1}.0", job="77", attempt=1)]
    assert set(world.stops("n1").values()) == {""}
    assert names(world.queue(plea("77", "1", amounts={"tpu": 1}))) == ["PreemptionDeclined"]


def test_a_stopping_run_contributes_its_amounts() -> None:
    """Fewer other victims are needed; if it suffices, none is, and the request is declined."""
    world = running(request(2), request(2), request(2))
    world.queue(ev.JobStopRequested(cause="cmd:c", job="2", attempt=1, reason="cancelled"))
    assert asked(world.queue(plea("77", "1", "2", "3", amounts={"gpu": 4000}))) == ["1"]
    [declined] = world.queue(plea("78", "1", "2", "3", amounts={"gpu": 4000}))
    assert isinstance(declined, ev.PreemptionDeclined)
    assert declined.reasons == {}


def test_an_ended_run_that_is_not_settled_yet_contributes_its_amounts() -> None:
    """The queue could not know at its request; once it has answered the end, it does."""
    world = running(request(2), request(2))
    world.exit("n1", "1")
    assert names(world.queue(plea("77", "1", "2", amounts={"gpu": 2000}))) == ["PreemptionDeclined"]
    world.queue(ev.JobSucceeded(cause="clock", job="1", attempt=1))
    assert asked(world.queue(plea("77", "1", "2", amounts={"gpu": 2000}))) == ["2"]


def test_elements_are_charged_as_their_array() -> None:
    """The amounts of an element are in its array's request."""
    world = cluster(1, 8)
    submitted, _ = world.submitted(request(3))
    world.queue(submitted, ev.JobOffered(cause="clock", job="1_4", attempt=1, rank=1))
    victim = ev.Victim(job="1_4", attempt=1, rule="over_guarantee")
    wanted = ev.PreemptionRequested(
        cause="clock", job="9", attempt=1, victims=(victim,), queue="q", amounts={"gpu": 3000}
    )
    assert asked(world.queue(wanted)) == ["1_4"]


def test_a_job_that_ends_before_its_request_is_answered_gets_no_answer() -> None:
    """Cancelled while it waits, in the same commit."""
    world = running(request(2))
    gone = ev.JobCancelled(cause="cmd:c", job="77")
    assert world.queue(plea("77", "1", amounts={"gpu": 1000}), gone) == []


# ---------------------------------------------------------------------------- no more than must


def after(world: PlacerWorld, gone: set[str]) -> list[ev.Event]:
    """Return the decision after these runs ended and were clean: on a copy."""
    core = PlacerCore.restore(world.core.snapshot())
    inputs: list[Input] = []
    for name, node in sorted(core.state.nodes.items()):
        ends: list[Any] = []
        for key, rank in sorted(node.held.items()):
            run = core.state.runs[key]
            if run.job in gone:
                n = node.reported + 1 + len(ends)
                ends.append(ExitSeen(n=n, job=run.job, attempt=1, rank=rank, outcome="stopped", clean=True))
        if ends:
            inputs.append(
                Input("report", ends[-1].n, ReportBatch(node=name, incarnation=node.incarnation, reports=ends))
            )
    return core.decide(inputs, world.now).events


@settings(max_examples=150, deadline=None)
@given(
    nodes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    jobs=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 2), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=9
    ),
    wanted=st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(0, 6)),
    data=st.data(),
)
def test_those_asked_make_room_and_none_of_them_is_one_too_many(
    nodes: list[int], jobs: list[tuple[int, int, int, int]], wanted: tuple[int, int, int], data: st.DataObject
) -> None:
    """If all that were asked end, the job is placed on the nodes kept for it; leave one out, and it is not. If it is
    declined, the end of all who were named would not have helped."""
    world = PlacerWorld()
    for i, gpus in enumerate(nodes):
        world.join(f"n{i}", gpus, cpu=6, memory_gib=6)
    for gpus, count, cpu, memory in jobs:
        world.offer(request(gpus, nodes=count, cpu=cpu, memory_gib=memory))
    for job in sorted(world.core.state.offers):
        world.queue(ev.OfferWithdrawn(cause="cmd:h", job=job, attempt=1, reason="hold"))
    world.offer(request(wanted[0], nodes=wanted[1], cpu=wanted[2]))
    job = str(world.jobs)
    named = data.draw(st.permutations(sorted(run.job for run in world.core.state.runs.values())))
    named = named[: data.draw(st.integers(0, len(named)))]
    if job not in world.core.state.offers:
        return
    events = world.queue(plea(job, *named))
    chosen = set(asked(events))
    assert chosen <= set(named)
    if "PreemptionDeclined" in names(events):
        assert chosen == set()
        assert job not in placed(after(world, set(named)))
        return
    [kept] = [e.nodes for e in events if isinstance(e, ev.ReservationMade)]
    assert placed(after(world, chosen))[job] == list(kept)
    for one in chosen:
        assert job not in placed(after(world, chosen - {one}))
