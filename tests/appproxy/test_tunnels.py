"""Tunnels through a real app proxy: what one end sends the other gets, as long as the gateway says that it may."""

import asyncio
import ssl
from pathlib import Path

import pytest

from fairlead_appproxy import service, tunnel_server
from fairlead_appproxy.service import ProxySettings
from fairlead_bus.environment_settings import BadSetting
from fairlead_bus.tls import TlsFiles
from fairlead_schemas.wire.tunnels import TunnelsEnded
from tests.appproxy.tunnel_world import TunnelWorld
from tests.kit.certificates import Authority
from tests.kit.eventually import eventually_async


async def test_bytes_go_both_ways() -> None:
    """Also those that come with a head, and to the end of one direction while the other still sends."""
    async with TunnelWorld() as world:
        await world.expect("a")
        client = await world.come("c-a", is_client=True, behind=b"early ")
        node = await world.come("n-a", is_client=False)
        assert client.answer.startswith(b"HTTP/1.1 101 ") and node.answer.startswith(b"HTTP/1.1 101 ")
        client.writer.write(b"question")
        client.writer.write_eof()
        assert await node.reader.read() == b"early question"
        node.writer.write(b"answer" * 100_000)
        node.writer.write_eof()
        assert await client.reader.read() == b"answer" * 100_000
        await eventually_async(lambda: not len(world.proxy.table))


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"404"),
        (b"POST /.fairlead/tunnel HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", b"404"),
        (b"GET /.fairlead/tunnel HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer c-a\r\n\r\n", b"400"),
        (b"GET /.fairlead/tunnel HTTP/1.1\r\nHost: a\r\nUpgrade: fairlead-client\r\n\r\n", b"403"),
        (
            b"GET /.fairlead/tunnel HTTP/1.1\r\nHost: a\r\nUpgrade: fairlead-client\r\nAuthorization: Bearer x\r\n\r\n",
            b"403",
        ),
        (b"GET /.fairlead/tunnel HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (b"GET /.fairlead/tunnel HTTP/1.1\nHost: a\n\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"A" * 40_000, b"431"),
    ],
)
async def test_a_stranger_is_answered_and_cut(request_: bytes, status: bytes) -> None:
    """With a status and words; an expected tunnel stays expected."""
    async with TunnelWorld() as world:
        await world.expect("a")
        stranger = await world.send(request_)
        assert stranger.answer.split()[1] == status
        assert await stranger.is_cut()
        await world.come("n-a", is_client=False)
        assert (await world.come("c-a", is_client=True)).answer.startswith(b"HTTP/1.1 101 ")


async def test_a_code_is_good_once() -> None:
    """For the first who brings it; the second is refused, and the first is not disturbed."""
    async with TunnelWorld() as world:
        client, node = await world.tunnel()
        for secret, is_client in (("c-a", True), ("n-a", False)):
            again = await world.come(secret, is_client=is_client)
            assert again.answer.startswith(b"HTTP/1.1 403 ")
        node.writer.write(b"still here")
        assert await client.reader.read(100) == b"still here"


async def test_a_tunnel_ends_when_the_right_to_it_ends() -> None:
    """The gateway is asked every two seconds; both ends are cut, and other tunnels continue."""
    async with TunnelWorld() as world:
        client, node = await world.tunnel("a")
        other, _ = await world.tunnel("b")
        await eventually_async(lambda: {each.id for each in world.asked} == {"a", "b"})
        world.ended = TunnelsEnded(ended={"a": "the right to it has ended"})
        assert await client.is_cut(5.0) and await node.is_cut(1.0)
        assert not await other.is_cut(0.5)


async def test_without_a_gateway_tunnels_end_and_none_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that cannot know of a revocation carries nothing for long. Gateways that do not see the log's end do not count."""
    monkeypatch.setattr(service, "BLIND_S", 1.0)
    monkeypatch.setattr(service, "ASK_AGAIN_S", 0.2)
    async with TunnelWorld() as world:
        client, _ = await world.tunnel()
        await asyncio.sleep(1.5)
        assert not client.reader.at_eof()
        world.ended = TunnelsEnded(behind=True)
        assert await client.is_cut(4.0)


