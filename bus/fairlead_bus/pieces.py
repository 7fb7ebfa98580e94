"""Pieces of directories on the bus: sealed, by addresses that do not show what they hold.

A node's key may read every key of a bucket, and a server answers a wildcard with whatever came last. So a piece is stored
encrypted under a key that is made of its own digest, at an address that is a digest of that digest. Who knows a
digest, from a job's order, reads the piece and checks it; who knows none has bytes that say nothing. Equal pieces have equal
addresses, so each is stored once (ADR 0024).

The server removes a piece some time after it was last sent (`streams.piece_days`). A second key has that time: a piece that
is older than half of its life counts as missing, and is sent again. Start at `PieceStore.missing`.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from fairlead_bus import streams
from fairlead_bus.port import Bus
from fairlead_schemas.wire import subjects, trees

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: Questions to the server at once.
ASKED_AT_ONCE = 64
#: Each key is used for one text only, so the nonce may be the same for all.
_NONCE = bytes(12)


class PieceDamaged(Exception):
    """The stored bytes are not the piece that was asked for."""


def address_of(digest: bytes) -> str:
    """Return the address of a piece, from which its digest cannot be told."""
    return hashlib.sha256(b"fairlead piece address" + digest).hexdigest()


def seal(data: bytes) -> bytes:
    """Return the bytes that the bus stores of a piece."""
    return _cipher(trees.digest_of(data)).encrypt(_NONCE, data, None)


def unseal(digest: bytes, sealed: bytes) -> bytes:
    """Return a piece from its stored bytes. Raises PieceDamaged for others."""
    from cryptography.exceptions import InvalidTag

    try:
        data = _cipher(digest).decrypt(_NONCE, sealed, None)
    except InvalidTag:
        raise PieceDamaged(f"piece {digest.hex()} is damaged on the bus") from None
    if trees.digest_of(data) != digest:
        raise PieceDamaged(f"piece {digest.hex()} is another one")
    return data


def _cipher(digest: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # few processes ever need it

    return AESGCM(hashlib.sha256(b"fairlead piece key" + digest).digest())


class PieceStore:
    """Pieces on the bus. `clock`: Unix seconds. Methods raise Unavailable and, where something is stored, StreamFull."""

    def __init__(self, bus: Bus, clock: Callable[[], float], env: Mapping[str, str] = os.environ) -> None:
        self._bus, self._clock = bus, clock
        #: A piece that was sent longer ago counts as missing, s.
        self.fresh_s = streams.piece_days(env) * 86400 / 2

    async def put(self, data: bytes) -> None:
        """Store a piece for its whole life from now on."""
        address = address_of(trees.digest_of(data))
        await self._bus.put(subjects.PIECE, subjects.piece_key(address), seal(data))
        await self._bus.put(subjects.PIECE, subjects.piece_time_key(address), str(int(self._clock())).encode())

    async def get(self, digest: bytes) -> bytes | None:
        """Return a piece; None where the bus has none. Raises PieceDamaged."""
        sealed = await self._bus.peek(subjects.PIECE, subjects.piece_key(address_of(digest)))
        return None if sealed is None else unseal(digest, sealed)

    async def is_fresh(self, digest: bytes) -> bool:
        """Return True if the bus has the piece, and keeps it for half of its life or longer."""
        stamp = await self._bus.get(subjects.PIECE, subjects.piece_time_key(address_of(digest)))
        return stamp is not None and self._clock() - int(stamp.value) < self.fresh_s

    async def has(self, digest: bytes) -> bool:
        """Return True if the bus has the piece, however long it still keeps it."""
        return await self._bus.get(subjects.PIECE, subjects.piece_time_key(address_of(digest))) is not None

    async def missing(self, digests: Iterable[bytes]) -> list[bytes]:
        """Return those of these pieces that have to be sent, each once."""
        wanted = list(dict.fromkeys(digests))
        there: list[bool] = []
        for first in range(0, len(wanted), ASKED_AT_ONCE):
            there += await asyncio.gather(*map(self.is_fresh, wanted[first : first + ASKED_AT_ONCE]))
        return [digest for digest, fresh in zip(wanted, there, strict=True) if not fresh]

    async def renew(self, root: bytes) -> int:
        """Send all pieces of a directory again whose life is half over. Return how many. Pieces that are gone or damaged are left
        out: the job's start says so.
        """
        renewed = 0
        try:
            for digest in [root, *await self._pieces_of(root)]:
                if not await self.is_fresh(digest) and (data := await self.get(digest)) is not None:
                    await self.put(data)
                    renewed += 1
        except (PieceDamaged, trees.TreeRefused):
            return renewed
        return renewed

    async def _pieces_of(self, root: bytes) -> list[bytes]:
        """Return the digests of all pieces of a directory, without its root's. Raises PieceDamaged, TreeRefused."""
        data = await self.get(root)
        if data is None:
            return []
        found: dict[bytes, None] = {}
        for digest in trees.decode_tree(data).groups:
            found[digest] = None
            if (group := await self.get(digest)) is not None:
                entries = trees.decode_group(group).entries
                found.update(dict.fromkeys(piece for entry in entries for piece in entry.pieces))
        return list(found)
