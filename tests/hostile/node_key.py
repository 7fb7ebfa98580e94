"""A stolen node's key: everything it may not say or hear, reply subjects, headers and bodies that the server obeys.

Against a real server with an account and a key for each user. Start at `node_key`.
"""

import asyncio
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

from nats.errors import Error as NatsError

from fairlead_bus import permissions
from fairlead_bus.nats.adapter import NatsBus
from fairlead_schemas.wire import subjects
from tests.bus.keyed import Keyed
from tests.bus.rogue import NOT_TO_BE_HEARD, NOT_TO_BE_SAID, Rogue
from tests.hostile.outcome import Row, joined, row

OWN = (subjects.report("n1"), subjects.beat("n1"), subjects.sample("n1"), subjects.output("n1", "7"))
DESIRED, SPECS = "$JS.API.DIRECT.GET.KV_DESIRED.$KV.DESIRED.n1", "$JS.API.DIRECT.GET.KV_SPEC.$KV.SPEC.n1.*"
#: Where an answer of the server's would do harm.
ELSEWHERE = (
    subjects.log("queue"),
    subjects.log("placer"),
    subjects.cmd("queue"),
    subjects.cmd("placer"),
    "$KV.DESIRED.n2",
    "$KV.LEASE.queue",
    subjects.confirm("n2"),
    subjects.report("n2"),
    subjects.sample("n2"),
    subjects.rpc("queue", "state"),
)
HEADERS = (
    {"Nats_Rollup": "all"}, {"Nats_Rollup": "sub"}, {"Nats_Batch_Id": "b", "Nats_Batch_Sequence": "1"}, {"Nats_TTL": "1s"},
    {"Nats_Batch_Id": "b", "Nats_Batch_Sequence": "1", "Nats_Batch_Commit": "1"}, {"Nats_Msg_Id": "x"}, {"Nats_Expected_Stream": "LOG"},
    {"Nats_Expected_Last_Sequence": "0"}, {"Nats_Expected_Last_Subject_Sequence": "0"}, {"Nats_Marker_Reason": "Purge"},
    {"Nats_Trace_Dest": "fairlead.log.queue", "Nats_Trace_Only": "true"}, {"Nats_Trace_Dest": "fairlead.cmd.queue"},
    {"Nats_Schedule": "@at 2026-01-01T00:00:00Z", "Nats_Schedule_Target": "fairlead.log.queue"},
    {"Nats_Schedule": "@every 1s", "Nats_Schedule_Target": "fairlead.cmd.queue"}, {"Nats_Incr": "+1"}, {"KV_Operation": "PURGE"},
    {"Nats_Stream_Source": "LOG 1 > >"}, {"Nats_Required_Api_Level": "99"}, {"Status": "503"},
)  # fmt: skip
QUESTIONS = (
    b'{"seq":1}',
    b'{"last_by_subj":"$KV.DESIRED.n2"}',
    b'{"multi_last":["$KV.>"]}',
    b'{"next_by_subj":"$KV.>","batch":9}',
    b'{"next_by_subj":"$KV.DESIRED.n2","seq":1}',
    b'{"batch":100,"seq":1}',
    b"{",
    b"\xff" * 100,
)


def node_key(directory: Path, tries: int, seed: int) -> list[Row]:
    """Try everything `tries` times, each time in another order and against a fresh server."""
    rows: list[Row] = []
    for number in range(tries):
        keyed = Keyed("n1", "n2")
        try:
            rows += asyncio.run(_round(keyed, random.Random(f"{seed} {number}")))
        finally:
            keyed.close()
    return joined(rows)


