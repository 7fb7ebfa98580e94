"""An agent of another version, and a clock that is set: what runs is not touched by either."""

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlead_agent import agent as shell
from fairlead_agent.core.lease import NAME
from fairlead_agent.core.ledger import FORMAT, Accepted, Opened, Record
from fairlead_agent.core.runs import RunKey
from fairlead_agent.files.journal import Journal, JournalNewer, encode_line
from fairlead_agent.linux.processes import tag_prefix, tagged
from fairlead_agent.runtimes.port import RuntimeUnfit
from fairlead_agent.runtimes.process import spawner_client
from fairlead_schemas.units.timestamps import HOUR_NS
from fairlead_schemas.wire.reports import ExitSeen, StartSeen
from tests.agent.placer_script import order
from tests.agent.world import AgentWorld


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    """A node that is not joined yet."""
    made = AgentWorld(tmp_path)
    yield made
    await made.close()


async def running(world: AgentWorld, job: str, *words: str) -> None:
    """A run that has started."""
    await world.placer.desire("n1", order(job, *words))
    await world.placer.until(lambda: bool(world.placer.of(StartSeen, job)))


# ---------------------------------------------------------------------------- the journal


def write(directory: Path, *records: Record) -> None:
    """A journal of these lines."""
    directory.mkdir(parents=True)
    (directory / "journal").write_bytes(b"".join(map(encode_line, records)))


async def test_a_journal_without_a_format_is_read(tmp_path: Path) -> None:
    """Agents wrote it before journals had a format; from its first compaction on it has ours."""
    write(tmp_path / "a", Opened(incarnation="inc", node="n1"), Accepted(job="7", attempt=1, rank=0, epoch=3))
    assert b"format" not in (tmp_path / "a" / "journal").read_bytes()
    journal = Journal.open(tmp_path / "a", "n1", "other")
    assert journal.ledger.incarnation == "inc"
    assert journal.ledger.runs[RunKey("7", 1, 0)].stop_after_ns == 0
    first = next(iter(journal.ledger.records()))
    assert isinstance(first, Opened) and first.format == FORMAT
    await journal.close()


async def test_a_newer_journal_is_refused_by_name(tmp_path: Path) -> None:
    """Before an unknown line is read; nothing of it is changed."""
    write(tmp_path / "a", Opened(incarnation="inc", node="n1", format=FORMAT + 1))
    with (tmp_path / "a" / "journal").open("ab") as file:
        file.write(b'00000000 {"r":"of-tomorrow"}\n')
    before = (tmp_path / "a" / "journal").read_bytes()
    with pytest.raises(JournalNewer, match=f"in format {FORMAT + 1}; this one knows formats up to {FORMAT}"):
        Journal.open(tmp_path / "a", "n1", "other")
    assert (tmp_path / "a" / "journal").read_bytes() == before


# ---------------------------------------------------------------------------- the spawner


@pytest.fixture
def spoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The spawner's program, changed: an older one that says no version, or one of another."""
    program = tmp_path / "spawner.py"
    text = Path(spawner_client.PROGRAM).read_text()
    assert text.count('"protocol": PROTOCOL,') == 1
    program.write_text(text.replace('"protocol": PROTOCOL,', ""))
    monkeypatch.setattr(spawner_client, "PROGRAM", str(program))
    yield text
    monkeypatch.undo()


async def test_a_newer_agent_adopts_an_older_ones_runs(world: AgentWorld, spoken: str) -> None:
    """With a spawner that says no version and a directory without a lease, as they were left: it runs on, and its end is
    known."""
    await world.open()
    await running(world, "7", "sh", "-c", "sleep 2; exit 3")
    await world.stop()
    (world.settings.directory / NAME).unlink()
    await world.start()
    ended = await world.ended("7")
    assert (ended.outcome, ended.exit_code) == ("exited", 3)


async def test_a_newer_spawner_is_refused_by_name(world: AgentWorld, spoken: str) -> None:
    """An agent that does not understand its spawner must not judge the runs: it ends, and they continue."""
    Path(spawner_client.PROGRAM).write_text(  # noqa: ASYNC240 -- nobody runs yet
        spoken.replace("PROTOCOL = 2", "PROTOCOL = 99")
    )
    bus = world.hub.connect()
    await bus.ensure()
    await world.start()
    _, task = world.agents.pop()
    with pytest.raises(RuntimeUnfit, match="uses version 99 of its protocol, this agent knows 1 to 2"):
        await task


# ---------------------------------------------------------------------------- the clock


async def test_a_clock_that_is_set_changes_nothing(world: AgentWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour back, an hour forward, at every look: the lease, of a minute, holds; the run runs on, and only times for people
    are odd."""
    await world.open()
    await running(world, "7", "sleep", "600")
    real, looks = time.time_ns, [0]

    def unsteady() -> int:
        looks[0] += 1
        return real() + (-HOUR_NS, 0, HOUR_NS)[looks[0] % 3]

    monkeypatch.setattr(shell.time, "time_ns", unsteady)
    beats = world.placer.beats
    await world.placer.until(lambda: world.placer.beats > beats + 30)
    core = world.agents[0][0].core
    assert looks[0] > 10
    assert not core.fenced and not core.stopping and world.placer.of(ExitSeen) == []
    assert tagged(tag_prefix("n1", world.placer.incarnation["n1"]))
    await world.placer.desire("n1", order("7", "sleep", "600", stop="cancelled"))
    assert (await world.ended("7")).outcome == "stopped"
