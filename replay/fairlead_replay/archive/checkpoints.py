"""Checkpoints: "the log's first <size> lines have this root", signed; and the book that holds them; and signed notes:
text, an empty line, and a line per signature; Ed25519. Pure.

A checkpoint is a signed note (below) with a text as in C2SP's tlog-checkpoint:

    fairlead.log/berlin             the log's origin
    4711                            number of lines: the log's sequences 1 to 4711
    <base64 of the Merkle root>     over these lines (merkle.py, segments.py)
    signed 2026-11-22T11:40:00Z     by the archiver's clock; for people, nothing is decided by it

A book is a text file of checkpoints, oldest first, an empty line after each. It only grows.

The spelling is that of the Go checksum database's notes (golang.org/x/mod/sumdb/note, C2SP "signed-note"), so that keys and
notes can be checked with other people's tools too:

    public key   <name>+<key id, 8 hex digits>+<base64 of 0x01 and 32 bytes>
    secret key   PRIVATE+KEY+<name>+<key id>+<base64 of 0x01 and the 32 bytes of the seed>
    signature    — <name> <base64 of the key id's 4 bytes and the 64 of the signature>

A key id is the beginning of SHA-256(name || 0x0A || 0x01 || public key).
"""

import base64
import binascii
import hashlib
import re
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fairlead_replay.archive.merkle import HASH_BYTES
from fairlead_schemas.units.timestamps import rfc3339_seconds

_ED25519 = b"\x01"
_SECRET = "PRIVATE+KEY+"  # noqa: S105 -- what secret keys begin with
_NAME = re.compile(r"[^\s+]{1,200}")
_SIGNATURE = re.compile(r"— (\S+) (\S+)")
SEED_BYTES = 32
KEY_ID_BYTES = 4


class BadNote(ValueError):
    """A note or a key cannot be read or is not what it says; the message says what was expected."""


class Verifier:
    """A public key with its name: tells whether a note bears this key's signature."""

    def __init__(self, name: str, raw: bytes) -> None:
        self.name = _checked_name(name)
        self.key_id = hashlib.sha256(name.encode() + b"\n" + _ED25519 + raw).digest()[:KEY_ID_BYTES]
        self.spelled = f"{name}+{self.key_id.hex()}+{base64.b64encode(_ED25519 + raw).decode()}"
        self._key = Ed25519PublicKey.from_public_bytes(raw)

    def verifies(self, text: str, signature: bytes) -> bool:
        """True if these 64 bytes are this key's signature of the text."""
        try:
            self._key.verify(signature, text.encode())
        except InvalidSignature:
            return False
        return True


class Signer:
    """A secret key with its name."""

    def __init__(self, name: str, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.verifier = Verifier(name, self._key.public_key().public_bytes_raw())
        encoded = base64.b64encode(_ED25519 + seed).decode()
        self.spelled = f"{_SECRET}{name}+{self.verifier.key_id.hex()}+{encoded}"

    def sign(self, text: str) -> str:
        """The text as a signed note. The text ends with a newline and has no empty line."""
        _check_text(text)
        signature = self.verifier.key_id + self._key.sign(text.encode())
        return f"{text}\n— {self.verifier.name} {base64.b64encode(signature).decode()}\n"


class Note(NamedTuple):
    """A note taken apart: what was signed, and {(name, key id): signature}."""

    text: str
    signatures: dict[tuple[str, bytes], bytes]


def read_verifier(spelled: str) -> Verifier:
    """A public key from its spelling. Raises BadNote."""
    name, key_id, encoded = _parts(spelled.strip(), "a public key, <name>+<8 hex digits>+<base64>")
    verifier = Verifier(name, encoded)
    if verifier.key_id.hex() != key_id:
        raise BadNote(
            f'public key of "{name}": its id is {verifier.key_id.hex()}, the line has {key_id}: it is misspelled'
        )
    return verifier


def read_signer(spelled: str) -> Signer:
    """A secret key from its spelling. Raises BadNote; the message does not repeat what was found."""
    what = "a secret key, PRIVATE+KEY+<name>+<8 hex digits>+<base64>"
    if not spelled.strip().startswith(_SECRET):
        raise BadNote(f"expected {what}")
    name, key_id, seed = _parts(spelled.strip().removeprefix(_SECRET), what)
    signer = Signer(name, seed)
    if signer.verifier.key_id.hex() != key_id:
        raise BadNote("the secret key does not fit its id: it is misspelled")
    return signer


def read_note(note: str) -> Note:
    """A note's text and signatures, none of them checked yet. Raises BadNote."""
    text, empty, below = note.partition("\n\n")
    lines = below.splitlines()
    found = [_SIGNATURE.fullmatch(line) for line in lines]
    if not text or not empty or not below.endswith("\n") or not found or None in found:
        raise BadNote("expected text, an empty line, and lines that begin with — and hold a name and a signature")
    signatures: dict[tuple[str, bytes], bytes] = {}
    for match in found:
        assert match is not None
        raw = _decoded(match[2], "a signature in base64")
        signatures[match[1], raw[:KEY_ID_BYTES]] = raw[KEY_ID_BYTES:]
    return Note(f"{text}\n", signatures)


def open_note(note: str, verifier: Verifier) -> str:
    """The text of a note that this key has signed. Raises BadNote."""
    read = read_note(note)
    signature = read.signatures.get((verifier.name, verifier.key_id))
    if signature is None:
        raise BadNote(f"not signed by {verifier.name}+{verifier.key_id.hex()}")
    if not verifier.verifies(read.text, signature):
        raise BadNote(f"the signature of {verifier.name} is not that of this text: it was changed or forged")
    return read.text


def _check_text(text: str) -> None:
    if not text.endswith("\n") or "\n\n" in text or text.startswith("\n"):
        raise BadNote("a note's text ends with a newline and has no empty line")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadNote(f'name of a key: expected 1 to 200 characters without spaces and "+", found "{name}"')
    return name


def _parts(spelled: str, what: str) -> tuple[str, str, bytes]:
    parts = spelled.split("+", 2)  # base64 has + too
    if len(parts) != 3:
        raise BadNote(f"expected {what}")
    raw = _decoded(parts[2], what)
    if raw[:1] != _ED25519 or len(raw) != 1 + SEED_BYTES:
        raise BadNote(f"expected {what} of an Ed25519 key")
    return parts[0], parts[1], raw[1:]


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadNote(f"expected {what}") from None


_SIGNED = "signed "


class LogCheckpoint(NamedTuple):
    """Signed statement: the origin's log of `size` lines has this root."""

    origin: str
    size: int
    root: bytes
    signed_at: str


def sign(signer: Signer, size: int, root: bytes, now_ns: int) -> str:
    """A checkpoint as a signed note; the log's origin is the key's name."""
    return signer.sign(
        f"{signer.verifier.name}\n{size}\n{base64.b64encode(root).decode()}\n{_SIGNED}{rfc3339_seconds(now_ns)}\n"
    )


def open_checkpoint(note: str, verifier: Verifier) -> LogCheckpoint:
    """Return the contents of a checkpoint that this key has signed for the log of its own name. Raises BadNote."""
    checkpoint = _read(open_note(note, verifier))
    if checkpoint.origin != verifier.name:
        raise BadNote(f"a checkpoint of {checkpoint.origin}, expected one of {verifier.name}")
    return checkpoint


def size_of(note: str) -> int:
    """The size that a note claims, unchecked: only to say which one is meant. Raises BadNote."""
    return _read(read_note(note).text).size


def _read(text: str) -> LogCheckpoint:
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
    return LogCheckpoint(lines[0], int(lines[1]), root, signed_at)


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
