"""Exported log: a directory that can be kept, copied and checked without a server.

    log.jsonl       one line per commit: {"sequence":7,"subject":"fairlead.log.queue","commit":<its bytes, unchanged>}
    lines.sha256    one line per line of log.jsonl: the first 16 hex digits of its SHA-256
    manifest.json   the number of commits, their end, and the SHA-256 of log.jsonl; written last

The hash chain covers the commit's bytes, so they are carried raw and never encoded again.
`lines.sha256` is read only where log.jsonl is not the file that the manifest names: it then identifies the wrong line.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from fairlead_bus.log import Chain, LogHead
from fairlead_bus.port import Stored
from fairlead_schemas.wire.commit import decode_envelope

LOG_FILE, LINES_FILE, MANIFEST_FILE = "log.jsonl", "lines.sha256", "manifest.json"
LINE_DIGEST_CHARS = 16
VERSION = 1


class ExportError(ValueError):
    """A directory is no export that can be read; the message names the file."""


class HeadDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A writer's newest commit in the export."""

    n: int
    hash: str
    sequence: int


class ExportManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Contents of an export."""

    v: int
    commits: int
    first: int
    last: int
    heads: dict[str, HeadDoc]
    sha256: str
    #: The log's identity (`fairlead_bus.log.identity`); the time when the stream was created in older exports. Opaque.
    created: str

    def chain_heads(self) -> dict[str, LogHead]:
        """The heads as the chain check takes them."""
        return {writer: LogHead(head.n, head.hash, head.sequence) for writer, head in self.heads.items()}


class ExportLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Line of log.jsonl."""

    sequence: int
    subject: str
    commit: msgspec.Raw


_encoder = msgspec.json.Encoder()
_line = msgspec.json.Decoder(ExportLine)
_manifest = msgspec.json.Decoder(ExportManifest)


class Exporter:
    """Writer of an export while the log is read. Refuses (LogDamaged) to export a log with a broken chain.

    Raises ExportError where an export already exists: an older one may be evidence. The remains of an interrupted export
    are no export (they have no manifest) and are overwritten.
    """

    def __init__(self, directory: Path, created: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        if (directory / MANIFEST_FILE).exists():
            raise ExportError(f"{directory} holds an export already; expected a new directory")
        self.directory, self.created = directory, created
        self._chain = Chain()
        self._sha256 = hashlib.sha256()
        self._log: BinaryIO = (directory / LOG_FILE).open("wb")
        self._lines: BinaryIO = (directory / LINES_FILE).open("wb")

    def add(self, stored: Stored) -> None:
        """The next commit of the log. Raises LogDamaged and CommitUndecodable."""
        self._chain.extend(stored, decode_envelope(stored.payload))
        line = encode_line(stored)
        self._sha256.update(line)
        self._log.write(line)
        self._lines.write(digest_line(line))

    def finish(self) -> ExportManifest:
        """Make it durable, manifest last."""
        for file in (self._log, self._lines):
            _sync(file)
            file.close()
        heads = {w: HeadDoc(n=h.n, hash=h.hash, sequence=h.sequence) for w, h in sorted(self._chain.heads.items())}
        manifest = ExportManifest(
            v=VERSION,
            commits=self._chain.last,
            first=1,
            last=self._chain.last,
            heads=heads,
            sha256=self._sha256.hexdigest(),
            created=self.created,
        )
        with (self.directory / MANIFEST_FILE).open("wb") as file:
            file.write(msgspec.json.format(_encoder.encode(manifest)) + b"\n")
            _sync(file)
        folder = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return manifest

    def abandon(self) -> None:
        """Leave it without a manifest: what was written is no export."""
        self._log.close()
        self._lines.close()


def write_export(directory: Path, stored: Iterable[Stored], *, created: str = "") -> ExportManifest:
    """Export commits that are at hand. Raises LogDamaged."""
    exporter = Exporter(directory, created)
    try:
        for message in stored:
            exporter.add(message)
    except BaseException:
        exporter.abandon()
        raise
    return exporter.finish()


def encode_line(stored: Stored) -> bytes:
    """Return one line of log.jsonl, newline included."""
    line = ExportLine(sequence=stored.sequence, subject=stored.subject, commit=msgspec.Raw(stored.payload))
    return _encoder.encode(line) + b"\n"


def decode_line(line: bytes) -> Stored:
    """The inverse of `encode_line` (with or without the newline). Raises ExportError."""
    try:
        decoded = _line.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ExportError(f"line does not decode: {error}") from error
    return Stored(decoded.sequence, decoded.subject, bytes(decoded.commit))


def digest_line(line: bytes) -> bytes:
    """Return the line of lines.sha256 for a line of log.jsonl; both include the newline."""
    return hashlib.sha256(line).hexdigest()[:LINE_DIGEST_CHARS].encode() + b"\n"


def read_manifest(directory: Path) -> ExportManifest:
    """Raises ExportError where there is none, or none that can be read."""
    try:
        manifest = _manifest.decode((directory / MANIFEST_FILE).read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ExportError(f"{MANIFEST_FILE}: {error}") from error
    if manifest.v != VERSION:
        raise ExportError(f"{MANIFEST_FILE}: version {manifest.v}, this reader knows {VERSION}")
    return manifest


def read_export(directory: Path) -> Iterator[Stored]:
    """The commits of an export, in order and unchecked (`audit.verify_export` checks). Raises ExportError."""
    read_manifest(directory)
    with (directory / LOG_FILE).open("rb") as file:
        for line in file:
            yield decode_line(line)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
