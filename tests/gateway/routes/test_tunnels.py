"""Connections into runs over HTTP: real gateway, access core, app proxy and node's end; the program is a child of the test."""

import asyncio
import resource
import time
from typing import Any

import msgspec
import pytest

from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.terminal import (
    CommandExit,
    FrameKind,
    StartCommand,
    encode_start,
)
from fairlead_schemas.wire.tunnels import MEET_S
from tests.gateway.logbook import ended
from tests.gateway.routes.tunnels_world import TAG_OF_RUN, TunnelsWorld, echo, frames_of, is_cut
from tests.kit.eventually import eventually_async


async def test_the_owner_of_a_job_reaches_its_port() -> None:
    """Over the app proxy and the node, which opens no port; several connections at once."""
    async with TunnelsWorld() as world:
        first, second = await world.connect(world.token_of_ann), await world.connect(world.token_of_ann)
        second[1].close()
        assert await echo(first) == b"WORD"
        assert {each.principal for each in world.proxy.table.open.values()} == {world.ann}
        first[1].close()
        await eventually_async(lambda: not world.node.open and not len(world.proxy.table))


async def test_who_may_not_enter_reaches_nothing() -> None:
    """Strangers do not learn that there is a job; who may only look, and a token with limits, are refused; an admin is as well: a
    role above a single job lets nobody enter.
    """
    async with TunnelsWorld() as world:
        (_, stranger), viewer = (
            await world.session(await world.person("eve")),
            await world.person("val", viewer="cluster"),
        )
        _, looks = await world.session(viewer)
        body = {"port": world.port}
        hidden = await world.send("POST", "/v1/jobs/1/tunnels", body, token=stranger)
        missing = await world.send("POST", "/v1/jobs/2/tunnels", body, token=stranger)
        assert hidden.status_code == missing.status_code == 404
        assert hidden.json()["detail"].replace("1", "2") == missing.json()["detail"]
        await world.ask("POST", "/v1/jobs/1/tunnels", body, token=looks, status=403)
        await world.ask("POST", "/v1/jobs/1/tunnels", body, status=403)
        token = (await world.token(world.token_of_ann, verbs=["job:read"]))["token"]
        await world.ask("POST", "/v1/jobs/1/tunnels", body, token=token, status=403)
        await world.ask("POST", "/v1/jobs/1/tunnels", body, token="", status=401)
        assert not len(world.proxy.table)


async def test_a_tunnel_ends_with_the_sign_in_that_opened_it() -> None:
    """And with a role that was shared; the owner's own tunnels stay open."""
    async with TunnelsWorld() as world:
        bob = await world.person("bob")
        _, guest = await world.session(bob)
        await world.ask(
            "POST", "/v1/access:grant", {"subject": "bob", "role": "member", "scope": "job:1"}, token=world.token_of_ann
        )
        session, young = await world.session(world.ann)
        owners, guests, others = (
            await world.connect(world.token_of_ann),
            await world.connect(guest),
            await world.connect(young),
        )
        assert [await echo(each) for each in (owners, guests, others)] == [b"WORD"] * 3
        await world.ask(
            "POST",
            "/v1/access:revoke",
            {"subject": "bob", "role": "member", "scope": "job:1"},
            token=world.token_of_ann,
        )
        assert await is_cut(guests)
        assert await echo(others) == b"WORD"
        await world.gateway.accounts.end_session(session, "revoked")
        assert await is_cut(others)
        assert await echo(owners) == b"WORD"
        looked = await world.ask("GET", "/v1/audit/access", token=world.token_of_ann)
        assert "entered" in {each["kind"] for each in looked["items"]}, "the owner sees who was inside"


async def test_a_tunnel_ends_with_the_run() -> None:
    """The next attempt is another run; its tunnels are new ones."""
    async with TunnelsWorld() as world:
        open_ = await world.connect(world.token_of_ann)
        await world.write("placer", ended("1"))
        await world.write("queue", ev.JobSucceeded(cause="3.0", job="1"))
        assert await is_cut(open_)
        refused = await world.ask(
            "POST", "/v1/jobs/1/tunnels", {"port": world.port}, token=world.token_of_ann, status=409
        )
        assert "only a job that runs" in refused["detail"]


async def test_the_owner_of_a_job_runs_a_command_in_it() -> None:
    """Output and exit code come over the tunnel; the environment is the run's."""
    async with TunnelsWorld() as world:
        found = await frames_of(await world.terminal(world.token_of_ann, "sh", "-c", "echo $FAIRLEAD_RUN; exit 3"))
        assert found == [
            (FrameKind.OUTPUT, f"{TAG_OF_RUN}\n".encode()),
            (FrameKind.EXIT, msgspec.json.encode(CommandExit(code=3))),
        ]
        await eventually_async(lambda: not world.node.open and not len(world.proxy.table))


