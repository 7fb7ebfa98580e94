"""Nodes that are kept for a job which has waited long: which, against whom, and until when."""

from typing import Any

import pytest

from fairlead_bus.core import Input
from fairlead_placer.core import PlacerCore
from fairlead_schemas.queuefile.settings import POOL_LABEL
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CordonNode, DrainNode, ScheduleMaintenance, UncordonNode
from fairlead_schemas.wire.reports import InventorySeen
from tests.kit.placer_world import SECOND, PlacerWorld, cluster, inventory, names, placed, request
from tests.placer.reserved_nodes import claim, kept


def filled(*free: int, **more: Any) -> PlacerWorld:
    """Nodes a, b, c … of 4 GPUs with so many free, filled by one-GPU jobs in the order of the nodes."""
    world = PlacerWorld()
    for name, count in zip("abcdef", free, strict=False):
        world.join(name, 4, labels={"name": name}, **more)
        for _ in range(4 - count):
            world.offer(request(1, selector=(f"name={name}",)))
    return world


def test_the_node_that_lacks_least_is_kept_and_the_job_gets_it() -> None:
    """Most is free there; as the rest ends, the job is placed, though others that came before it would fit."""
    world = filled(1, 2, 0)
    world.offer(request(4))
    wide = world.submitted(request(3))
    world.queue(*wide)
    [made] = world.queue(claim("10"))
    assert isinstance(made, ev.ReservationMade)
    assert (made.job, made.attempt, made.nodes) == ("10", 1, ("b",))
    assert made.cause == f"{len(world.log) - 1}.0"
    assert names(world.exit("b", "4")) == ["RunEnded"]
    events = world.exit("b", "5")
    assert names(events) == ["RunEnded", "JobPlaced"]
    assert placed(events) == {"10": ["b"]}
    assert kept(world) == {}


def test_no_other_job_is_placed_on_reserved_nodes_and_the_refusal_names_them() -> None:
    """Not even a job ahead of it; free capacity there is not counted."""
    world = filled(2)
    world.offer(request(4))
    world.queue(claim("3"))
    [refused] = world.offer(request(1))
    assert isinstance(refused, ev.JobUnplaceable)
    assert (refused.reasons, refused.gpu_milli_free, refused.gpu_milli_total) == ({"reserved": 1}, 0, 4000)
    [refused] = world.offer(request(1, selector=("name=a",)))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"reserved": 1}
    [refused] = world.offer(request(5))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"gpus": 1}


def test_its_own_refusal_does_not_name_the_reservation() -> None:
    """For the job itself the node has too few GPUs free, and what is free there counts."""
    world = filled(2)
    world.offer(request(4))
    world.queue(claim("3"))
    world.core = PlacerCore.restore(world.core.snapshot())
    world.now += 60 * 10**9
    world.silent("a")
    world.core.state.classes[request(4)].failed_at = -1
    [_, refused] = world.heard("a")
    assert isinstance(refused, ev.JobUnplaceable)
    assert (refused.reasons, refused.gpu_milli_free) == ({"free_gpus": 1}, 2000)


def test_the_fewest_living_ranks_decide_between_equals() -> None:
    """Of two nodes that lack as much, the one with fewer to wait for; then the name."""
    world = PlacerWorld()
    for name in ("a", "b", "c"):
        world.join(name, 4, labels={"name": name})
    world.offer(request(1, selector=("name=a",)))
    world.offer(request(1, selector=("name=a",)))
    world.offer(request(2, selector=("name=b",)))
    world.offer(request(2, selector=("name=c",)))
    world.offer(request(4))
    world.queue(claim("5"))
    assert kept(world) == {"5": ("b",)}


