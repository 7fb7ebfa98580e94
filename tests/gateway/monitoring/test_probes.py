"""Nodes without heartbeats are shown as silent, before their lease is over."""

import asyncio

from fairlead_bus.memory import MemoryHub
from fairlead_gateway.monitoring.probes import SILENT_AFTER_S, NodePresence
from fairlead_gateway.routes.documents import node_document
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import NodesHeard
from tests.gateway.logbook import Logbook, joined
from tests.gateway.world import GatewayWorld
from tests.kit.eventually import eventually_async


class Clock:
    """Seconds that pass when a test lets them."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Listener:
    """A presence on the in-memory bus, with the nodes n1 and n2 in the log."""

    def __init__(self) -> None:
        self.book, self.hub, self.clock, self.connected = Logbook(), MemoryHub(), Clock(), True
        self.book.write(joined("n1", 1), joined("n2", 1))
        self.presence = NodePresence(self.book.views, lambda: self.connected)
        self.presence.monotonic = self.clock

    async def listen(self) -> None:
        await self.presence.listen(self.hub.connect())

    async def beat(self, *nodes: str) -> None:
        for node in nodes:
            await self.hub.connect().publish(subjects.beat(node), b"")
        await asyncio.sleep(0)  # the bus hands messages over in the loop's next turn

    def silent(self, node: str) -> int:
        return self.presence.silent_s(node)


async def test_a_node_is_silent_after_five_missed_beats_until_it_beats_again() -> None:
    """The others are not."""
    world = Listener()
    await world.listen()
    await world.beat("n1", "n2")
    world.clock.now += SILENT_AFTER_S - 0.5
    assert (world.silent("n1"), world.silent("n2")) == (0, 0)
    await world.beat("n2")
    world.clock.now += 80
    await world.beat("n2")
    assert (world.silent("n1"), world.silent("n2")) == (89, 0)
    await world.beat("n1")
    assert world.silent("n1") == 0


async def test_an_agent_that_beats_more_rarely_is_silent_later() -> None:
    """FAIRLEAD_BEAT_S is the node's own setting: five of its beats count."""
    world = Listener()
    await world.listen()
    for _ in range(3):
        await world.beat("n1")
        world.clock.now += 15
    assert world.silent("n1") == 0
    world.clock.now += 60
    assert world.silent("n1") == 75


async def test_a_node_without_any_heartbeat_is_silent_since_the_gateway_listens() -> None:
    """For a gateway that starts after the agent has died."""
    world = Listener()
    await world.listen()
    world.clock.now += 30
    await world.beat("n2")
    assert world.silent("n1") == 30


async def test_a_gateway_without_any_heartbeat_reports_no_silence() -> None:
    """Before it listens, without any heartbeat (it may lack the permission), and while the bus is away."""
    world = Listener()
    assert world.silent("n1") == 0
    await world.listen()
    world.clock.now += 60
    assert world.silent("n1") == 0
    await world.beat("n2")
    assert world.silent("n1") == 60
    world.connected = False
    assert world.silent("n1") == 0


async def test_a_silent_node_is_not_ready_in_documents_map_and_metrics() -> None:
    """With the seconds; the log alone says nothing of it, and a cordon is shown first."""
    async with GatewayWorld() as world:
        for name in ("n1", "n2"):
            await world.node(name)
        presence, clock = world.gateway.presence, Clock()
        clock.now += presence.monotonic()
        presence.monotonic = clock
        await world.hub.connect().publish(subjects.beat("n2"), b"")
        await eventually_async(lambda: presence.silent_s("n1") > 0)
        sequence = world.gateway.views.sequence
        shown = {node["id"]: node for node in (await world.http.get("/v1/nodes")).json()["items"]}
        assert (shown["n1"]["state"], shown["n2"]["state"]) == ("silent", "ready")
        assert shown["n1"]["silent_seconds"] >= SILENT_AFTER_S
        assert shown["n2"]["silent_seconds"] == 0
        nodes = {node["id"]: node for node in (await world.http.get("/v1/map")).json()["nodes"]}
        assert (nodes["n1"]["state"], nodes["n1"]["gpus"][0]["state"]) == ("silent", "closed")
        assert 'fairlead_nodes{pool="default",state="silent"} 1.0' in (await world.http.get("/metrics")).text
        await world.hub.connect().publish(subjects.beat("n1"), b"")
        await eventually_async(lambda: not presence.silent_s("n1"))
        assert 'state="silent"' not in (await world.http.get("/metrics")).text
        assert world.gateway.views.sequence == sequence
        past = (await world.http.get(f"/v1/map?at={sequence}")).json()["nodes"]
        assert [node["state"] for node in past] == ["ready", "ready"]


def test_a_state_set_by_a_user_is_shown_before_silence() -> None:
    """It explains why the node takes no work; the seconds are shown all the same."""
    world = Listener()
    world.book.write(ev.NodeCordoned(cause="cmd:1", node="n1"))
    views = world.book.views
    views.silent_s = lambda _node: 20
    document = node_document(views, views.nodes.rows["n1"])
    assert (document.state, document.silent_seconds) == ("cordoned", 20)


async def test_nodes_from_the_log_count_only_after_a_heartbeat() -> None:
    """A restarted gateway knows all nodes at once and has no heartbeat of them; a lost one is not waited for."""
    world = Listener()
    await world.listen()
    assert world.presence.contacts() == NodesHeard(known=2, heard=0, unheard=["n1", "n2"])
    await world.beat("n2")
    assert world.presence.contacts() == NodesHeard(known=2, heard=1, unheard=["n1"])
    assert world.presence.missing() == []  # n1 may only be late
    world.clock.now += SILENT_AFTER_S
    await world.beat("n2")
    assert world.presence.missing() == ["n1"]
    world.book.write(ev.NodeLost(cause="clock", node="n1", silent_ns=1))
    assert world.presence.contacts() == NodesHeard(known=1, heard=1)
    assert world.presence.missing() == []
