"""Reserved nodes and near misses in `why` and the map: time, basis, and the runs there."""

import msgspec
import pytest

from fairlead_gateway.views.cluster_map import cluster_map
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request
from tests.gateway.logbook import START_NS, Logbook, ended, joined, offered, placed, submitted, unplaceable, why

FROM_NS = START_NS + 3600 * 10**9
WHEN = "2026-01-01T01:00:00.000Z"


def kept(**fields: object) -> ev.ReservationMade:
    """Node n1 is kept for job 2."""
    return msgspec.structs.replace(ev.ReservationMade(cause="c", job="2", attempt=1, nodes=("n1",)), **fields)


EVENTS: list[ev.Event] = [
    joined(),
    submitted("1"),
    submitted("2", 8),
    submitted("3"),
    offered("1"),
    placed("1"),
    offered("2", 2),
    unplaceable("2", nodes=1, total=8, free_gpus=1),
]
KNOWN = kept(start_ns=FROM_NS, basis="limits", waits_for=("1",))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (kept(), "; n1 is kept for it"),
        (kept(waits_for=("1", "7")), "; n1 is kept for it; it is unknown when jobs 1, 7 will end"),
        (KNOWN, f"; n1 is kept for it from about {WHEN} (by the limit of job 1)"),
        (
            kept(start_ns=FROM_NS, basis="evidence", waits_for=("1",)),
            f"; n1 is kept for it from about {WHEN} (going by how long runs like job 1 took)",
        ),
        (kept(start_ns=FROM_NS, basis="limits"), f"; n1 is kept for it from about {WHEN}"),
    ],
    ids=["nothing known", "no end known", "limits", "evidence", "free already"],
)
def test_the_start_of_a_reservation_is_explained(made: ev.ReservationMade, said: str) -> None:
    """With its basis, and as much as is known."""
    assert why([*EVENTS, made], "2").message.endswith(said)


def test_backfilled_jobs_are_named_until_they_have_ended() -> None:
    """Jobs that run there and do not delay it."""
    guest = msgspec.structs.replace(placed("3"), guest_of="2")
    events = [*EVENTS, KNOWN, offered("3", 3), guest]
    assert why(events, "2").message.endswith("(by the limit of job 1); job 3 runs there and does not delay it")
    assert why([*events, ended("3")], "2").message.endswith("(by the limit of job 1)")


def test_a_job_that_a_reservation_keeps_out_gets_the_reason_and_a_remedy() -> None:
    """A time limit that ends before the start lets it in."""
    events = [*EVENTS, KNOWN, offered("3", 3), unplaceable("3", nodes=1, total=8, reserved=1)]
    assert why(events, "3").message == (
        "needs 1 GPU on one node; of 1 node 1 is kept for another job; "
        f"n1 is kept for job 2 from about {WHEN}: a job whose time limit ends before may run there"
    )


def test_near_misses_name_the_job_that_is_in_the_way() -> None:
    """At the latest by its limit, most likely by what was learned, some time where neither is known."""
    near = (
        ev.NearMiss(node="n7", job="812", at_ns=FROM_NS, basis="limits", gpu_milli=4000),
        ev.NearMiss(node="n8", job="813", at_ns=FROM_NS, basis="evidence"),
        ev.NearMiss(node="n9", job="814"),
    )
    refused = msgspec.structs.replace(unplaceable("2", nodes=1, total=8, free_gpus=1), near=near)
    assert why([*EVENTS, refused], "2").message.endswith(
        f"1 lacks free GPUs; 7 GPUs are free, no node has 8 together: n1 7; n7 fits after job 812 ends, at the latest at {WHEN}"
        f"; n8 fits after job 813 ends, most likely at {WHEN}; n9 fits after job 814 ends"
    )


def test_a_window_that_would_come_over_it_is_named() -> None:
    """With its start, as long as it is planned."""
    window = ev.MaintenanceScheduled(
        cause="c", name="cooling", nodes=("n1",), starts_ns=FROM_NS, ends_ns=FROM_NS + 1, notice_ns=0, by="ops"
    )
    refused = msgspec.structs.replace(unplaceable("2", nodes=1, total=8, maintenance=1), windows=("cooling",))
    told = "of 1 node 1 has maintenance before it would have ended"
    more = f"; maintenance cooling begins at {WHEN}: a job whose time limit ends before may run there"
    assert why([*EVENTS, window, refused], "2").message.endswith(told + more)
    over = ev.MaintenanceEnded(cause="c", name="cooling", by="", cancelled=True)
    assert why([*EVENTS, window, refused, over], "2").message.endswith(told)


def test_a_job_without_a_planned_repartition_gets_this_reason() -> None:
    """Only a job for which no instance is made; other jobs do not get it."""
    other = Request(gpu_milli=1000, cpu_milli=1000, memory_mib=64)
    for also, more in (((other,), "; no GPU is cut for jobs with groups"), ((), "")):
        job = submitted("4")
        wanted = msgspec.structs.replace(
            job.request, nodes=2, tasks=True, profile="1g.5gb", gpu_parts=1, gpu_milli=143, also=also
        )
        events = [joined(), msgspec.structs.replace(job, request=wanted), offered("4"), unplaceable("4", free_mig=1)]
        told = why(events, "4").message
        assert (more in told) if more else ("no GPU is cut" not in told)


def test_the_map_shows_when_a_reservation_begins() -> None:
    """If it is known."""
    book = Logbook()
    for event in [*EVENTS, KNOWN]:
        book.write(event)
    [node] = cluster_map(book.views).nodes
    assert (node.reserved_for, node.reserved_from) == ("2", WHEN)
    book.write(kept())
    [node] = cluster_map(book.views).nodes
    assert (node.reserved_for, node.reserved_from) == ("2", None)
