"""The envelope of the log: one message holds the events of one decision, together or not at all.

Bytes are canonical JSON: fields in declared order, map keys sorted, integers only. `prev` is the
SHA-256 of the same writer's previous commit bytes, so each writer's commits form a hash chain;
`n` counts that writer's commits from 1. An event's id is `<log sequence>.<index>`.
"""

import hashlib
from typing import Any

import msgspec

from fairlead_schemas.units.validation import decode
from fairlead_schemas.wire.events import Event
from fairlead_schemas.wire.levels import FIRST, LEVEL

#: Of the log's format. Version 2 gave events their names of today.
VERSION = 2
GENESIS = "0" * 64
#: A writer keeps every commit within both bounds (a single larger event travels alone).
COMMIT_EVENTS_MAX = 1000
COMMIT_BYTES_MAX = 256 * 1024


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Decision of one writer, with its events."""

    v: int
    writer: str
    #: This writer's commit number: 1, 2, 3 …
    n: int
    #: The log sequence up to which the writer had folded when it decided.
    basis: int
    #: The writer's clock in Unix nanoseconds, never below that of its previous commit.
    at_ns: int
    #: Inputs consumed up to here: {"CMD": 812, "report.n7": 93}.
    cursors: dict[str, int]
    #: SHA-256 (hex) of this writer's previous commit bytes; `GENESIS` for the first.
    prev: str
    events: list[Event]
    #: Level of the log's format that the writer knew to be raised (levels.py); left out where it is the first.
    level: int = FIRST


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A commit with its events left undecoded, for those who check the chain but do not fold."""

    v: int
    writer: str
    n: int
    basis: int
    at_ns: int
    cursors: dict[str, int]
    prev: str
    events: list[msgspec.Raw]
    level: int = FIRST


class FormatNumber(msgspec.Struct, frozen=True, kw_only=True):
    """The log's format and level alone, which every version writes in the same place."""

    v: int
    level: int = FIRST


class CommitUndecodable(ValueError):
    """A commit's bytes do not decode: an unknown type or version, or a field out of contract."""


class OtherLogFormat(CommitUndecodable):
    """A commit of a log in another format. Nothing is damaged: the version that wrote the log reads it."""


class NewerLevel(CommitUndecodable):
    """A commit at a level that this version does not know. Nothing is damaged: a newer version reads it."""


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Commit)
_decode = _decoder.decode
_envelope_decoder = msgspec.json.Decoder(Envelope)
_format_decoder = msgspec.json.Decoder(FormatNumber)


def encode_commit(commit: Commit) -> bytes:
    """Canonical bytes of a commit."""
    return _encoder.encode(commit)


def decode_commit(payload: bytes) -> Commit:
    """Decode and check one commit. Raises CommitUndecodable: OtherLogFormat for a log of another format, NewerLevel for a level
    that this version does not know."""
    try:
        commit = _decode(payload)
    except (ValueError, RecursionError):
        return decode_known(_decoder, payload, LEVEL)  # raises in words
    if commit.v == VERSION and commit.level <= LEVEL:
        return commit
    return decode_known(_decoder, payload, LEVEL)


def decode_known(decoder: msgspec.json.Decoder[Commit], payload: bytes, known: int) -> Commit:
    """Decode a commit as a version does that has this decoder and knows levels up to `known`. Raises as `decode_commit`."""
    commit = _checked(decoder, payload, known)
    refuse_newer(commit.level, known)
    return commit


def refuse_newer(level: int, known: int = LEVEL) -> None:
    """Raise NewerLevel for a commit at a level above `known`, whatever its events: their meaning may have changed."""
    if level > known:
        raise NewerLevel(
            f"the log is newer than I know, level {level}: upgrade me (this version of Fairlead reads levels up to {known})"
        )


def decode_envelope(payload: bytes) -> Envelope:
    """Decode a commit's envelope only, also at a level that this version does not know: an archive takes every commit.
    Raises CommitUndecodable."""
    return _checked(_envelope_decoder, payload, None)


def _checked(decoder: msgspec.json.Decoder[Any], payload: bytes, known: int | None) -> Any:
    try:
        commit = decode(decoder, payload)
    except msgspec.MsgspecError as error:
        stated = _format_of(payload)
        _refuse_other_format(stated.v)
        if known is not None:
            refuse_newer(stated.level, known)
        raise CommitUndecodable(f"commit does not decode: {error}") from error
    if commit.v != VERSION:
        _refuse_other_format(commit.v)
    return commit


def _format_of(payload: bytes) -> FormatNumber:
    """Return the format that undecodable bytes state; this version's where they state none, because then they are damaged."""
    try:
        return _format_decoder.decode(payload)
    except msgspec.MsgspecError:
        return FormatNumber(v=VERSION)


def _refuse_other_format(found: int) -> None:
    """Raise OtherLogFormat if a log has another format than this version's. A later format may have events and fields that do
    not decode here, so this check does not depend on them.
    """
    if found > VERSION:
        raise OtherLogFormat(
            f"the log has format {found}, a later one than format {VERSION} that this version of Fairlead reads: install the version "
            f"that wrote the log, or start with an empty data directory"
        )
    if found < VERSION:
        raise OtherLogFormat(
            f"the log has format {found}, this version of Fairlead reads format {VERSION} alone: start with an empty data "
            f"directory, or read this log with the version that wrote it"
        )


def commit_hash(payload: bytes) -> str:
    """SHA-256 (hex) over a commit's bytes, as the next commit's `prev` states it."""
    return hashlib.sha256(payload).hexdigest()
