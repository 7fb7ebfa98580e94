"""End of a message's body in a stream of bytes, without changing one of them. Pure.

Chunk extensions and trailers are refused: no browser sends them, and readers disagree about them. Start at `framing_of`.
"""

import re

from fairlead_appproxy.head import CHUNKED, UNTIL_CLOSE, Body

#: Sixteen hexadecimal digits and the line's end.
_LINE_MAX = 18
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")


class BadFraming(Exception):
    """A body that is not framed as its head states."""


class ByLength:
    """Body of a known number of bytes."""

    def __init__(self, length: int) -> None:
        self._left = length

    @property
    def done(self) -> bool:
        """True where the body has ended."""
        return not self._left

    def take(self, data: bytes) -> int:
        """Return how many of these bytes belong to the body."""
        taken = min(len(data), self._left)
        self._left -= taken
        return taken


class UntilClose:
    """Body that ends with its connection."""

    done = False

    def take(self, data: bytes) -> int:
        """Return how many of these bytes belong to the body: all."""
        return len(data)


class Chunked:
    """Body in chunks, each behind a line with its size; the last has size 0."""

    def __init__(self) -> None:
        self.done = False
        #: Bytes of the chunk that are still to come, and of the line end behind it.
        self._left = 0
        #: A line that has come in part: a size, or (`_ends`) the line end behind a chunk or behind the last one.
        self._line = b""
        self._ends = False
        self._last = False

    def take(self, data: bytes) -> int:
        """Return how many of these bytes belong to the body. Raises BadFraming."""
        at = 0
        while at < len(data) and not self.done:
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                self._ends = not self._left
                at += step
            else:
                at = self._take_line(data, at)
        return at

    def _take_line(self, data: bytes, at: int) -> int:
        most = 2 if self._ends else _LINE_MAX
        line = self._line + data[at : at + most - len(self._line)]
        end = line.find(b"\r\n")
        if end < 0:
            if len(line) == most or (self._ends and line != b"\r"):
                raise BadFraming("no line end where a chunk's size or end must be")
            self._line = line
            return len(data)
        at += end + 2 - len(self._line)
        self._line = b""
        self._line_came(line[:end])
        return at

    def _line_came(self, line: bytes) -> None:
        if self._ends:
            if line:
                raise BadFraming("a chunk is longer than its size")
            self._ends, self.done = False, self._last
            return
        if not _SIZE.fullmatch(line):
            raise BadFraming("a chunk's size is no hexadecimal number")
        self._left = int(line, 16)
        self._last = self._ends = not self._left


type Framing = ByLength | UntilClose | Chunked


def framing_of(body: Body) -> Framing:
    """Return the reader of a body's end."""
    if body == CHUNKED:
        return Chunked()
    return UntilClose() if body == UNTIL_CLOSE else ByLength(body.length)
