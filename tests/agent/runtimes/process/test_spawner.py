"""The spawner outlives agents and may itself be killed: what is known then, and what still runs."""

# ruff: noqa: ASYNC110, ASYNC230, ASYNC240, PTH123 -- waits for files and processes that nobody announces

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead_agent.core.runs import Exit, Found, RunKey
from fairlead_agent.linux.processes import tag_prefix, tagged
from fairlead_agent.runtimes.process.runtime import LOST, ProcessRuntime
from fairlead_agent.runtimes.process.spawner import SPAWNED_BYTES_MAX
from fairlead_agent.runtimes.process.spawner_client import LOCK, SOCKET
from tests.agent import sleepers
from tests.agent.runtime_watch import Watch, launch, until_file
from tests.agent.runtimes.process.spawners import SpawnerNode, spawner_node
from tests.kit.eventually import eventually_async

KEY = RunKey("801", 1, 0)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[SpawnerNode]:
    """A directory of its own; nothing that a test has started runs on."""
    async with spawner_node(tmp_path) as node:
        yield node


async def test_agents_share_one_spawner_that_carries_no_tag(node: SpawnerNode) -> None:
    """It leads a session of its own, with an empty environment and a socket for its user alone."""
    await node.runtime()
    pid = await node.spawner()
    await node.runtime()
    assert [pid] == node.spawners()
    assert os.getsid(pid) == pid
    assert Path(f"/proc/{pid}/environ").read_bytes() == b""
    assert (node.base / SOCKET).stat().st_mode & 0o777 == 0o600
    kept = {str(node.base / name) for name in (LOCK, "spawner.log", "spawned")}
    await eventually_async(lambda: open_files(pid) == kept)  # until then it may be importing a module


def open_files(pid: int) -> set[str]:
    """Return the files that a process has open, without devices and what the kernel makes up."""
    targets = set[str]()
    for fd in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            targets.add(os.readlink(f"/proc/{pid}/fd/{fd}"))  # noqa: PTH115
    return {each for each in targets if each.startswith("/") and not each.startswith(("/dev/", "/proc/", "/sys/"))}


async def test_a_run_survives_its_spawner_and_its_end_is_unknown(node: SpawnerNode) -> None:
    """It has no parent any more: it continues, a new run can start, and no exit code is invented."""
    runtime, watch = await node.runtime()
    over = node.base / "over"
    runtime.start(launch("801", "sh", "-c", f"while [ ! -e {over} ]; do sleep 0.05; done; exit 5"))
    await watch.until(lambda: KEY in watch.starts)  # the spawner has noted it before it says so
    first = await node.kill_spawner()
    runtime.start(launch("802", "sh", "-c", "exit 3"))
    assert Exit(code=3) == await watch.exit_of(RunKey("802", 1, 0))
    assert first not in node.spawners()
    assert node.processes()
    over.touch()
    assert await watch.exit_of(KEY) == LOST
    assert [KEY, RunKey("802", 1, 0)] == watch.starts