def test_a_gang_gets_its_nodes_kept_and_starts_with_the_last() -> None:
    """All or nothing as ever, on kept nodes and, where they are free sooner, on others."""
    world = filled(3, 0, 3, 1)
    world.offer(request(4, nodes=2))
    [made] = world.queue(claim("10"))
    assert isinstance(made, ev.ReservationMade)
    assert made.nodes == ("a", "c")
    assert names(world.exit("a", "1")) == ["RunEnded"]
    for job in ("7", "8"):
        assert names(world.exit("d", job)) == ["RunEnded"]
    assert placed(world.exit("d", "9")) == {"10": ["a", "d"]}
    assert kept(world) == {}


def test_only_nodes_that_could_ever_take_it_are_kept() -> None:
    """Too small, too poor, of other labels, closed, or of another pool: none of those."""
    world = PlacerWorld()
    world.join("a", 2)
    world.join("b", 4, cpu=1)
    world.join("c", 4, memory_gib=1)
    world.join("d", 4, labels={"disk": "hdd"})
    world.join("e", 4, labels={"disk": "nvme"})
    world.join("f", 4, labels={"disk": "nvme", POOL_LABEL: "other"})
    world.join("g", 4, labels={"disk": "nvme"})
    wanted = request(4, cpu=8, memory_gib=8, selector=("disk=nvme",))
    world.offer(wanted)
    world.offer(wanted)
    world.offer(wanted)
    world.command(CordonNode(id="c", node="e"))
    world.queue(claim("3"))
    assert kept(world) == {"3": ("g",)}


def test_a_claim_that_no_nodes_can_meet_is_ended_at_once() -> None:
    """Nothing is reserved and nothing waits: the pool's next claim is considered."""
    world = filled(2)
    world.offer(request(8))
    world.offer(request(4))
    events = world.queue(claim("3"))
    assert events == [ev.ReservationEnded(cause=f"{len(world.log) - 1}.0", job="3", attempt=1)]
    assert world.core.state.claims == {}
    assert names(world.queue(claim("4"))) == ["ReservationMade"]


def test_a_job_that_is_not_offered_claims_nothing() -> None:
    """A claim under a queue's limit, of another attempt, of a job that has its place: nothing is remembered."""
    world = filled(2)
    world.offer(request(4))
    assert world.queue(claim("3", queue="research"), claim("3", attempt=2), claim("1"), claim("77")) == []
    assert (world.core.state.claims, kept(world)) == ({}, {})


def test_one_claim_per_pool_at_a_time() -> None:
    """A second one is passed over until the first has ended, also in the same commit; another pool has its own."""
    world = filled(2)
    world.join("x", 4, labels={POOL_LABEL: "big"})
    world.offer(request(1, pool="big"))
    for wanted in (request(4), request(3), request(4, pool="big")):
        world.offer(wanted)
    events = world.queue(claim("4"), claim("5"), claim("6"))
    assert [(e.job, e.nodes) for e in events if isinstance(e, ev.ReservationMade)] == [("4", ("a",)), ("6", ("x",))]
    assert world.queue(claim("5")) == []
    world.queue(ev.OfferWithdrawn(cause="cmd:h", job="4", attempt=1, reason="hold"))
    assert names(world.queue(claim("5"))) == ["ReservationMade"]


def test_asked_for_again_it_is_what_it_was() -> None:
    """A job that has its nodes kept needs no second answer."""
    world = filled(2)
    world.offer(request(4))
    world.queue(claim("3"))
    assert world.queue(claim("3")) == []


def test_a_job_that_gives_up_its_offer_gives_up_its_nodes() -> None:
    """Held, withdrawn or cancelled: the nodes take any work again, in the same commit."""
    for gone in (
        ev.OfferWithdrawn(cause="cmd:h", job="3", attempt=1, reason="hold"),
        ev.JobStopRequested(cause="cmd:c", job="3", attempt=1, reason="cancelled"),
    ):
        world = filled(2)
        world.offer(request(4))
        world.queue(claim("3"))
        world.offer(request(2))
        events = world.queue(gone)
        assert names(events) == ["ReservationEnded", "OfferReturned", "JobPlaced"]
        assert {event.cause for event in events[:2]} == {f"{len(world.log) - 1}.0"}
        assert (kept(world), placed(events)) == ({}, {"4": ["a"]})


