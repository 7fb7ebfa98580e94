"""Rotation by two valid keys, and revocation: on a running server that reloads its users."""

import asyncio
import shutil
from collections.abc import Iterator

import pytest

from fairlead_bus import bus_users, nkey
from fairlead_bus.nats.adapter import NatsBus, connect
from fairlead_bus.port import NotAllowed, Unavailable
from fairlead_schemas.wire import subjects
from tests.bus.keyed import Keyed
from tests.kit.nats_server import NatsServer

pytestmark = pytest.mark.nats


@pytest.fixture
def keyed() -> Iterator[Keyed]:
    made = Keyed("n1", "n2")
    asyncio.run(made.make_streams())
    yield made
    made.close()


async def works(bus: NatsBus, node: str) -> bool:
    """The server answers this node's own question; if need be after the link has come back, as a server drops whom it lets
    in while it reads its users. Raises TimeoutError."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await bus.peek(subjects.DESIRED, node) is None
            except Unavailable:
                await asyncio.sleep(0.05)


async def sent_away(bus: NatsBus) -> None:
    """The server closes the connection for good. Raises TimeoutError."""
    await asyncio.wait_for(bus.link.closed.wait(), 60)


async def test_a_revoked_key_is_disconnected_at_once_and_others_are_not(keyed: Keyed) -> None:
    """The open connection ends, a new one is refused with a sentence; the other node's connection never drops."""
    one, other = await keyed.connect("n1"), await keyed.connect("n2")
    dropped: list[bool] = []
    other.link.on_drop.append(lambda: dropped.append(True))
    assert await works(one, "n1")
    bus_users.change(keyed.directory, lambda users: bus_users.without(users, "node", "n1"))
    keyed.reload()
    await sent_away(one)
    with pytest.raises(Unavailable, match=r"does not know the key U\w+: was it revoked, or never added"):
        await keyed.connect("n1")
    assert await works(other, "n2")
    assert dropped == []
    await other.close()


async def test_a_key_is_changed_without_a_gap(keyed: Keyed) -> None:
    """Old and new are valid together; when the old one is retired, only who still uses it is cut off."""
    old = await keyed.connect("n1")
    keyed.add("node", "n1")
    keyed.reload()
    async with asyncio.timeout(60):
        while True:
            try:
                new = await keyed.connect("n1")
                break
            except Unavailable:  # the server has not read the file yet
                await asyncio.sleep(0.05)
    assert [await works(old, "n1"), await works(new, "n1")] == [True, True]
    bus_users.change(keyed.directory, lambda users: bus_users.with_newest_only(users, "node", "n1"))
    keyed.reload()
    await sent_away(old)
    assert await works(new, "n1")
    await new.close()


async def test_an_unknown_key_is_refused(keyed: Keyed) -> None:
    """A key that was never added, no key at all, and a token: none connects."""
    with pytest.raises(Unavailable, match="does not know the key"):
        await connect(keyed.server.url, key=nkey.generate())
    for url in (keyed.server.url, keyed.server.url.replace("//", "//token@")):
        with pytest.raises(Unavailable, match="does not know the token"):
            await connect(url)


async def test_an_operation_that_a_key_does_not_allow_fails_at_once(keyed: Keyed) -> None:
    """Not after a time-out: it is not a transient fault of the bus."""
    agent = await keyed.connect("n1")
    with pytest.raises(NotAllowed, match=r"does not allow \$JS.API.DIRECT.GET.KV_DESIRED.\$KV.DESIRED.n2"):
        await asyncio.wait_for(agent.peek(subjects.DESIRED, "n2"), 3)
    await agent.close()


async def test_an_installation_with_a_token_changes_over(fresh_nats: NatsServer) -> None:
    """The log of the one account is found under the services' account once its directory has that name; DESIRED, made
    without direct reads, gets them."""
    before = await connect(fresh_nats.url)
    await before.ensure()
    await before.append(subjects.LOG, subjects.log("queue"), b"kept", expected=0)
    config = b'{"name":"KV_DESIRED","subjects":["$KV.DESIRED.>"],"storage":"file","max_msgs_per_subject":1,"allow_direct":false,"discard":"new","persist_mode":"async","allow_rollup_hdrs":true,"max_msg_size":1048576,"num_replicas":1}'
    await before.link.ask("$JS.API.STREAM.UPDATE.KV_DESIRED", config)
    await before.close()
    fresh_nats.stop()
    keyed = Keyed("n1")
    try:
        keyed.server.stop()
        shutil.rmtree(keyed.server.store_dir)
        shutil.copytree(fresh_nats.store_dir, keyed.server.store_dir)
        account = keyed.server.store_dir / "jetstream" / "$G"
        account.rename(account.with_name("FAIRLEAD"))
        keyed.server.start()
        await keyed.make_streams()
        queue, agent = await keyed.connect("queue"), await keyed.connect("n1")
        stored = await queue.last(subjects.LOG, subjects.log("queue"))
        assert stored is not None
        assert (stored.sequence, stored.payload) == (1, b"kept")
        assert await works(agent, "n1")
        for bus in (queue, agent):
            await bus.close()
    finally:
        keyed.close()
