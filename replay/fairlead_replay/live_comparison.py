"""Comparison of every live service, and of its snapshots, with the fold of the log: byte for byte (ARCHITECTURE.md, I7).

Asks each service for {"sequence", "sha256", "bytes"} of its live state, folds the log to that very
sequence and compares. Start at `compare_live`.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from fairlead_bus import snapshots
from fairlead_bus.log import identity
from fairlead_bus.port import Bus, Unavailable
from fairlead_replay.audit import Seen, counted, read_log, unseen
from fairlead_replay.export import read_export, read_manifest
from fairlead_replay.fold import (
    CORES,
    TO_THE_END,
    FoldedCluster,
    FoldEnd,
    PlacedCommit,
    commits_of,
    fold_from,
    fold_to,
    fold_until,
    state_hash,
)
from fairlead_schemas.wire import subjects

ASK_TIMEOUT_S = 5.0


class LiveState(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of a service about its state."""

    sequence: int
    sha256: str
    bytes: int
    #: The shape of the state; "" where the service is older than this field.
    schema: str = ""


class Comparison(NamedTuple):
    """Comparison of one state with the fold of the log up to its sequence."""

    what: str  # "queue", "queue snapshot"
    sequence: int
    expected: str  # SHA-256 of the fold
    found: str  # of the state; "" where the service did not answer
    #: What kept them from being compared, if anything.
    message: str = ""
    #: The state has another shape than this code's: nothing can be compared, and no service of this code uses it.
    of_another_version: bool = False

    @property
    def equal(self) -> bool:
        """True when both are there and are the same bytes."""
        return bool(self.found) and self.expected == self.found

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        return "equal" if self.equal else "of another version" if self.of_another_version else "DIFFERS"


async def compare_live(bus: Bus) -> list[Comparison]:
    """Compare every live service, and every snapshot in the store, with the log on the bus. Raises LogDamaged,
    Unavailable.
    """
    answers = {writer: await _ask(bus, writer) for writer in CORES}
    stored = [message async for message in read_log(bus)]
    commits = list(commits_of(stored))
    live = [_compare(writer, answer, commits) for writer, answer in answers.items()]
    return live + await compare_snapshots(bus, commits)


async def _ask(bus: Bus, writer: str) -> LiveState | None:
    try:
        answer = await bus.request(subjects.rpc(writer, "state"), b"", timeout_s=ASK_TIMEOUT_S)
    except Unavailable:
        return None
    return msgspec.json.decode(answer, type=LiveState)


def _compare(writer: str, answer: LiveState | None, commits: list[PlacedCommit]) -> Comparison:
    if answer is None:
        return Comparison(writer, 0, "", "", "did not answer")
    if answer.schema != CORES[writer].schema:
        return _of_another_version(writer, answer.sequence, answer.schema)
    last = commits[-1].sequence if commits else 0
    if answer.sequence > last:
        return Comparison(writer, answer.sequence, "", answer.sha256, f"is beyond the log, which ends at {last}")
    return Comparison(writer, answer.sequence, fold_to(commits, answer.sequence).state_hashes()[writer], answer.sha256)


def _of_another_version(what: str, sequence: int, schema: str) -> Comparison:
    writer = what.partition(" ")[0]
    message = f"not compared: expected a state of shape {CORES[writer].schema}, found {schema or 'an unnamed one'}"
    return Comparison(what, sequence, "", "", message, of_another_version=True)


async def compare_snapshots(bus: Bus, commits: list[PlacedCommit]) -> list[Comparison]:
    """fold(snapshot + tail) against fold(log), for the newest snapshot of every service that has one. A newest one of
    another version is reported, not read: services fold the log instead."""
    log_id = await identity(bus)
    last = commits[-1].sequence if commits else 0
    whole: FoldedCluster | None = None
    found: list[Comparison] = []
    for writer in CORES:
        snapshot = next((one for one in await snapshots.stored(bus, writer) if one.is_of(log_id)), None)
        if snapshot is None:
            continue
        if snapshot.schema != CORES[writer].schema:
            found.append(_of_another_version(f"{writer} snapshot", snapshot.sequence, snapshot.schema))
            continue
        if snapshot.sequence > last:
            found.append(Comparison(f"{writer} snapshot", snapshot.sequence, "", "", f"is beyond the log's end {last}"))
            continue
        whole = whole or fold_to(commits)
        core = fold_from(writer, snapshot.state, snapshot.sequence, commits, last)
        folded = state_hash(core.snapshot())
        found.append(Comparison(f"{writer} snapshot", snapshot.sequence, whole.state_hashes()[writer], folded))
    return found


def fold_export(path: str | Path, end: FoldEnd = TO_THE_END, seen: Seen = unseen) -> FoldedCluster:
    """The cluster as an exported log has it. Raises ExportError, LogDamaged; ValueError beyond its end."""
    directory = Path(path)
    of = end.sequence or read_manifest(directory).commits
    return fold_until(commits_of(counted(read_export(directory), of, seen)), end)


async def fold_live(bus: Bus, end: FoldEnd = TO_THE_END, seen: Seen = unseen) -> FoldedCluster:
    """The cluster as the log on the bus has it. Raises LogDamaged, Unavailable; ValueError beyond its end."""
    stored = [message async for message in read_log(bus)]
    return fold_until(commits_of(counted(stored, end.sequence or len(stored), seen)), end)
