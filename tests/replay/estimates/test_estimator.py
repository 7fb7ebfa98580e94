"""The estimator's process: fed, asked, killed and started again, with a state that is kept, and one that is damaged."""

import asyncio
import contextlib
import io
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead_bus.memory import MemoryBus, MemoryServer
from fairlead_bus.port import Stored
from fairlead_replay.estimates import estimator as outside
from fairlead_replay.estimates import frames, worker
from fairlead_replay.estimates.answers import start_answer
from fairlead_replay.estimates.estimator import Estimator
from fairlead_schemas.queries import estimates as q
from fairlead_schemas.wire import subjects
from tests.replay.estimates import scenes

ASK = q.encode(q.AskStart(submit=scenes.submit()))


async def bus_with(log: list[Stored]) -> MemoryBus:
    """Return a bus with a log."""
    bus = MemoryBus(MemoryServer())
    for stored in log:
        await bus.append(subjects.LOG, stored.subject, stored.payload)
    return bus


@contextlib.asynccontextmanager
async def running(bus: MemoryBus, directory: Path, **more: float) -> AsyncIterator[Estimator]:
    """Let an estimator run."""
    found = Estimator(bus, directory, **{"answer_s": 60.0} | more)
    task = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def start_of(answer: object) -> q.StartAnswer:
    """Return what an answer says of a start."""
    assert isinstance(answer, bytes)
    found = q.decode_answer(answer)
    assert found.start is not None, found
    return found.start


async def test_it_answers_is_killed_and_answers_again_and_its_state_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "KEEP_COMMITS", 1)
    monkeypatch.setattr(outside, "AGAIN_S", 0.1)
    log = scenes.recorded(scenes.many(12, every_s=650))
    bus = await bus_with(log)
    async with running(bus, tmp_path) as estimator:
        assert estimator.pid is None
        first = start_of(await estimator.ask(ASK, log[-1].sequence))
        assert first.at_once
        assert first.nodes == ("n001",)
        ledger = await estimator.ask(q.encode(q.AskLedger(entries_max=5)), 0)
        assert isinstance(ledger, bytes)
        told = q.decode_answer(ledger).ledger
        assert told is not None
        assert [each.queue for each in told.queues] == ["a"]
        assert len(told.entries) == 5
        assert told.queues[0].at_once_true == told.queues[0].at_once > 0
        invalid = await estimator.ask(b"{}", 0)
        assert isinstance(invalid, bytes)
        assert q.decode_answer(invalid).error == "invalid"
        pid = estimator.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while estimator.pid == pid:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        again = start_of(await estimator.ask(ASK, log[-1].sequence))
        assert again == first
        kept = list(tmp_path.glob("estimates-*.state"))  # noqa: ASYNC240
        assert len(kept) == 1
    kept[0].write_bytes(kept[0].read_bytes()[:-7])
    async with running(bus, tmp_path) as estimator:
        assert start_of(await estimator.ask(ASK, log[-1].sequence)) == first


async def test_questions_are_refused_while_many_wait_or_the_log_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await bus_with(scenes.recorded([scenes.job(0, 5)]))
    async with running(bus, tmp_path, answer_s=0.05) as estimator:
        early = await estimator.ask(ASK, 10**6)
        assert isinstance(early, q.EstimatesAnswer)
        assert early.error == "behind"
        assert "of 1000000; ask again" in early.message
        monkeypatch.setattr(outside, "WAITING_MAX", 0)
        many = await estimator.ask(ASK, 1)
        assert isinstance(many, q.EstimatesAnswer)
        assert many.error == "busy"


def test_frames_come_as_they_were_sent_and_half_a_frame_is_the_end() -> None:
    sent = frames.Commits([(1, b"x"), (2, b"")])
    whole = frames.encode_frame(sent)
    assert frames.read_frame(io.BytesIO(whole)) == sent
    assert frames.read_frame(io.BytesIO(whole[:-1])) is None
    assert frames.read_frame(io.BytesIO(b"\0")) is None
    with pytest.raises(ValueError, match="expected a frame"):
        frames.read_frame(io.BytesIO(b"\xff\xff\xff\xff"))


def test_a_question_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(core: object, ask: object) -> None:
        raise RuntimeError("a sequencer of somebody's")

    monkeypatch.setattr(worker, "start_answer", fails)
    found = worker.Worker()
    answer = found.take(frames.Ask(ASK))
    assert answer is not None
    assert q.decode_answer(answer).error == "failed"
    assert "a sequencer" in q.decode_answer(answer).message
    ledger = found.take(frames.Ask(q.encode(q.AskLedger())))
    assert ledger is not None
    assert q.decode_answer(ledger).error == ""
    assert found.take(frames.Restore(b"no state")) == b"0"


def test_alternatives_start_earlier() -> None:
    log = scenes.recorded([*scenes.many(12, every_s=650, gpus=4), scenes.job(8_000, 600, 4), scenes.job(8_010, 600, 8)])
    core = scenes.folded(log, until_s=8_020)
    found = start_answer(core, q.AskStart(submit=scenes.submit(8))).start
    assert found is not None
    assert not found.at_once
    smaller = [each for each in found.sooner if each.kind == "smaller"]
    assert [each.gpu_milli for each in smaller] == [4000]
    assert smaller[0].start_ns < found.middle_ns
    waiting = next(job.id for job in core.cluster.queue.state.jobs.values() if job.state in ("queued", "offered"))
    assert start_answer(core, q.AskStart(job=waiting)).start is not None
