"""Applications of jobs over real gateway, proxy and node: who may enter, who is put out, and where a person has been."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead_agent.core.runs import RunKey
from fairlead_agent.linux.run_apps import environment_of
from fairlead_appproxy import presence
from fairlead_schemas.policies.apps import PROFILES, App
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.app_sessions import AppAnswer, ConnectApp, FindEntry
from tests.appproxy.app_world import Answered, frame, read_answer
from tests.gateway.logbook import ended, offered, placed, requeued, started
from tests.gateway.routes.tunnels_world import TunnelsWorld
from tests.kit.eventually import eventually_async

_APP = """
import os, socket, threading
server = socket.create_server(("127.0.0.1", int(os.environ["FAIRLEAD_APP_PORT"])))
print(server.getsockname()[1], flush=True)

def serve(connection):
    while head := connection.recv(65536):
        if b"websocket" in head:
            connection.sendall(b"HTTP/1.1 101 S\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n\\r\\n")
            while data := connection.recv(65536):
                connection.sendall(data)
            return
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(head) + head)

while True:
    threading.Thread(target=serve, args=server.accept()[:1], daemon=True).start()
"""


class AppsWorld(TunnelsWorld):
    """World in which job 1 of ann serves an app on n1."""

    program = _APP
    environment: Mapping[str, str] = environment_of(App(PROFILES["jupyterlab"]))
    fields: Mapping[str, Any] = {"kind": "session", "spec": msgspec.Raw(json.dumps({"app": "jupyterlab"}).encode())}

    async def code(self, token: str, status: int = 201) -> Any:
        """Ask for a code."""
        return await self.ask("POST", "/v1/jobs/1/entries", {}, token=token, status=status)

    async def browse(self, host: str, target: str, *fields: str, method: str = "GET") -> Answered:
        """Send a request to the proxy as a browser."""
        _, _, port = self.proxy.address.rpartition(":")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write("\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *fields, "", ""]).encode())
        try:
            return await read_answer(reader)
        finally:
            writer.transport.abort()

    async def enter(self, token: str) -> tuple[str, str]:
        """Enter the app; return (its host, the line with the cookie)."""
        made = await self.code(token)
        host = f"{made['label']}.localhost"
        answer = await self.browse(host, made["path"])
        assert answer.status == 303, answer
        cookie = answer.head.partition("Set-Cookie: ")[2].partition(";")[0]
        return host, f"Cookie: {cookie}"


async def test_the_owner_and_a_grantee_enter() -> None:
    """The app gets its own secret and none of theirs; a code is good once; a stranger learns of no job; what was shared ends."""
    async with AppsWorld() as world:
        host, cookie = await world.enter(world.token_of_ann)
        got = (await world.browse(host, "/lab", cookie, "Authorization: Bearer flp_x")).body
        assert f"authorization: token {world.environment['FAIRLEAD_APP_TOKEN']}".encode() in got
        assert b"fairlead" not in got.replace(b"x-forwarded", b"").replace(host.encode(), b"") and b"flp_" not in got
        made = await world.code(world.token_of_ann)
        assert [(await world.browse(host, made["path"])).status for _ in range(2)] == [303, 403]
        _, stranger = await world.session(await world.person("eve"))
        await world.code(stranger, status=404)
        assert (await world.browse(host, "/lab")).status == 403

        _, guest = await world.session(await world.person("bob"))
        share = {"subject": "bob", "role": "member", "scope": "job:1"}
        await world.ask("POST", "/v1/access:grant", share, token=world.token_of_ann)
        same_host, guests = await world.enter(guest)
        assert same_host == host and (await world.browse(host, "/lab", guests)).status == 200
        await world.ask("POST", "/v1/access:revoke", share, token=world.token_of_ann)
        await eventually_async(lambda: len(world.proxy.apps.table.entries) == 2)
        refused = await world.browse(host, "/lab", guests)
        assert refused.status == 403 and b"right to it, or the sign-in" in refused.body
        assert (await world.browse(host, "/lab", cookie)).status == 200


async def test_an_entry_ends_with_its_sign_in() -> None:
    """A second tab, a second gateway or a proxy that starts do not bring it back."""
    async with AppsWorld() as world:
        session, young = await world.session(world.ann)
        host, cookie = await world.enter(young)
        await world.gateway.accounts.end_session(session, "revoked")
        await eventually_async(lambda: not world.proxy.apps.table.entries)
        world.proxy.apps.table._unknown.clear()
        assert (await world.browse(host, "/lab", cookie)).status == 403


async def test_a_host_ends_with_its_attempt() -> None:
    """410 and what its pages have left goes; the next attempt has another host, at which the cookie is worth nothing."""
    async with AppsWorld() as world:
        host, cookie = await world.enter(world.token_of_ann)
        await world.write("placer", ended("1", 1))
        await world.write("queue", requeued(), offered("1", attempt=2))
        await eventually_async(lambda: not world.proxy.apps.table.entries)
        gone = await world.browse(host, "/lab", cookie, "Sec-Fetch-Mode: navigate")
        assert gone.status == 410 and 'Clear-Site-Data: "cache", "storage"' in gone.head
        assert b"this application has ended" in gone.body
        await world.write("placer", placed("1", attempt=2), started("1", 2))
        await eventually_async(lambda: world.gateway.views.jobs.rows["1"].state == "running")
        other = (await world.code(world.token_of_ann))["label"]
        assert f"{other}.localhost" != host
        assert (await world.browse(f"{other}.localhost", "/lab", cookie)).status == 403


async def test_unknown_labels_are_refused() -> None:
    """Of another salt, another profile, a job that is not there, or no label at all."""
    async with AppsWorld() as world:
        host, cookie = await world.enter(world.token_of_ann)
        label = host.partition(".")[0]
        for wrong, status in (
            (label[:-1] + ("a" if label[-1] != "a" else "b"), 404),
            (label.replace("jupyterlab", "http"), 404),
            (label.replace("-1-1-", "-2-1-"), 410),
            (label.replace("-1-1-", "-1-01-"), 404),
            ("www", 404),
        ):
            assert (await world.browse(f"{wrong}.localhost", "/", cookie)).status == status, wrong
        assert (await world.browse(host.upper(), "/", cookie)).status == 200, "names have no case"


async def test_a_stopped_app_and_a_starting_app_are_distinguished() -> None:
    """By whether it has served before; both keep the person at the page."""
    async with AppsWorld() as world:
        host, cookie = await world.enter(world.token_of_ann)
        world.child.kill()
        await world.child.wait()
        starting = await world.browse(host, "/lab", cookie)
        assert starting.status == 503 and b"is starting" in starting.body
        await world.write("placer", ev.AppReady(cause="report:n1:4", job="1", attempt=1))
        await eventually_async(lambda: world.gateway.views.jobs.rows["1"].app_ready_ns)
        again = await world.browse(host, "/lab", cookie)
        assert again.status == 503 and b"does not answer" in again.body and b"fairlead logs 1" in again.body


async def test_the_node_receives_presence() -> None:
    """By frames of data on a socket, not by the page that opens."""
    async with AppsWorld() as world:
        host, cookie = await world.enter(world.token_of_ann)
        assert (await world.browse(host, "/lab", cookie, "Sec-Fetch-Mode: navigate")).status == 200
        presence.SETTLE_S, kept = 0.0, presence.SETTLE_S
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(world.proxy.address.rpartition(":")[2]))
            lines = (
                f"GET /s HTTP/1.1|Host: {host}|{cookie}|Origin: http://{host}|Connection: Upgrade|Upgrade: websocket"
                "|Sec-WebSocket-Version: 13|Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==||"
            ).replace("|", "\r\n")
            writer.write(lines.encode())
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
            world.proxy.apps.table.runs[host.partition(".")[0]].presence._settled_at = 0.0
            writer.write(frame(b"x"))
            await eventually_async(lambda: world.presences.of({RunKey("1", 1, 0)}))
            writer.transport.abort()
        finally:
            presence.SETTLE_S = kept


async def test_a_job_without_an_app_cannot_be_entered() -> None:
    """With what reaches its ports; one that has ended cannot either."""
    async with TunnelsWorld() as world:
        refused = await world.ask("POST", "/v1/jobs/1/entries", {}, token=world.token_of_ann, status=409)
        assert "has no application" in refused["detail"] and "port-forward" in refused["hint"]
    async with AppsWorld() as world:
        await world.write("placer", ended("1"))
        await world.write("queue", ev.JobSucceeded(cause="3.0", job="1"))
        await eventually_async(lambda: world.gateway.views.jobs.rows["1"].state == "succeeded")
        assert "only a job that runs" in (await world.code(world.token_of_ann, status=409))["detail"]


async def test_a_forged_question_is_refused() -> None:
    """Another service that asks in its place needs the cookie of an entry, and connects no app without."""
    async with AppsWorld() as world:
        host, _ = await world.enter(world.token_of_ann)
        label = host.partition(".")[0]
        for question in (
            FindEntry(label=label, cookie="0" * 64),
            ConnectApp(label=label, cookie="0" * 64, address="http://127.0.0.1:1", ticket="x"),
        ):
            answer = await world.hub.connect().request(
                "fairlead.rpc.gateway.apps", msgspec.json.encode(question), timeout_s=5
            )
            assert msgspec.json.decode(answer, type=AppAnswer).status == 403
