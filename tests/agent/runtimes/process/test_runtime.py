"""Behaviour of plain processes only: signals and codes, groups, tags, directories, the environment."""

# ruff: noqa: ASYNC110, PTH208 -- waits for files and processes that nobody announces

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead_agent.core.runs import Exit, RunKey
from fairlead_agent.linux.processes import tag_prefix, tagged
from fairlead_agent.runtimes.process.runtime import ProcessRuntime
from fairlead_agent.runtimes.run_directory import PRUNE_BATCH
from tests.agent import sleepers
from tests.agent.runtime_watch import Watch, incarnation, launch, until_file
from tests.kit.eventually import eventually_async

KEY = RunKey("801", 1, 0)
#: Of all tests here, which follow each other in one process.
INCARNATION = incarnation()


_opened: list[ProcessRuntime] = []


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    """Nothing of a test's runtimes runs on after it."""
    yield
    for runtime in _opened:
        await runtime.adopt([])
        await runtime.close()
    _opened.clear()


async def opened(base: Path, keep: int = 200) -> tuple[ProcessRuntime, Watch]:
    """A runtime and its watcher."""
    runtime, watch = ProcessRuntime(base, "n1", INCARNATION, keep=keep), Watch()
    await runtime.open(watch.handle)
    _opened.append(runtime)
    return runtime, watch


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [
        ("exit 137", 137, None),
        ("kill -9 $$", None, 9),
        ("exit 143", 143, None),
        ("kill -SEGV $$", None, 11),
        ("exit 128", 128, None),
    ],
)
async def test_a_signal_is_distinguished_from_an_exit_code(
    tmp_path: Path, script: str, code: int | None, number: int | None
) -> None:
    """`exit 137` and a KILL are equal in a shell's `$?`; the report distinguishes them."""
    runtime, watch = await opened(tmp_path)
    runtime.start(launch("801", "sh", "-c", script))
    exit = await watch.exit_of(KEY)
    assert (code, number) == (exit.code, exit.signal)


async def test_an_unknown_command_ends_with_127_and_a_reason(tmp_path: Path) -> None:
    """As in a shell; the reason is in the job's own stderr. A builtin's name is a program's name here."""
    runtime, watch = await opened(tmp_path)
    runtime.start(launch("801", "no-such-program"))
    assert Exit(code=127) == await watch.exit_of(KEY)
    assert b"no-such-program" in runtime.output(KEY)[1].read_bytes()
    runtime.start(launch("802", "exit", "0"))
    assert Exit(code=127) == await watch.exit_of(RunKey("802", 1, 0))


async def test_children_of_a_run_end_with_it(tmp_path: Path) -> None:
    """A background child in the run's group does not outlive the run."""
    runtime, watch = await opened(tmp_path)
    runtime.start(launch("801", "sh", "-c", "sleep 1000 & echo started"))
    assert Exit(code=0) == await watch.exit_of(KEY)
    assert tagged(tag_prefix("n1", INCARNATION)) == []


async def test_a_stop_reaches_what_has_left_the_group(tmp_path: Path) -> None:
    """A child in a session of its own carries the tag and ends with a stopped run."""
    runtime, watch = await opened(tmp_path)
    runtime.start(launch("801", "sh", "-c", f"setsid sleep {sleepers.own('801')} & echo ready; sleep 1000"))
    await until_file(runtime.output(KEY)[0], b"ready")
    await sleepers.until_asleep("801")  # it has left the group before that
    runtime.kill(KEY)
    assert (await watch.exit_of(KEY)).signal == 9
    alive = [process for process in tagged(tag_prefix("n1", INCARNATION)) if process.leads]
    assert alive == []


async def test_old_directories_go(tmp_path: Path) -> None:
    """Of ended runs the newest few directories stay."""
    runtime, watch = await opened(tmp_path, keep=3)
    keys = [RunKey(str(900 + i), 1, 0) for i in range(3 + PRUNE_BATCH)]
    for key in keys:
        runtime.start(launch(key.job, "echo", "something"))
    await watch.until(lambda: len(watch.exits) == len(keys))
    for key in keys:
        runtime.release(key)

    await eventually_async(lambda: len(os.listdir(runtime.directories.base)) <= 3)
    assert {key.name for key in keys[-3:]} == set(os.listdir(runtime.directories.base))