async def test_a_terminal_in_another_users_job_is_refused_and_recorded() -> None:
    """Strangers, viewers, an admin and a token without the verb get none; a guest who may is in the record of the owner."""
    async with TunnelsWorld() as world:
        path, body = "/v1/jobs/1/tunnels", {"to": "terminal"}
        _, stranger = await world.session(await world.person("eve"))
        await world.ask("POST", path, body, token=stranger, status=404)
        _, looks = await world.session(await world.person("val", viewer="cluster"))
        refused = await world.ask("POST", path, body, token=looks, status=403)
        assert "session:open" in str(refused)
        await world.ask("POST", path, body, status=403)
        token = (await world.token(world.token_of_ann, verbs=["job:read", "job:cancel"]))["token"]
        await world.ask("POST", path, body, token=token, status=403)
        _, guest = await world.session(await world.person("bob"))
        grant = {"subject": "bob", "role": "member", "scope": "job:1"}
        await world.ask("POST", "/v1/access:grant", grant, token=world.token_of_ann)
        open_ = await world.terminal(guest, "sh", "-c", "trap 'exit 9' HUP; while :; do sleep 0.05; done")

        async def entries() -> list[str]:
            looked = await world.ask("GET", "/v1/audit/access", token=world.token_of_ann)
            return [each["verb"] for each in looked["items"] if each["kind"] == "entered"]

        async with asyncio.timeout(10):
            while await entries() != ["session:open"]:  # noqa: ASYNC110 -- the record is written behind the answer
                await asyncio.sleep(0.05)
        await world.ask("POST", "/v1/access:revoke", grant, token=world.token_of_ann)
        assert await is_cut(open_)
        await eventually_async(lambda: not world.node.open)


async def test_codes_of_terminals_are_good_once_for_one_end() -> None:
    """A forged one, a used one, and a client's code as a node's are refused alike; so is a code whose time is over."""
    async with TunnelsWorld() as world:
        made = await world.ask("POST", "/v1/jobs/1/tunnels", {"to": "terminal"}, token=world.token_of_ann, status=201)
        with pytest.raises(AssertionError):
            await world.come({**made, "code": made["code"][:-1] + "_"})
        first = await world.come(made)
        with pytest.raises(AssertionError):
            await world.come(made)
        first[1].write(encode_start(StartCommand(argv=["true"])))
        assert (await frames_of(first))[-1].kind is FrameKind.EXIT
        late = await world.ask("POST", "/v1/jobs/1/tunnels", {"to": "terminal"}, token=world.token_of_ann, status=201)
        world.proxy.server._clock = lambda: time.monotonic() + MEET_S + 1
        with pytest.raises(AssertionError):
            await world.come(late)


async def test_output_without_end_does_not_fill_memory() -> None:
    """A client that reads nothing holds its command; neither node nor proxy takes more than their buffers."""
    async with TunnelsWorld() as world:
        open_ = await world.terminal(world.token_of_ann, "yes")
        await open_[0].readexactly(100_000)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        async def rests() -> bool:
            before = world.proxy.server.bytes_carried
            await asyncio.sleep(1)
            return world.proxy.server.bytes_carried == before

        await eventually_async(rests, "the kernel's buffers are full, and nothing moves")
        assert world.proxy.server.bytes_carried < 30_000_000
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 5_000
        open_[1].transport.abort()
        await eventually_async(lambda: not world.node.open)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"port": 0}, 422, "port"),
        ({"port": 65536}, 422, "port"),
        ({"port": "80"}, 422, "port"),
        ({"rank": 0}, 422, "port"),
        ({"to": "terminal", "port": 80}, 422, "expected no port of a terminal, found 80"),
        ({"to": "node"}, 422, "to"),
        ({"to": "terminal", "rank": 1}, 422, "expected 0 to 0, found 1"),
        ({"port": 80, "rank": 1}, 422, "expected 0 to 0, found 1"),
        ({"port": 80, "host": "169.254.169.254"}, 422, "host"),
        ({"port": 1}, 409, "no process of the run listens on port 1"),
    ],
)
async def test_a_tunnel_that_cannot_be_is_refused(body: dict[str, Any], status: int, words: str) -> None:
    """With the field, or with what the node says; hosts cannot be named at all."""
    async with TunnelsWorld() as world:
        refused = await world.ask("POST", "/v1/jobs/1/tunnels", body, token=world.token_of_ann, status=status)
        assert words in refused["detail"]


async def test_parts_that_are_away_are_named() -> None:
    """No app proxy, or no node that answers."""
    async with TunnelsWorld() as world:
        path, body = "/v1/jobs/1/tunnels", {"port": world.port}
        await world.proxy.stop()
        await eventually_async(world._proxying.done)
        assert (await world.ask("POST", path, body, token=world.token_of_ann, status=503))[
            "detail"
        ] == "no app proxy answers"
