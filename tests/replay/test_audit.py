"""`audit verify`: a good log passes; whatever is done to one is found, and the first bad sequence is named."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead_bus import snapshots
from fairlead_bus.log import identity
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import LogDamaged, Stored
from fairlead_replay import chain
from fairlead_replay.archive.restore import restore
from fairlead_replay.audit import export, verify_export, verify_live
from fairlead_replay.export import LINES_FILE, LOG_FILE, MANIFEST_FILE, ExportError, read_export, write_export
from fairlead_replay.fold import FoldEnd
from fairlead_replay.live_comparison import fold_export, fold_live
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import GENESIS, Commit, commit_hash, encode_commit
from fairlead_schemas.wire.events import Event, JobOffered, JobSubmitted
from tests.kit.commits import commit_of
from tests.replay.worlds import log_of

SEED = 8


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A good export."""
    write_export(tmp_path, log_of(SEED), created="test")
    return tmp_path


async def filled_hub() -> MemoryHub:
    """A server with a good log."""
    hub = MemoryHub()
    bus = hub.connect()
    for stored in log_of(SEED):
        await bus.append(subjects.LOG, stored.subject, stored.payload)
    return hub


def lines_of(exported: Path) -> list[bytes]:
    return (exported / LOG_FILE).read_bytes().splitlines(keepends=True)


def test_a_good_export_is_whole(exported: Path) -> None:
    """Nothing is blamed, and everything was looked at."""
    verdict = verify_export(exported)
    log = log_of(SEED)
    events = sum(len(msgspec.json.decode(stored.payload)["events"]) for stored in log)
    assert verdict[:5] == (True, len(log), events, 0, "whole")
    assert len(log) > 50


def test_an_export_holds_the_exact_bytes(exported: Path) -> None:
    """The bytes read back equal the server's."""
    assert list(read_export(exported)) == log_of(SEED)


def test_an_export_is_not_overwritten(exported: Path) -> None:
    """It may be evidence: a second one into the same directory is refused, and the first stays whole."""
    with pytest.raises(ExportError, match="holds an export already"):
        write_export(exported, [])
    assert list(read_export(exported)) == log_of(SEED)


def test_the_remains_of_a_broken_export_are_overwritten(exported: Path) -> None:
    """Without its manifest it is no export."""
    (exported / MANIFEST_FILE).unlink()
    write_export(exported, [])
    assert verify_export(exported)[:5] == (True, 0, 0, 0, "whole")


def test_an_empty_log_is_whole(tmp_path: Path) -> None:
    """A cluster in which nothing has happened has a valid log."""
    write_export(tmp_path, [])
    assert verify_export(tmp_path)[:5] == (True, 0, 0, 0, "whole")


