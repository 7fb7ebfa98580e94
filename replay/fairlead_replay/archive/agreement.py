"""Agreement of two copies of the log with each other and with the signed checkpoints. Pure. Start at `Telling`.

A copy (`Telling`) is the log as one place has it: the archive's files, or the bus. Each copy is checked for itself
(chain.py) and by the tree of its lines: at every signed size, its root must equal the signed one. A log with completely
recomputed hashes is therefore detected by any checkpoint that covers the change, regardless of who controls the server.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from fairlead_bus.port import Stored
from fairlead_replay.archive.checkpoints import LogCheckpoint
from fairlead_replay.archive.merkle import HASH_BYTES, MerkleTree, leaf_hash
from fairlead_replay.chain import Audit, LogVerdict
from fairlead_replay.export import encode_line

Where = Literal["log", "archive", "checkpoint", "snapshot"]


class Disagreement(NamedTuple):
    """Disagreement: the place where it was found, the first sequence in doubt (0: all), and a description."""

    where: Where
    sequence: int
    what: str


class Signed(NamedTuple):
    """A checkpoint whose signature holds, and where it was found."""

    checkpoint: LogCheckpoint
    source: str


class SignedCheckpoints:
    """Every signed checkpoint by its size; two of one size that differ are a disagreement in themselves."""

    def __init__(self, signed: Iterable[Signed]) -> None:
        self.by_size: dict[int, Signed] = {}
        self.found: list[Disagreement] = []
        for one in signed:
            size = one.checkpoint.size
            known = self.by_size.setdefault(size, one)
            if known.checkpoint.root != one.checkpoint.root:
                what = f"two histories were signed: the checkpoints of size {size} in {known.source} and {one.source} differ"
                self.found.append(Disagreement("checkpoint", size, what))

    @property
    def newest(self) -> Signed | None:
        """The one that covers most."""
        return self.by_size[max(self.by_size)] if self.by_size else None


class LogCopy:
    """Copy of the log as one place has it, read commit by commit; `found` lists its faults.

    `other`: a copy that was read to its end; the two must be equal up to the end of the shorter one.
    """

    def __init__(self, where: Where, marks: SignedCheckpoints, other: "LogCopy | None" = None) -> None:
        self.where: Where = where
        self.marks, self.other = marks, other
        self.audit = Audit()
        self.tree = MerkleTree()
        #: The leaves' hashes, one behind the other.
        self.leaves = bytearray()
        self.found: list[Disagreement] = []
        self.covered = 0
        self._whole = True
        self._as_signed = True
        #: The first sequence at which it is not what the other tells; 0: none yet.
        self._differs = 0

    @property
    def size(self) -> int:
        """Number of commits read."""
        return self.tree.size

    def take(self, stored: Stored, line: bytes | None = None) -> None:
        """The next commit. `line`: its line without the newline, where that is what was stored."""
        self.audit.take(stored)
        if stored.sequence != self.size + 1:
            self._whole = False  # the audit says so; from here on no leaf is where it belongs
        if not self._whole:
            return
        leaf = leaf_hash(encode_line(stored)[:-1] if line is None else line)
        self.tree.add(leaf)
        self.leaves += leaf
        self._compare(leaf)
        self._check_mark()

    def damaged(self, sequence: int, what: str) -> None:
        """Record that the copy cannot be read further."""
        self._whole = False
        self.found.append(Disagreement(self.where, sequence, what))

    def leaf(self, sequence: int) -> bytes:
        """Return the hash of the leaf of a sequence that was already read."""
        return bytes(self.leaves[(sequence - 1) * HASH_BYTES : sequence * HASH_BYTES])

    def end(self) -> LogVerdict:
        """There is no more: what the audit says, and whether anything is missing at the end."""
        verdict = self.audit.verdict()
        if not verdict.ok:
            self.found.append(Disagreement(self.where, verdict.first_bad, verdict.what))
        if self._differs:
            self._blame_one()
        if self._whole:
            self._check_end()
        self.found.sort(key=lambda one: (one.where != self.where, one.sequence))
        return verdict

    def _compare(self, leaf: bytes) -> None:
        other = self.other
        if other is None or self._differs or self.size > other.size:
            return
        if leaf != other.leaf(self.size):
            self._differs = self.size

    def _blame_one(self) -> None:
        """Two tellings differ: the one that a signed checkpoint vouches for is right."""
        assert self.other is not None
        right, wrong = (self, self.other) if self.covered >= self._differs else (self.other, self)
        what = f"the commit is not the one in the {right.where}"
        # In front of what follows from it.
        self.found.insert(0, Disagreement(wrong.where, self._differs, what))

    def _check_mark(self) -> None:
        mark = self.marks.by_size.get(self.size)
        if mark is None or not self._as_signed:
            return
        if self.tree.root() == mark.checkpoint.root:
            self.covered = self.size
            return
        self._as_signed = False  # every later one would differ as well
        first = self._differs or self.covered + 1
        what = f"among sequences {first} to {self.size} something is not what was signed (checkpoint in {mark.source})"
        self.found.append(Disagreement(self.where, first, what))

    def _check_end(self) -> None:
        newest, other = self.marks.newest, self.other
        if other is not None and self.size < other.size:
            what = f"the {self.where} ends here, but the {other.where} continues to {other.size}: it was truncated or reset"
            self.found.append(Disagreement(self.where, self.size + 1, what))
        elif newest is not None and self.size < newest.checkpoint.size:
            what = (
                f"the {self.where} ends here, a checkpoint in {newest.source} was signed for {newest.checkpoint.size}:"
                " it was cut or set back"
            )
            self.found.append(Disagreement(self.where, self.size + 1, what))
