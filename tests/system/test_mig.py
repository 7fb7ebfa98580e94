"""MIG from the offer to the program: the real placer and real agents with played GPUs, on the in-memory bus."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead_agent.__main__ import build_agent
from fairlead_agent.agent import Agent
from fairlead_agent.devices.simulated import SimulatedDevices
from fairlead_agent.hollow.fleet import HollowFleet
from fairlead_agent.hollow.shapes import of_profile
from fairlead_agent.settings import Admin, Settings
from fairlead_schemas.wire import events as ev
from tests.kit.eventually import eventually_async
from tests.kit.placer_on_bus import PlacerOnBus, placer_on_bus
from tests.kit.placer_world import names, request
from tests.placer.scheduling.repartition.migworld import mig

AUTO = {"fairlead/mig": "auto"}
SEES = b'{"command":["sh","-c","test -n \\"$CUDA_VISIBLE_DEVICES\\" && echo $CUDA_VISIBLE_DEVICES"]}'


@pytest.fixture
async def cluster() -> AsyncIterator[PlacerOnBus]:
    """A placer on a hub."""
    async with placer_on_bus() as made:
        yield made


@pytest.fixture
async def agent(cluster: PlacerOnBus, tmp_path: Path) -> AsyncIterator[Agent]:
    """An agent that plays a DGX A100 whose MIG mode the placer may switch."""
    settings = Settings(
        node="n1", devices="simulated", profile="dgx-a100", data=tmp_path, beat_s=0.1, admin=Admin(AUTO, ())
    )
    made = await build_agent(cluster.hub.connect(), settings)
    task = asyncio.ensure_future(made.run())
    await cluster.until(lambda: "n1" in cluster.service.core.rollback().nodes)
    yield made
    await made.stop()
    await task


def half(cluster: PlacerOnBus) -> str:
    """The profile of half of a GPU of n1."""
    gpu = cluster.service.core.rollback().nodes["n1"].inventory.gpus[0]
    return f"3g.{gpu.memory_mib // 2048}gb"


async def test_a_whole_gpu_is_repartitioned_used_and_made_whole(cluster: PlacerOnBus, agent: Agent) -> None:
    """The program sees the instance that was created for it; then eight whole GPUs are requested, and one is made
    whole."""
    profile = half(cluster)
    await cluster.queue(*cluster.world.submitted(mig(profile), spec=SEES))
    await cluster.until(lambda: "RunEnded" in names(cluster.events()))
    told = names(cluster.events())
    assert [each for each in told if each in ("MigLayoutPlanned", "MigLayoutChanged", "JobPlaced")] == [
        "MigLayoutPlanned",
        "MigLayoutChanged",
        "JobPlaced",
    ]
    (placed,) = [event for event in cluster.events() if isinstance(event, ev.JobPlaced)]
    (ended,) = [event for event in cluster.events() if isinstance(event, ev.RunEnded)]
    assert (ended.exit_code, ended.released) == (0, ("n1",))
    (instance,) = placed.parts[0].instances
    output = next(agent.settings.directory.rglob("stdout"))
    assert output.read_text() == f"{instance}\n"
    await cluster.queue(*cluster.world.submitted(request(8), spec=b'{"command":["true"]}'))
    await cluster.until(lambda: names(cluster.events()).count("RunEnded") == 2)
    assert [event.mode for event in cluster.events() if isinstance(event, ev.MigLayoutPlanned)] == ["on", "off"]
    assert not any(gpu.mig for gpu in agent.devices.gpus())


async def test_a_driver_that_refuses_leaves_everything_as_it_was(cluster: PlacerOnBus, agent: Agent) -> None:
    """The next GPU is tried at once; what is refused there is not tried on the first again."""
    assert isinstance(agent.devices, SimulatedDevices)
    agent.devices.refused = {half(cluster)}
    await cluster.queue(*cluster.world.submitted(mig(half(cluster)), spec=SEES))
    await cluster.until(lambda: names(cluster.events()).count("MigLayoutFailed") == 8)
    failed = [event for event in cluster.events() if isinstance(event, ev.MigLayoutFailed)]
    assert len({event.gpu for event in failed}) == 8
    assert all("Insufficient Resources (simulated)" in event.reason for event in failed)
    assert not any(gpu.mig for gpu in agent.devices.gpus())
    assert "JobPlaced" not in names(cluster.events())


async def test_hollow_nodes_are_repartitioned_too(cluster: PlacerOnBus) -> None:
    """Many jobs for instances, on few nodes: all run."""
    shapes = [shape._replace(labels=AUTO) for shape in of_profile(2, "dgx-a100", "h")]
    fleet = HollowFleet(cluster.hub.connect(), shapes, speed=100.0, beat_s=0.2)
    await fleet.open()
    await cluster.until(lambda: len(cluster.service.core.rollback().nodes) == 2)
    gb = next(iter(cluster.service.core.rollback().nodes.values())).inventory.gpus[0].memory_mib // 1024
    wanted = [mig(profile) for profile in (f"1g.{gb // 8}gb", f"2g.{gb // 4}gb", f"3g.{gb // 2}gb")] * 12
    for each in wanted:
        await cluster.queue(*cluster.world.submitted(each, spec=b'{"command":["sleep","1"]}'))
    await eventually_async(lambda: names(cluster.events()).count("RunEnded") >= len(wanted), within_s=120)
    await fleet.close()
