"""Services at the app proxy: keys, the least busy replica, streams that pass as they come, and replicas that come and go meanwhile."""

import asyncio
import json

import pytest

from fairlead_appproxy.service_table import KnownKey, KnownService
from fairlead_schemas.wire.app_sessions import FindService, ReplicaRoute, ServiceEntry
from tests.appproxy.service_world import LABEL, ServiceWorld, key_text
from tests.kit.eventually import eventually_async

ALL = [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]


async def test_a_stream_passes_piece_by_piece_and_the_replica_never_sees_the_key() -> None:
    """The first piece is with the client while the next is not sent yet; cookies and keys pass in neither direction."""
    async with ServiceWorld() as world:
        replica = await world.replica("7")
        replica.goes_on.clear()
        key = world.key()
        answer = await world.send(key, "Cookie: fairlead-app=1; own=2")
        await eventually_async(lambda: replica.open == 1)
        assert await answer.status() == 200
        assert "text/event-stream" in answer.head and "set-cookie" not in answer.head.lower()
        replica.goes_on.set()
        assert [await answer.piece() for _ in range(3)] == ALL
        (head,) = replica.heads
        assert b"authorization" not in head.lower() and key.encode() not in head and b"fairlead-app" not in head


async def test_the_key_alone_names_the_service_at_the_proxys_own_address() -> None:
    """So that programs need no name of the service in DNS; a key of another host's service is none there."""
    async with ServiceWorld() as world:
        await world.replica("7")
        assert await (await world.send(world.key(), host="127.0.0.1")).all() == ALL
        other = await world.send(world.key(), host="svc-other-abcdefgh.localhost")
        assert await other.status() == 401


@pytest.mark.parametrize("key", ["", "fla_wrong", key_text(2), "flp_" + key_text()[4:]])
async def test_a_request_without_a_good_key_reaches_no_replica(key: str) -> None:
    """The answer is an error as clients of OpenAI's API read it, and is the same for what never was and what has ended."""
    async with ServiceWorld() as world:
        replica = await world.replica("7")
        answer = await world.send(key)
        assert await answer.status() == 401 and 'bearer error="invalid_token"' in answer.head.lower()
        assert json.loads(await answer.rest())["error"]["type"] == "authentication_error"
        assert replica.heads == []


async def test_requests_go_to_the_least_busy_replica() -> None:
    """Two at a time go to two; a third to the one that is free again."""
    async with ServiceWorld() as world:
        first, second = await world.replica("7"), await world.replica("8")
        first.goes_on.clear()
        second.goes_on.clear()
        key = world.key()
        answers = [await world.send(key) for _ in range(2)]
        await eventually_async(lambda: (first.open, second.open) == (1, 1))
        second.goes_on.set()
        for _ in range(3):
            answers.append(await world.send(key))
            await eventually_async(lambda: second.open == 0 and len(second.heads) == len(answers) - 1)
        assert len(first.heads) == 1
        first.goes_on.set()
        for answer in answers:
            assert await answer.all() == ALL


async def test_a_replica_that_cannot_be_connected_to_costs_no_request() -> None:
    """Nothing was sent, so the request goes to another one."""
    async with ServiceWorld() as world:
        await world.replica("7")
        await world.replica("8")
        world.unreachable.add("7")
        key = world.key()
        for _ in range(4):
            assert await (await world.send(key)).all() == ALL
        assert len(world.replicas["8"].heads) == 4


async def test_streams_of_a_replica_that_leaves_go_on_to_their_end() -> None:
    """It gets no new request; what it has it answers."""
    async with ServiceWorld() as world:
        old = await world.replica("7")
        old.goes_on.clear()
        key = world.key()
        answer = await world.send(key)
        await eventually_async(lambda: old.open == 1)
        new = await world.replica("8")
        del world.replicas["7"]
        table = world.proxy.services.table
        await eventually_async(lambda: [*table.services["chat"].replicas] == [("8", 1)])
        assert await (await world.send(key)).all() == ALL
        assert len(old.heads) == len(new.heads) == 1
        old.goes_on.set()
        assert await answer.all() == ALL


async def test_a_request_waits_for_a_service_that_sleeps_and_is_counted_meanwhile() -> None:
    """The load is told, so that the queue can wake it; the first replica answers what has waited."""
    async with ServiceWorld() as world:
        key = world.key()
        answer = await world.send(key)
        await eventually_async(lambda: 1 in world.loads)
        await world.replica("7")
        assert await answer.all() == ALL


async def test_a_request_waits_while_no_gateway_answers() -> None:
    """A connection to a replica takes one; the key is known from before."""
    async with ServiceWorld() as world:
        await world.replica("7")
        key = world.key()
        assert await (await world.send(key)).all() == ALL
        world.proxy.apps._spares.clear()
        world.is_away = True
        answer = await world.send(key)
        await eventually_async(lambda: world.proxy.services.table.services["chat"].waiting)
        world.is_away = False
        assert await answer.all() == ALL


