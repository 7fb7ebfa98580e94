"""Abilities of an attacker with one node's key: that node's own subjects, and nothing else. Against a real server."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from nats.aio.client import Client

from fairlead_bus import permissions, streams
from fairlead_bus.nats.adapter import NatsBus
from fairlead_bus.nats.link import DirectClient
from fairlead_bus.pieces import PieceStore
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.trees import digest_of
from tests.bus.keyed import Keyed
from tests.bus.rogue import NOT_TO_BE_HEARD, NOT_TO_BE_SAID, Rogue

pytestmark = pytest.mark.nats
NODES = ("n1", "n2")


@pytest.fixture(scope="module")
def keyed() -> Any:
    made = Keyed(*NODES)
    asyncio.run(made.make_streams())
    yield made
    made.close()


@pytest.fixture
async def rogue(keyed: Keyed) -> AsyncIterator[Rogue]:
    made = await Rogue(keyed.keys["n1"]).connect(keyed.server.url)
    yield made
    await made.client.close()


@pytest.fixture
async def bus(keyed: Keyed) -> AsyncIterator[NatsBus]:
    """The placer's connection, which may look and has what the rogue wants."""
    made = await keyed.connect("placer")
    yield made
    await made.close()


async def test_a_node_says_nothing_but_its_own(rogue: Rogue, bus: NatsBus) -> None:
    """Others' subjects, commands, the log, desired state, streams and consumers of any kind, the server itself."""
    taken = [subject for subject in NOT_TO_BE_SAID if await rogue.says(subject)]
    assert taken == []
    assert ((await bus.state(subjects.LOG)).last, (await bus.state(subjects.CMD)).last) == (0, 0)


async def test_a_node_receives_nothing_but_its_own(rogue: Rogue, keyed: Keyed) -> None:
    """Others' confirmations, questions and desired state, reports, inboxes, the server's advisories; alone or in a
    group."""
    others = [f"{permissions.inbox(keyed.keys[name].public)}.>" for name in ("n2", "gateway", "placer")]
    allowed = [subject for subject in (*NOT_TO_BE_HEARD, *others) if await rogue.listens(subject)]
    allowed += [subject for subject in NOT_TO_BE_HEARD if await rogue.listens(subject, "group")]
    assert allowed == []


@pytest.mark.parametrize(
    "where", [subjects.log("queue"), subjects.cmd("queue"), "$KV.DESIRED.n2", subjects.confirm("n2")]
)
async def test_no_answer_can_be_sent_where_the_node_may_not_speak(
    rogue: Rogue, bus: NatsBus, keyed: Keyed, where: str
) -> None:
    """The server does not check reply subjects: within one account, an acknowledgement would land in the log."""
    heard: list[bytes] = []
    other, looking = await keyed.connect("n2"), await keyed.connect("streams")
    for subject in (subjects.confirm("n2"), "$KV.DESIRED.n2"):
        await other.subscribe(subject, lambda message: heard.append(message.payload))
    await bus.put(subjects.DESIRED, "n1", b"mine")
    await other.flush()
    heard.clear()
    before = [(await looking.state(stream)).last for stream in (subjects.LOG, subjects.CMD, "KV_DESIRED")]
    own = (subjects.sample("n1"), subjects.output("n1", "7"), subjects.report("n1"), subjects.beat("n1"))
    for subject in (
        *own,
        "$JS.API.DIRECT.GET.KV_DESIRED.$KV.DESIRED.n1",
        "$JS.API.DIRECT.GET.KV_SPEC.$KV.SPEC.n1.*",
        "$JS.API.DIRECT.GET.KV_PIECE.$KV.PIECE.data.*",
    ):
        await rogue.says(subject, b"", where)
        await rogue.says(subject, b"", where, Nats_Trace_Dest=where, Nats_Trace_Only="true")
    await asyncio.sleep(0.3)  # what the server might still send
    await other.flush()
    assert [(await looking.state(stream)).last for stream in (subjects.LOG, subjects.CMD, "KV_DESIRED")] == before
    assert heard == []
    for each in (other, looking):
        await each.close()


