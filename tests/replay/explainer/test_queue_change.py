"""What a change of queues would do, told before it is made: exactly what the queue then decides."""

from typing import Any

import pytest

from fairlead_queue.change_preview import queue_change
from fairlead_queue.core import QueueCore
from fairlead_schemas.queries.explainer import AskQueueChange, QueueChangeOutcome
from fairlead_schemas.queuefile.settings import QueueEntry, QueueSettings
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld
from tests.replay.explainer.asking import ExplainerWorld


def crowded() -> QueueWorld:
    """A queue at its maximum: three runs, an open offer, and two jobs that wait."""
    world = QueueWorld(careful=False)
    world.quota("q", 16)
    world.quota("other", 4)
    low, early, late = (world.submit(4, queue="q", priority=p, total_ns=900 * SECOND) for p in (10, 50, 50))
    world.run(low, early, late)
    world.submit(4, queue="q", priority=90)
    for _ in range(2):
        world.submit(4, queue="q")
    world.settle()
    return world


def change(**maximum: int) -> tuple[QueueEntry, ...]:
    """Settings with these maxima, in GPUs."""
    return tuple(
        QueueEntry(path=path, settings=QueueSettings(maximum={"gpu": gpus * 1000})) for path, gpus in maximum.items()
    )


def told(core: QueueCore, command: cmd.ApplyQueues, now_ns: int) -> QueueChangeOutcome:
    """The answer about a change; the state stays as it was."""
    before = core.snapshot()
    found = queue_change(core, 1_000_000, command, now_ns)
    assert core.snapshot() == before
    return found


@pytest.mark.parametrize("reclaim", [False, True])
@pytest.mark.parametrize("maxima", [{"q": 6}, {"q": 24}, {"q": 16}, {"q": 0}, {"other": 0, "q": 20}, {"new": 3}])
def test_a_preview_equals_the_later_decisions(maxima: dict[str, int], reclaim: bool) -> None:
    """Runs that yield, offers that are taken back, jobs that are offered, in the order of the decisions."""
    world = crowded()
    fields: dict[str, Any] = {"queues": change(**maxima), "reclaim": reclaim}
    found = told(world.core, cmd.ApplyQueues(id="tried", user="bob", **fields), world.now)
    answer = world.apply(**fields)
    events = world.settle()

    def happened(kind: type[Any]) -> list[str]:
        return [event.job for event in events if isinstance(event, kind)]

    assert (found.code, found.configured, found.unchanged) == ("", answer.configured, answer.unchanged)
    assert [each.job for each in found.yields] == happened(ev.JobStopRequested)
    assert [each.job for each in found.withdrawn] == happened(ev.OfferWithdrawn)
    assert [each.job for each in found.offered] == happened(ev.JobOffered)
    assert bool(found.yields) is (reclaim and maxima.get("q", 16) < 12)
    assert {each.gpu_milli for each in (*found.yields, *found.offered)} <= {4000}


def test_a_refused_change_is_refused_in_the_same_words() -> None:
    """Guarantees beyond what is above; the removal of a queue with jobs."""
    world = crowded()
    for fields in (
        {"queues": (QueueEntry(path="q", settings=QueueSettings(guaranteed={"gpu": 9_000}, maximum={"gpu": 1_000})),)},
        {"prune": True, "queues": change(other=4)},
    ):
        found = told(world.core, cmd.ApplyQueues(id="tried", user="bob", **fields), world.now)  # type: ignore[arg-type] -- fields of the command
        refused = world.apply(**fields)
        assert isinstance(refused, ev.CommandRejected)
        assert (found.code, found.message) == (refused.code, refused.message)


async def test_the_explainer_answers_about_a_change() -> None:
    """Over the bus, at the newest sequence; nothing is written."""
    async with ExplainerWorld() as world:
        world.queue.quota("q", 8)
        for _ in range(2):
            world.queue.run(world.queue.submit(4, queue="q"))
        await world.write()
        last = world.last
        command = cmd.ApplyQueues(id="tried", user="bob", queues=change(q=4), reclaim=True)
        answer = await world.ask(AskQueueChange(command=command))
        assert (answer.error, answer.sequence) == ("", last)
        assert answer.change is not None and len(answer.change.yields) == 1
        assert world.last == last