def test_a_claim_of_a_withdrawn_offer_is_forgotten() -> None:
    """Both in one commit: nothing is reserved."""
    world = filled(2)
    world.offer(request(4))
    events = world.queue(claim("3"), ev.OfferWithdrawn(cause="cmd:h", job="3", attempt=1, reason="hold"))
    assert names(events) == ["OfferReturned"]


def test_another_rank_leaves_the_reservation() -> None:
    """It is of the job and its attempt."""
    world = filled(2)
    world.offer(request(4))
    world.queue(claim("3"))
    assert world.queue(ev.JobOffered(cause="clock", job="3", attempt=1, rank=99)) == []
    assert kept(world) == {"3": ("a",)}


def test_a_lost_reserved_node_is_replaced() -> None:
    """Lost, cordoned or drained; the first node is like any other when it returns."""
    world = filled(2, 1, 0)
    world.offer(request(4))
    world.queue(claim("10"))
    assert kept(world) == {"10": ("a",)}
    events = world.silent("a")
    assert "ReservationMade" in names(events)
    assert kept(world) == {"10": ("b",)}
    world.command(CordonNode(id="c", node="b"))
    assert kept(world) == {"10": ("c",)}
    world.heard("a")
    assert kept(world) == {"10": ("c",)}
    assert placed(world.offer(request(1))) == {"11": ["a"]}
    world.command(DrainNode(id="d", node="c"))
    assert kept(world) == {"10": ("a",)}
    world.command(CordonNode(id="e", node="a"))
    assert kept(world) == {}
    assert world.core.state.claims == {}


def test_a_node_that_changes_under_a_reservation_is_given_up() -> None:
    """It has become too small, or belongs to another pool."""
    for changed in (inventory("a", 2), inventory("a", 4, labels={POOL_LABEL: "other"})):
        world = filled(2, 1)
        world.offer(request(4))
        world.queue(claim("6"))
        assert kept(world) == {"6": ("a",)}
        world.report("a", InventorySeen(n=0, boot_id="boot-1", inventory=changed))
        assert kept(world) == {"6": ("b",)}


def test_capacity_freed_elsewhere_is_used() -> None:
    """The job takes another node that has room first; the reserved one is released."""
    world = filled(1, 3)
    world.offer(request(4))
    world.queue(claim("5"))
    assert kept(world) == {"5": ("b",)}
    world.offer(request(3, selector=("name=b",)))
    world.exit("a", "1")
    world.exit("a", "2")
    events = world.exit("a", "3")
    assert placed(events) == {"5": ["a"], "6": ["b"]}
    assert kept(world) == {}


@pytest.mark.parametrize("free", [0, 4])
def test_a_node_that_the_job_has_failed_on_is_kept_only_while_there_is_no_other(free: int) -> None:
    """For want of another it waits for that one; once another takes work again that one is kept, or taken at once."""
    world = filled(4, free)
    world.command(CordonNode(id="c", node="b"))
    failed = str(world.jobs + 1)
    world.offer(request(4))
    world.offer(request(4))
    assert len(placed(world.exit("a", failed, exit_code=1))) == 1
    again = ev.JobRequeued(cause="clock", job=failed, reason="retry", attempt=2)
    world.queue(again, ev.JobOffered(cause="clock", job=failed, attempt=2, rank=1))
    world.queue(claim(failed, attempt=2))
    assert kept(world) == {failed: ("a",)}
    events = world.command(UncordonNode(id="u", node="b"))
    for job in range(1, 5 - free):
        assert kept(world) == {failed: ("b",)}
        events = world.exit("b", str(job))
    assert placed(events) == {failed: ["b"]}


