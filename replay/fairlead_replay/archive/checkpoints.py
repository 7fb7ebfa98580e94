"""Checkpoints: "the log's first <size> lines have this root", signed; and the book that holds them. Pure.

A checkpoint is a signed note (notes.py) with a text as in C2SP's tlog-checkpoint:

    fairlead.log/berlin             the log's origin
    4711                            number of lines: the log's sequences 1 to 4711
    <base64 of the Merkle root>     over these lines (merkle.py, segments.py)
    signed 2026-11-22T11:40:00Z     by the archiver's clock; for people, nothing is decided by it

A book is a text file of checkpoints, oldest first, an empty line after each. It only grows.
"""

import base64
import binascii
from datetime import UTC, datetime
from typing import NamedTuple

from fairlead_replay.archive.merkle import HASH_BYTES
from fairlead_replay.archive.notes import BadNote, Signer, Verifier, open_note, read_note

_SIGNED = "signed "


class Checkpoint(NamedTuple):
    """Signed statement: the origin's log of `size` lines has this root."""

    origin: str
    size: int
    root: bytes
    signed_at: str


def sign(signer: Signer, size: int, root: bytes, now_ns: int) -> str:
    """A checkpoint as a signed note; the log's origin is the key's name."""
    moment = datetime.fromtimestamp(now_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return signer.sign(f"{signer.verifier.name}\n{size}\n{base64.b64encode(root).decode()}\n{_SIGNED}{moment}\n")


def open_checkpoint(note: str, verifier: Verifier) -> Checkpoint:
    """Return the contents of a checkpoint that this key has signed for the log of its own name. Raises BadNote."""
    checkpoint = _read(open_note(note, verifier))
    if checkpoint.origin != verifier.name:
        raise BadNote(f"a checkpoint of {checkpoint.origin}, expected one of {verifier.name}")
    return checkpoint


def size_of(note: str) -> int:
    """The size that a note claims, unchecked: only to say which one is meant. Raises BadNote."""
    return _read(read_note(note).text).size


def _read(text: str) -> Checkpoint:
    lines = text.splitlines()
    if len(lines) < 3 or not lines[1].isascii() or not lines[1].isdecimal() or str(int(lines[1][:20])) != lines[1]:
        raise BadNote("a checkpoint has the log's name, its size and its root, a line each")
    try:
        root = base64.b64decode(lines[2], validate=True)
    except (binascii.Error, ValueError):
        root = b""
    if len(root) != HASH_BYTES:
        raise BadNote(f"the root of the checkpoint of size {lines[1]} is not {HASH_BYTES} bytes in base64")
    signed_at = next((line.removeprefix(_SIGNED) for line in lines[3:] if line.startswith(_SIGNED)), "")
    return Checkpoint(lines[0], int(lines[1]), root, signed_at)


def entry(note: str) -> str:
    """Return a note in the form of a book's entry."""
    return f"{note}\n"


def read_book(book: str) -> list[str]:
    """The notes of a book. What a broken write left at the end is passed over: `whole` says where it begins."""
    parts = book[: whole(book)].split("\n\n")
    return [f"{text}\n\n{signatures}\n" for text, signatures in zip(parts[::2], parts[1::2], strict=False)]


def whole(book: str) -> int:
    """Return the number of characters of a book that belong to whole entries."""
    ends = _ends(book)
    return ends[len(ends) // 2 * 2 - 1] if len(ends) > 1 else 0


def _ends(book: str) -> list[int]:
    """Return the positions of the paragraphs' ends, each behind its empty line."""
    found, at = [], book.find("\n\n")
    while at >= 0:
        found.append(at + 2)
        at = book.find("\n\n", at + 2)
    return found
