"""The engine is stopped, killed, or suspended under running containers; every end is reported once, and correctly."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlead_agent.core.runs import Exit, RunKey
from fairlead_agent.launch.plan import Launch
from fairlead_agent.runtimes.docker.engine import Patience
from fairlead_agent.runtimes.docker.runtime import DockerRuntime
from fairlead_agent.runtimes.docker.template import LABEL_JOB
from tests.agent.runtime_watch import Watch, incarnation, launch, until_file
from tests.agent.runtimes.docker import own_engine
from tests.agent.runtimes.docker.image import IMAGE
from tests.agent.runtimes.docker.own_engine import OwnEngine

pytestmark = [pytest.mark.docker, pytest.mark.slow]

SOON = Patience(call_s=3.0, signal_s=0.5, look_s=0.5, retry_s=0.1, silent_s=2.0, drain_s=2.0, orphan_grace_s=0.5)
#: Ends by itself once somebody has made /tmp/over in it; says so once more on TERM.
WAITS = "echo ready; while [ ! -e /tmp/over ]; do sleep 0.05; done; echo over; exit 5"
POLITE = "trap 'exit 0' TERM; " + WAITS


class InterruptedEngine:
    """A runtime over an engine of its own."""

    def __init__(self, base: Path, engine: OwnEngine) -> None:
        self.engine = engine
        self.runtime = DockerRuntime(base, "n1", incarnation(), simulated=True, socket=engine.socket, patience=SOON)
        self.watch = Watch()

    def sh(self, job: str, script: str) -> Launch:
        return launch(job, "sh", "-c", script, image=IMAGE)

    async def runs(self, job: str, script: str) -> int:
        """Start it and wait until it speaks; its number in the engine's words."""
        self.runtime.start(self.sh(job, script))
        await until_file(self.runtime.output(key(job))[0], b"ready")
        return self.pid(job)

    def pid(self, job: str) -> int:
        client = self.engine.client
        (there,) = client.containers(filters={"label": f"{LABEL_JOB}={job}"})
        return client.inspect_container(there["Id"])["State"]["Pid"]

    def end(self, job: str) -> None:
        """Let it end by itself: its root as the machine sees it, so that no engine is needed."""
        Path(f"/proc/{self._pids[job]}/root/tmp/over").touch()

    def keep_pid(self, job: str, pid: int) -> None:
        self._pids[job] = pid

    _pids: dict[str, int] = {}


def key(job: str) -> RunKey:
    return RunKey(job, 1, 0)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[OwnEngine]:
    """With live-restore or without, as the test says."""
    if reason := own_engine.missing():
        pytest.skip(reason)
    with OwnEngine(live_restore=request.param) as made:
        yield made


@pytest.fixture
async def world(tmp_path: Path, engine: OwnEngine) -> AsyncIterator[InterruptedEngine]:
    """Opened, and let go at the end."""
    world = InterruptedEngine(tmp_path, engine)
    await world.runtime.open(world.watch.handle)
    await world.runtime.adopt([])
    yield world
    await world.runtime.close()


@pytest.mark.parametrize("engine", [True], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_with_live_restore_runs_continue_while_the_engine_restarts(world: InterruptedEngine, number: int) -> None:
    """A run continues in the same process with its whole output; a run that ends meanwhile is reported once, with its
    own end. (The engine may lose output printed during its absence.)"""
    pid = await world.runs("901", WAITS)
    gone = await world.runs("902", WAITS)
    world.keep_pid("901", pid)
    world.keep_pid("902", gone)
    await asyncio.to_thread(world.engine.stop, number)
    world.end("902")
    await asyncio.sleep(0.5)
    assert world.watch.exits == {}  # nobody can say yet how it ended
    await asyncio.to_thread(world.engine.start)
    assert await world.watch.exit_of(key("902")) == Exit(code=5)
    assert world.pid("901") == pid
    world.end("901")
    assert await world.watch.exit_of(key("901")) == Exit(code=5)
    assert world.runtime.output(key("901"))[0].read_text().splitlines() == ["ready", "over"]


@pytest.mark.parametrize("engine", [False], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_without_live_restore_an_engines_stop_gives_no_exit_code(world: InterruptedEngine, number: int) -> None:
    """Its containers end with it, not by themselves, so no exit code is reported; also for one that exits with 0 on
    TERM."""
    await world.runs("911", WAITS)
    await world.runs("912", POLITE)
    await asyncio.to_thread(world.engine.stop, number)
    await asyncio.to_thread(world.engine.start)
    for job in ("911", "912"):
        exit = await world.watch.exit_of(key(job))
        assert not exit.known and exit.message
    world.runtime.release(key("911"))
    world.runtime.start(world.sh("913", "exit 3"))
    assert await world.watch.exit_of(key("913")) == Exit(code=3)


@pytest.mark.parametrize("engine", [False], indirect=True)
async def test_a_hanging_engine_does_not_prevent_a_kill(world: InterruptedEngine) -> None:
    """The loop continues, a start waits or fails clearly, and KILL reaches the process without the engine. When the
    engine continues, nothing is reported twice and no unknown container remains."""
    await world.runs("921", WAITS)
    await world.runs("922", WAITS)
    world.engine.hold()
    try:
        world.runtime.start(world.sh("923", WAITS))
        world.runtime.kill(key("921"))
        exit = await world.watch.exit_of(key("921"))
        assert exit.signal == signal.SIGKILL and "did not answer" in exit.message
        await asyncio.sleep(3 * SOON.call_s)  # the start's call has failed meanwhile, on a slow machine, too
        assert key("923") not in world.watch.starts
        assert key("922") not in world.watch.exits
        world.runtime.release(key("921"))
    finally:
        world.engine.release()
    await world.watch.until(lambda: key("923") in world.watch.failures)
    assert world.watch.failures[key("923")] == "the Docker engine has not answered in time"
    world.runtime.kill(key("922"))
    assert (await world.watch.exit_of(key("922"))).signal == signal.SIGKILL
    world.runtime.release(key("922"))
    async with asyncio.timeout(60):
        while await asyncio.to_thread(lambda: world.engine.client.containers(all=True)):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert sorted(world.watch.exits) == [key("921"), key("922")]
