"""Several runs on one simulated GPU: the whole agent, with real processes that say what they use."""

import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead_agent.core.runs import RunKey
from fairlead_agent.devices.nvml import NvmlDevices, pipe_directory, share_environment
from fairlead_agent.runtimes.run_directory import own_bytes, write_note
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.reports import ExitSeen, InventorySeen, StartSeen
from fairlead_schemas.wire.resources import Gpu
from fairlead_schemas.wire.samples import SampleBatch, decode_samples
from tests.agent.devices.played_nvml import PlayedNvml
from tests.agent.placer_script import order
from tests.agent.world import AgentWorld
from tests.kit.eventually import eventually_async

#: Fields of an order that say which share of which GPU it has.
SHARE = ("gpus", "gpu_milli", "gpu_memory_mib")
PLAY = (sys.executable, "-m", "fairlead_agent.devices.simulated_use")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    """A node whose guard bears little: 1.5 s, and 0.3 s of what others were promised."""
    world = await AgentWorld(tmp_path).open(DEVICES="simulated", SAMPLE_S="0.05", SHARE_GRACE_S="1.5")
    yield world
    await world.close()


def processes_of_this_machine() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def gpu_of(world: AgentWorld) -> Gpu:
    return world.placer.of(InventorySeen)[0].inventory.gpus[0]


