"""The service on a bus: it follows the log, answers requests, counts lost samples, and refuses what does not fit."""

import asyncio
import contextlib
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import duckdb
import pytest

from fairlead_bus.memory import MemoryHub
from fairlead_bus.nats.adapter import connect
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import EXIT_DAMAGED
from fairlead_schemas.wire.samples import GpuSample, SampleBatch, encode_samples
from fairlead_telemetry import ingest
from fairlead_telemetry.queries.answers import TelemetryQueries
from fairlead_telemetry.service import Telemetry
from fairlead_telemetry.sql.query_pool import QueryPool
from fairlead_telemetry.warehouse import event_rows
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.kit.eventually import eventually_async
from tests.telemetry.rows import actual, expected
from tests.telemetry.service_on_bus import ask, reaches, running, world
from tests.telemetry.story import START_NS, Story, busy, morning

SOON_S = 60.0
KILLS = 5


async def test_the_warehouse_follows_the_log_and_answers(tmp_path: Path) -> None:
    """Commits are in SQL soon, also later ones; the answer has its sequence."""
    story = morning()
    hub, bus = await world(story)
    async with running(hub.connect(), tmp_path):
        await reaches(bus, 33)
        assert (await ask(bus, "sql", query="SELECT count(*) FROM jobs"))["rows"] == [[10]]
        story.at(6000, *story.commits[0][1].events)
        await story.append_to(bus, first=33)
        await reaches(bus, 34)

        async def fresh() -> bool:
            return (await ask(bus, "sql", query="SELECT count(*) FROM events"))["rows"] == [[47]]

        await eventually_async(fresh, not_yet=(Exception,))
        assert "gpu_hours_by_user" in (await ask(bus, "tables"))["text"]
        assert (await ask(bus, "sql", query="DROP TABLE events"))["error"]["code"] == "forbidden"


async def test_job_documents_come_from_events(tmp_path: Path) -> None:
    """A retired job is found with its whole story; elements take after their array; what never was is not found."""
    hub, bus = await world(morning())
    async with running(hub.connect(), tmp_path):
        await reaches(bus, 33)
        assert await ask(bus, "job", id="1") == {
            "id": "1",
            "name": "job-1",
            "kind": "batch",
            "queue": "research",
            "user": "ada",
            "project": "",
            "state": "succeeded",
            "attempt": 1,
            "priority": 50,
            "nodes": ["n1"],
            "reason": {"code": "succeeded", "message": "ended with exit code 0 at 2026-01-01T01:00:13.000Z"},
            "gpus": {"n1": ["GPU-n1-0", "GPU-n1-1"]},
            "exit_code": 0,
            "signal": None,
            "message": "",
            "array": None,
            "submitted_at": "2026-01-01T00:00:10.000Z",
            "started_at": "2026-01-01T00:00:13.000Z",
            "ended_at": "2026-01-01T01:00:13.000Z",
            "sequence": 33,
            "spec": {"name": "job-1", "command": ["true"]},
            "deadline": None,
            "deadline_missed": False,
            "slice_seconds": None,
            "used_seconds": 3599,
            "left_seconds": None,
            "after": [],
            "preempted": 0,
            "preempted_for": None,
            "saved_at": None,
            "saved_note": "",
            "lost_seconds": 0,
            "idle": None,
            "extended_until": None,
            "attempts": [],
            "ready_at": None,
        }
        failed = await ask(bus, "job", id="2")
        assert (failed["state"], failed["attempt"], failed["signal"], failed["nodes"]) == ("failed", 2, 9, ["n2"])
        assert failed["reason"]["detail"] == {"reason": "exit_code", "attempt": 2, "signal": 9}
        assert (await ask(bus, "job", id="4"))["array"] == {"waiting": 1, "succeeded": 1, "offered": 1}
        element = await ask(bus, "job", id="4_1")
        assert (element["user"], element["state"], element["reason"]["detail"]) == ("bob", "offered", {"free_gpus": 2})
        states = [(await ask(bus, "job", id=job))["state"] for job in ("3", "5", "6", "7", "8")]
        assert states == ["running", "held", "cancelled", "scheduled", "stopping"]
        for job in ("99", "4_2", "", "1; DROP TABLE events", "' OR 1=1 --"):
            assert (await ask(bus, "job", id=job))["error"]["code"] == "not_found"
        assert (await ask(bus, "job"))["error"]["code"] == "bad_request"


def sample(n: int, node: str = "n1") -> bytes:
    gpus = [GpuSample(uuid=f"GPU-{node}-0", utilization_pct=90, memory_used_mib=n)]
    return encode_samples(SampleBatch(node=node, incarnation="a", n=n, at_ns=START_NS + n * 10**9, gpus=gpus))