@pytest.mark.parametrize("bit", [0x01, 0x10])
def test_every_flipped_byte_is_blamed_on_its_own_commit(exported: Path, bit: int) -> None:
    """One changed bit anywhere, found at its line, with and without the list of digests."""
    data = (exported / LOG_FILE).read_bytes()
    digests = (exported / LINES_FILE).read_bytes()
    for at in range(0, len(data), len(data) // 120):
        flipped = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
        (exported / LOG_FILE).write_bytes(flipped)
        expected = data.count(b"\n", 0, at) + 1

        (exported / LINES_FILE).write_bytes(digests)
        verdict = verify_export(exported)
        assert (verdict.ok, verdict.first_bad) == (False, expected), f"byte {at}: {verdict.what}"

        (exported / LINES_FILE).unlink()
        assert not verify_export(exported).ok, f"byte {at} without digests"


@pytest.mark.parametrize("sequence", [1, 2, 17, 40, -1])
def test_a_flipped_payload_byte_is_found_by_the_chain_alone(exported: Path, sequence: int) -> None:
    """Without the list of digests, the writer's next commit or the manifest's head tells on it."""
    lines = lines_of(exported)
    at = sequence - 1 if sequence > 0 else len(lines) - 1
    lines[at] = lines[at].replace(b'"at_ns":1', b'"at_ns":2', 1)
    (exported / LOG_FILE).write_bytes(b"".join(lines))
    (exported / LINES_FILE).unlink()
    verdict = verify_export(exported)
    assert (verdict.ok, verdict.first_bad) == (False, at + 1)


def removed(lines: list[bytes]) -> list[bytes]:
    return lines[:19] + lines[20:]


def swapped(lines: list[bytes]) -> list[bytes]:
    return [*lines[:19], lines[20], lines[19], *lines[21:]]


def contents_swapped(lines: list[bytes]) -> list[bytes]:
    """Swap the contents of two sequences."""
    one, two = (line.partition(b',"subject"') for line in lines[19:21])
    return [*lines[:19], one[0] + b',"subject"' + two[2], two[0] + b',"subject"' + one[2], *lines[21:]]


def reordered(lines: list[bytes]) -> list[bytes]:
    return lines[:19] + lines[25:30] + lines[19:25] + lines[30:]


def doubled(lines: list[bytes]) -> list[bytes]:
    return lines[:20] + lines[19:]


@pytest.mark.parametrize(
    ("tamper", "first_bad"),
    [(removed, 20), (swapped, 20), (contents_swapped, 20), (reordered, 20), (doubled, 20)],
)
def test_tampering_is_named_by_its_first_bad_sequence(
    exported: Path, tamper: Callable[[list[bytes]], list[bytes]], first_bad: int
) -> None:
    """A removed commit is named itself; of a swapped pair, the first."""
    (exported / LOG_FILE).write_bytes(b"".join(tamper(lines_of(exported))))
    verdict = verify_export(exported)
    assert not verdict.ok
    assert verdict.first_bad in ((20, 21) if tamper is doubled else (first_bad,)), verdict.what


@pytest.mark.parametrize("kept", [0, 1, 30])
def test_a_truncated_tail_is_named_by_the_first_missing(exported: Path, kept: int) -> None:
    """A log that ends early is whole in itself: only the manifest knows."""
    (exported / LOG_FILE).write_bytes(b"".join(lines_of(exported)[:kept]))
    verdict = verify_export(exported)
    assert (verdict.ok, verdict.first_bad) == (False, kept + 1)


def test_a_line_truncated_in_the_middle_is_the_first_bad_one(exported: Path) -> None:
    """A copy leaves it when its disk is full."""
    lines = lines_of(exported)
    (exported / LOG_FILE).write_bytes(b"".join(lines[:30]) + lines[30][:40])
    assert verify_export(exported).first_bad == 31


def test_an_appended_commit_is_the_first_bad_one(exported: Path) -> None:
    """Even one that would continue the log is not what was exported."""
    lines = lines_of(exported)
    last = len(lines)
    forged = lines[-1].replace(b'"sequence":%d' % last, b'"sequence":%d' % (last + 1))
    (exported / LOG_FILE).write_bytes(b"".join([*lines, forged]))
    assert verify_export(exported)[:1] + verify_export(exported)[3:4] == (False, last + 1)


@pytest.mark.parametrize("data", [b"", b"{", b'{"v":2}'])
def test_a_damaged_manifest_is_refused(exported: Path, data: bytes) -> None:
    """No sequence is to blame, and nothing is raised."""
    (exported / MANIFEST_FILE).write_bytes(data)
    verdict = verify_export(exported)
    assert (verdict.ok, verdict.first_bad) == (False, 0)
    assert MANIFEST_FILE in verdict.what


def manifest_of(exported: Path) -> dict[str, Any]:
    return msgspec.json.decode((exported / MANIFEST_FILE).read_bytes())


def first_of(writer: str, n: int = 1) -> int:
    """Return the sequence of a writer's n-th commit."""
    return [stored.sequence for stored in log_of(SEED) if subjects.writer_of(stored.subject) == writer][n - 1]


def forget_all(manifest: dict[str, Any]) -> int:
    manifest["heads"] = {}
    return 1


def forget_one(manifest: dict[str, Any]) -> int:
    del manifest["heads"]["placer"]
    return first_of("placer")


def name_an_older_one(manifest: dict[str, Any]) -> int:
    manifest["heads"]["placer"]["n"] = 2
    return first_of("placer", 3)


def invent_a_writer(manifest: dict[str, Any]) -> int:
    manifest["heads"]["ghost"] = {"n": 3, "hash": "0" * 64, "sequence": 5}
    return 5


def invent_a_writer_of_nothing(manifest: dict[str, Any]) -> int:
    """No sequence can be named."""
    manifest["heads"]["ghost"] = {"n": 0, "hash": GENESIS, "sequence": 0}
    return 0


def begin_later(manifest: dict[str, Any]) -> int:
    manifest["first"] = 3
    return 1


def begin_before_the_first(manifest: dict[str, Any]) -> int:
    manifest["first"] = 0
    return 1


@pytest.mark.parametrize(
    "change",
    [
        forget_all,
        forget_one,
        name_an_older_one,
        invent_a_writer,
        invent_a_writer_of_nothing,
        begin_later,
        begin_before_the_first,
    ],
)
def test_a_manifest_that_tells_another_story_is_refused(
    exported: Path, change: Callable[[dict[str, Any]], int]
) -> None:
    """It has to name every writer and no other, each with its newest commit, and where the log begins."""
    manifest = manifest_of(exported)
    first_bad = change(manifest)
    (exported / MANIFEST_FILE).write_bytes(msgspec.json.encode(manifest))
    verdict = verify_export(exported)
    assert (verdict.ok, verdict.first_bad) == (False, first_bad), verdict.what


def test_an_invalid_entry_without_a_sequence_hides_no_bad_commit(exported: Path) -> None:
    """Nonsense in a manifest does not keep the first bad commit from being named."""
    manifest = manifest_of(exported)
    invent_a_writer_of_nothing(manifest)
    (exported / MANIFEST_FILE).write_bytes(msgspec.json.encode(manifest))
    (exported / LOG_FILE).write_bytes(b"".join(removed(lines_of(exported))))
    assert verify_export(exported).first_bad == 20


def test_the_first_bad_one_is_named_however_many_follow(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings come from the end back; those that are not kept count all the same."""
    monkeypatch.setattr(chain, "FINDINGS_MAX", 1)
    lines = lines_of(exported)
    for at in (39, 16):
        lines[at] = lines[at].replace(b'"at_ns":1', b'"at_ns":2', 1)
    (exported / LOG_FILE).write_bytes(b"".join(lines))
    (exported / LINES_FILE).unlink()
    assert verify_export(exported).first_bad == 17


@pytest.mark.parametrize(
    ("job", "cause"), [("1_!", "clock"), ("1_1", f"1.{'9' * 5000}"), ("1_1", f"{'9' * 5000}.1"), ("1_1", "0.0")]
)
def test_numbers_that_are_none_are_findings(job: str, cause: str) -> None:
    """Damage inside an event that still decodes is named, never raised."""
    audit = chain.Audit()
    submitted = msgspec.structs.replace(one_of(JobSubmitted), job="1", array=(1, 3), start_at_ns=0, cause="clock")
    offered = msgspec.structs.replace(one_of(JobOffered), job=job, cause=cause)
    head = GENESIS
    for n, event in enumerate((submitted, offered), start=1):
        payload = queue_commit(n, head, event)
        audit.take(Stored(n, subjects.log("queue"), payload))
        head = commit_hash(payload)
    assert audit.verdict()[:4] == (False, 2, 2, 2)


def queue_commit(n: int, prev: str, *events: Event) -> bytes:
    """A commit of a queue that is alone in its log."""
    commit = commit_of(list(events), n=n, at_ns=n, cursors={"CMD": n}, prev=prev)
    return encode_commit(commit)


def one_of[E](kind: type[E]) -> E:
    """Such an event of the log."""
    commits = (msgspec.json.decode(stored.payload, type=Commit) for stored in log_of(SEED))
    return next(event for commit in commits for event in commit.events if isinstance(event, kind))


def test_a_whole_commit_costs_almost_no_memory() -> None:
    """A log of millions fits: what is kept of a commit is some bytes, not its hashes."""
    audit, head = chain.Audit(), GENESIS
    commits = 3000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for n in range(1, commits + 1):
            payload = queue_commit(n, head)
            audit.take(Stored(n, subjects.log("queue"), payload))
            head = commit_hash(payload)
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert audit.verdict().ok
    assert kept / commits < 32


async def test_a_live_log_is_whole_and_exports(tmp_path: Path) -> None:
    """The same verdict on the bus as on the export of it."""
    bus = (await filled_hub()).connect()
    live = await verify_live(bus)
    manifest = await export(bus, tmp_path)
    assert live.ok
    assert live == verify_export(tmp_path)
    assert manifest.last == len(log_of(SEED))


async def test_damage_on_a_live_log_is_named_and_not_exported(tmp_path: Path) -> None:
    """A changed payload is blamed itself; its export is refused, not dressed up with a new manifest."""
    hub = await filled_hub()
    hub.damage(subjects.LOG, 20, lambda payload: payload.replace(b'"at_ns":1', b'"at_ns":2', 1))
    assert (await verify_live(hub.connect())).first_bad == 20
    with pytest.raises(LogDamaged):
        await export(hub.connect(), tmp_path)
    assert not (tmp_path / MANIFEST_FILE).exists()


async def test_a_gap_in_a_live_log_is_named() -> None:
    """The removed commit's own sequence."""
    hub = await filled_hub()
    hub.remove(subjects.LOG, 20)
    assert (await verify_live(hub.connect())).first_bad == 20


async def test_a_truncated_log_is_not_whole() -> None:
    """The rest is chained and valid; a service's snapshot shows that there was more, or another log."""
    hub = await filled_hub()
    bus = hub.connect()
    last = (await bus.state(subjects.LOG)).last
    log_id = await identity(bus)
    taken = snapshots.Snapshot(last, {}, b"state")
    await snapshots.save(bus, "queue", taken, log_id=log_id, schema="1", turn=0)
    assert (await verify_live(bus)).ok
    hub.truncate(subjects.LOG, 20)
    verdict = await verify_live(bus)
    assert (verdict.ok, verdict.first_bad) == (False, 21)
    assert verdict.what == f"the log went backwards: it ends at 20, and a snapshot is at {last}"
    await snapshots.save(bus, "queue", taken._replace(sequence=10), log_id="another", schema="1", turn=0)
    assert (await verify_live(bus)).first_bad == 1


async def test_work_on_a_log_says_how_much_of_it_is_done(tmp_path: Path) -> None:
    """Every commit, up to all of them: a check, an export, a fold and a restore of one log."""
    log, bus = log_of(SEED), (await filled_hub()).connect()
    seen: list[tuple[int, int]] = []

    def note(done: int, of: int) -> None:
        seen.append((done, of))

    whole = [(number, len(log)) for number in range(1, len(log) + 1)]
    await verify_live(bus, note)
    assert seen == whole
    seen.clear()
    await export(bus, tmp_path / "export", note)
    assert seen == whole
    for work in (verify_export, lambda path, see: fold_export(path, seen=see)):
        seen.clear()
        work(tmp_path / "export", note)
        assert seen == whole
    seen.clear()
    await restore(MemoryHub().connect(), tmp_path / "export", note)
    assert seen == whole
    seen.clear()
    await fold_live(bus, FoldEnd(sequence=20), note)
    assert seen[-1] == (20, 20)