async def test_an_orphan_can_be_stopped(node: SpawnerNode) -> None:
    """TERM, which it ignores, and KILL reach a run whose spawner is gone; the kill is reported as signal 9."""
    runtime, watch = await node.runtime()
    runtime.start(launch("801", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"))
    await until_file(runtime.output(KEY)[0], b"ready")
    await watch.until(lambda: KEY in watch.starts)
    await node.kill_spawner()
    runtime.terminate(KEY)  # at whatever point of the reconnection this is
    await asyncio.sleep(0.5)
    assert watch.exits == {}
    runtime.kill(KEY)
    assert (await watch.exit_of(KEY)).signal == signal.SIGKILL
    assert node.processes() == []


async def test_an_end_is_known_after_the_agent_and_the_spawner_have_died(node: SpawnerNode) -> None:
    """The file remembers what the process knew: an exit code and a signal, exactly."""
    runtime, watch = await node.runtime()
    runtime.start(launch("801", "sh", "-c", "exit 6"))
    runtime.start(launch("802", "sh", "-c", "kill -TERM $$"))
    await watch.until(lambda: len(watch.exits) == 2)
    await runtime.close()
    await node.kill_spawner()
    with open(node.base / "spawned", "ab") as file:
        file.write(b"E 803.1.0 ")  # torn
    second, _ = await node.runtime()
    keys = [RunKey("801", 1, 0), RunKey("802", 1, 0), RunKey("803", 1, 0)]
    expected = [Found("ended", Exit(code=6)), Found("ended", Exit(signal=15)), Found("never")]
    assert dict(zip(keys, expected, strict=True)) == await second.adopt(keys)


async def test_an_orphan_is_adopted_and_its_leftovers_are_lost(node: SpawnerNode) -> None:
    """Agent and spawner were both killed: what runs is watched; where the program itself has ended and only something
    it left behind runs, the run is lost and the rest is killed."""
    runtime, before = await node.runtime()
    left = RunKey("802", 1, 0)
    runtime.start(launch("801", "sh", "-c", "echo ready; sleep 1000"))
    runtime.start(launch("802", "sh", "-c", f"setsid sleep {sleepers.own('802')} & echo ready; sleep 1000"))
    for key in (KEY, left):
        await until_file(runtime.output(key)[0], b"ready")
    await sleepers.until_asleep("802")  # it has left the group before that
    await before.until(lambda: len(before.starts) == 2)
    await runtime.close()
    await node.kill_spawner()
    leader = next(p.pid for p in tagged(tag_prefix("n1", node.incarnation) + left.name) if p.leads and _is_sh(p.pid))
    os.killpg(leader, signal.SIGKILL)
    await eventually_async(lambda: leader not in node.processes(left))
    second, watch = await node.runtime()
    assert {KEY: Found("running"), left: Found("lost")} == await second.adopt([KEY, left])
    second.kill(KEY)
    assert (await watch.exit_of(KEY)).signal == signal.SIGKILL
    async with asyncio.timeout(60):
        while node.processes(left):  # killed; a busy machine takes a while
            await asyncio.sleep(0.01)


def _is_sh(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sh\0")


async def test_requests_of_a_dead_agent_are_done_before_those_of_the_next(node: SpawnerNode) -> None:
    """A start on its way when the agent died is in the next agent's listing: running or never, nothing between."""
    runtime, _ = await node.runtime()
    pid = await node.spawner()
    os.kill(pid, signal.SIGSTOP)
    runtime.start(launch("801", "sleep", "1000"))
    await runtime.close()  # written, not read
    second, watch = await node.runtime()
    asyncio.get_running_loop().call_later(0.2, os.kill, pid, signal.SIGCONT)
    assert {KEY: Found("running")} == await second.adopt([KEY])
    second.kill(KEY)
    assert (await watch.exit_of(KEY)).signal == signal.SIGKILL


async def test_no_start_is_lost_or_doubled_when_the_spawner_dies(node: SpawnerNode) -> None:
    """Runs requested around its death start once or are reported as not started; each leaves one line if it ran."""
    runtime, watch = await node.runtime()
    marks = node.base / "marks"
    keys = [RunKey(str(900 + i), 1, 0) for i in range(60)]
    pid = await node.spawner()
    for number, key in enumerate(keys):
        runtime.start(launch(key.job, "sh", "-c", f"echo {key.job} >> {marks}"))
        if number % 10 == 9:
            await asyncio.sleep(0.01)
        if number == 30:
            os.kill(pid, signal.SIGKILL)
    await watch.until(lambda: len(watch.exits) + len(watch.failures) == len(keys))
    ran = marks.read_text().split()
    assert len(ran) == len(set(ran))
    assert {key.job for key, exit in watch.exits.items() if exit == Exit(code=0)} <= set(ran)
    assert not {key.job for key in watch.failures} & set(ran)
    assert len(watch.starts) == len(set(watch.starts))
    assert set(watch.exits) == set(watch.starts)


async def test_a_released_end_leaves_the_memory_and_the_file(node: SpawnerNode) -> None:
    """The file stays small however many runs there were."""
    runtime, watch = await node.runtime()
    bytes_each = len("S 1000.1.0 12345\nE 1000.1.0 127\n")
    runs = 2 * SPAWNED_BYTES_MAX // bytes_each
    for number in range(runs):
        runtime.start(launch(str(1000 + number), "no-such-program", env={"PATH": "/nowhere"}))
        if number % 100 == 99:
            done = number + 1
            await watch.until(lambda done=done: len(watch.exits) == done)
            for key in watch.starts[-100:]:
                runtime.release(key)
    await watch.until(lambda: len(watch.exits) == runs)
    assert (node.base / "spawned").stat().st_size <= SPAWNED_BYTES_MAX + 100 * bytes_each


@pytest.mark.parametrize(
    ("content", "mode", "code"),
    [("exit 4", 0o755, 4), ("#!/bin/sh\nexit 5", 0o755, 5), ("exit 4", 0o644, 126), ("#!/nowhere/sh\n", 0o755, 127)],
    ids=["no-interpreter-line", "script", "not-executable", "interpreter-missing"],
)
async def test_programs_are_found_and_refused_as_by_a_shell(
    node: SpawnerNode, content: str, mode: int, code: int
) -> None:
    """In the job's own PATH; a file without an interpreter line is run by /bin/sh."""
    runtime, watch = await node.runtime()
    folder = node.base / "bin"
    folder.mkdir()
    (folder / "tool").write_text(content)
    (folder / "tool").chmod(mode)
    runtime.start(launch("801", "tool", env={"PATH": f"/nowhere:{folder}"}))
    assert Exit(code=code) == await watch.exit_of(KEY)
    assert bool(runtime.output(KEY)[1].read_bytes()) == (code > 5)


async def test_a_bad_directory_ends_with_126(node: SpawnerNode) -> None:
    """As in a shell, with the reason in stderr."""
    runtime, watch = await node.runtime()
    order = launch("801", "true")._replace(workdir="/no/such/place")
    runtime.start(order)
    assert Exit(code=126) == await watch.exit_of(KEY)
    assert b"/no/such/place" in runtime.output(KEY)[1].read_bytes()


async def test_a_program_starts_clean(node: SpawnerNode) -> None:
    """Its own session, default signals, nothing open but its three files, its own directory."""
    runtime, watch = await node.runtime()
    runtime.start(launch("801", "sh", "-c", "ls /proc/self/fd | wc -l; pwd; grep -E 'SigBlk|SigIgn' /proc/self/status"))
    await watch.exit_of(KEY)
    lines = runtime.output(KEY)[0].read_text().split()
    assert lines[:4] == ["4", str(node.base / "runs" / KEY.name), "SigBlk:", "0" * 16]
    internal = 0b11 << 31  # 32 and 33 are the C library's own; its posix_spawn leaves them ignored
    assert int(lines[5], 16) & ~internal == 0


async def test_a_socket_may_have_a_long_path(node: SpawnerNode) -> None:
    """Directories deeper than the 107 bytes of a socket's address."""
    deep = node.base / ("d" * 120) / ("e" * 120)
    runtime, watch = ProcessRuntime(deep, "n1", node.incarnation), Watch()
    await runtime.open(watch.handle)
    node.open.append(runtime)
    runtime.start(launch("801", "true"))
    assert Exit(code=0) == await watch.exit_of(KEY)