async def test_samples_arrive_once_and_losses_are_counted(tmp_path: Path) -> None:
    """The stream is read from its start after a restart and nothing is stored twice; bad batches are refused."""
    hub, bus = await world(morning())
    for payload in (sample(1), sample(2), sample(5), b"{", sample(1, node="n2")):
        await bus.append(subjects.SAMPLE, subjects.sample("n1"), payload)

    async def stored(count: int) -> bool:
        return (await ask(bus, "sql", query="SELECT count(*) FROM samples"))["rows"] == [[count]]

    for count in (3, 4):
        async with running(hub.connect(), tmp_path):
            await eventually_async(lambda count=count: stored(count), not_yet=(Exception,))
            state = await ask(bus, "warehouse")
            assert (state["samples_lost"], state["samples_refused"]) == (2, {"garbage": 1, "other_node": 1})
            await bus.append(subjects.SAMPLE, subjects.sample("n1"), sample(6))
    warehouse = Warehouse(tmp_path)
    assert warehouse.rows("SELECT n, count(*) FROM samples GROUP BY n ORDER BY n") == [(1, 1), (2, 1), (5, 1), (6, 1)]
    assert warehouse.rows("SELECT node, incarnation, first_lost, last_lost FROM sample_gaps") == [("n1", "a", 3, 4)]
    warehouse.close()


async def fill(tmp_path: Path) -> None:
    hub, bus = await world(morning())
    async with running(hub.connect(), tmp_path):
        await reaches(bus, 33)


async def test_one_of_two_services_answers_each_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a warehouse of its own; a query that both ran would cost twice. Only a cancel goes to both."""
    asked: list[str] = []

    def counted(name: str) -> Callable[[object, bytes], Awaitable[bytes]]:
        async def count(_: object, request: bytes) -> bytes:
            asked.append(name)
            return b"{}"

        return count

    monkeypatch.setattr(TelemetryQueries, "_tables", counted("tables"))
    monkeypatch.setattr(QueryPool, "cancel", counted("cancel"))
    hub, bus = await world(morning())
    async with running(hub.connect(), tmp_path / "a"), running(hub.connect(), tmp_path / "b"):
        await reaches(bus, 33)
        await eventually_async(
            lambda: _are(2, len(hub.subscribers[subjects.rpc("telemetry", "use")])), not_yet=(Exception,)
        )
        for _ in range(3):
            await ask(bus, "tables")
        await ask(bus, "sql_cancel")
        await eventually_async(lambda: _are(5, len(asked)), not_yet=(Exception,))
    assert asked == ["tables"] * 3 + ["cancel"] * 2


async def _are(expected: int, found: int) -> bool:
    return expected == found


def other_bytes(story: Story) -> Story:
    """The same log with another last commit."""
    del story.commits[-1:]
    story.at(7000, *story.commits[0][1].events)
    return story


@pytest.mark.parametrize("case", ["shorter", "replaced", "other", "empty"])
async def test_another_log_is_refused(tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A log that went back or holds another commit at the cursor is damaged, one with another first commit is another:
    one line, no row changed."""
    await fill(tmp_path)
    story = morning()
    hub, _ = await world(other_bytes(story) if case == "other" else story)
    if case == "shorter":
        hub.truncate(subjects.LOG, 20)
    if case == "empty":
        hub.truncate(subjects.LOG, 0)
    if case == "replaced":
        hub.damage(subjects.LOG, 1, lambda payload: payload + b" ")
    capsys.readouterr()
    code = await asyncio.wait_for(Telemetry(hub.connect(), tmp_path).run(), SOON_S)
    assert code == (1 if case == "replaced" else EXIT_DAMAGED)
    told = {
        "shorter": "went back to 20",
        "empty": "went back to 0",
        "replaced": "holds another log",
        "other": "not the one in the warehouse",
    }
    lines = "".join(capsys.readouterr()).splitlines()
    refused = [line for line in lines if "telemetry_refused" in line or "log damaged" in line]
    assert len(refused) == 1
    assert told[case] in refused[0]
    assert "move" in refused[0]
    warehouse = Warehouse(tmp_path)
    assert actual(warehouse) == expected([payload for *_, payload in morning().commits])
    warehouse.close()


async def test_a_stream_with_a_new_creation_time_is_the_same_log(tmp_path: Path) -> None:
    """Its meta.inf was damaged, its commits are whole: the warehouse continues with it."""
    await fill(tmp_path)
    hub, bus = await world(morning())
    hub.streams[subjects.LOG].created = "another day"
    async with running(hub.connect(), tmp_path):
        await reaches(bus, 33)


