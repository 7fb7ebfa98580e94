"""Charged and held time, event by event: the pure fold of `usage/meter.py`."""

from collections.abc import Iterable

import msgspec
import pytest

from fairlead_schemas.queuefile.settings import MODEL_LABEL, PoolSettings, QueueSettings
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Gpu, Inventory, Request
from fairlead_telemetry.usage.meter import METERED, Meter, Stay
from tests.telemetry.story import START_NS, Story, ended, joined, placed, submitted


def fold(story: Story) -> Meter:
    """A meter over a whole story."""
    meter = Meter()
    for sequence, (_, commit, _) in enumerate(story.commits, 1):
        if commit.writer == "placer":
            meter.pass_time(commit.at_ns)
        for event in commit.events:
            if isinstance(event, METERED):
                meter.take(sequence, event)  # type: ignore[arg-type] -- one of METERED
    return meter


def stays(story: Story) -> list[Stay]:
    """All of them, over or not, by job, attempt and rank."""
    meter = fold(story)
    found = [*(stay for _, stay in meter.over), *meter.open]
    return sorted(found, key=lambda stay: (stay.job, stay.attempt, stay.rank))


def seconds(found: Iterable[Stay]) -> list[tuple[float | None, ...]]:
    """(begin, end, back) of each, in seconds of the story."""

    def since(at_ns: int | None) -> float | None:
        return None if at_ns is None else (at_ns - START_NS) / SECOND_NS

    return [(since(stay.begin_ns), since(stay.end_ns), since(stay.back_ns)) for stay in found]


def simple(*more: tuple[float, ev.Event], **spec: object) -> Story:
    """Job 1 of two GPUs on n1, placed at 12."""
    story = Story()
    story.at(1, joined("n1"), joined("n2"))
    story.at(10, submitted("1", gpus=2, **spec))  # type: ignore[arg-type] -- names of `submitted`
    story.at(12, placed("1", n1=2))
    for at, event in more:
        story.at(at, event)
    return story


def test_a_run_is_charged_from_its_placement_to_its_end_and_its_devices_are_held_until_they_are_clean() -> None:
    """The time in which an agent looks for evidence is not billed."""
    story = simple((100, ended("1")), (130, ev.AllocationReleased(cause="report:n1:4", job="1", attempt=1, node="n1")))
    [stay] = stays(story)
    assert seconds([stay]) == [(12, 100, 130)]
    assert (stay.user, stay.queue, stay.pool, stay.model) == ("ada", "research", "default", "NVIDIA A100")
    assert (stay.charged_milli, stay.held_milli, stay.weight) == (2000, 2000, 1000)


def test_a_lost_node_is_charged_until_the_run_counts_as_ended() -> None:
    """The node keeps its devices until it is back; the job continues elsewhere, and its attempts never overlap."""
    story = simple(
        (200, ev.NodeLost(cause="clock", node="n1", silent_ns=120 * SECOND_NS)),
        (200, ended("1", exit_code=None, outcome="node_lost")),
        (201, ev.JobRequeued(cause="5.0", job="1", attempt=2, reason="node_lost")),
        (203, placed("1", 2, n2=2)),
    )
    assert seconds(stays(story)) == [(12, 200, None), (203, None, None)]
    assert not fold(story).over


def test_a_clock_that_steps_back_does_not_advance_the_meter() -> None:
    """Nothing is negative, and no moment counts twice: 12 to 100, then nothing until the clock has passed 100 again."""
    story = simple((100, ended("1", released=("n1",))))
    story.at(20, submitted("2"))
    story.at(30, placed("2", n2=1))  # the placer's clock has stepped back by more than a minute
    story.at(40, ended("2", released=("n2",)))
    story.at(50, submitted("3"))
    story.at(60, placed("3", n2=1))
    story.at(110, ended("3", released=("n2",)))
    assert seconds(stays(story)) == [(12, 100, 100), (100, 100, 100), (100, 110, 110)]


def test_the_queues_clock_measures_nothing() -> None:
    """It may be hours ahead."""
    story = simple()
    story.at(9000, submitted("2"))
    assert fold(story).state.at_ns == START_NS + 12 * SECOND_NS


def test_an_attempt_is_counted_for_the_queue_in_which_it_got_its_place() -> None:
    """A move, or a queue's removal, speaks for the attempts that come."""
    story = simple((100, ended("1", exit_code=1, released=("n1",))))
    story.at(101, ev.JobRequeued(cause="4.0", job="1", attempt=2, reason="retry"))
    story.at(102, ev.JobMoved(cause="cmd:m", job="1", queue="vision"))
    story.at(103, ev.QueueRemoved(cause="cmd:q", path="vision", move_to="speech"))
    story.at(104, placed("1", 2, n1=2))
    assert [(stay.attempt, stay.queue) for stay in stays(story)] == [(1, "research"), (2, "speech")]


