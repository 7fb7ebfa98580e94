"""Agents that share a process: what a refusal or a failure leaves, in the directory of its node and in the process."""

from pathlib import Path

import pytest

from fairlead_agent.__main__ import HostedAgent, build_agent, nodes
from fairlead_agent.files import refusal
from fairlead_agent.files.journal import Journal
from fairlead_agent.runtimes.port import RuntimeUnfit
from fairlead_agent.settings import Settings
from fairlead_bus.memory import MemoryHub
from fairlead_schemas.wire.conditions import EXIT_UNFIT, Condition
from tests.agent.world import AgentWorld

BROKEN = b"00000000 {}\n"


async def test_a_refusal_is_kept_until_an_agent_works(tmp_path: Path) -> None:
    """Tried again and again in one process, it is the same refusal; it is gone once the node was mended."""
    env = {"FAIRLEAD_NODE": "n1", "FAIRLEAD_DATA": str(tmp_path), "FAIRLEAD_DEVICES": "simulated"}
    journal = tmp_path / "agent-n1" / "journal"
    journal.parent.mkdir()
    journal.write_bytes(BROKEN)
    for _ in range(2):
        hosted = await HostedAgent.build(MemoryHub().connect(), env)
        assert await hosted.run() == EXIT_UNFIT
        reason = f"{journal}, line 1: checksum differs"
        assert refusal.read(tmp_path) == {"n1": Condition(code="agent_refuses", message=reason)}
    journal.unlink()
    world = await AgentWorld(tmp_path).open()
    try:
        assert refusal.read(tmp_path) == {}
    finally:
        await world.close()


async def test_an_agent_that_cannot_begin_leaves_its_journal_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error while it starts closes what was open, so that the next one of this process gets it."""

    async def unfit(runtime: object, emit: object) -> None:
        raise RuntimeUnfit("no spawner")

    monkeypatch.setattr("fairlead_agent.runtimes.process.runtime.ProcessRuntime.open", unfit)
    agent = await build_agent(MemoryHub().connect(), Settings(node="n1", devices="simulated", data=tmp_path))
    with pytest.raises(RuntimeUnfit):
        await agent.run()
    assert agent.closed
    await Journal.open(tmp_path / "agent-n1", "n1", "other").close()


def test_nodes_of_a_process_differ_in_their_own_settings() -> None:
    """The rest is the process's environment; a name given again adds settings, and a value may contain `=`."""
    given = [["a", "X=1", "LABELS=k=v"], ["b"], ["a", "X=2"]]
    assert nodes(given, {"X": "0", "Y": "0"}) == {
        "a": {"X": "2", "Y": "0", "LABELS": "k=v", "FAIRLEAD_NODE": "a"},
        "b": {"X": "0", "Y": "0", "FAIRLEAD_NODE": "b"},
    }


def test_a_note_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    """It is only a note for people."""
    (tmp_path / "agent-n1").mkdir()
    (tmp_path / "agent-n1" / refusal.NAME).write_bytes(b"{")
    assert refusal.read(tmp_path) == {}
    refusal.keep(tmp_path / "agent-n1", "why")
    assert refusal.read(tmp_path)["n1"].message == "why"
    refusal.forget(tmp_path / "agent-n1")
    assert refusal.read(tmp_path) == {}