def notebook(world: AgentWorld, job: str, *arguments: str, **more: Any) -> Any:
    """A third of the first GPU, for a program that plays."""
    gpu = gpu_of(world)
    return order(job, *PLAY, *arguments, gpus=(gpu.uuid,), gpu_milli=333, gpu_memory_mib=gpu.memory_mib // 3, **more)


async def test_of_three_notebooks_one_takes_all_the_memory_and_is_stopped_alone(world: AgentWorld) -> None:
    """CERN's third use case. The second and third continue, and one of them gets the memory of its share afterwards;
    the offender's own output gives the reason of its end."""
    share = gpu_of(world).memory_mib // 3
    greedy = notebook(world, "7", "--mib", f"{share}@0", "--mib", f"{share * 5 // 2}@0.5", "--seconds", "600")
    steady = notebook(world, "8", "--mib", "100", "--seconds", "600")
    await world.placer.desire("n1", greedy, steady)
    offender = await world.ended("7")
    assert (offender.outcome, offender.signal, offender.clean) == ("gpu_memory", 15, True)
    assert re.fullmatch(
        rf"used {share * 5 // 2:,} MiB of its {share:,} MiB share of {gpu_of(world).uuid} for \d+ s", offender.message
    )
    stderr = world.agents[-1][0].runtime.output(RunKey("7", 1, 0))[1].read_text()
    assert re.match(r"fairlead: warning: this run uses .* MiB share of .*; it will be stopped unless", stderr)
    assert f"fairlead: stopped: it {offender.message}\n" in stderr
    late = notebook(world, "9", "--mib", str(share), "--seconds", "0.1")
    await world.placer.desire("n1", steady, late)
    assert (await world.ended("9")).exit_code == 0, "its share is there"
    assert world.placer.of(ExitSeen, "8") == []


async def test_without_a_guard_the_neighbour_starves(world: AgentWorld) -> None:
    """The purpose of the guard: a simulated GPU refuses memory that another run holds, as a real one does."""
    size = gpu_of(world).memory_mib
    greedy = order("7", *PLAY, "--mib", str(size), "--seconds", "600", gpus=(gpu_of(world).uuid,))
    await world.placer.desire("n1", greedy)
    agent = world.agents[-1][0]
    stdout = agent.runtime.output(RunKey("7", 1, 0))[0]
    await eventually_async(lambda: stdout.exists() and b"holds" in stdout.read_bytes())
    await world.placer.desire("n1", greedy, notebook(world, "8", "--mib", "100", "--seconds", "600"))
    assert (await world.ended("8")).exit_code == 1
    assert "out of memory (simulated)" in agent.runtime.output(RunKey("8", 1, 0))[1].read_text()


async def test_one_that_does_not_listen_is_killed(world: AgentWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a grace that is short: its neighbours wait."""
    monkeypatch.setattr("fairlead_agent.core.reconcile.SHARE_GRACE_NS", 200_000_000)
    size = gpu_of(world).memory_mib
    await world.placer.desire("n1", notebook(world, "7", "--deaf", "--mib", str(size), "--seconds", "600", grace_s=600))
    offender = await world.ended("7")
    assert (offender.outcome, offender.signal) == ("gpu_memory", 9)


async def test_a_run_that_heeds_the_warning_continues(world: AgentWorld) -> None:
    """It exceeded its share until the warning, and for less than the grace; no further report follows."""
    await world.stop()
    agent = await world.start(share_grace_ns=600 * SECOND_NS)
    share, stderr = gpu_of(world).memory_mib // 3, agent.runtime.output(RunKey("7", 1, 0))[1]
    greedy, modest = (shlex.join([*PLAY, "--mib", str(mib), "--seconds", "600"]) for mib in (share + 100, share))
    heeds = (
        f"{greedy} & while ! grep -q warning {stderr}; do sleep 0.05; done; kill $!; wait; {modest} & sleep 2; kill $!"
    )
    run = notebook(world, "7")
    await world.placer.desire("n1", order("7", "sh", "-c", heeds, **{name: getattr(run, name) for name in SHARE}))
    assert (await world.ended("7")).outcome == "exited"
    assert stderr.read_text().count("fairlead: warning") == 1


async def test_a_share_comes_back_while_neighbours_go_on(world: AgentWorld) -> None:
    """Neighbours on the GPU are no evidence that the ended run is there; a daemon that it started ends with it, before it is clean."""
    said = world.settings.data / "said"
    play = f"setsid {' '.join(PLAY)} --mib 50 --seconds 600 >{said} 2>&1"
    leaves = ("sh", "-c", f"{play} & while ! grep -q holds {said}; do sleep 0.05; done")
    gpu = gpu_of(world)
    half = {"gpus": (gpu.uuid,), "gpu_milli": 300, "gpu_memory_mib": 1_000}
    steady = notebook(world, "8", "--mib", "100", "--seconds", "600")
    await world.placer.desire("n1", steady, order("7", *PLAY, "--mib", "50", "--seconds", "1", **half))
    assert (await world.ended("7")).clean
    await world.placer.desire("n1", steady, order("9", *leaves, **half))
    assert (await world.ended("9")).clean
    assert "holds" in said.read_text()
    assert [each for each in world.agents[-1][0].devices.processes() if each.memory_mib == 50] == []
    assert world.placer.of(ExitSeen, "8") == []


async def test_the_guard_reads_a_driver_as_it_reads_a_played_machine(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The NVML adapter over a played driver, whose processes are the runs' own: the offender ends, its share comes back
    while the neighbour is on the GPU."""
    await world.stop()
    driver = PlayedNvml(gpus=1)
    devices = NvmlDevices(driver, sys=world.settings.data)
    monkeypatch.setattr("fairlead_agent.__main__.open_devices", lambda name, machine: devices)
    agent = await world.start()
    await world.placer.until(lambda: len(world.placer.of(InventorySeen)) == 2)
    third = {"gpus": ("GPU-0",), "gpu_milli": 333, "gpu_memory_mib": 13_000}
    steady = order("8", "sleep", "600", **third)
    await world.placer.desire("n1", order("7", "sleep", "600", **third), steady)
    await world.placer.until(lambda: len(world.placer.of(StartSeen)) == 2)
    owners = await agent.runtime.owners(processes_of_this_machine())
    pids = {key.job: pid for pid, key in owners.items()}
    driver.running = {0: {pids["7"]: 20_000, pids["8"]: 13_000}}

    def alive(gpu: int) -> list[SimpleNamespace]:
        return [each for each in driver._running(gpu) if Path(f"/proc/{each.pid}").exists()]

    driver.answers["nvmlDeviceGetComputeRunningProcesses"] = alive
    offender = await world.ended("7")
    assert (offender.outcome, offender.clean) == ("gpu_memory", True)
    assert "used 20,000 MiB of its 13,000 MiB share of GPU-0 for" in offender.message
    assert world.placer.of(ExitSeen, "8") == []


async def test_samples_say_what_each_run_uses(world: AgentWorld) -> None:
    """Two on one GPU, each with its own memory; the sample of the GPU has the sum, and names the one that had it first."""
    batches: list[SampleBatch] = []
    await world.hub.connect().subscribe(subjects.SAMPLE_ALL, lambda m: batches.append(decode_samples(m.payload)))
    first = notebook(world, "7", "--mib", "300", "--seconds", "600")
    await world.placer.desire("n1", first)
    await world.placer.until(lambda: bool(world.placer.of(StartSeen, "7")))
    await world.placer.desire("n1", first, notebook(world, "8", "--mib", "500", "--seconds", "600"))
    await eventually_async(lambda: bool(batches) and len(batches[-1].uses) == 2)
    seen = len(batches)
    await eventually_async(
        lambda: len(batches) > seen
    )  # in the first one the GPU's own number may be older than its processes'
    batch = batches[-1]
    assert sorted((each.run, each.memory_mib) for each in batch.uses) == [("7.1", 300), ("8.1", 500)]
    assert (batch.gpus[0].memory_used_mib, batch.gpus[0].run) == (804, "7.1")


async def test_a_guard_goes_on_after_the_agents_restart(world: AgentWorld) -> None:
    """The shares are in the desired state; the run was adopted."""
    size = gpu_of(world).memory_mib
    await world.placer.desire("n1", notebook(world, "7", "--mib", "100", "--mib", f"{size}@3", "--seconds", "600"))
    await world.placer.until(lambda: bool(world.placer.of(StartSeen, "7")))
    await world.stop()
    await world.start()
    assert (await world.ended("7")).outcome == "gpu_memory"


def test_mps_limits_a_share_where_its_daemon_runs(tmp_path: Path) -> None:
    """By its control pipe; a plain file is none. Whole GPUs and MIG instances are not limited."""
    share = order("7", "true", gpus=("a", "b"), gpu_milli=250, gpu_memory_mib=5_000)
    assert pipe_directory({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}) == ""
    assert share_environment(share, "") == {"FAIRLEAD_GPU_SHARING": "time-slicing"}
    (tmp_path / "control").touch()
    assert pipe_directory({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}) == ""
    (tmp_path / "control").unlink()
    os.mkfifo(tmp_path / "control")
    pipes = pipe_directory({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)})
    assert share_environment(share, pipes) == {
        "FAIRLEAD_GPU_SHARING": "mps",
        "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=5000M,1=5000M",
    }
    assert share_environment(order("7", "true", gpus=("a",)), pipes) == {}
    assert share_environment(order("7", "true", gpus=("a",), gpu_milli=142, instances=("MIG-1",)), pipes) == {}


def test_a_note_is_a_line_of_ours_and_is_counted(tmp_path: Path) -> None:
    """So that a runtime that resumes by the file's length knows what is the program's. No file, no note."""
    stderr = tmp_path / "stderr"
    stderr.write_text("theirs\n")
    write_note(stderr, "warning:\nfirst")
    write_note(stderr, "second")
    assert stderr.read_text() == "theirs\nfairlead: warning: first\nfairlead: second\n"
    assert own_bytes(stderr) == len("fairlead: warning: first\nfairlead: second\n")
    assert own_bytes(tmp_path / "stdout") == 0