async def test_an_end_that_waits_in_vain_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the other has not come in time."""
    monkeypatch.setattr(service, "ASK_AGAIN_S", 0.1)
    async with TunnelWorld() as world:
        await world.expect("a")
        node = await world.come("n-a", is_client=False)
        clock = world.proxy.server._clock  # pyright: ignore[reportPrivateUsage]
        world.proxy.server._clock = lambda: clock() + 60  # pyright: ignore[reportPrivateUsage]
        assert await node.is_cut(4.0)
        assert not len(world.proxy.table)


async def test_a_client_that_has_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end looks like the end of one direction; when the other says nothing, the tunnel is cut."""
    monkeypatch.setattr(tunnel_server, "HALF_OPEN_S", 0.3)
    async with TunnelWorld() as world:
        client, node = await world.tunnel()
        client.writer.close()
        for _ in range(4):
            node.writer.write(b"still talking")
            await asyncio.sleep(0.1)
        assert await node.is_cut(4.0)
        await eventually_async(lambda: not len(world.proxy.table))


async def test_a_head_that_does_not_come_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that send nothing, or a byte now and then, are cut."""
    monkeypatch.setattr(tunnel_server, "HEAD_S", 0.3)
    async with TunnelWorld() as world:
        host, _, port = world.proxy.address.partition("://")[2].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /.fairlead/tunnel HT")
        async with asyncio.timeout(3):
            assert await reader.read() == b""
        writer.close()


async def test_a_stalled_reader_delays_no_other_tunnel() -> None:
    """No more is taken from its sender than fits between them; another tunnel is as fast as before."""
    async with TunnelWorld() as world:
        client, node = await world.tunnel("a")
        other_client, other_node = await world.tunnel("b")
        piece, sent = b"x" * 65536, 0

        async def send_without_end() -> None:
            nonlocal sent
            while True:
                node.writer.write(piece)
                await node.writer.drain()
                sent += len(piece)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send_without_end(), 2)
        assert sent < 32 * 2**20, "the kernel's buffers, and some pieces of the proxy's"
        other_node.writer.write(piece)
        assert len(await other_client.reader.readexactly(len(piece))) == len(piece)
        held = world.proxy.server.bytes_carried

        async def goes_on() -> bool:
            await client.reader.read(2**20)
            return world.proxy.server.bytes_carried > held

        await eventually_async(goes_on)


async def test_a_tunnel_over_tls(tmp_path: Path) -> None:
    """With a certificate of the site; the address that both get is https."""
    authority = Authority(tmp_path)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    authority.write(cert, key, "proxy")
    trust = ssl.create_default_context(cafile=str(authority.ca))
    trust.check_hostname = False
    async with TunnelWorld(ProxySettings(port=0, tls=TlsFiles(cert, key)), trust) as world:
        assert world.proxy.address.startswith("https://127.0.0.1:")
        client, node = await world.tunnel()
        client.writer.write(b"question")
        assert await node.reader.read(100) == b"question"
        node.writer.write(b"answer")
        assert await client.reader.read(100) == b"answer"
        reader, slow = await world.tunnel("b")
        sent = bytes(range(256)) * 32_000
        slow.writer.write(sent)
        slow.writer.close()
        taken = b""
        while more := await reader.reader.read(65536):
            taken += more
            await asyncio.sleep(0.01)
        assert taken == sent, "an end that closes cuts nothing that it has sent before"


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"FAIRLEAD_APPPROXY_HOST": "0.0.0.0"}, "FAIRLEAD_TLS_CERT"),
        ({"FAIRLEAD_APPPROXY_PORT": "x"}, "FAIRLEAD_APPPROXY_PORT"),
        ({"FAIRLEAD_APPPROXY_URL": "proxy.example.org"}, "FAIRLEAD_APPPROXY_URL"),
    ],
)
def test_settings_that_cannot_be_used_refuse_the_start(env: dict[str, str], words: str) -> None:
    """Tunnels carry what people type, so none are open to the network without TLS."""
    with pytest.raises(BadSetting, match=words):
        ProxySettings.from_environment(env)
