"""Runs in a directory of their own: sent pieces on the node, files read from outside, outputs kept by name. With real processes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead_agent.core.runs import RunKey
from fairlead_agent.runtimes.run_directory import LOOK_S
from fairlead_bus.pieces import PieceStore
from fairlead_schemas.wire import subjects, trees
from fairlead_schemas.wire.run_files import ReadFiles, RunFiles, decode_files, encode
from fairlead_schemas.wire.trees import TreeEntry, TreeGroup
from tests.agent.launch.pair import Pair, rank
from tests.agent.placer_script import order
from tests.agent.world import AgentWorld

FILES = {
    "train.sh": b"cat data/x; echo 1 > model.pt; mkdir -p logs/deep; echo 2 > logs/deep/a.log\n",
    "data/x": b"hello\n",
}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    """A joined node."""
    world = await AgentWorld(tmp_path).open()
    yield world
    await world.close()


async def send(hub: Any, files: dict[str, bytes], *, without: int = 0) -> str:
    """Send a directory, without so many of its last pieces; its name."""
    store = PieceStore(hub.connect(), lambda: 1e9, {})
    entries = tuple(TreeEntry(path=path, size=len(data), data=data) for path, data in sorted(files.items()))
    group = trees.encode_piece(TreeGroup(entries=entries))
    root = trees.tree_of([trees.digest_of(group)], len(entries), sum(map(len, files.values())))
    for piece in (root, group)[: 2 - without]:
        await store.put(piece)
    return trees.name_of_tree(trees.digest_of(root))


async def ask(world: AgentWorld, path: str = "", job: str = "7", **more: Any) -> RunFiles:
    """An answer of the node about a run's files."""
    question = ReadFiles(job=job, attempt=1, rank=0, path=path, **more)
    return decode_files(
        await world.hub.connect().request(subjects.rpc_node("n1", "files"), encode(question), timeout_s=60)
    )


async def test_a_run_finds_what_was_sent_where_it_runs(world: AgentWorld) -> None:
    """And its files are read from outside, while it runs and after its end."""
    name = await send(world.hub, FILES)
    await world.placer.desire("n1", order("7", "sh", "-c", "sh train.sh; exec sleep 1000", spec={"sync": name}))
    await world.says("7", b"hello")
    kinds = {entry.name: entry.kind for entry in (await ask(world)).entries}
    assert (kinds["train.sh"], kinds["data"]) == ("file", "directory")
    assert (await ask(world, "data/x")).data == b"hello\n"
    assert (await ask(world, "data/x", offset=2, bytes_max=3)).data == b"llo"
    await world.placer.desire("n1")
    await world.ended("7")
    assert (await ask(world, "model.pt")).data == b"1\n"
    assert not (world.settings.directory / "staged" / "7.1.0").exists()


async def test_two_runs_of_one_directory_do_not_see_each_other(world: AgentWorld) -> None:
    """Each has a copy of its own; the pieces stay as they are."""
    name = await send(world.hub, {"x": b"old"})
    await world.placer.desire("n1", order("7", "sh", "-c", "echo new > x", spec={"sync": name}))
    await world.ended("7")
    await world.placer.desire("n1", order("8", "cat", "x", spec={"sync": name}))
    await world.ended("8")
    assert [(await ask(world, "x", job=job)).data for job in ("7", "8")] == [b"new\n", b"old"]


async def test_a_run_without_its_pieces_does_not_start(world: AgentWorld) -> None:
    """Its end says what to do, and the next run starts."""
    name = await send(world.hub, FILES, without=1)
    await world.placer.desire("n1", order("7", "sh", "train.sh", spec={"sync": name}))
    end = await world.ended("7")
    assert (end.outcome, end.fault, end.clean) == ("start_failed", "job", True)
    assert "submit the job again with --sync" in end.message
    await world.placer.desire("n1", order("8", "true"))
    assert (await world.ended("8")).exit_code == 0