async def test_an_empty_old_directory_is_reused_unless_a_process_writes_to_it(tmp_path: Path) -> None:
    """Silent old directories are renamed; one with a file that some process holds open is removed, so that no output of
    an old run gets into a new run's."""
    runtime, watch = await opened(tmp_path, keep=0)
    keys = [RunKey(str(900 + i), 1, 0) for i in range(PRUNE_BATCH)]
    runtime.start(launch(keys[0].job, "true"))
    runtime.start(launch(keys[1].job, "sh", "-c", "echo said"))
    runtime.start(launch(keys[2].job, "touch", "left"))
    for key in keys[3:]:
        runtime.start(launch(key.job, "true"))
    await watch.until(lambda: len(watch.exits) == len(keys))
    late = runtime.output(keys[0])[0].open("ab", buffering=0)
    silent = {key: runtime.output(key)[0].stat().st_ino for key in keys[3:]}
    for key in keys:
        runtime.release(key)
    import asyncio

    async with asyncio.timeout(60):
        while any((runtime.directories.base / key.name).exists() for key in keys[:3]):
            await asyncio.sleep(0.02)
        while len(os.listdir(runtime.directories.base)) > len(silent) or len(runtime.directories._spares) < len(silent):  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.02)
    runtime.start(launch("801", "sh", "-c", "echo new"))
    with late:
        late.write(b"late\n")
    assert Exit(code=0) == await watch.exit_of(KEY)
    assert runtime.output(KEY)[0].stat().st_ino in silent.values()
    assert (runtime.output(KEY)[0].read_bytes(), runtime.output(KEY)[1].read_bytes()) == (b"new\n", b"")
    assert len(os.listdir(runtime.directories.base)) == len(silent)


async def test_a_gang_sees_its_hosts(tmp_path: Path) -> None:
    """The variables that `launch.py` promises: rendezvous, ranks, the host file; never RANK or WORLD_SIZE."""
    runtime, watch = await opened(tmp_path)
    run = launch(
        "801",
        "sh",
        "-c",
        "env; cat $FAIRLEAD_HOSTFILE",
        env={"NCCL_DEBUG": "INFO", "MASTER_PORT": "1", "CUDA_VISIBLE_DEVICES": "9"},
        rank=1,
        hosts=("10.0.0.1", "10.0.0.2"),
        gpus_per_node=2,
        gpus=("GPU-a", "GPU-b"),
        master_address="10.0.0.1",
        master_port=29501,
    )
    runtime.start(run)
    await watch.exit_of(RunKey("801", 1, 1))
    lines = runtime.output(RunKey("801", 1, 1))[0].read_text().splitlines()
    for expected in (
        "MASTER_ADDR=10.0.0.1",
        "NNODES=2",
        "NODE_RANK=1",
        "GPUS_PER_NODE=2",
        "FAIRLEAD_JOB=801",
        "FAIRLEAD_ATTEMPT=1",
        "FAIRLEAD_RANK=1",
        "FAIRLEAD_NODE=n1",
        "FAIRLEAD_GPUS=GPU-a,GPU-b",
        "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b",
        "NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b",
        "FAIRLEAD_GPUS_SIMULATED=1",
        "NCCL_DEBUG=INFO",
        "MASTER_PORT=1",
        "10.0.0.1 slots=2",
        "10.0.0.2 slots=2",
    ):
        assert expected in lines
    names = {line.partition("=")[0] for line in lines}
    assert names.isdisjoint({"RANK", "WORLD_SIZE", "LOCAL_RANK", "FAIRLEAD_NATS"})


@pytest.mark.parametrize(("job", "lines"), [("801_3", ["FAIRLEAD_ARRAY_INDEX=3"]), ("801", [])])
def test_an_element_knows_its_index(job: str, lines: list[str]) -> None:
    """An element of an array finds its index in its environment; another job has no such variable."""
    env = launch(job, "true").env
    assert lines == [f"{name}={value}" for name, value in env.items() if name == "FAIRLEAD_ARRAY_INDEX"]
