"""One connection of HTTP/1.1 as the proxy uses it: heads are read with a time limit, bodies are passed on as they come.

Start at `HttpConnection.head` and `pass_body`.
"""

import asyncio

from fairlead_appproxy.body_end import UntilClose, framing_of
from fairlead_appproxy.head import Body, end_of_head

#: Read at a time, and held for the other end at the most.
PIECE_BYTES = 64 * 1024


class CutOff(ConnectionError):
    """The other end has gone in the middle of a message."""


class Silent(Exception):
    """Nothing has come in time."""


class HttpConnection:
    """Streams of a connection, with the bytes that were read too far."""

    __slots__ = ("_rest", "reader", "writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rest: bytes = b"") -> None:
        self.reader, self.writer, self._rest = reader, writer, rest

    async def head(self, begin_s: float, whole_s: float) -> bytes:
        """Return the next head, b"" where the connection ends before it. `begin_s`: until its first byte comes; `whole_s`: from there until it
        is whole. Raises HeadRefused, Silent, CutOff.
        """
        data, self._rest = self._rest, b""
        try:
            if not data:
                async with asyncio.timeout(begin_s):
                    data = await self.reader.read(PIECE_BYTES)
                if not data:
                    return b""
            if not (end := end_of_head(data)):
                async with asyncio.timeout(whole_s):
                    data, end = await self._rest_of_head(data)
        except TimeoutError:
            raise Silent from None
        self._rest = data[end:]
        return data[:end]

    async def _rest_of_head(self, data: bytes) -> tuple[bytes, int]:
        while not (end := end_of_head(data)):
            more = await self.reader.read(4096)
            if not more:
                raise CutOff
            data += more
        return data, end

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the end."""
        if self._rest:
            data, self._rest = self._rest, b""
            return data
        return await self.reader.read(PIECE_BYTES)

    def give_back(self, data: bytes) -> None:
        """Take back bytes that are no part of the message before."""
        self._rest = data + self._rest

    def take_rest(self) -> bytes:
        """Return the bytes that were read too far, and hold them no more."""
        data, self._rest = self._rest, b""
        return data

    async def write(self, data: bytes) -> None:
        """Send, at the pace of the other end."""
        self.writer.write(data)
        await self.writer.drain()

    @property
    def is_reusable(self) -> bool:
        """True where another message may follow: nothing has come that nobody asked for, and it is open."""
        return not (self._rest or self.reader.at_eof() or self.writer.is_closing())

    @property
    def has_gone(self) -> bool:
        """True where the other end has closed."""
        return self.reader.at_eof() or self.writer.is_closing()

    def abort(self) -> None:
        """Cut it."""
        self.writer.transport.abort()


async def pass_body(source: HttpConnection, target: HttpConnection, body: Body) -> None:
    """Pass on a body to its end, without changing a byte. Raises CutOff, BadFraming, ConnectionError."""
    if body.is_empty:
        return
    framing = framing_of(body)
    while not framing.done:
        piece = await source.read()
        if not piece:
            if isinstance(framing, UntilClose):
                return
            raise CutOff
        taken = framing.take(piece)
        if taken < len(piece):
            source.give_back(piece[taken:])
            piece = piece[:taken]
        await target.write(piece)