async def test_an_agent_that_dies_while_it_unpacks_leaves_nothing(world: AgentWorld) -> None:
    """The next one reports the run as never begun, removes the half of the directory, and starts it when asked again."""
    name = await send(world.hub, FILES)
    agent, task = world.agents[-1]
    began = asyncio.Event()

    async def waits(_: bytes) -> bytes | None:
        began.set()
        await asyncio.Event().wait()
        return None

    agent.trees._fetch = waits
    await world.placer.desire("n1", order("7", "sh", "train.sh", spec={"sync": name}))
    async with asyncio.timeout(60):
        await began.wait()
    staged = world.settings.directory / "staged"
    (staged / "7.1.0" / "half").touch()
    await world.stop()
    assert task.done()
    (staged / "7.1.0").mkdir(parents=True, exist_ok=True)  # as a process that was killed leaves it
    await world.start()
    end = await world.ended("7")
    assert (end.outcome, staged.exists()) == ("start_failed", False)
    await world.placer.desire("n1", order("7", "sh", "train.sh", attempt=2, spec={"sync": name}))
    await world.placer.until(lambda: len(world.placer.of(type(end), "7")) == 2)
    assert world.placer.of(type(end), "7")[1].exit_code == 0


async def test_outputs_are_kept_by_name(world: AgentWorld) -> None:
    """Also of a job without a sent directory; what is left of the directory may go before them."""
    outputs = {"model": "*.pt", "logs": ["logs/", "none"], "nothing": "absent/*"}
    command = (
        "sh",
        "-c",
        "echo 1 > model.pt; mkdir -p logs/deep; echo 2 > logs/deep/a.log; ln -s /etc logs/etc; echo 3 > rest",
    )
    await world.placer.desire("n1", order("7", *command, spec={"outputs": outputs}))
    await world.ended("7")
    assert [entry.name for entry in (await ask(world, "/")).entries] == ["logs", "model"]
    assert (await ask(world, "model/model.pt")).data == b"1\n"
    assert (await ask(world, "logs/logs/deep/a.log")).data == b"2\n"
    assert [entry.name for entry in (await ask(world, "logs/logs")).entries] == ["deep"]
    stderr = world.agents[-1][0].runtime.output(RunKey("7", 1, 0))[1].read_text()
    assert stderr == "fairlead: outputs.nothing: no file fits absent/*\n"


async def test_outputs_that_are_too_large_are_reported(tmp_path: Path) -> None:
    """The others are; a hole in a file counts as nothing."""
    world = await AgentWorld(tmp_path).open(OUTPUTS_MIB="1", DEVICES="none")
    try:
        command = "truncate -s 1G sparse; head -c 2000000 /dev/zero > large; echo x > small"
        outputs = {name: name for name in ("large", "small", "sparse")}
        await world.placer.desire("n1", order("7", "sh", "-c", command, spec={"outputs": outputs}))
        await world.ended("7")
        assert [entry.name for entry in (await ask(world, "/")).entries] == ["small", "sparse"]
        stderr = world.agents[-1][0].runtime.output(RunKey("7", 1, 0))[1].read_text()
        assert stderr == "fairlead: outputs.large is not kept: 1.9 MiB, and this node keeps at most 1.0 MiB of a run\n"
    finally:
        await world.close()


async def test_outputs_are_kept_of_a_run_that_ended_without_its_agent(world: AgentWorld) -> None:
    """The next agent knows the names."""
    await world.placer.desire("n1", order("7", "sh", "-c", "echo x; sleep 1; echo 1 > m", spec={"outputs": {"m": "m"}}))
    await world.says("7", b"x")
    await world.stop()
    directory = world.settings.directory / "runs" / "7.1.0"
    async with asyncio.timeout(60):
        while not (directory / "work" / "m").exists():  # noqa: ASYNC110 -- no agent notifies
            await asyncio.sleep(0.05)
    await world.start()
    await world.ended("7")
    assert (await ask(world, "m/m")).data == b"1\n"


async def test_the_oldest_directories_go_and_kept_outputs_stay(tmp_path: Path) -> None:
    """What the node keeps of directories is bounded by itself."""
    world = await AgentWorld(tmp_path).open(WORK_MIB="2", DEVICES="none")
    try:
        for job in ("7", "8", "9"):
            command = "head -c 1000000 /dev/zero > rest; echo 1 > m"
            await world.placer.desire("n1", order(job, "sh", "-c", command, spec={"outputs": {"m": "m"}}))
            await world.ended(job)
        agent = world.agents[-1][0]
        directories: Any = agent.runtime
        await world.placer.until(lambda: len(directories.directories._ended) == 3)
        directories.directories._looked_at = -LOOK_S
        await agent.runtime.look_at_directories()
        assert len(directories.directories._work_sizes) == 3  # measured once
        gone = await ask(world, "rest", job="7")
        assert (gone.absent, "or it is gone" in gone.error) == (True, True)
        assert [len((await ask(world, "rest", job=job, bytes_max=9)).data) for job in ("8", "9")] == [9, 9]
        assert (await ask(world, "m/m", job="7")).data == b"1\n"
    finally:
        await world.close()