async def test_damaged_log_stops_the_service(tmp_path: Path) -> None:
    """A changed word in a commit ends the service with 70, as it ends every other, at the commit that no longer fits the chain."""
    hub, _ = await world(morning())
    hub.damage(subjects.LOG, 27, lambda payload: payload.replace(b"ada", b"eve"))
    async with running(hub.connect(), tmp_path) as task:
        assert await asyncio.wait_for(task, SOON_S) == 70


async def test_a_disk_that_fails_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk cannot be written the service ends with 1; once it works again, the next start has every row."""
    hub, _ = await world(morning())

    def fails(*_: object) -> int:
        raise duckdb.IOException("Could not write to file: No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(event_rows, "insert", fails)
        broken.setattr(ingest, "LOG_INTERVAL_S", 0.2)
        assert await asyncio.wait_for(Telemetry(hub.connect(), tmp_path).run(), SOON_S) == 1
    async with running(hub.connect(), tmp_path):
        await reaches(hub.connect(), 33)
    warehouse = Warehouse(tmp_path)
    assert actual(warehouse) == expected([payload for *_, payload in morning().commits])
    warehouse.close()


async def test_second_service_steps_down(tmp_path: Path) -> None:
    """Only one process may have the warehouse: the other leaves with 75."""
    hold = "import pathlib, sys, time; from fairlead_telemetry.warehouse.warehouse import *; "
    hold += "w = Warehouse(pathlib.Path(sys.argv[1])); print('open', flush=True); time.sleep(60)"
    command = (sys.executable, "-c", hold, str(tmp_path))
    holder = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"open\n"
    try:
        assert await Telemetry(MemoryHub().connect(), tmp_path).run() == 75
    finally:
        holder.kill()
        await holder.wait()


@pytest.mark.nats
async def test_kill_9_on_a_real_server(tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service process, killed again and again while the log grows, ends with exactly the log's rows."""
    monkeypatch.setenv("FAIRLEAD_NATS", nats_url)
    monkeypatch.setenv("FAIRLEAD_DATA", str(tmp_path))
    story, chance = busy(6000), random.Random(11)
    bus = await connect(nats_url, name="test")
    await bus.ensure()
    half, directory = len(story.commits) // 2, tmp_path / "telemetry"
    for subject, _, payload in story.commits[:half]:
        await bus.append(subjects.LOG, subject, payload)
    payloads = [payload for *_, payload in story.commits]
    rows = expected(payloads)

    async def start() -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fairlead_telemetry", stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        while b"telemetry_started" not in (line := await process.stderr.readline()):
            assert line, "the service ended"
        return process

    async def killed(process: asyncio.subprocess.Process) -> int:
        """Return the cursor at the kill, which equals the rows."""
        process.kill()
        await process.wait()
        warehouse = Warehouse(directory)
        assert actual(warehouse) == rows[: warehouse.cursor.events]
        assert warehouse.cursor.sequence == (rows[warehouse.cursor.events - 1][0] if warehouse.cursor.events else 0)
        warehouse.close()
        return warehouse.cursor.sequence

    async def has_stored() -> bool:
        has_read = (await ask(bus, "warehouse"))["sequence"] > 0
        await ask(bus, "job", id="1")  # everything that was read before a question is stored
        return has_read

    async def keep_asking() -> None:
        """Have the service store all the time, so that kills fall into transactions."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(ask_once())
                await asyncio.sleep(0.05)

    async def ask_once() -> None:
        with contextlib.suppress(Exception):
            await ask(bus, "job", id="1")

    process = await start()
    await eventually_async(
        has_stored, not_yet=(Exception,)
    )  # so that one kill falls into the middle of the log, however slow the machine
    assert 0 < await killed(process) <= half
    writing = asyncio.create_task(story.append_to(bus, first=half))
    asking = asyncio.create_task(keep_asking())
    for _ in range(KILLS):
        process = await start()
        await asyncio.sleep(chance.uniform(0.0, 0.8))
        await killed(process)
    asking.cancel()
    process = await start()
    await writing
    await reaches(bus, len(payloads))
    counted = await ask(bus, "sql", query="SELECT count(*) FROM jobs WHERE state = 'succeeded'")
    assert counted["rows"] == [[6000]]
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), SOON_S) == 0
    warehouse = Warehouse(directory)
    assert actual(warehouse) == rows
    warehouse.close()
    await bus.close()
