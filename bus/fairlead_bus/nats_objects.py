"""Reading of a blob of a JetStream object store, piece by piece.

The obvious choice is the library's reader. If a blob is replaced between reading its description and its pieces, the
pieces are gone, and the library waits for them without end. Here every piece is a request of its own, so that a missing
piece is detected.
"""

import base64
import hashlib
from collections.abc import Awaitable, Callable

import msgspec

from fairlead_bus.port import Stored, Unavailable

#: Versions of a blob that may come and go while it is read.
VERSIONS_MAX = 20
DIGEST = "SHA-256="

#: The message of a stream that a query names, or None (`$JS.API.STREAM.MSG.GET`). Raises Unavailable.
Read = Callable[[str, dict[str, str | int]], Awaitable[Stored | None]]


class _Info(msgspec.Struct):
    """Fields of the store's description of a blob that the reader needs."""

    nuid: str = ""
    size: int = 0
    digest: str = ""
    deleted: bool = False


async def read_object(read: Read, store: str, name: str) -> bytes | None:
    """A blob, or None where there is none (or it is damaged). Raises Unavailable."""
    stream, key = f"OBJ_{store}", base64.urlsafe_b64encode(name.encode()).decode()
    before = ""
    for _ in range(VERSIONS_MAX):
        described = await read(stream, {"last_by_subj": f"$O.{store}.M.{key}"})
        info = _decoded(described.payload) if described is not None else None
        if info is None or info.deleted or info.nuid in ("", before):
            return None
        data = await _pieces(read, stream, f"$O.{store}.C.{info.nuid}", info.size)
        if data is not None:
            return data if _digest(data) == info.digest.removeprefix(DIGEST) else None
        before = info.nuid
    raise Unavailable(f"object {store}/{name} is replaced faster than it can be read")


def _decoded(payload: bytes) -> _Info | None:
    try:
        return msgspec.json.decode(payload, type=_Info)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


async def _pieces(read: Read, stream: str, subject: str, size: int) -> bytes | None:
    """All pieces in order; None where one is gone."""
    pieces: list[bytes] = []
    sequence = found = 0
    while found < size:
        piece = await read(stream, {"next_by_subj": subject, "seq": sequence + 1})
        if piece is None or not piece.payload:
            return None
        pieces.append(piece.payload)
        sequence, found = piece.sequence, found + len(piece.payload)
    return b"".join(pieces)


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
