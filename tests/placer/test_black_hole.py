"""Nodes that fail different jobs fast, jobs that do not go back to where they failed, and the breaker."""

import msgspec
import pytest

from fairlead_bus.core import Input
from fairlead_schemas import events as ev
from fairlead_schemas.commands import QuarantineNode, ResetBreaker, UncordonNode, UnquarantineNode
from fairlead_schemas.reports import ExitSeen
from fairlead_schemas.resources import Request
from tests.placer.world import SECOND, World, cluster, names, placed, request


def offer(world: World, wanted: Request, user: str, job: str = "") -> list[ev.Event]:
    submitted, offered = world.submitted(wanted, job=job)
    return world.queue(msgspec.structs.replace(submitted, user=user), offered)


def run(world: World, node: str, user: str, *, code: int = 1, lasting: int = 5) -> list[ev.Event]:
    """A job of the user's that must go to the node, and what comes of its end there."""
    offer(world, request(1, selector=(f"kubernetes.io/hostname={node}",)), user)
    job = str(world.jobs)
    world.start(node, job)
    world.now += lasting * SECOND
    return world.exit(node, job, exit_code=code)


def lost(node: str) -> Input:
    """No word from the node for its whole lease."""
    return Input("silent", 0, (node, 120 * SECOND))


def labelled(count: int) -> World:
    """Nodes that can be asked for by name."""
    world = World()
    for i in range(1, count + 1):
        world.join(f"n{i}", 8, labels={"kubernetes.io/hostname": f"n{i}"})
    return world


def test_two_fast_failures_make_a_suspect_and_a_third_quarantine() -> None:
    """Of different users' jobs: one run at a time after the second, none after the third."""
    world = labelled(3)
    assert names(run(world, "n1", "ann")) == ["RunEnded"]
    assert names(run(world, "n1", "bob")) == ["RunEnded", "NodeSuspected"]
    here = request(1, selector=("kubernetes.io/hostname=n1",))
    assert placed(offer(world, here, "cem")) == {"3": ["n1"]}
    [refused] = offer(world, here, "cem")
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons["suspect"] == 1
    world.start("n1", "3")
    events = world.exit("n1", "3", exit_code=1)
    assert names(events)[:2] == ["RunEnded", "NodeQuarantined"]
    assert events[1] == ev.NodeQuarantined(
        cause="clock", node="n1", setter="health", reason="3 different jobs failed fast", jobs=("1", "2", "3")
    )
    assert world.core.state.nodes["n1"].held == {}


@pytest.mark.parametrize(
    ("wanted", "nodes"),
    [
        (request(1), ["n2"]),
        (request(8, nodes=2), ["n2", "n3"]),
        (request(8, nodes=3), ["n1", "n2", "n3"]),
        (request(8, nodes=3, nodes_min=2), ["n2", "n3"]),
        (request(8, also=(request(2),)), ["n2", "n3"]),
    ],
    ids=["one", "gang", "whole cluster", "elastic", "kinds"],
)
def test_a_suspect_node_is_chosen_last(wanted: Request, nodes: list[str]) -> None:
    """The first by name among equal nodes, it is used only where the others have no place for all units."""
    world = labelled(3)
    run(world, "n1", "ann")
    assert names(run(world, "n1", "bob")) == ["RunEnded", "NodeSuspected"]
    [chosen] = placed(offer(world, wanted, "cem")).values()
    assert sorted(chosen) == nodes


def test_a_suspect_node_is_chosen_where_the_others_are_full() -> None:
    """Work does not wait while a node would take it."""
    world = labelled(2)
    run(world, "n1", "ann")
    run(world, "n1", "bob")
    assert placed(offer(world, request(8), "cem")) == {"3": ["n2"]}
    assert placed(offer(world, request(8), "dee")) == {"4": ["n1"]}


