"""An agent whose journal is gone: what its predecessor started is ended before the node is reported as free."""

# ruff: noqa: ASYNC110, ASYNC240 -- waits for files and processes that nobody announces

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fairlead_agent.__main__ import build_agent
from fairlead_agent.agent import Agent
from fairlead_agent.core.runs import RunKey
from fairlead_agent.linux.processes import left_by_others, stat_identity
from fairlead_agent.runtimes.port import Runtime, RuntimeUnfit
from fairlead_agent.runtimes.process import reaper
from fairlead_agent.runtimes.process.runtime import ProcessRuntime
from fairlead_agent.settings import Settings
from fairlead_bus.memory import MemoryHub
from fairlead_schemas.wire.reports import InventorySeen, StartSeen
from tests.agent.placer_script import PlacerScript, order
from tests.agent.runtime_watch import Watch, incarnation, launch, until_file
from tests.agent.runtimes.process.spawners import spawners
from tests.kit.eventually import eventually_async

DEAF = "trap '' TERM; echo ready $$; setsid sh -c 'echo $$ > {left}; sleep 1000' & while :; do sleep 0.05; done"
KEY = RunKey("7", 1, 0)


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if stat_identity(pid) is not None]


class Installation:
    """One node's data directory, and its successive agents."""

    def __init__(self, data: Path) -> None:
        self.hub = MemoryHub()
        self.settings = Settings(node="n1", devices="simulated", data=data, beat_s=0.1)
        self.placer: PlacerScript
        self.agent: Agent
        self.task: asyncio.Task[int]

    @property
    def directory(self) -> Path:
        return self.settings.directory

    async def open(self) -> "Installation":
        bus = self.hub.connect()
        await bus.ensure()
        self.placer = await PlacerScript(bus).open()
        await self.start()
        return self

    async def start(self) -> None:
        self.agent = await build_agent(self.hub.connect(), self.settings)
        self.task = asyncio.ensure_future(self.agent.run())
        own = self.agent.ledger.incarnation
        await self.placer.until(lambda: self.placer.incarnation.get("n1") == own)

    async def stop(self) -> None:
        await self.agent.stop()
        assert await self.task == 0

    async def running(self) -> list[int]:
        """Process ids of a job that ignores TERM, and of what it has left in a session of its own."""
        left = self.settings.data / "left"
        await self.placer.desire("n1", order("7", "sh", "-c", DEAF.format(left=left)))
        await self.placer.until(lambda: bool(self.placer.of(StartSeen, "7")))
        stdout = self.directory / "runs" / KEY.name / "stdout"
        await until_file(stdout, b"ready ")
        await eventually_async(lambda: left.exists() and left.read_text().endswith("\n"))
        return [int(stdout.read_text().split()[1]), int(left.read_text())]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Installation]:
    """A joined node; nothing runs on after it."""
    node = await Installation(tmp_path).open()
    yield node
    if not node.task.done():
        await node.stop()
    last = ProcessRuntime(node.directory, "n1", incarnation())
    await last.open(Watch().handle)
    await last.adopt([])
    await last.close()


def without_journal(directory: Path) -> None:
    """Only the file."""
    (directory / "journal").unlink()


def moved_away(directory: Path) -> None:
    """As the message about a damaged journal recommends; the spawner's socket goes with it."""
    directory.rename(directory.with_name("kept-for-the-inquiry"))


def removed(directory: Path) -> None:
    """All of it, under a living spawner."""
    shutil.rmtree(directory)


@pytest.mark.parametrize("lose", [without_journal, moved_away, removed])
async def test_runs_of_a_lost_journal_are_gone_when_the_node_joins_again(
    node: Installation, lose: Callable[[Path], None]
) -> None:
    """Otherwise the placer would place another attempt on GPUs that are in use."""
    pids = await node.running()
    await node.stop()
    lose(node.directory)
    assert pids == alive(pids)
    left_at_report: list[list[int]] = []
    node.placer.on_report = lambda _, report: (
        left_at_report.append(alive(pids)) if isinstance(report, InventorySeen) else None
    )
    await node.start()
    assert left_at_report == [[]]


async def test_an_orphan_of_the_lost_journal_is_gone_too(node: Installation) -> None:
    """The spawner was killed as well: only the next spawner's file and the tag know the run."""
    pids = await node.running()
    await node.stop()
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if str(node.directory) in words:
            os.kill(int(name), signal.SIGKILL)
    without_journal(node.directory)
    await node.start()
    assert alive(pids) == []


async def test_a_node_of_the_same_name_in_another_directory_is_let_alone(node: Installation, tmp_path: Path) -> None:
    """Two clusters on one machine may both have an n1."""
    pids = await node.running()
    other = ProcessRuntime(tmp_path / "other" / "agent-n1", "n1", incarnation())
    await other.open(Watch().handle)
    await other.adopt([])
    await other.close()
    assert pids == alive(pids)


async def test_a_node_is_not_reported_free_while_something_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that hangs in the kernel keeps the agent from starting, and is named; it ends, and the agent starts."""
    first, watch = ProcessRuntime(tmp_path, "n1", incarnation()), Watch()
    await first.open(watch.handle)
    first.start(launch("7", "sleep", "1000"))
    await watch.until(lambda: KEY in watch.starts)
    await first.close()
    [spawner] = spawners(tmp_path)
    os.kill(spawner, signal.SIGKILL)
    async with asyncio.timeout(60):
        while not (found := left_by_others("n1", "second", str(tmp_path))):
            await asyncio.sleep(0.01)
    (left,) = found

    async def hangs(_process: object) -> None:
        await asyncio.sleep(0.01)

    second: Runtime = ProcessRuntime(tmp_path, "n1", incarnation())
    await second.open(Watch().handle)
    with monkeypatch.context() as patch:
        patch.setattr(reaper, "end_exactly", hangs)
        patch.setattr(reaper, "STRANGERS_S", 3.0)
        with pytest.raises(RuntimeUnfit, match=rf"7\.1\.0 \(process {left.pid}\)"):
            await second.adopt([])
    assert await second.adopt([]) == {}
    assert left_by_others("n1", "third", str(tmp_path)) == []
    await second.close()


@pytest.mark.docker
async def test_containers_of_the_lost_journal_are_gone(tmp_path: Path) -> None:
    """The same by labels; those of another directory stay."""
    from fairlead_agent.runtimes.docker.runtime import DockerRuntime
    from tests.agent.runtimes.docker.image import ensure_image

    image = ensure_image()
    lost, watch = DockerRuntime(tmp_path / "a", "n1", incarnation(), simulated=True), Watch()
    other, other_watch = DockerRuntime(tmp_path / "b", "n1", incarnation(), simulated=True), Watch()
    await lost.open(watch.handle)
    await other.open(other_watch.handle)
    lost.start(launch("7001", "sleep", "1000", image=image))
    other.start(launch("7002", "sleep", "1000", image=image))
    await watch.until(lambda: bool(watch.starts))
    await other_watch.until(lambda: bool(other_watch.starts))
    fresh = DockerRuntime(tmp_path / "a", "n1", incarnation(), simulated=True)
    await fresh.open(Watch().handle)
    await fresh.adopt([])
    await watch.exit_of(RunKey("7001", 1, 0))
    assert other_watch.exits == {}
    await other.adopt([])
    for runtime in (lost, other, fresh):
        await runtime.close()
