"""The explainer when it is asked nonsense, too much, or of a log that is not as it should be: always an answer."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from fairlead_bus.memory import MemoryBus, MemoryTail
from fairlead_bus.port import Message, Stored
from fairlead_queue.explain import dry_run as dry_runs
from fairlead_replay import kept_folds
from fairlead_replay.explainer import answers, service
from fairlead_schemas.queries.explainer import COMMANDS_MAX, AskDryRun, AskWhy, DryRunOutcome, decode_answer, encode
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import EXIT_DAMAGED
from tests.kit.eventually import eventually_async
from tests.replay.explainer.asking import WAIT_S, ExplainerWorld, busy_morning


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
        b'{"type":"AskWhom","job":"1"}',
        b'{"type":"AskWhy"}',
        b'{"type":"AskWhy","job":7}',
        b'{"type":"AskDryRun","commands":[{"type":"SubmitJob"}]}',
        encode(AskWhy(job="1", at=-1)),
    ],
)
async def test_a_question_that_cannot_be_read_is_answered_so(payload: bytes) -> None:
    """And the next one as ever."""
    async with ExplainerWorld() as world:
        (job, *_) = busy_morning(world.queue)
        await world.write()
        assert (await world.raw(payload)).error == "invalid"
        assert (await world.why(job)).why == world.told(job)


async def test_more_jobs_than_a_dry_run_takes_are_refused() -> None:
    """With the bound in the message."""
    async with ExplainerWorld() as world:
        command = world.queue.submission(1)
        await world.write()
        assert len((await world.ask(AskDryRun(commands=(command,) * COMMANDS_MAX))).outcomes) == COMMANDS_MAX
        answer = await world.ask(AskDryRun(commands=(command,) * (COMMANDS_MAX + 1)))
        assert (answer.error, answer.message) == ("invalid", f"expected at most {COMMANDS_MAX} jobs, found 101")


async def test_a_burst_is_answered_in_order_and_the_excess_is_refused() -> None:
    """A hundred at once: each gets an answer; those within the limit in the order of arrival."""
    async with ExplainerWorld() as world:
        (job, *_) = busy_morning(world.queue)
        await world.write()
        order: list[int] = []

        async def ask(number: int) -> str:
            answer = await world.why(job)
            if not answer.error:
                assert answer.why == world.told(job)
                order.append(number)
            return answer.error

        errors = await asyncio.gather(*(ask(number) for number in range(100)))
        assert set(errors) == {"", "busy"}
        assert errors.count("") >= service.WAITING_MAX
        assert order == sorted(order)
        counted = world.explainer.statistics()
        assert (counted["answered"], counted["refused"]) == (errors.count(""), errors.count("busy"))
        assert (await world.why(job)).error == ""


async def test_a_fault_is_answered_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """`failed`, and the state that the fault may have spoiled is not used again."""
    async with ExplainerWorld() as world:
        (job, *_) = busy_morning(world.queue)
        await world.write()
        await world.why(job)
        with monkeypatch.context() as patched:

            def spoil(state: object, *_: object) -> None:
                state.jobs.clear()  # type: ignore[attr-defined] -- the queue's state
                raise ValueError("planted")

            patched.setattr(answers, "why", spoil)
            answer = await world.why(job)
        assert (answer.error, answer.message) == ("failed", "ValueError: the explainer's log has more")
        assert (await world.why(job)).why == world.told(job)
        assert world.explainer.statistics()["failed"] == 1


async def test_a_damaged_log_is_not_answered_from() -> None:
    """No guess: the question is answered with `failed` and the reason, and the process ends with the code of damage."""
    async with ExplainerWorld() as world:
        (job, *_) = busy_morning(world.queue)
        await world.write()
        world.hub.damage(subjects.LOG, 3, lambda payload: payload.replace(b'"n":', b'"n":1'))
        answer = await world.why(job)
        assert answer.error == "failed"
        assert answer.message.startswith("the log is damaged: log sequence")
        assert await world.exit_code() == EXIT_DAMAGED


async def test_a_log_that_went_back_is_not_answered_from_its_former_state() -> None:
    """The folded commits are gone: the answer is `failed`, and the process ends."""
    async with ExplainerWorld() as world:
        (job, *_) = busy_morning(world.queue)
        await world.write()
        await world.why(job)
        world.hub.truncate(subjects.LOG, world.last - 1)
        assert (await world.why(job)).error == "failed"
        assert await world.exit_code() == EXIT_DAMAGED


async def test_another_log_is_folded_from_its_own_start() -> None:
    """A new stream is recognised by its creation time, not by its length."""
    async with ExplainerWorld() as world:
        (job, *_) = busy_morning(world.queue)
        await world.write()
        await world.keep_snapshot()
        await world.why(job)
        async with ExplainerWorld() as other:
            for _ in range(3):
                busy_morning(other.queue)
            await other.write()
            world.hub.streams[subjects.LOG] = other.hub.streams[subjects.LOG]
            world.hub.streams[subjects.LOG].created = "another"
            answer = await world.why(job)
            assert (answer.sequence, answer.why) == (other.last, other.told(job))


async def test_an_unavailable_bus_fails_the_query_only() -> None:
    """The failure cannot even be sent; afterwards everything works as before."""
    async with ExplainerWorld() as world:
        (job, *_) = busy_morning(world.queue)
        await world.write()
        link = world.hub.connect()
        explainer = await world.start(link)
        link.unlink()
        answer = decode_answer(await explainer._take(Message(subjects.ASK, encode(AskWhy(job=job)))))
        assert (answer.error, "cannot be read now" in answer.message) == ("failed", True)
        link.relink()
        assert (await world.why(job)).why == world.told(job)


class Gated(MemoryBus):
    """Gives out the log's first messages, and the rest when the gate is opened."""

    first = 5

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type] -- as given
        self.gate = asyncio.Event()

    async def tail(self, stream: str, *, after: int, subject: str | Sequence[str] = "") -> MemoryTail:
        tail = await super().tail(stream, after=after, subject=subject)
        read, held = tail.next, list[Stored]()

        async def next_few() -> list[Stored]:
            found = held or await read()
            if not self.gate.is_set() and found[0].sequence > self.first:
                held[:] = found
                await self.gate.wait()
            few = [stored for stored in found if self.gate.is_set() or stored.sequence <= self.first]
            held[:] = found[len(few) :]
            return few

        tail.next = next_few
        return tail


