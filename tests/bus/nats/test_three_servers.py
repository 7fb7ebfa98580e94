"""Three nats-servers as one bus: streams with three copies, made, moved and served on while a server is away."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial

import msgspec
import pytest

from fairlead_bus import __main__ as maker
from fairlead_bus.bus_faults import retry_until_available
from fairlead_bus.nats import stream_setup
from fairlead_bus.nats.adapter import NatsBus, connect
from fairlead_bus.port import ServerUnfit
from fairlead_schemas.wire import subjects
from tests.bus.keyed import Users
from tests.kit.nats_cluster import SERVERS, NatsCluster
from tests.kit.nats_server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.slow]
REPLICAS = "FAIRLEAD_NATS_REPLICAS"
TAILS = 16


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[NatsCluster]:
    """Three empty servers, named in the settings; the number of copies is not set."""
    made = NatsCluster()
    try:
        made.start()
        monkeypatch.setenv("FAIRLEAD_NATS", made.url)
        monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", made.monitor)
        monkeypatch.delenv(REPLICAS, raising=False)
        yield made
    finally:
        made.close()


@pytest.fixture
async def bus(cluster: NatsCluster) -> AsyncIterator[NatsBus]:
    """A client that was given all addresses."""
    made = await connect(cluster.url, name="test")
    yield made
    await made.close()


async def storage(bus: NatsBus) -> dict[str, tuple[str, int]]:
    """{stream: (file or memory, copies)} as the servers have them."""
    found: dict[str, tuple[str, int]] = {}
    for stream in stream_setup.required_streams():
        answer = msgspec.json.decode(await bus.link.read(f"$JS.API.STREAM.INFO.{stream.name}"))
        found[stream.name] = (answer["config"]["storage"], answer["config"]["num_replicas"])
    return found


def expected(copies: int) -> dict[str, tuple[str, int]]:
    """As `storage`, for streams that are as they must be."""
    return {stream.name: (stream.config(copies)["storage"], copies) for stream in stream_setup.required_streams()}


async def test_streams_are_created_with_three_copies(
    cluster: NatsCluster, bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m fairlead_bus` ends when all copies are current; a process without the setting leaves them."""
    monkeypatch.setenv(REPLICAS, "3")
    await maker.make()
    assert expected(3) == await storage(bus)
    assert {SERVERS} == {cluster.copies(stream) for stream in expected(3)}
    monkeypatch.delenv(REPLICAS)
    await bus.ensure()
    assert expected(3) == await storage(bus)


async def test_streams_of_one_copy_are_moved(
    cluster: NatsCluster, bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log and similar streams get their copies in place and keep their contents. A stream without fsync cannot:
    that is refused with the command that creates it again, and nothing is deleted before a user runs it."""
    await bus.ensure()
    await bus.append(subjects.LOG, subjects.log("queue"), b"commit")
    await bus.append(subjects.SAMPLE, subjects.sample("n1"), b"sample")
    monkeypatch.setenv(REPLICAS, "3")
    with pytest.raises(ServerUnfit, match=r"stream SAMPLE: expected 3 copies in memory, found 1 copy .* remake"):
        await maker.make()
    assert (await bus.state(subjects.SAMPLE)).last == 1
    await maker.make(remake=True)
    assert expected(3) == await storage(bus)
    assert {SERVERS} == {cluster.copies(stream) for stream in expected(3)}
    stored = await bus.read(subjects.LOG, 1)
    assert stored is not None and stored.payload == b"commit"


async def test_a_process_starts_while_any_one_server_is_away(
    cluster: NatsCluster, bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also right after the kill of the leader of the log or of the snapshots: it waits for the election, and has both."""
    monkeypatch.setenv(REPLICAS, "3")
    await maker.make()
    await bus.put_object(subjects.SNAPSHOT, "queue-0", b"state")
    for stream in (f"OBJ_{subjects.SNAPSHOT}", subjects.LOG):
        server = cluster.wait_for_leader(stream)
        server.kill()
        started = await connect(cluster.url, name="started")
        await retry_until_available(started.ensure, limit_s=60)
        assert await started.get_object(subjects.SNAPSHOT, "queue-0") == b"state"
        assert await started.append(subjects.LOG, subjects.log("queue"), b"commit") > 0
        await started.close()
        await asyncio.to_thread(_back, cluster, server)


async def test_a_tail_goes_on_when_the_server_of_its_consumer_dies(
    cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer is on one server; where that dies, the stream and the client's connection may both live elsewhere, and
    only silence shows it. Bounded far below the 12 s and more that it once took."""
    monkeypatch.setenv(REPLICAS, "3")
    await maker.make()
    leader = cluster.wait_for_leader(subjects.LOG)
    reader = await connect(leader.url, name="test")
    # One by one at random; the elections of the log and of the metadata are not what this is about.
    (doomed, *_) = (server for server in cluster.servers if server not in (leader, cluster.meta_leader()))
    tails = [await reader.tail(subjects.LOG, after=0) for _ in range(TAILS)]
    await reader.append(subjects.LOG, subjects.log("queue"), b"first")
    for tail in tails:
        assert [stored.payload for stored in await tail.next()] == [b"first"]
    reading = [asyncio.create_task(tail.next()) for tail in tails]
    places = await asyncio.to_thread(cluster.consumers, subjects.LOG)
    assert len(places) == TAILS and doomed in places.values()
    doomed.kill()
    await retry_until_available(lambda: reader.append(subjects.LOG, subjects.log("queue"), b"second"), limit_s=60)
    async with asyncio.timeout(60):
        assert [[stored.payload for stored in found] for found in await asyncio.gather(*reading)] == [
            [b"second"]
        ] * TAILS
    await reader.close()


@pytest.mark.parametrize("credentials", ["token", "keys"])
async def test_a_client_moves_to_another_server_with_its_token_or_key(
    credentials: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each server is killed in turn, so another one must accept its clients; the token is in one address only. No
    client is disconnected for good, and calls are answered again."""
    users = Users()
    made = NatsCluster(extra='authorization { token: "t0ken" }' if credentials == "token" else users.include)
    try:
        made.start()
        monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", made.monitor)
        monkeypatch.setenv(REPLICAS, "3")
        first, *others = made.servers
        if credentials == "token":
            url = ",".join([f"nats://t0ken@127.0.0.1:{first.port}", *(server.url for server in others)])
            maker, clients = await connect(url, name="maker"), [await connect(url, name="test") for _ in range(4)]
        else:
            maker = await connect(made.url, name="maker", key=users.keys["streams"])
            clients = [await connect(made.url, name="test", key=users.keys["queue"]) for _ in range(4)]
        await retry_until_available(maker.ensure, limit_s=60)
        for server in made.servers:
            server.kill()
            for client in clients:
                await retry_until_available(partial(client.state, subjects.LOG), limit_s=60)
                assert not client.link.closed.is_set()
            await asyncio.to_thread(_back, made, server)
        for client in (maker, *clients):
            await client.close()
    finally:
        made.close()
        users.remove()


def _back(cluster: NatsCluster, server: NatsServer) -> None:
    server.start()
    cluster.wait(cluster.healthy, "three healthy servers")