def test_a_job_that_avoids_nodes_takes_an_open_one_before_reserved_ones() -> None:
    """Like jobs that avoid none, and at once, not only at the next check for an earlier start."""
    world = filled(4, 4, 4)
    for node, limit_s in (("a", 600), ("b", 1200)):
        world.offer(request(4, selector=(f"name={node}",)), limit_s=limit_s)
    starts, ends = world.now + 60 * SECOND, world.now + 7200 * SECOND
    world.command(ScheduleMaintenance(id="m", name="w", nodes=("c",), starts_ns=starts, ends_ns=ends))
    world.offer(request(4), limit_s=600)
    world.queue(claim("3"))
    assert kept(world) == {"3": ("a",)}
    assert placed(world.exit("b", "2")) == {"3": ["b"]}


def test_equal_jobs_do_not_share_what_is_kept() -> None:
    """Of one class, the one that the node is kept for gets it, though another has the better rank."""
    world = filled(3)
    world.offer(request(4))
    world.offer(request(4))
    world.queue(claim("3"))
    events = world.exit("a", "1")
    assert placed(events) == {"3": ["a"]}
    assert list(world.core.state.offers) == ["2"]


def test_reservations_survive_a_restart() -> None:
    """Reservations and unanswered claims are in the snapshot, and the restored core continues the same way."""
    world = filled(2, 1)
    world.offer(request(4))
    world.fold("queue", [claim("6")])
    restored = PlacerCore.restore(world.core.snapshot())
    decision = world.decide()
    assert names(decision.events) == ["ReservationMade"]
    assert restored.decide((), world.now) == decision
    world.fold("placer", decision.events)
    restored = PlacerCore.restore(world.core.snapshot())
    assert restored.snapshot() == world.core.snapshot()
    world.core = restored
    assert placed(world.offer(request(1))) == {"7": ["b"]}


def test_a_placement_that_is_under_way_ends_what_is_asked_meanwhile() -> None:
    """The queue's claim comes between a decision and its commit: nothing is kept for a job that has its place."""
    world = filled(2)
    world.fold("queue", list(world.submitted(request(2))))
    decision = world.decide()
    world.fold("queue", [claim("3")])
    world.fold("placer", decision.events)
    assert world.core.state.claims == {}
    assert world.step() == []


def test_a_reservation_that_is_under_way_ends_with_its_offer() -> None:
    """The offer is withdrawn between the decision and its commit."""
    world = filled(2)
    world.offer(request(4))
    world.fold("queue", [claim("3")])
    decision = world.decide()
    world.fold("queue", [ev.OfferWithdrawn(cause="cmd:h", job="3", attempt=1, reason="hold")])
    world.fold("placer", decision.events)
    assert names(world.step()) == ["ReservationEnded", "OfferReturned"]


def test_without_reservations_nothing_is_looked_at() -> None:
    """At rest with a reservation, too: no input, no answer."""
    world = filled(2)
    world.offer(request(4))
    world.queue(claim("3"))
    for _ in range(3):
        decision = world.decide()
        assert (decision.events, decision.cursors) == ([], {})
    assert world.decide(Input("heard", 0, "a")).events == []


def test_nodes_with_different_gpus_lack_what_suits() -> None:
    """Free GPUs that are too small are none."""
    world = cluster(0)
    world.join("a", 4, gpu_memory_mib=80_000, labels={"name": "a"})
    world.join("b", 4, gpu_memory_mib=16_000, labels={"name": "b"})
    world.offer(request(2, selector=("name=a",)))
    world.offer(request(4, gpu_memory_mib=40_000))
    world.queue(claim("2"))
    assert kept(world) == {"2": ("a",)}


def test_a_gang_takes_the_nodes_that_are_kept_for_it_before_others_that_are_as_good() -> None:
    """Also where another node that is open has room by then and would be filled better."""
    world = filled(0, 0)
    world.join("c", 6, labels={"name": "c"})
    world.offer(request(6, selector=("name=c",)))
    world.offer(request(3, nodes=2))
    world.queue(claim("10"))
    assert kept(world) == {"10": ("a", "c")}
    world.exit("a", "1")
    world.exit("a", "2")
    world.exit("a", "3")
    assert placed(world.exit("c", "9")) == {"10": ["a", "c"]}