def test_a_suspect_node_that_is_kept_for_a_job_takes_it_after_its_one_run() -> None:
    """There is room for both, but one run at a time is all that it gets."""
    world = labelled(1)
    run(world, "n1", "ann")
    assert names(run(world, "n1", "bob")) == ["RunEnded", "NodeSuspected"]
    offer(world, request(1), "cem")
    offer(world, request(1), "cem")
    asked = ev.ReservationRequested(cause="clock", job="4", attempt=1, waited_ns=1)
    assert names(world.queue(asked)) == ["ReservationMade"]
    world.start("n1", "3")
    assert placed(world.exit("n1", "3")) == {"4": ["n1"]}


def test_a_canary_that_does_well_clears_the_node() -> None:
    """Exit 0, or two minutes of work: what failed before is forgotten, and the next in line is placed."""
    for code, lasting in ((0, 1), (1, 120)):
        world = labelled(2)
        run(world, "n1", "ann")
        run(world, "n1", "bob")
        assert names(run(world, "n1", "cem", code=code, lasting=lasting)) == ["RunEnded", "NodeCleared"]
        assert world.core.state.failing == {}


def test_one_users_failures_count_once_unless_his_runs_do_well_elsewhere() -> None:
    """A program that fails everywhere is no fault of the node; one that works on another node is evidence."""
    world = labelled(2)
    for _ in range(4):
        assert names(run(world, "n1", "ann")) == ["RunEnded"]
    assert names(run(world, "n2", "ann", code=0)) == ["RunEnded", "NodeQuarantined"]


def test_elements_of_an_array_are_one_job() -> None:
    """However many of them fail."""
    world = cluster(1)
    submitted, _ = world.submitted(request(1), job="7")
    offers = [ev.JobOffered(cause="clock", job=f"7_{i}", attempt=1, rank=i) for i in range(4)]
    world.queue(msgspec.structs.replace(submitted, array=(0, 3)), *offers)
    for i in range(4):
        assert "NodeSuspected" not in names(world.exit("n1", f"7_{i}", exit_code=1))


def test_old_failures_do_not_count() -> None:
    """Ten minutes later they are history."""
    world = labelled(1)
    run(world, "n1", "ann")
    world.now += 600 * SECOND
    assert names(run(world, "n1", "bob")) == ["RunEnded"]


def test_a_stop_or_a_loss_says_nothing_of_the_node() -> None:
    """Cancelled work and lost nodes are no failures."""
    world = cluster(2)
    offer(world, request(8), "ann")
    world.queue(ev.JobStopRequested(cause="cmd:9", job="1", attempt=1, reason="cancelled"))
    world.exit("n1", "1", exit_code=143)
    offer(world, request(8), "bob")
    world.silent("n1")
    world.silent("n2")
    assert (world.core.state.failing, world.core.state.failed_on) == ({}, {})


def test_a_person_releases_a_quarantined_node_and_an_uncordon_does_not() -> None:
    """Its record starts anew."""
    world = labelled(1)
    for user in ("ann", "bob", "cem"):
        run(world, "n1", user)
    world.command(UncordonNode(id="u", node="n1"))
    assert not world.core.state.nodes["n1"].open
    [released] = world.command(UnquarantineNode(id="r", user="ops", node="n1"))
    assert released == ev.NodeReleased(cause="cmd:r", node="n1", by="ops")
    assert world.core.state.nodes["n1"].open
    assert names(run(world, "n1", "ann")) == ["RunEnded"]
    [rejected] = world.command(UnquarantineNode(id="s", node="n1"))
    assert isinstance(rejected, ev.NodeCommandRejected)
    assert rejected.code == "not_quarantined"


def test_a_person_quarantines_beyond_any_breaker() -> None:
    """What people ask for is never held."""
    world = cluster(3)
    for i in (1, 2, 3):
        assert names(world.command(QuarantineNode(id=f"q{i}", node=f"n{i}"))) == ["NodeQuarantined"]
    [refused] = world.offer(request(1))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"quarantined": 3}


