"""Commits wait in memory until a question needs them: what a question sees, and what a stop and a fault do meanwhile."""

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Unavailable
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.samples import GpuSample, SampleBatch, encode_samples
from fairlead_telemetry import ingest
from fairlead_telemetry import service as telemetry_service
from fairlead_telemetry.queries.current_use import NewestBatches
from fairlead_telemetry.service import EXIT_REFUSED, Telemetry
from fairlead_telemetry.sql import copies
from fairlead_telemetry.warehouse.event_rows import CommitBytes
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.kit.eventually import eventually_async
from tests.telemetry.service_on_bus import ask, reaches, running, world
from tests.telemetry.story import START_NS, busy, morning


async def test_commits_wait_for_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits alone start no transaction; a question finds everything that was read before it; a stop stores the rest."""
    stored: list[int] = []
    store = Warehouse.store

    def counting(self: Warehouse, commits: Sequence[CommitBytes], *rest: Any) -> Any:
        stored.append(len(commits))
        return store(self, commits, *rest)

    monkeypatch.setattr(Warehouse, "store", counting)
    hub, story = MemoryHub(), busy(20)
    bus = hub.connect()
    await story.append_to(bus, first=0)
    telemetry = Telemetry(hub.connect(), tmp_path)
    serving = asyncio.create_task(telemetry.run())
    await reaches(bus, len(story.commits))
    await asyncio.sleep(1.5)  # longer than the interval at which samples are stored
    assert sum(stored) == 0
    counted = await ask(bus, "sql", query="SELECT count(*) FROM events")
    assert counted["rows"][0][0] == sum(len(json.loads(payload)["events"]) for *_, payload in story.commits)
    assert sum(stored) == len(story.commits)
    await telemetry.stop()
    assert await serving == 0


async def test_samples_wait_for_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few samples start no transaction each second; a question finds those that were read before it, also after an earlier one."""
    monkeypatch.setattr(ingest, "SAMPLE_INTERVAL_S", 3600.0)
    monkeypatch.setattr(copies, "COPY_SHARE", 0)  # on a slow disk a copy would be used for longer
    hub, story = MemoryHub(), busy(2)
    bus = hub.connect()
    await story.append_to(bus, first=0)
    read: list[int] = []
    feed = NewestBatches.feed
    monkeypatch.setattr(NewestBatches, "feed", lambda self, batch: (feed(self, batch), read.append(batch.n))[0])
    async with running(hub.connect(), tmp_path):
        await reaches(bus, len(story.commits))
        for n in (1, 2):
            batch = SampleBatch(
                node="n1", incarnation="i", n=n, at_ns=START_NS + n, gpus=[GpuSample(uuid="GPU-1", memory_used_mib=1)]
            )
            await bus.append(subjects.SAMPLE, subjects.sample("n1"), encode_samples(batch))
            await eventually_async(lambda n=n: asyncio.sleep(0, n in read))
            await asyncio.sleep(
                1.1
            )  # longer than a copy is used for further queries, and than the pause between transactions
            counted = await ask(bus, "sql", query="SELECT count(*) FROM samples")
            assert counted["rows"][0][0] == n


async def test_many_samples_do_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples beyond a size are stored within the pause between two transactions."""
    monkeypatch.setattr(ingest, "SAMPLE_INTERVAL_S", 3600.0)
    monkeypatch.setattr(ingest, "SAMPLE_BYTES", 10)
    stored = asyncio.Event()
    store, loop = Warehouse.store, asyncio.get_running_loop()

    def counting(self: Warehouse, commits: Any, heads: Any, log_id: str, samples: Any) -> Any:
        if samples.batches:
            loop.call_soon_threadsafe(stored.set)
        return store(self, commits, heads, log_id, samples)

    monkeypatch.setattr(Warehouse, "store", counting)
    hub, bus = await world(busy(2))
    async with running(hub.connect(), tmp_path):
        batch = SampleBatch(
            node="n1", incarnation="i", n=1, at_ns=START_NS, gpus=[GpuSample(uuid="GPU-1", memory_used_mib=1)]
        )
        await bus.append(subjects.SAMPLE, subjects.sample("n1"), encode_samples(batch))
        await asyncio.wait_for(stored.wait(), 60)


async def test_a_question_during_a_transaction_of_samples_waits_for_its_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits that are read while samples are stored are not in that transaction; the answer waits for the next one."""
    gate, entered, store = threading.Event(), threading.Event(), Warehouse.store

    def slow(self: Warehouse, commits: Sequence[CommitBytes], heads: Any, log_id: str, samples: Any) -> Any:
        if samples.batches and not commits:
            entered.set()
            gate.wait(60)
        return store(self, commits, heads, log_id, samples)

    hub, story = MemoryHub(), busy(40)
    bus, half = hub.connect(), len(story.commits) // 2
    await bus.ensure()
    for subject, _, payload in story.commits[:half]:
        await bus.append(subjects.LOG, subject, payload)
    async with running(hub.connect(), tmp_path):
        await reaches(bus, half)
        await ask(bus, "job", id="1")  # all that is in the log is stored
        monkeypatch.setattr(Warehouse, "store", slow)
        batch = SampleBatch(
            node="n1", incarnation="i", n=1, at_ns=START_NS, gpus=[GpuSample(uuid="GPU-1", memory_used_mib=1)]
        )
        await bus.append(subjects.SAMPLE, subjects.sample("n1"), encode_samples(batch))
        assert await asyncio.to_thread(entered.wait, 60)
        await story.append_to(bus, first=half)
        await reaches(bus, len(story.commits))
        question = asyncio.create_task(ask(bus, "job", id="40"))
        await asyncio.sleep(0.2)
        assert (await ask(bus, "warehouse"))["sequence"] == len(story.commits)
        gate.set()
        assert (await question)["sequence"] == len(story.commits)


async def test_a_stop_does_not_wait_for_a_bus_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is pending is read again at the next start."""
    monkeypatch.setattr(telemetry_service, "FLUSH_S", 0.2)
    hub, story = MemoryHub(), morning()
    bus, own = hub.connect(), hub.connect()
    await bus.ensure()
    telemetry = Telemetry(own, tmp_path)
    serving = asyncio.create_task(telemetry.run())
    await reaches(bus, 0)  # the log was empty at the start: its identity is not known yet
    await story.append_to(bus)
    await reaches(bus, len(story.commits))

    async def away(*_: object) -> Any:
        raise Unavailable("away")

    monkeypatch.setattr(own, "state", away)
    monkeypatch.setattr(own, "read", away)
    await telemetry.stop()
    assert await asyncio.wait_for(serving, 60) == 0


async def test_a_store_that_fails_at_a_stop_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last transaction's fault is the exit code's reason; the commits are read again at the next start."""
    story = morning()
    hub, bus = await world(story)
    telemetry = Telemetry(hub.connect(), tmp_path)
    serving = asyncio.create_task(telemetry.run())
    await reaches(bus, len(story.commits))

    def full(*_: object) -> Any:
        raise duckdb.IOException("no space left")

    monkeypatch.setattr(Warehouse, "store", full)
    await telemetry.stop()
    assert await asyncio.wait_for(serving, 60) == EXIT_REFUSED
    monkeypatch.undo()
    async with running(hub.connect(), tmp_path):
        await reaches(bus, len(story.commits))
        counted = await ask(bus, "sql", query="SELECT count(*) FROM events")
    assert counted["rows"][0][0] == sum(len(json.loads(payload)["events"]) for *_, payload in story.commits)
