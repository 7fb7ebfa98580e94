"""The access core's state as canonical bytes, and back: equal states have equal bytes."""

import msgspec

from fairlead_bus.snapshot_codec import SnapshotCodec
from fairlead_rights.rows import AccessRows, rows_of, state_of
from fairlead_rights.state import AccessState

#: Increase when the meaning of a field changes.
VERSION = 1


class AccessSnapshot(msgspec.Struct, frozen=True):
    """All rows, with the version of their meaning."""

    v: int
    rows: AccessRows


_CODEC = SnapshotCodec(AccessSnapshot, VERSION)
SCHEMA = _CODEC.schema


def dump(state: AccessState) -> bytes:
    """Canonical bytes of the state."""
    return _CODEC.encode(AccessSnapshot(VERSION, rows_of(state)))


def load(data: bytes) -> AccessState:
    """The state that was dumped. Raises msgspec.MsgspecError."""
    document = _CODEC.decode(data)
    if document.v != VERSION:
        raise msgspec.ValidationError(f"access snapshot has version {document.v}, this reader knows {VERSION}")
    return state_of(document.rows)
