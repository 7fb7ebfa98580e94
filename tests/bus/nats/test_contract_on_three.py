"""The contract of the bus on three servers: what the twin and one server promise, streams with three copies promise, too.

One cluster serves all tests; each begins with new streams. What ends a server or damages its store is in test_three_servers.py.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator

import pytest

from fairlead_bus.bus_faults import retry_until_available
from fairlead_bus.nats import stream_setup
from fairlead_bus.nats.adapter import NatsBus, connect
from tests.bus import contract
from tests.bus.worlds import BusWorld, NatsWorld
from tests.kit.nats_cluster import NatsCluster

pytestmark = [pytest.mark.nats, pytest.mark.slow]
type Promise = Callable[[BusWorld], Awaitable[None]]

#: These are about the only server, which three servers do not have, or stop it.
OF_ONE_SERVER = {
    contract.test_unknown_outcome_that_was_stored_can_be_read_back,
    contract.test_unknown_outcome_that_was_not_stored_can_be_sent_again,
    contract.test_a_stopped_server_is_unavailable_and_comes_back_with_everything,
    contract.test_copies_of_a_single_server_are_its_own,
}
PROMISES: list[Promise] = [
    found
    for name, found in vars(contract).items()
    if name.startswith("test_")
    and list(inspect.signature(found).parameters) == ["world"]
    and found not in OF_ONE_SERVER
]


class ClusterWorld(NatsWorld):
    """Three servers, of which each client is given all addresses."""

    def __init__(self, cluster: NatsCluster) -> None:
        super().__init__(cluster.servers[0])
        self.cluster = cluster

    async def connect(self) -> NatsBus:
        bus = await connect(self.cluster.url, name="contract")
        await retry_until_available(bus.ensure, limit_s=60)
        self.buses.append(bus)
        return bus

    async def remove_streams(self) -> None:
        """Delete all streams."""
        bus = await connect(self.cluster.url, name="contract")
        for stream in stream_setup.required_streams():
            await retry_until_available(
                lambda name=stream.name: bus.link.read(f"$JS.API.STREAM.DELETE.{name}"), limit_s=60
            )
        await bus.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[NatsCluster]:
    """Three servers for all tests of this file."""
    made = NatsCluster()
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__.removeprefix("test_"))
async def test_three_servers_keep_the_contract(
    promise: Promise, cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each promise of contract.py that does not need the only server to stop."""
    monkeypatch.setenv("FAIRLEAD_NATS_REPLICAS", "3")
    world = ClusterWorld(cluster)
    monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", cluster.monitor)
    await world.remove_streams()
    try:
        async with asyncio.timeout(120):
            await promise(world)
    finally:
        await world.close()


def test_the_contract_has_promises() -> None:
    """The list is collected by the shape of the tests: a suite that is written otherwise would be an empty one."""
    assert len(PROMISES) >= 20