async def test_a_client_that_has_gone_is_waited_for_no_more() -> None:
    """One that gives up while no replica is there, and one in the middle of a stream: the replica's connection ends, too."""
    async with ServiceWorld() as world:
        key = world.key()
        await world.send(key, body=b"")
        table = world.proxy.services.table
        await eventually_async(lambda: table.services and table.services["chat"].waiting)
        world._writers[-1].transport.abort()
        await eventually_async(lambda: not table.services["chat"].in_flight)
        replica = await world.replica("7")
        replica.pieces = 10_000_000
        answer = await world.send(key)
        assert await answer.status() == 200
        world._writers[-1].transport.abort()
        await eventually_async(lambda: not table.services["chat"].in_flight and not replica.open)


async def test_a_replica_that_dies_in_the_middle_cuts_its_stream_and_no_other() -> None:
    """A part of an answer never looks whole."""
    async with ServiceWorld() as world:
        first, second = await world.replica("7"), await world.replica("8")
        first.goes_on.clear()
        second.goes_on.clear()
        key = world.key()
        answers = [await world.send(key) for _ in range(2)]
        await eventually_async(lambda: (first.open, second.open) == (1, 1))
        first.cut()
        second.goes_on.set()
        found = await asyncio.gather(*(each.all() for each in answers), return_exceptions=True)
        assert ALL in found
        assert sum(isinstance(each, BaseException) for each in found) == 1


async def test_a_revoked_key_is_refused_and_its_streams_are_cut() -> None:
    """Without a word of the replica."""
    async with ServiceWorld() as world:
        replica = await world.replica("7")
        replica.goes_on.clear()
        key = world.key()
        answer = await world.send(key)
        await eventually_async(lambda: replica.open == 1)
        world.keys.clear()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await answer.all()
        replica.goes_on.set()
        again = await world.send(key)
        assert await again.status() == 401


async def test_bounds_of_a_key_are_kept() -> None:
    """So many at a time and a minute; the answer says when to come again, and other keys are not held up."""
    async with ServiceWorld() as world:
        replica = await world.replica("7")
        replica.goes_on.clear()
        key, other = world.key(1, in_flight=1), world.key(2, per_minute=2)
        first = await world.send(key)
        await eventually_async(lambda: replica.open == 1)
        refused = await world.send(key)
        assert await refused.status() == 429 and "retry-after: " in refused.head.lower()
        assert json.loads(await refused.rest())["error"]["type"] == "rate_limit_error"
        replica.goes_on.set()
        assert await first.all() == ALL
        assert [await (await world.send(other)).status() for _ in range(3)] == [200, 200, 429]


async def test_a_flood_of_false_keys_asks_the_gateway_once_each() -> None:
    """And for text whose checksum is wrong not at all."""
    async with ServiceWorld() as world:
        for _ in range(3):
            assert await (await world.send(key_text(5))).status() == 401
            assert await (await world.send("fla_" + "x" * 36)).status() == 401
        assert sum(isinstance(each, FindService) for each in world.asked) == 1


async def test_smuggled_heads_and_sockets_are_refused_at_services_too() -> None:
    """By the same reader of heads; a WebSocket is refused in words."""
    async with ServiceWorld() as world:
        replica = await world.replica("7")
        key = world.key()
        for fields in (("Transfer-Encoding: chunked",), ("Content-Length: 3",), ("Host: other",)):
            assert await (await world.send(key, *fields)).status() == 400
        lines = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhl")
        assert await (await world.send(key, *lines)).status() in (400, 501)
        assert replica.heads == []


def test_the_reported_load_is_the_largest_of_a_window() -> None:
    """Requests that come and go within it are no news for the queue."""
    service = KnownService("chat", 0.0)
    for _ in range(3):
        service.begin(1.0)
    for _ in range(3):
        service.end(2.0)
    assert service.load(3.0) == 3
    assert service.load(6.0) == 3  # of the window before
    assert service.load(11.0) == 0
    service.begin(12.0)
    assert service.load(100.0) == 1


def test_a_minutes_requests_come_again_evenly() -> None:
    """A key that has sent all it may sends one more after its part of the minute."""
    key = KnownKey("d", ServiceEntry(service="chat", label=LABEL, key="k", per_minute=60), 0.0)
    assert all(key.begin(0.0) == ("", 0.0) for _ in range(60))
    words, again_s = key.begin(0.0)
    assert "60 requests a minute" in words and again_s == pytest.approx(1.0)
    assert key.begin(1.0) == ("", 0.0) and key.begin(1.0)[0]


def test_of_equally_busy_replicas_the_one_that_has_rested_longest_is_next() -> None:
    """One that is avoided is none."""
    service = KnownService("chat", 0.0)
    service.set_replicas([ReplicaRoute("7", 1, "http"), ReplicaRoute("8", 1, "http")])
    order: list[str] = []
    for _ in range(4):
        replica = service.least_busy(0.0)
        assert replica is not None
        service.use(replica)
        replica.run.open -= 1
        order.append(replica.entry.job)
    assert order == ["7", "8", "7", "8"]
    service.replicas["7", 1].avoid_until = 5.0
    found = service.least_busy(4.0)
    assert found is not None and found.entry.job == "8"
