"""Guests of nodes that are kept for another job: who may run there until it starts, and who may not."""

from fairlead_placer.core import PlacerCore
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.reports import InventorySeen
from tests.kit.placer_world import SECOND, World, inventory, names, placed, request
from tests.placer.reserved_nodes import HOUR, busy, claim, kept, made


def hosted(events: list[ev.Event]) -> dict[str, str]:
    """{job: the job on whose nodes it is a guest} of all placements."""
    return {e.job: e.guest_of for e in events if isinstance(e, ev.JobPlaced)}


def half_kept(limit_s: int = HOUR) -> World:
    """Node a of 8 GPUs: 4 are busy until their limit, 4 are free and kept for job 2, which needs all 8."""
    world = World()
    world.join("a", 8, labels={"name": "a"})
    world.offer(request(4), limit_s=limit_s)
    world.start("a", "1")
    world.offer(request(8))
    world.queue(claim("2"))
    return world


def test_who_is_gone_in_time_runs_on_kept_nodes() -> None:
    """Three small jobs run there; one that would end a minute too late does not, nor one without a limit. The start is
    kept."""
    world = half_kept()
    assert hosted(world.offer(request(1), limit_s=1800)) == {"3": "2"}
    assert hosted(world.offer(request(1), limit_s=1800)) == {"4": "2"}
    [late] = world.offer(request(1), limit_s=HOUR)
    assert isinstance(late, ev.JobUnplaceable)
    assert late.reasons == {"reserved": 1}
    assert world.offer(request(1)) == []  # the class is parked
    assert hosted(world.offer(request(1), limit_s=1700)) == {"7": "2"}  # another one of that class is not
    for job in "347":
        world.start("a", job)
        world.exit("a", job)
    assert placed(world.exit("a", "1")) == {"2": ["a"]}


def test_the_latest_moment_counts_the_start_the_grace_and_the_cleaning() -> None:
    """A minute to start, the limit, 5 seconds of grace, half a minute: to the second."""
    world = half_kept()
    left_s = (world.core.state.reservations["2"].start_ns - world.now) // SECOND
    assert names(world.offer(request(1), limit_s=left_s - 94)) == ["JobUnplaceable"]
    assert hosted(world.offer(request(1), limit_s=left_s - 95)) == {"4": "2"}


def test_who_wants_the_node_for_himself_is_no_guest_beside_the_job() -> None:
    """Though it would have room for both amounts; with a limit that ends in time he is."""
    world = World()
    world.join("a", 8)
    world.join("b", 8)
    world.offer(request(8, nodes=1), limit_s=HOUR)
    world.start("a", "1")
    world.offer(request(4, nodes=2))
    world.queue(claim("2"))
    assert kept(world) == {"2": ("a", "b")}
    assert hosted(world.offer(request(1, exclusive=True))) == {}
    assert hosted(world.offer(request(1, exclusive=True), limit_s=60)) == {"4": "2"}


def test_what_the_job_does_not_need_there_is_for_anybody() -> None:
    """It needs 6 of 8 GPUs: two are given away without a limit, a third is not, though it is free now."""
    world = World()
    world.join("a", 8)
    world.offer(request(4), limit_s=HOUR)
    world.start("a", "1")
    world.offer(request(6))
    world.queue(claim("2"))
    assert hosted(world.offer(request(1))) == {"3": "2"}
    assert hosted(world.offer(request(1))) == {"4": "2"}
    [refused] = world.offer(request(1))
    assert isinstance(refused, ev.JobUnplaceable)
    assert placed(world.exit("a", "1")) == {"2": ["a"]}


def test_guests_of_one_decision_see_each_other() -> None:
    """Jobs like these took a second before, so that any other run would be thought to be gone in time; a guest without a limit is
    not, whether it came with an earlier decision or with this one."""
    world = World()
    world.join("a", 8, cpu=64)
    for number in range(1, 9):
        world.offer(request(0, cpu=12))
        world.start("a", str(number))
        world.now += SECOND
        world.exit("a", str(number))
    world.offer(request(4, cpu=1), limit_s=HOUR)
    world.start("a", "9")
    world.offer(request(8, cpu=40))
    world.queue(claim("10"))
    events = world.queue(*(event for _ in range(3) for event in world.submitted(request(0, cpu=12))))
    assert hosted(events) == {"11": "10", "12": "10"}


def test_cpus_and_memory_count_as_gpus_do() -> None:
    """What is free now and taken by others until the start is not given away twice."""
    world = World()
    world.join("a", 8, cpu=64)
    world.offer(request(4, cpu=10), limit_s=HOUR)
    world.start("a", "1")
    world.offer(request(8, cpu=32))
    world.queue(claim("2"))
    assert hosted(world.offer(request(0, cpu=22))) == {"3": "2"}
    assert names(world.offer(request(0, cpu=11))) == ["JobUnplaceable"]
    assert hosted(world.offer(request(0, cpu=10))) == {"5": "2"}