async def test_a_long_fold_is_interrupted_and_continues_with_the_next_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has the progress; nothing is folded twice."""
    monkeypatch.setattr(service, "ANSWER_S", 10.0)  # enough to come to the gate on any machine
    async with ExplainerWorld(bus=Gated) as world:
        (job, *_) = busy_morning(world.queue)
        await world.write()
        answer = await world.why(job)
        assert (answer.error, answer.sequence) == ("busy", Gated.first)
        assert answer.message == f"the log is folded up to sequence {Gated.first} of {world.last}; ask again"
        assert isinstance(world.bus, Gated)
        world.bus.gate.set()
        monkeypatch.setattr(service, "ANSWER_S", WAIT_S)
        assert (await world.why(job)).why == world.told(job)
        assert world.explainer.statistics()["folded"] == world.last


async def test_folding_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time for a step, after every single commit."""
    monkeypatch.setattr(kept_folds, "STEP_S", 0.0)
    async with ExplainerWorld() as world:
        (job, *_) = busy_morning(world.queue)
        await world.write()
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        await world.why(job)
        counting.cancel()
        assert turns >= world.last


async def test_of_several_explainers_one_answers_each_question() -> None:
    """They share the work; when one has gone, the others have it all."""
    async with ExplainerWorld() as world:
        second = await world.start(world.hub.connect())
        (job, *_) = busy_morning(world.queue)
        await world.write()
        for _ in range(10):
            assert (await world.why(job)).why == world.told(job)
        counted = [each.statistics()["answered"] for each in world.explainers]
        assert (sum(counted), min(counted) > 0) == (10, True)
        await second.stop()
        await eventually_async(lambda: world._running[1].done())
        for _ in range(4):
            assert (await world.why(job)).why == world.told(job)
        assert world.explainer.statistics()["answered"] == counted[0] + 4


async def test_queries_that_wait_when_an_explainer_stops_are_answered() -> None:
    """With the advice to repeat them, instead of a timeout."""
    async with ExplainerWorld(bus=Gated) as world:
        (job, *_) = busy_morning(world.queue)
        await world.write()
        asked = [asyncio.create_task(world.why(job)) for _ in range(3)]
        await eventually_async(lambda: world.explainer.statistics()["waiting"] == 2)
        await world.stop()
        answers = await asyncio.gather(*asked)
    assert {(answer.error, answer.message) for answer in answers} == {("busy", "this explainer is stopping; ask again")}


async def test_an_answer_that_no_message_carries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its size, so that less is asked for."""
    monkeypatch.setattr(service, "ANSWER_BYTES_MAX", 100)
    async with ExplainerWorld() as world:
        (job, *_) = busy_morning(world.queue)
        await world.write()
        answer = await world.why(job)
        assert answer.error == "invalid"
        assert "at most 100" in answer.message


async def test_a_dry_run_that_exceeds_its_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same number again would fail again; the next query has its own time."""
    real = dry_runs.dry_run

    def slow(*arguments: Any) -> DryRunOutcome:
        time.sleep(0.3)
        return real(*arguments)

    async with ExplainerWorld() as world:
        busy_morning(world.queue)
        await world.write()
        await world.dry_run(world.queue.submission(1))  # folds, which takes its own time
        with monkeypatch.context() as patched:
            patched.setattr(dry_runs, "dry_run", slow)
            patched.setattr(service, "ANSWER_S", 0.5)
            answer = await world.dry_run(*(world.queue.submission(1) for _ in range(5)))
        assert (answer.error, answer.outcomes) == ("busy", ())
        assert answer.message.endswith("of 5 jobs were looked at within 0.5 s; ask again, for fewer at once")
        assert len((await world.dry_run(world.queue.submission(1))).outcomes) == 1
