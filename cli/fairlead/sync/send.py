"""Sending of a directory: which pieces the cluster lacks, and those alone.

A directory that changes while it is read is read again, a few times. Start at `send_directory`.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from fairlead.client.sync_link import pause
from fairlead.errors import FairleadError, InputRefused
from fairlead.sync.local_tree import Changed, LocalTree, index_path
from fairlead.sync.walk import walk
from fairlead_schemas.units.quantities import counted, format_bytes
from fairlead_schemas.wire import trees
from fairlead_schemas.wire.trees import TreeRefused, name_of_tree

TRIES = 4
#: Digests of one question.
ASKED_MAX = 500
#: Status of an answer to a caller that sends more than its rate, and how long and often such a request waits.
TOO_MANY, RATE_PAUSE_S, RATE_TRIES = 429, 1.0, 120
#: Beyond so many bytes, progress is reported.
LONG_BYTES = 16 * 2**20


class Pieces(Protocol):
    """Client for pieces."""

    def missing_pieces(self, digests: list[str]) -> list[str]:
        """Return those that the cluster lacks."""
        ...

    def send_piece(self, digest: str, data: bytes) -> None:
        """Send one."""
        ...


class Report(Protocol):
    """Receiver of remarks for people."""

    def __call__(self, text: str, /) -> None: ...


class SentDirectory(NamedTuple):
    """A directory that the cluster has: its name in a job file, and what was sent."""

    name: str
    files: int
    size: int
    pieces: int
    sent_bytes: int

    def words(self) -> str:
        """Describe it in one line."""
        what = f"sync: {counted(self.files, 'file')}, {format_bytes(self.size)}"
        return (
            f"{what}; sent {counted(self.pieces, 'piece')}, {format_bytes(self.sent_bytes)}"
            if self.pieces
            else f"{what}; nothing new"
        )


def send_directory(
    directory: Path, client: Pieces | None, report: Report, *, index: Path | None = None
) -> SentDirectory:
    """Send what the cluster lacks of a directory; without a client nothing, and only its name is found. Raises InputRefused and the
    client's errors.
    """
    changed = ""
    for _ in range(TRIES):
        try:
            return _send(directory, client, report, index or index_path(directory))
        except Changed as error:
            changed = str(error)
        except TreeRefused as error:
            raise InputRefused(f"{directory}: {error}") from error
        except OSError as error:
            raise InputRefused(f"{error.filename or directory}: {error.strerror}") from error
    raise InputRefused(
        f"{directory}: {changed!r} changes while it is read",
        hint="stop what writes it, or leave it out by a .gitignore",
    )


def _send(directory: Path, client: Pieces | None, report: Report, index: Path) -> SentDirectory:
    walked = walk(directory)
    if walked.special:
        report(f"warning: {walked.special} sockets, pipes or devices of {directory} are not sent")
    tree = LocalTree(directory, walked, index)
    sent, sent_bytes = 0, 0
    if client is not None:
        missing = _missing(client, tree)
        total = len(missing)
        reported = 0
        for digest in missing:
            data = tree.piece(digest)
            _patiently(partial(client.send_piece, digest.hex(), data))
            sent, sent_bytes = sent + 1, sent_bytes + len(data)
            if sent_bytes - reported >= LONG_BYTES and sent < total:
                report(f"sync: sent {sent} of {total} pieces, {format_bytes(sent_bytes)}")
                reported = sent_bytes
    return SentDirectory(name_of_tree(tree.digest), len(walked.found), walked.size, sent, sent_bytes)


def _missing(client: Pieces, tree: LocalTree) -> list[bytes]:
    digests = tree.digests
    found: set[str] = set()
    for first in range(0, len(digests), ASKED_MAX):
        part = [digest.hex() for digest in digests[first : first + ASKED_MAX]]
        found.update(_patiently(partial(client.missing_pieces, part)))
    return [digest for digest in digests if digest.hex() in found]


def _patiently[T](ask: Callable[[], T]) -> T:
    """Send a request, again where the gateway bounds the rate of requests: a directory is many of them. Raises the client's errors."""
    for _ in range(RATE_TRIES):
        try:
            return ask()
        except FairleadError as error:
            if error.problem is None or error.problem.status != TOO_MANY:
                raise
        pause(RATE_PAUSE_S)
    return ask()


def is_name(text: str) -> bool:
    """Return True for the name of a directory that was sent before."""
    return trees.parse_tree_name(text) is not None
