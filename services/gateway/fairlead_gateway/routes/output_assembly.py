"""A job's output put together: pieces in, bytes in order out; and lines that are tagged with their rank. Pure.

Launchers that start several processes on a node put the rank in front of each line.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from fairlead_schemas.policies.launchers import launcher_of
from fairlead_schemas.wire.events import Part
from fairlead_schemas.wire.reports import OutputPiece

HELD_PIECES_MAX = 4096


class OutputStream(NamedTuple):
    """Output stream of one rank."""

    rank: int
    stream: str


class StreamAssembly:
    """Puts pieces of one lane in order. Pure."""

    def __init__(self, offset: int = 0) -> None:
        #: Bytes given out so far.
        self.offset = offset
        self.ended = False
        self._held: dict[int, OutputPiece] = {}

    def add(self, piece: OutputPiece) -> bytes:
        """Take a piece; what can now be given out, in order."""
        end = piece.offset + len(piece.data)
        if end > self.offset or piece.last:
            held = self._held.get(piece.offset)
            if held is None or len(held.data) <= len(piece.data):
                self._held[piece.offset] = piece
        return self._drain()

    def _drain(self) -> bytes:
        out: list[bytes] = []
        while self._held:
            start = min(self._held)
            if start > self.offset:
                break
            piece = self._held.pop(start)
            fresh = piece.data[self.offset - start :]
            out.append(fresh)
            self.offset += len(fresh)
            self.ended = self.ended or (piece.last and start + len(piece.data) <= self.offset)
        return b"".join(out)

    @property
    def hole(self) -> tuple[int, int] | None:
        """(from, to): bytes missing before the next piece that is here."""
        if not self._held:
            return None
        start = min(self._held)
        return (self.offset, start) if start > self.offset else None

    @property
    def is_overfull(self) -> bool:
        """True when too much waits behind a hole."""
        return len(self._held) > HELD_PIECES_MAX

    def skip_to(self, offset: int) -> None:
        """Leave out what comes before an offset within the hole."""
        self.offset = max(self.offset, offset)

    def skip_hole(self) -> tuple[int, bytes]:
        """Give the hole up: (bytes lost, what follows it)."""
        hole = self.hole
        if hole is None:
            return 0, b""
        self.offset = hole[1]
        return hole[1] - hole[0], self._drain()


#: As Fairlead's own launcher writes them, and as mpirun does with its tags on: "[1,3]<stdout>:".
_TAG = re.compile(rb"\[(?:rank (\d+)\] |\d+,(\d+)\]<std(?:out|err)>: ?)")


class _Words(msgspec.Struct):
    """The part of a job file that says who starts the processes."""

    command: list[str] = []
    launcher: str = ""
    processesPerNode: int | None = None  # noqa: N815 -- the job file's spelling


_words = msgspec.json.Decoder(_Words)


def tagged_ranks(spec: bytes, parts: Sequence[Part], tasks: bool) -> int | None:
    """Return the number of ranks in the job's tagged lines; None where its lines carry no tags. `tasks`: its units are
    tasks.
    """
    try:
        words = _words.decode(spec)
    except msgspec.MsgspecError:
        return None
    launcher = launcher_of(words.launcher, words.command)
    if launcher not in ("mpi", "env"):
        return None
    slots = [
        words.processesPerNode or (part.tasks if tasks else len(part.instances or part.gpus) or 1) for part in parts
    ]
    return sum(slots) if launcher == "mpi" or max(slots, default=1) > 1 else None


def split_tag(line: bytes) -> tuple[int | None, bytes]:
    """Return the rank that a line is tagged with (None: no tag) and the line without its tag."""
    found = _TAG.match(line)
    return (int(found[1] or found[2]), line[found.end() :]) if found is not None else (None, line)