def test_shares_of_a_gpu_are_guests_beside_shares() -> None:
    """Half a GPU is needed of one that is half given away; the rest of the other is for anybody."""
    world = World()
    world.join("a", 1)
    half = request(0).__class__(gpu_milli=500, gpu_parts=1, cpu_milli=1000, memory_mib=1024)
    for _ in range(2):
        world.offer(half, limit_s=HOUR)
    world.start("a", "1")
    world.start("a", "2")
    world.offer(half)
    event = made(world.queue(claim("3")))
    assert event.nodes == ("a",)
    assert world.offer(half) == []
    assert placed(world.exit("a", "2")) == {"3": ["a"]}


def test_without_a_start_there_are_no_guests() -> None:
    """Nobody knows when what is there ends."""
    world = half_kept(0)
    assert names(world.offer(request(1), limit_s=60)) == ["JobUnplaceable"]


def test_guests_have_their_turns_by_rank_whatever_their_class() -> None:
    """Room for one: the first in the order gets it, though another class is looked at first."""
    world = half_kept()
    world.offer(request(3), limit_s=600)
    first, second = world.submitted(request(1), limit_s=600), world.submitted(request(1, cpu=2), limit_s=600)
    assert hosted(world.queue(*second, *first)) == {"4": "2"}


def test_a_gang_is_a_guest_only_when_it_is_gone_in_time() -> None:
    """On kept and open nodes; two minutes more, for its ranks start one after the other."""
    world = busy(HOUR, HOUR, gpus=8)
    world.join("c", 2, labels={"name": "c"})
    world.join("d", 8, labels={"name": "d"})
    world.offer(request(6, selector=("name=d",)), limit_s=HOUR)
    world.start("d", "3")
    world.offer(request(8))
    event = made(world.queue(claim("4")))
    assert event.nodes == ("d",)
    assert names(world.offer(request(2, nodes=2))) == ["JobUnplaceable"]
    events = world.offer(request(2, nodes=2), limit_s=1800)
    assert (placed(events), hosted(events)) == ({"6": ["c", "d"]}, {"6": "4"})


def test_a_guest_that_starts_late_moves_the_start_and_that_is_said() -> None:
    """Its limit counts from its start: what was promised does not hold any more."""
    world = half_kept()
    promised_ns = world.core.state.reservations["2"].start_ns
    left_s = (promised_ns - world.now) // SECOND
    world.offer(request(1), limit_s=left_s - 95)
    world.now += 100 * SECOND
    event = made(world.start("a", "3"))
    assert (event.nodes, event.start_ns) == (("a",), promised_ns + 40 * SECOND)


def test_guests_stay_guests_when_the_start_is_said_again() -> None:
    """What has no limit and fitted beside is still beside, in a restored core too; a second one is judged beside the
    first."""
    world = World()
    world.join("a", 8)
    world.offer(request(4), limit_s=HOUR)
    world.start("a", "1")
    world.offer(request(6))
    first = made(world.queue(claim("2")))
    world.offer(request(1))
    world.now = first.start_ns + 1
    again = made(world.step())
    assert again.start_ns > first.start_ns
    assert world.core.state.reservations["2"].sinces != (world.core.state.reservations["2"].since,)
    world.core = PlacerCore.restore(world.core.snapshot())
    world.offer(request(1))
    world.now = again.start_ns + 1
    world.step()
    [refused] = world.offer(request(1, cpu=2))
    assert isinstance(refused, ev.JobUnplaceable)
    assert placed(world.exit("a", "1")) == {"2": ["a"]}


def test_a_node_that_shrinks_under_guests_is_given_up() -> None:
    """What was beside is now in the way, for nobody knows how long."""
    world = World()
    world.join("a", 8)
    world.join("b", 8, labels={"name": "b"})
    world.offer(request(8, selector=("name=b",)), limit_s=3 * HOUR)
    world.start("b", "1")
    world.offer(request(4), limit_s=HOUR)
    world.start("a", "2")
    world.offer(request(6, cpu=40))
    world.queue(claim("3"))
    assert hosted(world.offer(request(1, cpu=10))) == {"4": "3"}
    assert kept(world) == {"3": ("a",)}
    world.report("a", InventorySeen(n=0, boot_id="boot-1", inventory=inventory("a", 8, cpu=45)))
    assert kept(world) == {"3": ("b",)}


def test_nobody_is_a_guest_where_others_yield() -> None:
    """A hole is as good as taken."""
    world = half_kept()
    world.queue(
        ev.PreemptionRequested(
            cause="clock", job="2", attempt=1, victims=(ev.Victim(job="1", attempt=1, rule="lower_priority"),)
        )
    )
    assert world.core.state.reservations["2"].hole
    assert names(world.offer(request(1), limit_s=1)) == ["JobUnplaceable"]


def test_a_waiting_job_becomes_a_guest_when_room_comes() -> None:
    """A parked class is tried again when a kept node gains something."""
    world = half_kept()
    assert hosted(world.offer(request(4), limit_s=1200)) == {"3": "2"}
    assert names(world.offer(request(2), limit_s=1200)) == ["JobUnplaceable"]
    assert hosted(world.exit("a", "3")) == {"4": "2"}


def test_open_nodes_go_first() -> None:
    """Who fits elsewhere is no guest."""
    world = half_kept()
    world.join("b", 2)
    assert hosted(world.offer(request(1), limit_s=600)) == {"3": ""}
