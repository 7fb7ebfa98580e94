"""Execution of steps: what waits for another report, and what a crash leaves of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead_agent.core.ledger import Accepted, Reported
from fairlead_agent.files.journal import decode_lines
from fairlead_agent.shell import executor, upkeep
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.reports import ExitSeen, Report, StartSeen, decode_reports
from tests.agent.placer_script import order
from tests.agent.world import AgentWorld
from tests.kit.eventually import eventually_async


@pytest.fixture
async def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AgentWorld]:
    """A joined node that never sends the report of a start alone."""
    monkeypatch.setattr(executor, "START_WAIT_NS", 600_000_000_000)
    monkeypatch.setattr(upkeep, "JOURNAL_FLUSH_S", 600.0)
    world = await AgentWorld(tmp_path).open()
    yield world
    await world.close()


async def test_start_and_end_of_a_short_run_are_one_sync_and_one_message(patient: AgentWorld) -> None:
    """The start waits for the end: two syncs for a run, its acceptance and all the rest."""
    messages: list[list[type[Report]]] = []

    def on_reports(payload: bytes) -> None:
        messages.append([type(report) for report in decode_reports(payload).reports])

    await patient.hub.connect().subscribe(subjects.report("n1"), lambda message: on_reports(message.payload))
    journal = patient.agents[0][0].journal
    before = journal.syncs
    await patient.placer.desire("n1", order("7", "true"))
    await patient.ended("7")
    assert [[StartSeen, ExitSeen]] == messages
    assert journal.syncs - before == 2


async def test_the_end_of_another_run_takes_a_start_along(patient: AgentWorld) -> None:
    """A start waits for any report, not only for its own run's."""
    long = order("7", "sleep", "600")
    await patient.placer.desire("n1", long)
    ledger = patient.agents[0][0].ledger
    await eventually_async(lambda: any(run.phase == "running" for run in ledger.runs.values()))
    assert patient.placer.of(StartSeen) == []
    await patient.placer.desire("n1", long, order("8", "true"))
    await patient.ended("8")
    assert [report.job for report in patient.placer.of(StartSeen)] == ["7", "8"]


@pytest.mark.parametrize("ended", [False, True], ids=["runs", "ended meanwhile"])
async def test_a_crash_before_a_start_is_durable_loses_and_doubles_nothing(patient: AgentWorld, *, ended: bool) -> None:
    """The journal holds the acceptance alone. The next agent reports start and end once, under the next numbers, and the
    program has run once.
    """
    over, ran = patient.settings.data / "over", patient.settings.data / "ran"
    script = f"echo once >> {ran}; while ! [ -e {over} ]; do sleep 0.05; done; exit 5"
    await patient.placer.desire("n1", order("7", "sh", "-c", script))
    agent = patient.agents[0][0]
    await eventually_async(lambda: any(run.phase == "running" for run in agent.ledger.runs.values()))
    durable = agent.journal.path.read_bytes()
    await patient.stop()  # which writes what waits, and a crash does not
    agent.journal.path.write_bytes(durable)
    records, _ = decode_lines(durable)
    assert [record.job for record in records if isinstance(record, Accepted)] == ["7"]
    assert not any(isinstance(record, Reported) and isinstance(record.report, StartSeen) for record in records)
    assert patient.placer.of(StartSeen) == []
    if ended:
        over.touch()
        await eventually_async(lambda: "E 7.1.0 5" in (agent.settings.directory / "spawned").read_text())
    await patient.start()
    await patient.placer.until(lambda: bool(patient.placer.of(StartSeen)))
    over.touch()
    assert (await patient.ended("7")).exit_code == 5
    assert len(patient.placer.of(StartSeen)) == 1
    numbers = [report.n for _, report in patient.placer.reports]
    assert list(range(1, len(numbers) + 1)) == numbers
    assert ran.read_text() == "once\n"
