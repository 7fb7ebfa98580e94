"""The whole agent over containers, on the in-memory bus: what people see of an image that is pulled, or cannot be."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import docker
import msgspec
import pytest

from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.reports import ExitSeen, OutputPiece, StartSeen
from tests.agent.placer_script import order
from tests.agent.runtimes.docker.image import SOCKET, root_file_system
from tests.agent.runtimes.docker.registry import ON_LOOPBACK, Registry
from tests.agent.world import AgentWorld

pytestmark = pytest.mark.docker


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    """One node whose runs are containers."""
    world = AgentWorld(tmp_path)
    world.settings = msgspec.structs.replace(
        world.settings, runtime="docker", docker_socket=SOCKET, devices="none", registries=ON_LOOPBACK
    )
    await world.open()
    yield world
    await world.close()


async def test_a_pull_is_seen_in_the_output_and_what_ran_in_the_start(world: AgentWorld) -> None:
    """The node's words come before the job's own, on the bus like these; the report of the start has the digest."""
    pieces: list[OutputPiece] = []
    bus = world.hub.connect()
    await bus.subscribe(
        subjects.output("n1", "7"), lambda m: pieces.append(msgspec.json.decode(m.payload, type=OutputPiece))
    )
    busybox = shutil.which("busybox")
    assert busybox is not None
    with Registry() as registry:
        image = registry.push("seen", root_file_system(busybox))
        await world.placer.desire("n1", order("7", "sh", "-c", "echo own >&2", spec={"image": image}, memory_mib=32))
        await world.placer.until(lambda: bool(world.placer.of(ExitSeen, "7")), 60)
        [start] = world.placer.of(StartSeen, "7")
        assert start.image == registry.digest(image)
        text = {piece.offset: piece.data for piece in pieces if piece.stream == "stderr"}
        lines = b"".join(text[offset] for offset in sorted(text)).decode().splitlines()
        assert lines[0] == f"fairlead: pulling image {image}" and lines[-1] == "own"
        docker.from_env().api.remove_image(image, force=True)


async def test_a_missing_image_is_the_jobs_fault_and_reported(world: AgentWorld) -> None:
    """In the report, with the remedy, and in the output."""
    with Registry() as registry:
        image = f"{registry.address}/none:1"
        await world.placer.desire("n1", order("8", "true", spec={"image": image}, memory_mib=32))
        await world.placer.until(lambda: bool(world.placer.of(ExitSeen, "8")), 60)
    [end] = world.placer.of(ExitSeen, "8")
    assert (end.outcome, end.fault, end.clean) == ("start_failed", "job", True)
    assert f"image {image} is not in its registry; check its name and tag" in end.message
