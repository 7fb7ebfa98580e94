"""The test server itself, on which all other tests rely."""

import socket

import pytest

from tests.kit.nats_server import NatsServer

pytestmark = pytest.mark.nats


def greeting(server: NatsServer) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        return connection.recv(4)


def test_a_killed_server_comes_back_on_its_port_and_store(fresh_nats: NatsServer) -> None:
    """A kill ends it at once; a start afterwards answers at the same address from the same store."""
    port, store = fresh_nats.port, fresh_nats.store_dir
    fresh_nats.kill()
    with pytest.raises(OSError, match="refused"):
        greeting(fresh_nats)
    fresh_nats.start()
    assert greeting(fresh_nats) == b"INFO"
    assert (fresh_nats.port, fresh_nats.store_dir) == (port, store)


def test_a_closed_server_leaves_nothing() -> None:
    """Closing removes the process and its directory."""
    server = NatsServer()
    server.start()
    server.close()
    assert not server.directory.exists()
    with pytest.raises(AssertionError):
        _ = server.pid
