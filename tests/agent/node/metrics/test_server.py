"""/metrics of a running agent, over HTTP."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import uvloop

from fairlead_agent.agent import Agent
from fairlead_agent.node.metrics import server
from fairlead_agent.node.metrics.server import MetricsServer
from fairlead_agent.settings import from_environment
from fairlead_bus.environment_settings import BadSetting
from fairlead_schemas.wire.reports import StartSeen
from tests.agent.node.metrics.promtool import complaints, needs_promtool
from tests.agent.placer_script import order
from tests.agent.world import AgentWorld
from tests.kit.eventually import eventually_async

#: A bound of the tests, not a promise.
LONG_S = 60.0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    """A joined node that serves metrics at any free port, with a job on its first GPU."""
    world = AgentWorld(tmp_path)
    world.settings = world.settings.__class__(
        node="n1", devices="simulated", data=tmp_path, beat_s=0.1, sample_s=0.05, metrics=("127.0.0.1", 0)
    )
    await world.open()
    yield world
    await world.close()


def agent(world: AgentWorld) -> Agent:
    """The running one."""
    return world.agents[-1][0]


async def fetch(world: AgentWorld, path: str = "/metrics", method: str = "GET") -> httpx.Response:
    """As a scraper would."""
    address = agent(world).metrics.address
    assert address is not None
    async with httpx.AsyncClient(timeout=LONG_S) as client:
        return await client.request(method, f"http://{address[0]}:{address[1]}{path}")


async def says(world: AgentWorld, words: str) -> str:
    """The page, once these words are on it."""
    async with asyncio.timeout(LONG_S):
        while words not in (page := (await fetch(world)).text):  # noqa: ASYNC110 -- a page tells nobody
            await asyncio.sleep(0.05)
    return page


async def test_a_running_job_is_on_its_gpu_with_its_owner(world: AgentWorld) -> None:
    """Job, user and queue of the order, on every series of the GPU."""
    gpu = agent(world).devices.gpus()[0].uuid
    await world.placer.desire("n1", order("7", "sleep", "60", gpus=(gpu,), user="ada", queue="research/vision"))
    await world.placer.until(lambda: bool(world.placer.of(StartSeen, "7")))
    page = await says(world, 'hpc_job="7",user="ada",queue="research/vision"} 9')
    assert 'fairlead_node_runs{phase="running"} 1' in page
    assert 'fairlead_node_info{node="n1",devices="simulated",simulated="true"} 1' in page


@needs_promtool
async def test_promtool_has_no_remark_on_our_names(world: AgentWorld) -> None:
    """Of the page of a real agent."""
    await says(world, "DCGM_FI_DEV_GPU_UTIL")
    page = await fetch(world)
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert [line for line in complaints(page.content) if not line.startswith("DCGM_")] == []


async def test_only_metrics_are_there(world: AgentWorld) -> None:
    """Other paths and methods are refused; HEAD has no body."""
    assert (await fetch(world, "/")).status_code == 404
    assert (await fetch(world, method="POST")).status_code == 405
    head = await fetch(world, method="HEAD")
    assert (head.status_code, head.content) == (200, b"")


async def test_a_reader_that_talks_too_much_or_never_ends_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither holds a place for longer than the patience."""
    monkeypatch.setattr(server, "PATIENCE_S", 0.1)
    serving = MetricsServer(lambda: b"x 1\n")
    await serving.open("127.0.0.1", 0)
    assert serving.address is not None
    for said in (b"GET /metrics HTTP/1.1\r\n", b"G" * 100_000):
        reader, writer = await asyncio.open_connection(*serving.address)
        writer.write(said)
        try:
            assert await asyncio.wait_for(reader.read(), LONG_S) == b""
        except ConnectionResetError:
            pass  # closed with bytes unread
        writer.close()
    await serving.close()


#: More than the buffers between the two ends take.
LARGE = b"x 1\n" * 8_000_000


