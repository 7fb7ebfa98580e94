"""Every test of the contract suite runs against the twin and against a real server."""

from collections.abc import AsyncIterator

import pytest

from tests.bus.worlds import BusWorld, MemoryWorld, NatsWorld
from tests.kit.nats_server import NatsServer

pytest.register_assert_rewrite("tests.bus.contract")


@pytest.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.nats)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[BusWorld]:
    """A fresh, empty server."""
    made: BusWorld
    if request.param == "memory":
        made = MemoryWorld()
    else:
        server: NatsServer = request.getfixturevalue("fresh_nats")
        made = NatsWorld(server)
    yield made
    await made.close()


@pytest.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.nats)])
async def small_world(request: pytest.FixtureRequest) -> AsyncIterator[BusWorld]:
    """A server whose log takes 64 KiB."""
    made: BusWorld
    if request.param == "memory":
        made = MemoryWorld(65536)
    else:
        made = NatsWorld(request.getfixturevalue("fresh_nats"), 65536)
    yield made
    await made.close()