def test_the_breaker_stops_mass_quarantine_until_a_person_resets_it() -> None:
    """One of ten in five minutes; the second node stays suspect. Time alone changes nothing."""
    world = labelled(10)
    for user in ("ann", "bob", "cem"):
        run(world, "n1", user)
    for user in ("ann", "bob"):
        run(world, "n2", user)
    events = run(world, "n2", "cem")
    assert names(events) == ["RunEnded", "BreakerTripped"]
    assert events[1] == ev.BreakerTripped(cause="clock", kind="nodes", found=2, allowed=1, of=10)
    world.now += 3600 * SECOND
    assert world.step() == []
    assert names(world.command(ResetBreaker(id="b", user="ops"))) == ["BreakerReset"]
    [rejected] = world.command(ResetBreaker(id="c"))
    assert isinstance(rejected, ev.NodeCommandRejected)


def test_a_failed_job_does_not_go_back_and_waits_for_the_others() -> None:
    """The other node is busy: the retry waits, a job of its class that has not failed takes the room."""
    world = cluster(2)
    world.offer(request(8))
    world.offer(request(8))
    ended = world.exit("n1", "1", exit_code=1)
    assert names(ended) == ["RunEnded"]
    assert world.core.state.failed_on == {"1": (("n1", "exited 1"),)}
    requeued = ev.JobRequeued(cause="clock", job="1", reason="retry", attempt=2)
    [refused] = world.queue(requeued, ev.JobOffered(cause="clock", job="1", attempt=2, rank=1))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"avoided": 1, "free_gpus": 1}
    assert placed(world.offer(request(8))) == {"3": ["n1"]}
    assert placed(world.exit("n2", "2")) == {"1": ["n2"]}
    world.exit("n2", "1", attempt=2)
    world.queue(ev.JobSucceeded(cause="clock", job="1"))
    assert world.core.state.failed_on == {}


def test_with_nowhere_else_to_go_a_job_goes_back() -> None:
    """One node, or all others drained: a retry there is better than none."""
    world = cluster(1)
    world.offer(request(8))
    world.exit("n1", "1", exit_code=1)
    requeued = ev.JobRequeued(cause="clock", job="1", reason="retry", attempt=2)
    assert placed(world.queue(requeued, ev.JobOffered(cause="clock", job="1", attempt=2, rank=1))) == {"1": ["n1"]}


@pytest.mark.parametrize(
    ("wanted", "racks"),
    [
        (request(8, nodes=2, require=("rack",)), ("r1", "r1", "r2")),  # two others are left, and in one rack none
        (request(3, nodes=5, tasks=True), ("r1", "r1", "r1")),  # two tasks to a node
        (request(8, also=(request(2), request(2))), ("r1", "r1", "r1")),  # a node for each kind
    ],
    ids=["rack", "tasks", "kinds"],
)
def test_others_serve_only_where_all_units_of_the_job_find_room(wanted: Request, racks: tuple[str, ...]) -> None:
    """Else it would wait for ever for nodes that never take it together."""
    world = World()
    for name, rack in zip(("n1", "n2", "n3"), racks, strict=True):
        world.join(name, labels={"fairlead/rack": rack})
    [placement] = [event for event in world.offer(wanted) if isinstance(event, ev.JobPlaced)]
    for rank, part in enumerate(placement.parts):
        world.exit(part.node, "1", rank, exit_code=1 if rank == 0 else 0)
    again = ev.JobRequeued(cause="clock", job="1", reason="retry", attempt=2)
    events = world.queue(again, ev.JobOffered(cause="clock", job="1", attempt=2, rank=1))
    assert names(events) == ["JobPlaced"]


def test_a_job_that_fails_on_every_node_is_no_evidence_against_the_third() -> None:
    """After two nodes the job is to blame: its further failures count against nobody."""
    world = cluster(4)
    world.offer(request(8))
    for attempt, node in ((1, "n1"), (2, "n2"), (3, "n3")):
        world.exit(node, "1", attempt=attempt, exit_code=1)
        requeued = ev.JobRequeued(cause="clock", job="1", reason="retry", attempt=attempt + 1)
        world.queue(requeued, ev.JobOffered(cause="clock", job="1", attempt=attempt + 1, rank=1))
    assert sorted(world.core.state.failing) == ["n1", "n2"]
    assert world.core.state.failed_on == {"1": tuple((node, "exited 1") for node in ("n1", "n2", "n3"))}