class _Watched:
    """Everything that must not change, and everything that others hear."""

    def __init__(self, looking: NatsBus, other: NatsBus) -> None:
        self._looking, self._other = looking, other
        self.heard: list[str] = []

    async def listen(self) -> None:
        """Hear on the other node's subjects, as that node."""
        for subject in (subjects.confirm("n2"), "$KV.DESIRED.n2"):
            await self._other.subscribe(subject, lambda message: self.heard.append(message.subject))
        await self._other.flush()

    async def ends(self) -> list[int]:
        """Last sequences of the log, the commands and the desired state; the first ones of what nodes store."""
        await asyncio.sleep(0.3)  # for what the server may still send
        await self._other.flush()
        states = [
            await self._looking.state(name)
            for name in (subjects.LOG, subjects.CMD, "KV_DESIRED", subjects.SAMPLE, subjects.OUTPUT)
        ]
        return [*(state.last for state in states[:3]), *(state.first for state in states[3:])]


async def _round(keyed: Keyed, rng: random.Random) -> list[Row]:
    await keyed.make_streams()
    placer, looking, other = [await keyed.connect(name) for name in ("placer", "streams", "n2")]
    rogue = await Rogue(keyed.keys["n1"]).connect(keyed.server.url)
    try:
        for node in ("n1", "n2"):
            await placer.put(subjects.DESIRED, node, b"state")
        await other.publish(subjects.sample("n2"), b"another's")
        await other.publish(subjects.output("n2", "8"), b"another's")
        await other.flush()
        watched = _Watched(looking, other)
        await watched.listen()
        before = await watched.ends()
        rows = [await _subjects(rogue, keyed, rng), await _questions(rogue, rng), await _headers(rogue, rng)]
        after = await watched.ends()
        changed = [] if after == before else [f"streams were {before}, are {after}"]
        changed += [f"the other node heard {subject}" for subject in watched.heard]
        changed += [f"the rogue heard {message.subject}" for message in rogue.heard]
        return [*rows, row("node_key", "log, commands, desired state and others' messages afterwards", 5, changed)]
    finally:
        await rogue.client.close()
        for bus in (placer, looking, other):
            await bus.close()


async def _subjects(rogue: Rogue, keyed: Keyed, rng: random.Random) -> Row:
    """Say and hear everything that a node may not, alone and in a group."""
    inboxes = [f"{permissions.inbox(keyed.keys[name].public)}.>" for name in ("n2", "gateway", "placer")]
    said, heard = list(NOT_TO_BE_SAID), [*NOT_TO_BE_HEARD, *inboxes]
    rng.shuffle(said)
    rng.shuffle(heard)
    broken = [f"said {subject}" for subject in said if await rogue.says(subject)]
    broken += [f"heard {subject}" for subject in heard if await rogue.listens(subject)]
    broken += [f"heard {subject} in a group" for subject in heard if await rogue.listens(subject, "group")]
    return row("node_key", "subjects that a node may not publish to or subscribe", len(said) + 2 * len(heard), broken)


async def _questions(rogue: Rogue, rng: random.Random) -> Row:
    """Ask for more than one's own by the body of an allowed question."""
    broken: list[str] = []
    pairs = list(itertools.product((DESIRED, SPECS), QUESTIONS))
    rng.shuffle(pairs)
    for subject, question in pairs:
        try:
            answer = await rogue.client.request(subject, question, timeout=2)
        except NatsError:
            continue
        if answer.data:
            broken.append(f"{question!r} to {subject}: {answer.data[:40]!r}")
    return row("node_key", "bodies that ask for others' state", len(pairs), broken)


async def _headers(rogue: Rogue, rng: random.Random) -> Row:
    """Send every header and every reply subject with every message that a node may send."""
    tries = list(_tries())
    rng.shuffle(tries)
    for subject, reply, header in tries:
        await rogue.says(subject, b"x", reply, **header)
    return row("node_key", "headers and reply subjects that the server obeys", len(tries), [])


def _tries() -> Iterator[tuple[str, str, dict[str, str]]]:
    for subject in (*OWN, DESIRED, SPECS):
        yield from ((subject, reply, {}) for reply in ELSEWHERE)
    for subject in OWN:
        yield from ((subject, "", header) for header in HEADERS)
