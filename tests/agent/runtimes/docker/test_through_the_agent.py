"""The whole agent over containers, on the in-memory bus: what people see of an image that is pulled, or cannot be."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import docker
import msgspec
import pytest

from fairlead_agent.core.runs import RunKey
from fairlead_bus.pieces import PieceStore
from fairlead_schemas.wire import subjects, trees
from fairlead_schemas.wire.reports import ExitSeen, OutputPiece, StartSeen
from fairlead_schemas.wire.run_files import ReadFiles, RunFiles, decode_files, encode
from fairlead_schemas.wire.trees import TreeEntry, TreeGroup
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


@pytest.mark.parametrize("user", ["", "1000:1000"])
async def test_a_container_has_its_directory_and_its_outputs_are_kept(world: AgentWorld, user: str) -> None:
    """Where `workdir` says, or at /work; whoever the image's user is, it may write; links of the container lead nowhere here."""
    busybox = shutil.which("busybox")
    assert busybox is not None
    store = PieceStore(world.hub.connect(), lambda: 1e9, {})
    script = b"cat data/x; pwd; mkdir out; echo 1 > out/m; echo 2 >> data/x; ln -s /etc out/etc; ln -s / root"
    files = (TreeEntry(path="data/x", size=6, data=b"hello\n"), TreeEntry(path="run.sh", size=len(script), data=script))
    group = trees.encode_piece(TreeGroup(entries=files))
    root = trees.tree_of([trees.digest_of(group)], 2, 6 + len(script))
    for piece in (group, root):
        await store.put(piece)
    spec = {"sync": trees.name_of_tree(trees.digest_of(root)), "outputs": {"model": "out/"}}
    with Registry() as registry:
        image = registry.push("own", root_file_system(busybox), user=user)
        for job, where in (("7", {}), ("8", {"workdir": "/project"})):
            command = ("sh", "run.sh")
            await world.placer.desire("n1", order(job, *command, spec={"image": image, **spec, **where}, memory_mib=32))
            end = await world.ended(job)
            assert (end.outcome, end.exit_code, end.message) == ("exited", 0, "")
            stdout, stderr = (path.read_text() for path in world.agents[-1][0].runtime.output(RunKey(job, 1, 0)))
            assert stdout == f"hello\n{where.get('workdir', '/work')}\n", stderr
            answers = [await files_of(world, job, path) for path in ("model/out/m", "data/x", "root/etc/passwd", "/")]
            assert [answer.data for answer in answers[:3]] == [b"1\n", b"hello\n2\n", b""]
            assert [entry.name for entry in answers[3].entries] == ["model"]
        docker.from_env().api.remove_image(image, force=True)


async def files_of(world: AgentWorld, job: str, path: str) -> RunFiles:
    """The node's answer about a path."""
    question = encode(ReadFiles(job=job, attempt=1, rank=0, path=path))
    return decode_files(await world.hub.connect().request(subjects.rpc_node("n1", "files"), question, timeout_s=60))