def test_a_run_says_where_its_job_has_failed_in_the_same_way() -> None:
    """By exit code or signal, of the rank that decided, and only while it was not stopped: then no node, and none of the
    others, has anything to do with it."""
    world = cluster(5)
    world.offer(request(8, nodes=1))
    found: list[tuple[str, ...]] = []
    for attempt, code in enumerate((1, 2, 1, 1, 143), 1):
        [run] = world.core.state.runs.values()
        if code == 143:
            world.queue(ev.JobStopRequested(cause="cmd:9", job="1", attempt=attempt, reason="cancelled"))
        [ended, *_] = world.exit(run.parts[0].node, "1", attempt=attempt, exit_code=code)
        assert isinstance(ended, ev.RunEnded)
        found.append(ended.alike)
        requeued = ev.JobRequeued(cause="clock", job="1", reason="retry", attempt=attempt + 1)
        world.queue(requeued, ev.JobOffered(cause="clock", job="1", attempt=attempt + 1, rank=1))
    assert found == [(), (), ("n1", "n3"), ("n1", "n3", "n4"), ()]


def test_of_a_gang_the_node_of_the_rank_that_failed_counts() -> None:
    """The others were stopped for it."""
    world = cluster(4)
    world.offer(request(8, nodes=2))
    world.exit("n2", "1", 1, exit_code=3)
    [ended, *_] = world.exit("n1", "1", 0, outcome="stopped", exit_code=143)
    assert isinstance(ended, ev.RunEnded)
    assert (ended.rank, ended.alike) == (1, ())
    again = ev.JobRequeued(cause="clock", job="1", reason="retry", attempt=2)
    assert placed(world.queue(again, ev.JobOffered(cause="clock", job="1", attempt=2, rank=1))) == {"1": ["n1", "n3"]}
    world.exit("n3", "1", 1, attempt=2, exit_code=3)
    [ended, *_] = world.exit("n1", "1", 0, attempt=2, outcome="stopped", exit_code=143)
    assert isinstance(ended, ev.RunEnded)
    assert ended.alike == ("n2", "n3")


def test_many_losses_at_once_hold_the_ends_of_what_ran_there() -> None:
    """More than a fifth at once: nodes are lost and get no work, but their runs are not ended until a person says so."""
    world = cluster(10)
    for _ in range(10):
        world.offer(request(8))
    events = world.step(*(lost(f"n{i}") for i in range(1, 6)))
    assert names(events) == ["NodeLost"] * 5 + ["BreakerTripped"]
    assert sum(node.live for node in world.core.state.nodes.values()) == 10
    assert names(world.heard("n1")) == ["NodeReturned"]
    assert names(world.exit("n1", "1")) == ["RunEnded"]
    assert names(world.exit("n2", "3")) == ["NodeReturned", "RunEnded"]
    events = world.command(ResetBreaker(id="b", user="ops"))
    assert names(events) == ["BreakerReset"] + ["RunEnded"] * 3
    assert "RunEnded" in names(world.silent("n9"))


def test_few_losses_end_their_runs_as_ever() -> None:
    """Two nodes of four, and one after the other over more than a minute, are ordinary losses."""
    world = cluster(4)
    for _ in range(4):
        world.offer(request(8))
    assert names(world.step(lost("n1"), lost("n2"))) == ["NodeLost", "NodeLost", "RunEnded", "RunEnded"]
    world.now += 61 * SECOND
    assert names(world.silent("n3")) == ["NodeLost", "RunEnded"]


def test_a_start_that_fails_by_the_jobs_own_fault_says_nothing_of_the_node() -> None:
    """An image that does not exist: no node is suspected for it, however many try it."""
    world = labelled(2)
    for at, user in enumerate(("ann", "bob", "cem"), 1):
        offer(world, request(1, selector=("kubernetes.io/hostname=n1",)), user)
        end = ExitSeen(n=0, job=str(at), attempt=1, rank=0, outcome="start_failed", fault="job", clean=True)
        ended, *others = world.report("n1", end)
        assert not others and isinstance(ended, ev.RunEnded) and ended.fault == "job"
    assert world.core.state.failing == {}
