"""Tests on a real NVIDIA GPU (`make test-gpu`): each skips with its reason if the machine lacks something. Nothing of
the machine is changed: no MIG mode is switched, nothing is reset. GPUs in use are left alone."""

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead_agent.core.runs import RunKey
from fairlead_agent.devices.nvml import NvmlDevices
from fairlead_agent.devices.recorded import RecordedDevices, read_recording, record, write_recording
from fairlead_schemas.wire.reports import ExitSeen, InventorySeen
from fairlead_schemas.wire.resources import Gpu
from tests.agent.placer_script import order
from tests.agent.world import AgentWorld
from tests.kit.eventually import eventually_async

pytestmark = pytest.mark.gpu
PROGRAM = (sys.executable, str(Path(__file__).with_name("cuda_program.py")))


@pytest.fixture
def devices() -> Iterator[NvmlDevices]:
    """The machine's."""
    opened = NvmlDevices()
    yield opened
    opened.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    """An agent on this machine's GPUs, with a guard that bears little."""
    world = await AgentWorld(tmp_path).open(DEVICES="nvml", SAMPLE_S="0.2", SHARE_GRACE_S="2")
    yield world
    await world.close()


def free_gpu(devices: NvmlDevices) -> Gpu:
    """Return an unused GPU without instances."""
    busy = devices.busy([gpu.uuid for gpu in devices.gpus()])
    free = [gpu for gpu in devices.gpus() if gpu.uuid not in busy and not gpu.mig]
    if not free:
        pytest.skip(f"gpu: no GPU is free and whole: {busy or 'all are cut'}")
    return free[0]


def smi(fields: str) -> list[list[str]]:
    """Return nvidia-smi's values for each GPU."""
    told = subprocess.run(
        ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [[word.strip() for word in line.split(",")] for line in told.stdout.splitlines()]


def output(world: AgentWorld, job: str) -> str:
    return world.agents[-1][0].runtime.output(RunKey(job, 1, 0))[0].read_text()


def test_the_inventory_is_that_of_nvidia_smi(devices: NvmlDevices) -> None:
    """UUIDs, names and memory, by index."""
    found = [[gpu.uuid, gpu.model, str(gpu.memory_mib)] for gpu in devices.gpus()]
    told = [
        [uuid, name, memory]
        for _, uuid, name, memory in sorted(smi("index,uuid,name,memory.total"), key=lambda row: int(row[0]))
    ]
    assert found == told
    assert all(gpu.compute_capability >= 30 for gpu in devices.gpus())


def test_health_makes_sense(devices: NvmlDevices) -> None:
    """Nothing is lost, temperatures are those of a machine, lanes are no more than there are."""
    for health in devices.health():
        print(health)
        assert (health.lost, health.why) == (False, "")
        assert health.temperature_c is not None and 5 < health.temperature_c < 110
        if health.pcie_width is not None and health.pcie_width_max is not None:
            assert 1 <= health.pcie_width <= health.pcie_width_max
    assert devices.xids() == []


def test_mig_placements_are_listed_with_mig_off(devices: NvmlDevices) -> None:
    """The driver's list for a GPU that supports MIG: places within eight memory slices, the whole GPU among them."""
    tables = devices.mig_tables()
    if not tables:
        pytest.skip("gpu: no GPU here lists MIG profiles (it cannot be cut, or its driver says so in MIG mode alone)")
    for uuid, profiles in tables.items():
        print(uuid, profiles)
        assert all(start + each.size <= 8 for each in profiles for start in each.starts)
        assert any(each.starts == (0,) and each.size == 8 for each in profiles)


async def test_a_run_sees_its_gpu_and_no_other(world: AgentWorld, devices: NvmlDevices) -> None:
    """One that was given none sees none."""
    gpu = free_gpu(devices)
    await world.placer.desire("n1", order("7", *PROGRAM, "list", gpus=(gpu.uuid,)), order("8", *PROGRAM, "list"))
    assert [(await world.ended(job)).exit_code for job in ("7", "8")] == [0, 0]
    assert (output(world, "7"), output(world, "8")) == (f"{gpu.uuid}\n", "")


async def test_the_memory_guard_stops_the_offender_alone(world: AgentWorld, devices: NvmlDevices) -> None:
    """Real memory, counted by the driver; the neighbour continues, and the GPU is free when both have ended."""
    gpu = free_gpu(devices)
    if gpu.memory_mib < 8000:
        pytest.skip(f"gpu: {gpu.memory_mib} MiB are too few to share, 8000 are needed")
    share: dict[str, Any] = {"gpus": (gpu.uuid,), "gpu_milli": 300, "gpu_memory_mib": 2000}
    steady = order("8", *PROGRAM, "hold", "200", "20", **share)
    await world.placer.desire("n1", order("7", *PROGRAM, "hold", "4000", "600", **share), steady)
    offender = await world.ended("7")
    assert offender.outcome == "gpu_memory"
    print(offender.message)
    assert offender.clean, "the neighbour is no evidence"
    assert world.placer.of(ExitSeen, "8") == []
    assert (await world.ended("8")).exit_code == 0


async def test_samples_see_what_a_run_uses(world: AgentWorld, devices: NvmlDevices) -> None:
    """Memory and process while it holds it, and afterwards neither. How long a look takes is printed."""
    gpu = free_gpu(devices)
    assert world.placer.of(InventorySeen)[0].inventory.gpus[gpu.index].uuid == gpu.uuid
    await world.placer.desire("n1", order("7", *PROGRAM, "hold", "1000", "5", gpus=(gpu.uuid,)))
    agent = world.agents[-1][0]
    await eventually_async(lambda: agent.gpu_use.uses, within_s=30, look_s=0.05)
    ((_, uuid), use) = next(iter(agent.gpu_use.uses.items()))
    assert (uuid, use.memory_mib >= 1000) == (gpu.uuid, True)
    start = time.monotonic()
    used = devices.sample({})[gpu.index].memory_used_mib
    print(f"a sample of {len(devices.gpus())} GPUs took {time.monotonic() - start:.4f} s")
    assert used >= 1000
    assert (await world.ended("7")).exit_code == 0


def test_a_recording_of_this_machine_is_replayed(devices: NvmlDevices, tmp_path: Path) -> None:
    """Three seconds of it. To keep one: python -m fairlead_agent.devices.recorded --seconds 30 --out FILE."""
    made = record(devices, 3, 1, "make test-gpu", mig=devices.mig_tables(), recorded_on="2026-01-01")
    replayed = RecordedDevices(read_recording(write_recording(made)))
    assert replayed.gpus() == devices.gpus()
    assert replayed.inside() == devices.inside()
    assert len(replayed.sample({})) == len(devices.gpus())