class Readers:
    """A server, and whether anybody is being served."""

    def __init__(self) -> None:
        self.server = MetricsServer(self._page)
        self.pages = 0
        self._own = asyncio.all_tasks()

    def _page(self) -> bytes:
        self.pages += 1
        return LARGE

    async def come(self, said: bytes) -> socket.socket:
        """A reader that says this, and takes nothing of the answer."""
        await self.server.open("127.0.0.1", 0)
        assert self.server.address is not None
        reader = socket.create_connection(self.server.address, timeout=30)
        reader.sendall(said)
        return reader

    @property
    def served(self) -> int:
        """Return the current number of connections."""
        return len(asyncio.all_tasks() - self._own)


def taken(reader: socket.socket) -> int:
    """Bytes that come until its connection ends, in good order or not."""
    found = 0
    with contextlib.suppress(ConnectionResetError):
        while piece := len(reader.recv(1 << 20)):
            found += piece
    return found


async def test_a_reader_that_takes_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unread output is not kept for it."""
    monkeypatch.setattr(server, "PATIENCE_S", 0.1)
    readers = Readers()
    with await readers.come(b"GET /metrics HTTP/1.1\r\n\r\n") as reader:
        await eventually_async(lambda: readers.pages == 1 and readers.served == 0)
        assert await asyncio.to_thread(taken, reader) < len(LARGE)
    await readers.server.close()


@pytest.mark.parametrize(("said", "pages"), [(b"", 0), (b"GET /metrics HTTP/1.1\r\n\r\n", 1)])
async def test_closing_disconnects_clients(said: bytes, pages: int) -> None:
    """Their connections have ended when it returns, and none is left to the end of the loop."""
    readers = Readers()
    with await readers.come(said) as reader:
        await eventually_async(lambda: (readers.served, readers.pages) == (1, pages))
        await readers.server.close()
        assert readers.served == 0
        assert await asyncio.to_thread(taken, reader) < len(LARGE)


async def test_an_agent_works_where_the_port_is_taken(world: AgentWorld) -> None:
    """Metrics are a courtesy: nothing stops for them."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = MetricsServer(lambda: b"")
        await server.open(*taken.getsockname())
        assert server.address is None
        await server.close()


def test_an_agent_works_where_another_listens_after_both_have_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """As two agents that start on one host at once do, in the event loop of agents: it has no error for this."""
    bind = socket.socket.bind

    async def open_second(address: tuple[str, int]) -> None:
        metrics = MetricsServer(lambda: b"")
        await metrics.open(*address)
        assert metrics.address is None
        await metrics.close()

    with socket.socket() as other, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))

        def bind_and_be_late(own: socket.socket, address: tuple[str, int]) -> None:
            bind(own, address)
            other.listen()

        monkeypatch.setattr(socket.socket, "bind", bind_and_be_late)
        runner.run(open_second(other.getsockname()))


@pytest.mark.parametrize(
    ("given", "found"),
    [("", ("127.0.0.1", 9400)), ("0.0.0.0:9500", ("0.0.0.0", 9500)), ("[::1]:1", ("::1", 1)), ("off", None)],
)
def test_the_address_of_the_metrics_page_can_be_set(given: str, found: tuple[str, int] | None) -> None:
    """Loopback by default: processes on a node are not for all hosts."""
    assert from_environment({"FAIRLEAD_NODE": "n1", "FAIRLEAD_METRICS": given}).metrics == found


@pytest.mark.parametrize("given", ["9400", ":9400", "host:", "host:70000", "on"])
def test_an_address_that_is_none_is_refused_by_name(given: str) -> None:
    """With what was expected."""
    with pytest.raises(BadSetting, match=r"FAIRLEAD_METRICS: expected HOST:PORT"):
        from_environment({"FAIRLEAD_NODE": "n1", "FAIRLEAD_METRICS": given})
