"""Record of access: sign-ins, denials, and reads of what belongs to others, in a stream next to the log.

Each person has a subject and a chain of their own: a message names the digest of the one before it, so a change in the middle shows, and
the whole chain of one person can be erased without a gap in any other. An entry about somebody else's thing stands in two chains:
that of the one who looked, and that of the owner. The owner's has no address, so nothing of a person is left in chains of others
except their opaque id.
"""

import hashlib
from typing import Annotated, Literal

import msgspec

from fairlead_schemas.units.ids import is_token

type AccessKind = Literal[
    "signed_in",
    "sign_in_failed",
    "signed_out",
    "password_set",
    "notification_made",  # a rule that sends events to a destination outside
    "notification_removed",
    "token_refused",  # a token that does not count was sent: forged, ended, used before, made for something else
    "denied",
    "read",
    "entered",
]

#: Of the subject for what has no principal: failed sign-ins of unknown names.
UNKNOWN = "-"
GENESIS = "0" * 64
#: Entries of a message, characters of an address, and of each other text of an entry: so many entries of such texts fit a message.
ENTRIES_MAX = 100
ADDRESS_CHARS_MAX = 64
#: Characters of a target: a queue's path may be long.
TARGET_CHARS_MAX = 300
TEXT_CHARS_MAX = 256


class AccessEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One access, or several equal ones within a while."""

    kind: AccessKind
    #: Unix ns of the first.
    at_ns: int
    #: Who; "" for an unknown name.
    principal: str = ""
    #: By "token:<id>" or "session:<id>", or the name of the provider of a sign-in.
    via: str = ""
    #: Of a denial or read: the verb, and its target such as "job:812", with the principal to whom that belongs. A password and a rule of
    #: notifications have an owner, too.
    verb: str = ""
    target: str = ""
    owner: str = ""
    #: Address of the client; "" in the owner's chain.
    address: str = ""
    #: Equal accesses that this entry stands for.
    count: int = 1


def bounded(entry: AccessEntry) -> AccessEntry:
    """Return an entry with texts that fit a message and can be encoded. A cut text keeps its beginning."""
    cut = {name: _cut(getattr(entry, name), TEXT_CHARS_MAX) for name in ("principal", "via", "verb", "owner")}
    target, address = _cut(entry.target, TARGET_CHARS_MAX), _cut(entry.address, ADDRESS_CHARS_MAX)
    return msgspec.structs.replace(entry, target=target, address=address, **cut)


def _cut(text: str, chars: int) -> str:
    return text[:chars].encode(errors="replace").decode()


def chain_of(name: str) -> str:
    """Return the person whose chain takes what is noted of `name`: UNKNOWN where it cannot be a principal's id."""
    return name if is_token(name) else UNKNOWN


class AccessRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Message of one chain."""

    #: Number in its chain, from 1.
    n: Annotated[int, msgspec.Meta(ge=1, le=2**62)]
    #: SHA-256 (hex) of the chain's previous message; GENESIS for the first.
    prev: str
    entries: list[AccessEntry]


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(AccessRecord)


def encode_record(record: AccessRecord) -> bytes:
    """Canonical bytes of a message."""
    return _encoder.encode(record)


def decode_record(payload: bytes) -> AccessRecord:
    """Read a message. Raises msgspec.MsgspecError."""
    try:
        return _decoder.decode(payload)
    except (UnicodeDecodeError, RecursionError) as error:  # msgspec passes these on
        raise msgspec.DecodeError(str(error)) from error


def next_record(previous: bytes | None, entries: list[AccessEntry]) -> AccessRecord:
    """Return the message that continues a chain. After one that cannot be read numbers begin again: the break shows, and what comes
    later is noted all the same."""
    if previous is None:
        return AccessRecord(n=1, prev=GENESIS, entries=entries)
    try:
        number = decode_record(previous).n + 1
    except msgspec.MsgspecError:
        number = 1
    return AccessRecord(n=number, prev=digest_of(previous), entries=entries)


def continues(payload: bytes, previous: bytes) -> bool:
    """Return True if a message names `previous` as the one before it."""
    try:
        return decode_record(payload).prev == digest_of(previous)
    except msgspec.MsgspecError:
        return False


def digest_of(payload: bytes) -> str:
    """Return SHA-256 (hex) of a message."""
    return hashlib.sha256(payload).hexdigest()


class BrokenChain(ValueError):
    """A chain of access records was changed. The message names its number and the fault."""


class ChainCheck:
    """Check of one chain, message by message. Its beginning may be gone: records are kept for a limited time."""

    def __init__(self) -> None:
        self._n = 0
        self._digest = ""

    def take(self, payload: bytes) -> AccessRecord:
        """Check the next message and return it. Raises BrokenChain."""
        try:
            record = decode_record(payload)
        except msgspec.MsgspecError as error:
            raise BrokenChain(f"after record {self._n}: {error}") from error
        if self._digest and (record.n != self._n + 1 or record.prev != self._digest):
            raise BrokenChain(f"record {record.n}: does not continue record {self._n}")
        if record.n == 1 and record.prev != GENESIS:
            raise BrokenChain("record 1: expected the beginning of a chain")
        self._n, self._digest = record.n, digest_of(payload)
        return record