@pytest.mark.parametrize(
    "path",
    ["etc/passwd", "loop", "up/7.1.0/stdout", "pipe", "../stdout", "/etc/passwd", "a/../../stdout", "work", "x" * 300],
)
async def test_nothing_outside_of_the_directory_is_read(world: AgentWorld, path: str) -> None:
    """Links, pipes, paths that lead up, and names that are too long are answered, with no content and without waiting."""
    command = "ln -s /etc etc; ln -s loop loop; ln -s ../.. up; mkfifo pipe; exec true"
    await world.placer.desire("n1", order("7", "sh", "-c", command, spec={"outputs": {"all": "**"}}))
    await world.ended("7")
    found = await ask(world, path)
    assert found.data == b""
    assert found.error or (found.entry is not None and found.entry.kind in ("link", "other"))
    assert (await ask(world, "/")).entries == ()


async def test_names_that_are_no_text_are_listed_and_refused(world: AgentWorld) -> None:
    """A directory with one is still read."""
    await world.placer.desire(
        "n1", order("7", "sh", "-c", "touch \"$(printf 'a\\377')\" b", spec={"outputs": {"all": "*"}})
    )
    await world.ended("7")
    assert [entry.name for entry in (await ask(world)).entries] == ["a\ufffd", "b"]
    assert (await ask(world, "a\ufffd")).absent
    assert [entry.name for entry in (await ask(world, "all")).entries] == ["b"]


async def test_a_large_directory_is_listed_in_parts(world: AgentWorld) -> None:
    """Each part begins behind the last name of the one before."""
    await world.placer.desire(
        "n1", order("7", "sh", "-c", "seq -w 2500 | xargs touch", spec={"outputs": {"none": "x"}})
    )
    await world.ended("7")
    names: list[str] = []
    while (part := await ask(world, after=names[-1] if names else "")).more:
        names += [entry.name for entry in part.entries]
    assert [*names, *(entry.name for entry in part.entries)] == [f"{number:04}" for number in range(1, 2501)]


async def test_questions_that_are_none_are_refused(world: AgentWorld) -> None:
    """Another run, another job's id, no question at all."""
    assert "gone: this node keeps output" in (await ask(world, job="99")).error
    for question in (b"", b"{}", b'{"job":"../7","attempt":1,"rank":0}'):
        answer = await world.hub.connect().request(subjects.rpc_node("n1", "files"), question, timeout_s=60)
        assert decode_files(answer).error.startswith("expected a ReadFiles")
    await world.placer.desire("n1", order("7", "true"))
    await world.ended("7")
    assert "no directory of its own" in (await ask(world)).error


async def test_every_rank_has_the_directory(tmp_path: Path) -> None:
    """And keeps its own outputs; no rank starts before all have theirs."""
    pair = await Pair(tmp_path).open()
    try:
        name = await send(pair.hub, FILES)
        for number, node in enumerate(("n1", "n2")):
            own = rank(number, "sh", "-c", "cat data/x; echo $FAIRLEAD_RANK > mine")
            spec = msgspec.json.decode(own.spec) | {"sync": name, "outputs": {"mine": "mine"}}
            await pair.placer.desire(node, msgspec.structs.replace(own, spec=msgspec.Raw(msgspec.json.encode(spec))))
        await pair.placer.until(
            lambda: len({node for node, report in pair.placer.reports if hasattr(report, "outcome")}) == 2
        )
        for number, node in enumerate(("n1", "n2")):
            question = encode(ReadFiles(job="7", attempt=1, rank=number, path="mine/mine"))
            answer = await pair.hub.connect().request(subjects.rpc_node(node, "files"), question, timeout_s=60)
            assert decode_files(answer).data == b"%d\n" % number
    finally:
        await pair.close()


async def test_modes_that_grant_more_are_not_kept(world: AgentWorld) -> None:
    """A tree knows no set-user-id: a file is executable or not."""
    name = await send(world.hub, {"x": b"1"})
    await world.placer.desire("n1", order("7", "true", spec={"sync": name}))
    await world.ended("7")
    path = world.settings.directory / "runs" / "7.1.0" / "work" / "x"
    assert path.stat().st_mode & 0o7777 == 0o644
