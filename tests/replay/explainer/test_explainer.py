"""The explainer: what it says is what the queue's own functions say of the log, folded to where was asked for."""

import asyncio
from collections.abc import Sequence

import pytest

from fairlead_bus.memory import MemoryBus, MemoryTail
from fairlead_queue.explain.dry_run import dry_run
from fairlead_replay import kept_folds
from fairlead_schemas.queries.explainer import Explanation
from tests.kit.eventually import eventually_async
from tests.kit.queue_world import SECOND
from tests.replay.explainer.asking import ExplainerWorld, busy_morning

# ---------------------------------------------------------------------------------------- now


async def test_an_answer_is_what_the_queues_own_function_says() -> None:
    """Of every live job, and of the sequence that the log is at."""
    async with ExplainerWorld() as world:
        busy_morning(world.queue)
        await world.write()
        jobs = list(world.queue.state.jobs)
        assert len(jobs) > 5
        for job in jobs:
            answer = await world.why(job)
            assert (answer.error, answer.sequence) == ("", world.last)
            assert answer.why == world.told(job)


async def test_the_answer_follows_the_log() -> None:
    """Every commit before the query counts, however recent; every commit is folded once."""
    async with ExplainerWorld() as world:
        waiting = busy_morning(world.queue)
        for _ in range(5):
            world.queue.submit(1, priority=90)
            await world.write()
            answer = await world.why(waiting[-1])
            assert (answer.sequence, answer.why) == (world.last, world.told(waiting[-1]))
        assert world.explainer.statistics()["folded"] == world.last


async def test_an_answer_does_not_need_the_snapshots() -> None:
    """The server that has them may be away: the log is folded from its start."""
    async with ExplainerWorld() as world:
        (job, *_) = busy_morning(world.queue)
        await world.write()
        world.hub.stores_up = False
        answer = await world.why(job)
        assert (answer.error, answer.why) == ("", world.told(job))


async def test_an_explainer_without_queries_folds_nothing() -> None:
    """It loads no snapshot and folds no commit; only the scrub reads the log, one pass and then a pause."""
    asked: list[str] = []

    class Counting(MemoryBus):
        async def tail(self, stream: str, *, after: int, subject: str | Sequence[str] = "") -> MemoryTail:
            asked.append("tail")
            return await super().tail(stream, after=after, subject=subject)

        async def get_object(self, store: str, name: str) -> bytes | None:
            asked.append("object")
            return await super().get_object(store, name)

    async with ExplainerWorld(bus=Counting) as world:
        busy_morning(world.queue)
        await world.write()
        await asyncio.sleep(0.05)
        assert asked in ([], ["tail"])
        assert world.explainer.statistics()["folded"] == 0
        asked.clear()
        assert not (await world.why("1")).error
        assert set(asked) == {"object", "tail"}


async def test_an_idle_explainer_drops_its_state_and_folds_again() -> None:
    """Without queries nothing is held; the next one finds the log as it is then."""
    async with ExplainerWorld(idle_s=0.05) as world:
        waiting = busy_morning(world.queue)
        await world.write()
        assert (await world.why(waiting[0])).why == world.told(waiting[0])
        await world.why(waiting[0], at=world.last - 1)
        await eventually_async(lambda: world.explainer.statistics()["sequence"] == 0)
        assert (world.explainer._folds._live, world.explainer._folds._past) == (None, None)
        world.queue.submit(1, priority=90)
        await world.write()
        answer = await world.why(waiting[0])
        assert (answer.sequence, answer.why) == (world.last, world.told(waiting[0]))


# ---------------------------------------------------------------------------------------- the past


async def test_an_answer_for_a_past_sequence_is_that_of_a_fold_to_there() -> None:
    """At every sequence, forwards, backwards and twice; the answer for the newest is not disturbed."""
    async with ExplainerWorld() as world:
        (job, *_) = busy_morning(world.queue)
        await world.write()
        born = next(at for at in range(1, world.last + 1) if job in world.folded_to(at).state.jobs)
        places = [*range(born, world.last + 1), *range(world.last, born - 1, -1), born, born]
        for at in places:
            answer = await world.why(job, at=at)
            assert (answer.error, answer.sequence, answer.why) == ("", at, world.told(job, at))
        assert (await world.why(job, at=born - 1)).error == "not_found"
        assert (await world.why(job)).why == world.told(job)


async def test_a_past_state_is_kept_for_the_same_and_for_later_sequences() -> None:
    """Earlier commits are folded once; only an earlier sequence starts again."""
    async with ExplainerWorld() as world:
        busy_morning(world.queue)
        last = await world.write()
        await world.why("1")
        for at, folded in ((5, last + 5), (5, last + 5), (9, last + 9), (last - 1, 2 * last - 1), (4, 2 * last + 3)):
            assert (await world.why("1", at=at)).sequence == at
            assert world.explainer.statistics()["folded"] == folded


