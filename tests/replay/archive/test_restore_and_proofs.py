"""A new log of an archive is the old one, and is gone on with; a proof holds for its commit and nothing else."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from fairlead_bus.input_source import CommandSource
from fairlead_bus.memory import MemoryHub
from fairlead_bus.service import Service
from fairlead_queue.core import QueueCore
from fairlead_replay.archive import proofs
from fairlead_replay.archive.contents import ArchiveContents
from fairlead_replay.archive.proofs import BadProof
from fairlead_replay.archive.restore import NotEmpty, restore
from fairlead_replay.archive.segments import ArchiveDamaged
from fairlead_replay.audit import read_log
from fairlead_replay.fold import FoldedCluster, commits_of, fold_to
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import SubmitJob, encode_commands
from fairlead_schemas.wire.commit import decode_commit
from fairlead_schemas.wire.events import JobSubmitted
from tests.kit.queue_world import SPEC, request
from tests.replay.archive.scenes import LOG, SIGNER, archive, fill, hub_with, store_at, verified

KEY = SIGNER.verifier


async def test_a_restored_log_is_the_old_one(tmp_path: Path) -> None:
    """Every commit at its sequence, the same state, and the archive agrees with it and grows on."""
    await archive(await hub_with(LOG), tmp_path)
    hub = MemoryHub()
    assert await restore(hub.connect(), tmp_path) == len(LOG)
    assert [one async for one in read_log(hub.connect())] == LOG
    assert (await verified(hub, tmp_path)).ok
    assert fold_to(commits_of(LOG)).state_hashes() == (await folded(hub)).state_hashes()


async def folded(hub: MemoryHub) -> FoldedCluster:
    return fold_to(commits_of([one async for one in read_log(hub.connect())]))


async def test_services_go_on_from_a_restored_log(tmp_path: Path) -> None:
    """The queue takes the next command, although its cursor speaks of commands that no stream has any more."""
    await archive(await hub_with(LOG), tmp_path)
    hub = MemoryHub()
    await restore(hub.connect(), tmp_path)
    queue = Service(hub.connect(), QueueCore, writer="queue", sources=[CommandSource("queue")])
    running = asyncio.create_task(queue.run())
    bus = hub.connect()
    job = SubmitJob(id="after", user="ada", name="job", queue="default", request=request(), spec=SPEC)
    await bus.append(subjects.CMD, subjects.cmd("queue"), encode_commands([job]))
    tail = await bus.tail(subjects.LOG, after=len(LOG))
    async with asyncio.timeout(20):
        events = [event for one in await tail.next() for event in decode_commit(one.payload).events]
    assert isinstance(next(event for event in events if event.cause == "cmd:after"), JobSubmitted)
    await queue.stop()
    await running
    await tail.close()


async def test_only_an_empty_log_is_restored_into(tmp_path: Path) -> None:
    """An old stream may be evidence; a command that waits would be lost."""
    await archive(await hub_with(LOG), tmp_path)
    hub = await hub_with(LOG[:1])
    with pytest.raises(NotEmpty, match="stream LOG ends at sequence 1"):
        await restore(hub.connect(), tmp_path)
    hub = MemoryHub()
    await hub.connect().append(subjects.CMD, subjects.cmd("queue"), b"[]")
    with pytest.raises(NotEmpty, match="stream CMD"):
        await restore(hub.connect(), tmp_path)
    assert (await hub.connect().state(subjects.LOG)).last == 0


async def test_a_damaged_archive_writes_nothing(tmp_path: Path) -> None:
    """All of it is read before the first commit is stored."""
    await archive(await hub_with(LOG), tmp_path)
    last = ArchiveContents(tmp_path).segments[-1].path
    last.write_bytes(last.read_bytes()[:-1])
    hub = MemoryHub()
    with pytest.raises(ArchiveDamaged, match="is not the file that its manifest names"):
        await restore(hub.connect(), tmp_path)
    assert (await hub.connect().state(subjects.LOG)).last == 0


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """An archive with several checkpoints."""
    fill(store_at(tmp_path), LOG)
    return tmp_path


@pytest.mark.parametrize("sequence", [1, 2, 77, len(LOG)])
def test_a_commit_is_proved(kept: Path, sequence: int) -> None:
    """With the line alone, from an earlier checkpoint on as well; it comes back from JSON."""
    earlier = ArchiveContents(kept).notes()[0]
    before = proofs.size_of(earlier)
    proof = proofs.read(msgspec.json.encode(proofs.make(kept, sequence, before=before)))
    assert proofs.check(proof, KEY).size == proofs.check(proof, KEY, earlier).size == len(LOG)
    assert msgspec.json.decode(proof.line)["sequence"] == sequence
    assert len(proof.hashes) <= 8


def test_a_proof_of_something_else_is_refused(kept: Path) -> None:
    """Another line, place, key, checkpoint or beginning; and what is not covered yet has none."""
    notes = ArchiveContents(kept).notes()
    proof = proofs.make(kept, 30, before=proofs.size_of(notes[0]))
    other = proofs.make(kept, 31)
    replace = msgspec.structs.replace
    for forged, why in (
        (replace(proof, line=other.line), "expected the line of sequence 30 as in the proof, found sequence 31"),
        (replace(proof, line=proof.line.replace('"at_ns":1', '"at_ns":2', 1)), "is not that of sequence 30"),
        (replace(proof, sequence=31, line=other.line), "is not that of sequence 31"),
        (replace(proof, hashes=proof.hashes[:-1]), "is not that of sequence 30"),
        (replace(proof, hashes=["!", *proof.hashes[1:]]), "base64"),
        (replace(proof, checkpoint=notes[0].replace("signed", "singed")), "changed or forged"),
        (replace(proof, growth=proof.growth[:-1]), "does not begin with the one"),
        (replace(proof, before=1), "starts from a checkpoint of size 1"),
    ):
        with pytest.raises(BadProof, match=why):
            proofs.check(forged, KEY, notes[0])
    with pytest.raises(BadProof, match="covers sequences 1 to"):
        proofs.make(kept, len(LOG) + 1)
    with pytest.raises(BadProof, match="not a proof"):
        proofs.read(b"{}")