async def test_a_nodes_own_question_shows_only_its_own_state(rogue: Rogue, bus: NatsBus) -> None:
    """By subject; a body that asks for more is refused by the server, and its own specs are all it finds by wildcard."""
    await bus.put(subjects.DESIRED, "n1", b"mine")
    await bus.put(subjects.DESIRED, "n2", b"others")
    await bus.put(subjects.SPEC, subjects.spec_key("n1", "abc"), b"my job")
    await bus.put(subjects.SPEC, subjects.spec_key("n2", "def"), b"their job")
    desired, specs = "$JS.API.DIRECT.GET.KV_DESIRED.$KV.DESIRED.n1", "$JS.API.DIRECT.GET.KV_SPEC.$KV.SPEC.n1.*"
    assert (await rogue.client.request(desired, b"", timeout=60)).data == b"mine"
    assert (await rogue.client.request(specs, b"", timeout=60)).data == b"my job"
    for question in (
        b'{"seq":1}',
        b'{"last_by_subj":"$KV.DESIRED.n2"}',
        b'{"multi_last":["$KV.>"]}',
        b'{"next_by_subj":"$KV.>","batch":9}',
    ):
        for subject in (desired, specs):
            assert (await rogue.client.request(subject, question, timeout=2)).data == b""


async def test_a_piece_that_a_node_does_not_know_says_nothing(rogue: Rogue, keyed: Keyed) -> None:
    """Of directories a node may read every piece, and by wildcard gets the last one: sealed. It writes, lists and dates none."""
    gateway = await keyed.connect("gateway")
    store = PieceStore(gateway, time.time, {})
    await store.put(b"print('secret')")
    await store.renew(digest_of(b"print('secret')"))
    assert await store.missing([digest_of(b"print('secret')")]) == []
    subject = f"$JS.API.DIRECT.GET.KV_PIECE.$KV.PIECE.{subjects.piece_key('*')}"
    found = (await rogue.client.request(subject, b"", timeout=60)).data
    assert found
    assert b"secret" not in found
    node = await keyed.connect("n1")
    assert await PieceStore(node, time.time, {}).get(digest_of(b"print('secret')")) == b"print('secret')"
    for where in (
        "$KV.PIECE.data.x",
        "$KV.PIECE.at.x",
        "$JS.API.DIRECT.GET.KV_PIECE.$KV.PIECE.at.*",
        "$JS.API.STREAM.INFO.KV_PIECE",
    ):
        assert not await rogue.says(where), where
    for each in (gateway, node):
        await each.close()


async def test_headers_that_the_server_obeys_remove_nothing(rogue: Rogue, keyed: Keyed) -> None:
    """A roll-up in a sample would delete everybody's samples."""
    looking = await keyed.connect("streams")
    other = await keyed.connect("n2")
    await other.publish(subjects.sample("n2"), b"another's")
    await other.flush()
    first = (await looking.state(subjects.SAMPLE)).first
    for header in ({"Nats_Rollup": "all"}, {"Nats_Rollup": "sub"}, {"Nats_Batch_Id": "b", "Nats_Batch_Sequence": "1"}):
        await rogue.says(subjects.sample("n1"), b"mine", **header)
    assert await rogue.says(subjects.sample("n1"), b"mine")
    await asyncio.sleep(0.2)
    stored = await looking.state(subjects.SAMPLE)
    assert (stored.first, stored.last > first) == (first, True)
    for each in (looking, other):
        await each.close()


async def stored_up_to(bus: NatsBus, lasts: dict[str, int]) -> None:
    """Wait until each stream has stored so much: a flush ends when the server has read it."""
    async with asyncio.timeout(60):
        for stream, last in lasts.items():
            while (await bus.state(stream)).last < last:  # noqa: ASYNC110 -- of stored messages nobody notifies
                await asyncio.sleep(0.05)