async def test_a_future_sequence_is_refused() -> None:
    """With the log's current one; once it exists, the query is answered."""
    async with ExplainerWorld() as world:
        (job, *_) = busy_morning(world.queue)
        await world.write()
        early = await world.why(job, at=world.last + 1)
        assert (early.error, early.sequence) == ("not_yet", world.last)
        assert early.message == f"the log is at sequence {world.last}"
        world.queue.submit(1)
        await world.write()
        answer = await world.why(job, at=early.sequence + 1)
        assert (answer.error, answer.why) == ("", world.told(job, early.sequence + 1))


async def test_with_a_snapshot_in_the_store_the_tail_alone_is_folded() -> None:
    """The newest for the end, one that is old enough for the past, none for a sequence before all."""
    async with ExplainerWorld() as world:
        waiting = busy_morning(world.queue)
        first = await world.write()
        await world.keep_snapshot(0)
        world.queue.submit(1, priority=90)
        second = await world.write()
        await world.keep_snapshot(1)
        world.queue.submit(1, priority=91)
        last = await world.write()
        assert first < second < last
        expected = 0
        for at, folded in ((0, last - second), (second - 1, second - 1 - first), (first - 1, first - 1)):
            assert (await world.why(waiting[0], at=at)).why == world.told(waiting[0], at)
            expected += folded
            assert world.explainer.statistics()["folded"] == expected


async def test_a_snapshot_that_cannot_be_read_is_passed_over() -> None:
    """Another version's bytes: an older one is taken, and the log where there is none."""
    async with ExplainerWorld() as world:
        waiting = busy_morning(world.queue)
        first = await world.write()
        await world.keep_snapshot(0)
        world.queue.submit(1, priority=90)
        last = await world.write()
        await world.keep_snapshot(1, state=b'{"v":99}')
        assert (await world.why(waiting[0])).why == world.told(waiting[0])
        assert world.explainer.statistics()["folded"] == last - first
        assert (await world.why(waiting[0], at=first - 1)).why == world.told(waiting[0], first - 1)


async def test_a_fold_that_is_far_behind_takes_up_a_nearer_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a long pause between two questions."""
    monkeypatch.setattr(kept_folds, "FAR_COMMITS", 3)
    async with ExplainerWorld() as world:
        waiting = busy_morning(world.queue)
        first = await world.write()
        await world.why(waiting[0])
        for _ in range(6):
            world.queue.submit(1, priority=90)
        second = await world.write()
        await world.keep_snapshot(0)
        world.queue.submit(1, priority=91)
        await world.write()
        assert second - first > 3
        assert (await world.why(waiting[0])).why == world.told(waiting[0])
        assert world.explainer.statistics()["folded"] == first + world.last - second


# ---------------------------------------------------------------------------------------- jobs that do not wait


async def test_only_a_job_that_has_not_ended_is_explained() -> None:
    """Others are not found: never submitted, ended, an invalid id, an element that waits with its array. While it lived, an
    ended job is explained.
    """
    async with ExplainerWorld() as world:
        queue = world.queue
        queue.node(gpus=1)
        ended = queue.submit(1)
        queue.run(ended)
        before = world.last
        queue.end(ended, exit_code=3)
        queue.settle()
        array = queue.submit(1, array=(0, 99))
        await world.write()
        for job in (ended, str(queue.state.next_number), f"{array}_99", f"{array}_100", "last", "", "9" * 400):
            answer = await world.why(job)
            assert (answer.error, answer.sequence, answer.why) == ("not_found", world.last, None)
            assert answer.message == (
                f'expected a job or array that has not ended at sequence {world.last}, found "{job[:40]}"'
            )
        assert (await world.why(array)).why == world.told(array)
        assert (await world.why(ended, at=before)).why == world.told(ended, before) == Explanation(reason="")


# ---------------------------------------------------------------------------------------- dry runs


async def test_jobs_are_tried_each_by_itself_as_of_now() -> None:
    """As the pure function says with the same clock; a refused one does not keep the others from being tried."""
    async with ExplainerWorld() as world:
        busy_morning(world.queue)
        await world.write()
        world.queue.now += 5 * SECOND
        commands = [
            world.queue.submission(2, queue="research", total_ns=SECOND),
            world.queue.submission(1, queue="nowhere"),
            world.queue.submission(8),
        ]
        answer = await world.dry_run(*commands)
        state = world.folded_to(world.last).state
        assert answer.sequence == world.last
        assert answer.outcomes == tuple(dry_run(state, command, world.queue.now) for command in commands)
        assert [outcome.code for outcome in answer.outcomes] == ["", "unknown_queue", ""]
        # Asking has changed nothing.
        assert (await world.dry_run(*commands)) == answer
        assert (await world.dry_run()).outcomes == ()


async def test_a_clock_behind_the_log_counts_as_the_logs_time() -> None:
    """As for the queue itself: its time never falls behind the newest commit's."""
    async with ExplainerWorld() as world:
        busy_morning(world.queue)
        await world.write()
        state, command = world.folded_to(world.last).state, world.queue.submission(2, total_ns=SECOND)
        world.queue.now = 0
        assert (await world.dry_run(command)).outcomes == (dry_run(state, command, state.at_ns),)
