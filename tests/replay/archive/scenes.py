"""A log on a server, an archive of it, and an attacker who can rewrite both and hash like the product."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Stored
from fairlead_replay.archive.archiver import Archiver
from fairlead_replay.archive.checkpoints import Signer
from fairlead_replay.archive.store import Store
from fairlead_replay.archive.verify import ArchiveReport, verify_together
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import GENESIS, Commit, commit_hash, decode_commit, encode_commit
from tests.replay.worlds import log_of

SIGNER = Signer("fairlead.log/test", bytes(range(32)))
NOW_NS = 1_800_000_000 * 10**9
LOG = log_of(8)
#: Several segments, and a tail.
SEGMENT_EVENTS = 60


async def hub_with(log: Iterable[Stored]) -> MemoryHub:
    """A server with this log, and nothing of what it held before."""
    hub = MemoryHub()
    bus = hub.connect()
    for stored in log:
        await bus.append(subjects.LOG, stored.subject, stored.payload)
    return hub


def store_at(directory: Path, *, copy: Path | None = None, segment_events: int = SEGMENT_EVENTS) -> Store:
    """The archive's writer."""
    return Store(directory, SIGNER, copy=copy, segment_events=segment_events)


def fill(store: Store, log: Sequence[Stored]) -> None:
    """Bring it to the end of a log, ten commits at a time, sign at every segment's end and at the end, and let it go."""
    while left := log[store.size :]:
        store.add(left[:10])
        if store.full():
            store.sign(NOW_NS)
            store.seal()
    store.sign(NOW_NS)
    store.spread()
    store.close()


async def archive(hub: MemoryHub, directory: Path, *, copy: Path | None = None) -> int:
    """Bring an archive up to date and let it go."""
    store = store_at(directory, copy=copy)
    try:
        archiver = Archiver(hub.connect(), store, checkpoint_events=25, clock=lambda: NOW_NS)
        return await asyncio.wait_for(archiver.catch_up(), 60)
    finally:
        store.close()


async def verified(hub: MemoryHub, directory: Path, *known: Path) -> ArchiveReport:
    """What an auditor is told who has the public key, and perhaps checkpoints from elsewhere."""
    return await asyncio.wait_for(verify_together(hub.connect(), directory, key=SIGNER.verifier, known=known), 60)


def chained(log: Sequence[Stored]) -> list[Stored]:
    """The same commits as one consistent log: numbers, hashes and sequences computed again, as an attacker would."""
    heads: dict[str, tuple[int, str]] = {}
    found: list[Stored] = []
    for sequence, stored in enumerate(log, start=1):
        commit = decode_commit(stored.payload)
        n, prev = heads.get(commit.writer, (0, GENESIS))
        payload = encode_commit(msgspec.structs.replace(commit, n=n + 1, prev=prev))
        heads[commit.writer] = (n + 1, commit_hash(payload))
        found.append(Stored(sequence, stored.subject, payload))
    return found


def later(stored: Stored, by_ns: int = 1) -> Stored:
    """A commit that says another time: the least that an attacker may want to change."""
    commit = decode_commit(stored.payload)
    changed: Commit = msgspec.structs.replace(commit, at_ns=commit.at_ns + by_ns)
    return Stored(stored.sequence, stored.subject, encode_commit(changed))


def rewritten(log: Sequence[Stored], sequence: int) -> list[Stored]:
    """A log whose commit at a sequence is another one, and whose hashes fit from there on."""
    return chained([*log[: sequence - 1], later(log[sequence - 1]), *log[sequence:]])