async def test_a_node_that_floods_keeps_others_output_and_samples(rogue: Rogue, keyed: Keyed) -> None:
    """It may publish to subjects that it invents, of which none is stored; under its own, the oldest of its own go, and
    it holds no more bytes than its bound."""
    looking, other = await keyed.connect("streams"), await keyed.connect("n2")
    mine = {stream: (await looking.state(stream)).last + 1 for stream in (subjects.OUTPUT, subjects.SAMPLE)}
    await other.publish(subjects.output("n2", "8"), b"printed")
    await other.publish(subjects.sample("n2"), b"measured")
    await other.flush()
    await stored_up_to(looking, mine)
    invented = [f"fairlead.output.n1.{name}" for name in ("invented", "99", "-1", "00")]
    for name in invented:
        await rogue.says(name)
    flood = bytes(streams.OUTPUT_MESSAGE_BYTES_MAX - 1024)
    subject = subjects.output("n1", "7")
    for _ in range(2 * streams.OUTPUTS_OF_SUBJECT_MAX):
        await rogue.client.publish(subject, flood)
    for _ in range(streams.SAMPLES_OF_NODE_MAX + 100):
        await rogue.client.publish(subjects.sample("n1"), b"flood")
    await rogue.client.flush()
    sent = {subjects.OUTPUT: 2 * streams.OUTPUTS_OF_SUBJECT_MAX, subjects.SAMPLE: streams.SAMPLES_OF_NODE_MAX + 100}
    await stored_up_to(looking, {stream: mine[stream] + count for stream, count in sent.items()})
    assert (await looking.state(subjects.OUTPUT)).bytes < (
        streams.OUTPUTS_OF_SUBJECT_MAX + 10
    ) * streams.OUTPUT_MESSAGE_BYTES_MAX
    gateway, telemetry = await keyed.connect("gateway"), await keyed.connect("telemetry")
    assert [await gateway.last(subjects.OUTPUT, name) for name in invented] == [None] * len(invented)
    printed = await gateway.last(subjects.OUTPUT, subjects.output("n2", "8"))
    measured = await telemetry.last(subjects.SAMPLE, subjects.sample("n2"))
    assert printed is not None and measured is not None
    assert (printed.payload, measured.payload) == (b"printed", b"measured")
    for each in (looking, other, gateway, telemetry):
        await each.close()


async def test_the_placer_removes_a_nodes_desired_state_and_no_others(keyed: Keyed) -> None:
    """The key of a node that was removed from the cluster."""
    placer, agent = await keyed.connect("placer"), await keyed.connect("n1")
    for node in ("n1", "n2"):
        await placer.put(subjects.DESIRED, node, b"state")
    await placer.delete(subjects.DESIRED, "n1")
    assert await agent.peek(subjects.DESIRED, "n1") is None
    other = await keyed.connect("n2")
    assert await other.peek(subjects.DESIRED, "n2") == b"state"
    for each in (placer, agent, other):
        await each.close()


async def test_permissions_of_a_node_suffice(keyed: Keyed, bus: NatsBus) -> None:
    """Reports and beats arrive, confirmations and desired state too, samples and output are stored, queries answered."""
    heard: list[tuple[str, bytes]] = []
    for subject in (subjects.REPORTS, subjects.BEATS):
        await bus.subscribe(subject, lambda message: heard.append((message.subject, message.payload)))
    await bus.flush()
    agent, gateway, telemetry = [await keyed.connect(name) for name in ("n1", "gateway", "telemetry")]
    await gateway.subscribe(subjects.BEATS, lambda message: heard.append((f"gateway: {message.subject}", b"")))
    await gateway.flush()
    to_agent: list[bytes] = []
    await agent.subscribe(subjects.confirm("n1"), lambda message: to_agent.append(message.payload))
    await agent.on_put(subjects.DESIRED, "n1", lambda _, value: to_agent.append(value))

    async def answer(message: Any) -> bytes:
        return b"piece of " + message.payload

    await agent.serve(subjects.rpc_node("n1", "output"), answer)
    await agent.flush()
    await agent.publish(subjects.report("n1"), b"report")
    await agent.publish(subjects.beat("n1"), b"beat")
    samples, outputs = (await telemetry.state(subjects.SAMPLE)).last, (await gateway.state(subjects.OUTPUT)).last
    await agent.publish(subjects.sample("n1"), b"sample")
    await agent.publish(subjects.output("n1", "7"), b"printed")
    await agent.flush()
    await bus.publish(subjects.confirm("n1"), b"confirm")
    await bus.put(subjects.DESIRED, "n1", b"desired")
    await bus.put(subjects.DESIRED, "n2", b"not for n1")
    assert await gateway.request(subjects.rpc_node("n1", "output"), b"it", timeout_s=3) == b"piece of it"
    for each in (bus, agent, gateway):
        await each.flush()
    assert sorted(to_agent) == [b"confirm", b"desired"]
    beat, report = subjects.beat("n1"), subjects.report("n1")
    assert sorted(heard) == [(beat, b"beat"), (report, b"report"), (f"gateway: {beat}", b"")]
    assert await agent.peek(subjects.DESIRED, "n1") == b"desired"
    assert await agent.peek(subjects.SPEC, subjects.spec_key("n1", "nothing")) is None
    assert (await telemetry.state(subjects.SAMPLE)).last == samples + 1
    assert (await gateway.state(subjects.OUTPUT)).last == outputs + 1
    for each in (agent, gateway, telemetry):
        await each.close()


