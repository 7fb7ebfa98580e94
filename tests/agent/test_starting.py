"""Between an order and its start: whatever goes wrong there ends that run, and a stop ends it at once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead_agent.launch.plan import Launch
from fairlead_schemas.wire.reports import ExitSeen
from tests.agent.launch.pair import Pair, rank
from tests.agent.placer_script import order
from tests.agent.world import AgentWorld


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    """A joined node."""
    world = await AgentWorld(tmp_path).open()
    yield world
    await world.close()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """Two joined nodes."""
    pair = await Pair(tmp_path).open()
    yield pair
    await pair.close()


async def test_an_unexpected_error_ends_its_run_alone(world: AgentWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message is in the report, the agent lives, and the next run starts."""

    def broken(*_: object, **__: object) -> dict[str, str]:
        raise TypeError("list indices must be integers")

    agent, task = world.agents[-1]
    with monkeypatch.context() as patch:
        patch.setattr(agent.devices, "environment", broken)
        await world.placer.desire("n1", order("7", "true"))
        end = await world.ended("7")
    assert (end.outcome, end.clean) == ("start_failed", True)
    assert end.message == "its agent could not start it: TypeError: list indices must be integers"
    await world.placer.desire("n1", order("8", "true"))
    assert (await world.ended("8")).exit_code == 0
    assert not task.done()


async def test_a_stop_ends_a_rank_during_its_image_pull(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it holds its GPUs for the rest of the pull."""
    agent, _ = pair.agents["n1"]
    waiting = asyncio.Event()

    async def pulls(_launch: Launch) -> None:
        waiting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(agent.runtime, "prepare", pulls)
    await pair.placer.desire("n1", rank(0, "true"))
    async with asyncio.timeout(60):
        await waiting.wait()
    await pair.placer.desire("n1")
    await pair.placer.until(lambda: bool(pair.placer.of(ExitSeen, "7")))
    [end] = pair.placer.of(ExitSeen, "7")
    assert (end.outcome, end.message, end.clean) == ("stopped", "was asked to stop before it was started", True)
