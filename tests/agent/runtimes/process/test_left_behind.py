"""Programs that leave their run's group, session and environment end with their run all the same."""

# ruff: noqa: ASYNC110 -- waits for processes that nobody announces

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead_agent.core.runs import Exit, Found, RunKey
from fairlead_agent.runtimes.process.runtime import LOST, OVER_MEMORY, ProcessRuntime
from fairlead_agent.runtimes.process.spawner import OomKills
from fairlead_agent.runtimes.process.spawner_client import Ended
from tests.agent.runtime_watch import launch, until_file
from tests.agent.runtimes.process.spawners import SpawnerNode, spawner_node
from tests.agent.sleepers import asleep, own, until_asleep, until_gone
from tests.kit.eventually import eventually_async

KEY = RunKey("861", 1, 0)
#: Leaves the group, the session and the environment, in the background.
DAEMON = "env -i setsid sleep {0} </dev/null >/dev/null 2>&1 &"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[SpawnerNode]:
    """A directory of its own; nothing that a test has started runs on."""
    async with spawner_node(tmp_path) as node:
        yield node


async def start_with_daemon(runtime: ProcessRuntime) -> None:
    """Start a run that has left a daemon behind and continues itself."""
    seconds = own("861")
    runtime.start(launch("861", "sh", "-c", f"{DAEMON.format(seconds)} echo ready; exec sleep 1000"))
    await until_file(runtime.output(KEY)[0], b"ready")
    await until_asleep("861")


@pytest.mark.parametrize("how", ["setsid sleep {0} </dev/null >/dev/null 2>&1 &", DAEMON, f"({DAEMON}) &"])
async def test_no_process_is_left_when_an_end_is_reported(node: SpawnerNode, how: str) -> None:
    """500 daemons, with or without the run's environment, started by the program or by one that ends before it: gone
    before the end is reported, so that the GPUs are allocated again without users. Another run's continue."""
    runtime, watch = await node.runtime()
    seconds, others = own("861"), own("862")
    runtime.start(launch("862", "sh", "-c", f"{how.format(others)} echo ready; exec sleep {others}"))
    await until_file(runtime.output(RunKey("862", 1, 0))[0], b"ready")
    while len(asleep("862")) < 2:
        await asyncio.sleep(0.01)
    loop = f"i=0; while [ $i -lt 500 ]; do {how.format(seconds)} i=$((i+1)); done; sleep 0.2; exit 4"
    runtime.start(launch("861", "sh", "-c", loop))
    assert await watch.exit_of(KEY) == Exit(code=4)
    assert asleep("861") == []
    assert len(asleep("862")) == 2
    runtime.kill(RunKey("862", 1, 0))
    await watch.exit_of(RunKey("862", 1, 0))
    assert asleep("862") == []


async def test_a_stop_ends_processes_without_the_environment_too(node: SpawnerNode) -> None:
    """TERM ends the program; its daemon, which could not get a notice, is killed."""
    runtime, watch = await node.runtime()
    await start_with_daemon(runtime)
    runtime.terminate(KEY)
    assert await watch.exit_of(KEY) == Exit(signal=signal.SIGTERM)
    assert asleep("861") == []


async def test_a_later_agent_ends_them(node: SpawnerNode) -> None:
    """The spawner has outlived the agent that started the run; the next agent stops it."""
    runtime, _ = await node.runtime()
    await start_with_daemon(runtime)
    await runtime.close()
    second, watch = await node.runtime()
    assert await second.adopt([KEY]) == {KEY: Found("running")}
    second.kill(KEY)
    assert (await watch.exit_of(KEY)).signal == signal.SIGKILL
    assert asleep("861") == []


async def test_an_orphans_daemons_end_with_it(node: SpawnerNode) -> None:
    """Agent and spawner were killed: the file of the spawner still tells what belongs to the run."""
    runtime, _ = await node.runtime()
    seconds = own("861")
    over = node.base / "over"
    script = f"{DAEMON.format(seconds)} echo ready; while [ ! -e {over} ]; do sleep 0.05; done"
    runtime.start(launch("861", "sh", "-c", script))
    await until_file(runtime.output(KEY)[0], b"ready")
    await until_asleep("861")
    await runtime.close()
    await node.kill_spawner()
    second, watch = await node.runtime()
    assert await second.adopt([KEY]) == {KEY: Found("running")}
    assert len(asleep("861")) == 1
    over.touch()
    assert await watch.exit_of(KEY) == LOST
    assert asleep("861") == []


async def test_a_program_that_ended_with_its_spawner_leaves_nothing(node: SpawnerNode) -> None:
    """Neither saw its end: it is lost, and its daemon is killed before the run is reported."""
    runtime, watch = await node.runtime()
    seconds = own("861")
    runtime.start(launch("861", "sh", "-c", f"{DAEMON.format(seconds)} echo ready; exec sleep 1000"))
    await watch.until(lambda: KEY in watch.starts)
    program = runtime.programs()[KEY]
    await until_file(runtime.output(KEY)[0], b"ready")
    await until_asleep("861")
    await runtime.close()
    await node.kill_spawner()
    os.kill(program, signal.SIGKILL)
    second, _ = await node.runtime()
    await eventually_async(lambda: not Path(f"/proc/{program}").exists())
    assert await second.adopt([KEY]) == {KEY: Found("lost")}
    await until_gone("861")


def test_kills_for_memory_are_counted(tmp_path: Path) -> None:
    """Of control groups of both versions and of the machine; a counter that does not move is no evidence."""
    for before, after in (
        ("oom_kill 3\noom_group_kill 0\n", "oom_kill 4\n"),
        ("under_oom 0\noom_kill 0\n", "oom_kill 1\n"),
    ):
        file = tmp_path / "events"
        file.write_text(before)
        kills = OomKills(str(file))
        assert not kills.rose()
        file.write_text(after)
        assert [kills.rose(), kills.rose()] == [True, False]


async def test_a_kill_for_memory_is_reported(node: SpawnerNode) -> None:
    """As the spawner reports it."""
    runtime, watch = await node.runtime()
    runtime.start(launch("861", "sleep", "1000"))
    await watch.until(lambda: KEY in watch.starts)
    runtime._on_event(Ended(key=KEY.name, code=None, signal=9, oom=True))
    assert await watch.exit_of(KEY) == Exit(signal=9, message=OVER_MEMORY, over_memory=True)