def test_a_gang_has_a_stay_per_node_and_a_rank_that_ended_early_is_held_no_more() -> None:
    """It is charged as a whole until its last rank has ended, as its queue's quota is."""
    story = Story()
    story.at(1, joined("n1"), joined("n2"))
    story.at(10, submitted("1", gpus=2, nodes=2))
    story.at(12, placed("1", n1=2, n2=2))
    rank = ev.RankEnded(cause="report:n1:4", job="1", attempt=1, rank=0, outcome="exited", exit_code=0, released=True)
    story.at(50, rank)
    story.at(80, ended("1", released=("n2",)))
    assert seconds(stays(story)) == [(12, 80, 50), (12, 80, 80)]


def of(request: Request, *parts: ev.Part) -> list[tuple[int, int]]:
    """(charged, held) of each part of a job that asks for this and gets that."""
    story = Story()
    story.at(1, joined("n1"), joined("n2"), joined("n3"))
    story.at(10, msgspec.structs.replace(submitted("1"), request=request))
    story.at(12, ev.JobPlaced(cause="1.0", job="1", attempt=1, parts=parts))
    return [(stay.charged_milli, stay.held_milli) for stay in stays(story)]


@pytest.mark.parametrize(
    ("request_", "parts", "amounts"),
    [
        (Request(gpu_milli=500, gpu_parts=1), [ev.Part(node="n1", gpus=("a",), gpu_milli=500)], [(500, 500)]),
        (
            Request(gpu_milli=857, gpu_parts=2, profile="3g.20gb"),
            [ev.Part(node="n1", gpus=("a", "b"), gpu_milli=429, instances=("m1", "m2"))],
            [(857, 858)],
        ),
        (
            Request(nodes=8, gpu_milli=1000, nodes_min=2),
            [ev.Part(node="n1", gpus=("a",)), ev.Part(node="n2", gpus=("b",)), ev.Part(node="n3", gpus=("c",))],
            [(1000, 1000)] * 3,
        ),
        (
            Request(nodes=5, gpu_milli=1000, tasks=True),
            [ev.Part(node="n1", gpus=("a", "b", "c"), tasks=3), ev.Part(node="n2", gpus=("d", "e"), tasks=2)],
            [(3000, 3000), (2000, 2000)],
        ),
        (
            Request(nodes=1, gpu_milli=0, also=(Request(nodes=2, gpu_milli=4000),)),
            [ev.Part(node="n1"), ev.Part(node="n2", gpus=tuple("abcd")), ev.Part(node="n3", gpus=tuple("efgh"))],
            [(4000, 4000), (4000, 4000)],
        ),
    ],
    ids=["a share", "MIG", "fewer nodes than the most", "tasks share nodes", "two kinds of nodes"],
)
def test_the_request_is_charged(request_: Request, parts: list[ev.Part], amounts: list[tuple[int, int]]) -> None:
    """Of each node; a part without GPUs has no stay."""
    assert of(request_, *parts) == amounts


def test_elements_of_arrays_take_after_their_array() -> None:
    """Also after the array's other elements have ended."""
    story = Story()
    story.at(1, joined("n1"))
    story.at(10, submitted("4", array=(0, 2), user="bob", queue="vision"))
    story.at(11, placed("4_0", n1=1))
    story.at(12, ended("4_0", released=("n1",)))
    story.at(13, ev.JobSucceeded(cause="1.0", job="4_0", attempt=1))
    story.at(14, placed("4_1", n1=1))
    assert [(stay.job, stay.user, stay.queue) for stay in stays(story)] == [
        ("4_0", "bob", "vision"),
        ("4_1", "bob", "vision"),
    ]


def test_pools_say_what_a_model_counts_in_budgets() -> None:
    """By the model's label, at the moment of the placement."""
    story = Story()
    story.at(0, ev.PoolConfigured(cause="cmd:q", pool="big", settings=PoolSettings(prices={"h100": 2500})))
    story.at(0, ev.QueueConfigured(cause="cmd:q", path="lab", settings=QueueSettings(pool="big")))
    gpus = (Gpu(uuid="a", index=0, model="NVIDIA H100", memory_mib=1),)
    inventory = Inventory(gpus=gpus, labels={MODEL_LABEL: "h100"})
    story.at(1, ev.NodeJoined(cause="report:n1:1", node="n1", incarnation="a", boot_id="b", inventory=inventory))
    story.at(2, submitted("1", queue="lab/small"))
    story.at(3, placed("1", n1=1))
    [stay] = stays(story)
    assert (stay.model, stay.pool, stay.weight) == ("h100", "big", 2500)


def test_a_repeated_event_changes_nothing() -> None:
    """An end after the end, a release after the release."""
    again = ev.AllocationReleased(cause="report:n1:9", job="1", attempt=1, node="n1")
    story = simple((50, again), (100, ended("1")), (120, again))
    assert seconds(stays(story)) == [(12, 100, 50)]


def test_finished_runs_leave_the_memory() -> None:
    """A meter remembers running work, not history."""
    story = simple((100, ended("1", released=("n1",))))
    story.at(101, ev.JobSucceeded(cause="4.0", job="1", attempt=1))
    state = fold(story).state
    assert (state.births, state.stays) == ({}, {})
