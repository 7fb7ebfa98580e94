"""The state of the cluster at any sequence or moment of the log, by the services' own cores. Pure.

    cluster = fold_to(commits, 4711)            the state that every service had folded at 4711
    cluster.queue, .placer, .idle, .access, .storage      their cores, for reading
    cluster.state_hashes()                      what each live service answers at that sequence

It must not know where commits come from: `commits_of` makes them from stored messages (a log, an export).
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fairlead_access.core import AccessCore
from fairlead_bus.core import Core
from fairlead_bus.log import Chain, LogHead
from fairlead_bus.port import LogDamaged, Stored
from fairlead_placer.core import PlacerCore
from fairlead_queue.core import QueueCore
from fairlead_schemas.wire.commit import Commit, CommitUndecodable, decode_commit
from fairlead_storage.core import StorageCore
from fairlead_telemetry.idle.core import IdleCore

#: Of every writer. (The telemetry service's warehouse is no core: its rows are compared by tests, invariant I9.)
CORES: dict[str, type[QueueCore] | type[PlacerCore] | type[IdleCore] | type[AccessCore] | type[StorageCore]] = {
    "queue": QueueCore,
    "placer": PlacerCore,
    "telemetry": IdleCore,
    "access": AccessCore,
    "storage": StorageCore,
}


class PlacedCommit(NamedTuple):
    """Commit with its place in the log."""

    sequence: int
    commit: Commit


class FoldedCluster:
    """Every core that folds the log, at one sequence."""

    def __init__(self) -> None:
        self.sequence = 0
        self.at_ns = 0
        self.queue = QueueCore()
        self.placer = PlacerCore()
        self.idle = IdleCore()
        self.access = AccessCore()
        self.storage = StorageCore()

    def evolve(self, sequence: int, commit: Commit) -> None:
        """Fold the next commit."""
        self.queue.evolve(sequence, commit)
        self.placer.evolve(sequence, commit)
        self.idle.evolve(sequence, commit)
        self.access.evolve(sequence, commit)
        self.storage.evolve(sequence, commit)
        self.sequence = sequence
        self.at_ns = max(self.at_ns, commit.at_ns)

    def cores(self) -> dict[str, Core]:
        """{writer: its core}."""
        return {
            "queue": self.queue,
            "placer": self.placer,
            "telemetry": self.idle,
            "access": self.access,
            "storage": self.storage,
        }

    def state_hashes(self) -> dict[str, str]:
        """{writer: SHA-256 (hex) of its canonical state}."""
        return {writer: state_hash(core.snapshot()) for writer, core in self.cores().items()}


def state_hash(snapshot: bytes) -> str:
    """SHA-256 (hex) over a core's snapshot."""
    return hashlib.sha256(snapshot).hexdigest()


def commits_of(
    stored: Iterable[Stored], *, after: int = 0, heads: dict[str, LogHead] | None = None
) -> Iterator[PlacedCommit]:
    """Decode and check commits in order: contiguous, chained. `after` and `heads` say what came before the first.
    Raises LogDamaged at whatever does not fit."""
    chain = Chain(after, heads)
    for message in stored:
        try:
            commit = decode_commit(message.payload)
        except CommitUndecodable as error:
            raise LogDamaged(message.sequence, str(error)) from error
        chain.extend(message, commit)
        yield PlacedCommit(message.sequence, commit)


class FoldEnd(NamedTuple):
    """Where a fold ends: after a sequence, or with the last commit before the first one that is later than a time (Unix ns). None
    and 0: with the log.
    """

    sequence: int | None = None
    at_ns: int = 0


TO_THE_END = FoldEnd()


def fold_until(commits: Iterable[PlacedCommit], end: FoldEnd) -> FoldedCluster:
    """Fold from the first commit to an end. Raises ValueError where the log ends before its sequence."""
    return fold_to_time(commits, end.at_ns) if end.at_ns else fold_to(commits, end.sequence)


def fold_to(commits: Iterable[PlacedCommit], sequence: int | None = None) -> FoldedCluster:
    """Fold from the first commit up to a sequence, that one included (None: all there is). Raises ValueError
    where the log ends before it."""
    cluster = FoldedCluster()
    for placed in commits:
        if sequence is not None and placed.sequence > sequence:
            break
        cluster.evolve(*placed)
    if sequence is not None and cluster.sequence < sequence:
        raise ValueError(f"the log ends at sequence {cluster.sequence}, asked for {sequence}")
    return cluster


def fold_to_time(commits: Iterable[PlacedCommit], at_ns: int) -> FoldedCluster:
    """Fold up to the last commit before the first one that is later than a Unix time in nanoseconds."""
    cluster = FoldedCluster()
    for placed in commits:
        if placed.commit.at_ns > at_ns:
            break
        cluster.evolve(*placed)
    return cluster


def fold_from(writer: str, snapshot: bytes, after: int, commits: Iterable[PlacedCommit], sequence: int) -> Core:
    """Return one writer's core from a snapshot at sequence `after`, folded on to `sequence`. Skips earlier commits of
    `commits`.
    """
    core = CORES[writer].restore(snapshot)
    for placed in commits:
        if after < placed.sequence <= sequence:
            core.evolve(*placed)
    return core
