"""Guests of nodes that are kept for another job: who may run there until it starts, and who may not."""

from fairlead_placer.core import PlacerCore
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.reports import InventorySeen
from tests.kit.placer_world import SECOND, PlacerWorld, inventory, names, placed, request
from tests.placer.reserved_nodes import HOUR, busy, claim, kept, made


def hosted(events: list[ev.Event]) -> dict[str, str]:
    """{job: the job on whose nodes it is a guest} of all placements."""
    return {e.job: e.guest_of for e in events if isinstance(e, ev.JobPlaced)}


def half_kept(limit_s: int = HOUR) -> PlacerWorld:
    """Node a of 8 GPUs: 4 are busy until their limit, 4 are free and kept for job 2, which needs all 8."""
    world = PlacerWorld()
    world.join("a", 8, labels={"name": "a"})
    world.offer(request(4), limit_s=limit_s)
    world.start("a", "1")
    world.offer(request(8))
    world.queue(claim("2"))
    return world


def test_jobs_that_end_in_time_run_on_reserved_nodes() -> None:
    """Three small jobs run there; one that would end a minute late does not, and a job without a limit does not. The
    start is kept."""
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


def test_an_exclusive_job_is_not_backfilled_next_to_the_reservation() -> None:
    """Even if both amounts fit; with a limit that ends in time it is backfilled."""
    world = PlacerWorld()
    world.join("a", 8)
    world.join("b", 8)
    world.offer(request(8, nodes=1), limit_s=HOUR)
    world.start("a", "1")
    world.offer(request(4, nodes=2))
    world.queue(claim("2"))
    assert kept(world) == {"2": ("a", "b")}
    assert hosted(world.offer(request(1, exclusive=True))) == {}
    assert hosted(world.offer(request(1, exclusive=True), limit_s=60)) == {"4": "2"}


def test_spare_capacity_of_a_reserved_node_is_available() -> None:
    """The reservation needs 6 of 8 GPUs: two are allocated without a limit, a third is not, although it is free now."""
    world = PlacerWorld()
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


def test_backfilled_jobs_of_one_decision_are_counted_together() -> None:
    """Past durations suggest an early end for any other run; a backfilled job without a limit blocks, from an earlier
    decision or from this one."""
    world = PlacerWorld()
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


def test_cpus_and_memory_count_like_gpus() -> None:
    """Capacity that is free now but taken by others until the start is not allocated twice."""
    world = PlacerWorld()
    world.join("a", 8, cpu=64)
    world.offer(request(4, cpu=10), limit_s=HOUR)
    world.start("a", "1")
    world.offer(request(8, cpu=32))
    world.queue(claim("2"))
    assert hosted(world.offer(request(0, cpu=22))) == {"3": "2"}
    assert names(world.offer(request(0, cpu=11))) == ["JobUnplaceable"]
    assert hosted(world.offer(request(0, cpu=10))) == {"5": "2"}


def test_shares_of_a_gpu_are_backfilled_next_to_shares() -> None:
    """Half a GPU is needed of one that is half allocated; the rest of the other is available."""
    world = PlacerWorld()
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


def test_without_a_start_nothing_is_backfilled() -> None:
    """The end of the running jobs is unknown."""
    world = half_kept(0)
    assert names(world.offer(request(1), limit_s=60)) == ["JobUnplaceable"]


def test_backfill_follows_the_rank_whatever_the_request_class() -> None:
    """With room for one, the first in the order gets it, although another class is examined first."""
    world = half_kept()
    world.offer(request(3), limit_s=600)
    first, second = world.submitted(request(1), limit_s=600), world.submitted(request(1, cpu=2), limit_s=600)
    assert hosted(world.queue(*second, *first)) == {"4": "2"}


def test_a_gang_is_backfilled_only_if_it_ends_in_time() -> None:
    """On reserved and open nodes, with two more minutes because its ranks start one after the other."""
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


def test_a_backfilled_job_that_starts_late_moves_the_start_and_the_change_is_recorded() -> None:
    """Its limit counts from its start, so the promise no longer holds."""
    world = half_kept()
    promised_ns = world.core.state.reservations["2"].start_ns
    left_s = (promised_ns - world.now) // SECOND
    world.offer(request(1), limit_s=left_s - 95)
    world.now += 100 * SECOND
    event = made(world.start("a", "3"))
    assert (event.nodes, event.start_ns) == (("a",), promised_ns + 40 * SECOND)


def test_backfilled_jobs_stay_when_the_start_is_recomputed() -> None:
    """A job without a limit that fitted next to the reservation still does, in a restored core too; a second one is
    judged with the first."""
    world = PlacerWorld()
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


def test_a_node_that_shrinks_under_backfilled_jobs_is_given_up() -> None:
    """A job that fitted next to the reservation now blocks it for an unknown time."""
    world = PlacerWorld()
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


def test_nothing_is_backfilled_where_runs_are_preempted() -> None:
    """The freed capacity counts as taken."""
    world = half_kept()
    world.queue(
        ev.PreemptionRequested(
            cause="clock", job="2", attempt=1, victims=(ev.Victim(job="1", attempt=1, rule="lower_priority"),)
        )
    )
    assert world.core.state.reservations["2"].hole
    assert names(world.offer(request(1), limit_s=1)) == ["JobUnplaceable"]


def test_a_waiting_job_is_backfilled_when_capacity_is_freed() -> None:
    """A parked class is tried again when a reserved node gains capacity."""
    world = half_kept()
    assert hosted(world.offer(request(4), limit_s=1200)) == {"3": "2"}
    assert names(world.offer(request(2), limit_s=1200)) == ["JobUnplaceable"]
    assert hosted(world.exit("a", "3")) == {"4": "2"}


def test_open_nodes_go_first() -> None:
    """A job that fits elsewhere is not backfilled."""
    world = half_kept()
    world.join("b", 2)
    assert hosted(world.offer(request(1), limit_s=600)) == {"3": ""}