#: What each service must not say, besides what no list names.
NOT_FOR_SERVICES = {
    "queue": (subjects.log("placer"), subjects.cmd("queue"), subjects.confirm("n1"), "$KV.DESIRED.n1", "$KV.LEASE.placer"),
    "placer": (subjects.log("queue"), subjects.cmd("placer"), subjects.report("n1"), "$KV.LEASE.queue"),
    "telemetry": (subjects.log("queue"), subjects.log("placer"), subjects.cmd("telemetry"), "$KV.DESIRED.n1", "$KV.LEASE.queue", subjects.sample("n1")),
    "gateway": (subjects.log("queue"), subjects.log("placer"), subjects.confirm("n1"), "$KV.DESIRED.n1", subjects.report("n1")),
    "access": (subjects.log("queue"), subjects.log("placer"), subjects.cmd("access"), "$KV.DESIRED.n1", "$KV.LEASE.queue"),
    "storage": (subjects.log("queue"), subjects.log("access"), subjects.cmd("storage"), "$KV.DESIRED.n1", "$KV.LEASE.queue"),
    "explainer": (subjects.log("queue"), subjects.cmd("queue"), "$O.SNAPSHOT.M.x"),
    "past": (subjects.log("queue"), subjects.cmd("queue"), "$O.SNAPSHOT.M.x", "$KV.PEOPLE.principal.x", "$JS.API.STREAM.MSG.GET.KV_CREDENTIAL", "$KV.LEASE.queue"),
    "notifier": (subjects.log("queue"), subjects.cmd("queue"), "$O.SNAPSHOT.M.x", "$KV.NOTIFY.rule.x", "$KV.LEASE.queue", "$JS.API.STREAM.MSG.GET.KV_CREDENTIAL"),
    "appproxy": (subjects.log("queue"), subjects.cmd("queue"), "$JS.API.STREAM.MSG.GET.LOG", "$JS.API.CONSUMER.CREATE.LOG.x", subjects.rpc_node("n1", "tunnel"), "$JS.API.STREAM.MSG.GET.KV_CREDENTIAL"),
    "archiver": (subjects.log("queue"), subjects.cmd("queue"), "$O.SNAPSHOT.M.x", subjects.rpc("queue", "state")),
    "auditor": (subjects.log("queue"), subjects.cmd("queue"), "$O.SNAPSHOT.M.x", subjects.rpc_node("n1", "output")),
    "streams": (subjects.log("queue"), subjects.cmd("queue"), "$KV.DESIRED.n1"),
    "recovery": (subjects.log("queue"), subjects.confirm("n1"), "$KV.DESIRED.n1", "$KV.LEASE.queue"),
}  # fmt: skip
NOT_FOR_ANYBODY = (
    "$JS.API.STREAM.PURGE.LOG",
    "$JS.API.STREAM.DELETE.LOG",
    "$JS.API.STREAM.RESTORE.LOG",
    "$JS.API.STREAM.SNAPSHOT.LOG",
    "$JS.API.STREAM.MSG.DELETE.LOG",
    "$JS.API.STREAM.CREATE.MINE",
    "$SYS.REQ.SERVER.PING",
)


@pytest.mark.parametrize("service", permissions.SERVICES)
async def test_a_service_writes_its_own_part_and_no_other(keyed: Keyed, service: str) -> None:
    """No service purges, deletes or restores the log; only `streams` creates and changes streams."""
    one = await Rogue(keyed.keys[service]).connect(keyed.server.url)
    made = () if service == "streams" else ("$JS.API.STREAM.CREATE.LOG", "$JS.API.STREAM.UPDATE.LOG")
    purged = () if service == "recovery" else ("$JS.API.STREAM.PURGE.CMD",)
    refused = (*NOT_FOR_SERVICES[service], *NOT_FOR_ANYBODY, *made, *purged)
    assert [subject for subject in refused if await one.says(subject)] == []
    assert [subject for subject in (">", "_INBOX.>", "$SYS.>", "$JS.>") if await one.listens(subject)] == []
    await one.client.close()


def test_the_client_is_the_librarys() -> None:
    """So what the library does with keys elsewhere holds here."""
    assert issubclass(DirectClient, Client)
