"""A container's output, from the engine into the run's two files, byte for byte.

The engine gives it from the beginning each time; what the files hold already is skipped. An engine that has rotated
its log by then begins later: a gap.
"""

import asyncio
from pathlib import Path
from typing import BinaryIO, NamedTuple

from fairlead_agent.runtimes.docker.streams import READ_BYTES, answer
from fairlead_agent.runtimes.notes import own_bytes

#: Each piece comes behind eight bytes: the stream's number, three zeros, its length (Engine API, "Stream format").
HEADER_BYTES = 8
STDERR = 2


class Files(NamedTuple):
    """Where the output of a run goes."""

    stdout: Path
    stderr: Path


async def copy(socket: str, container: str, files: Files, *, follow: bool) -> None:
    """Append what the files do not have, with `follow` until the container has ended or the engine goes away. Raises
    EngineRefused, OSError (a full disk, too)."""
    query = {"stdout": 1, "stderr": 1, "follow": int(follow)}
    with files.stdout.open("ab", buffering=0) as stdout, files.stderr.open("ab", buffering=0) as stderr:
        lanes = {STDERR: _Lane(stderr, stderr.tell() - own_bytes(files.stderr))}
        plain = _Lane(stdout, stdout.tell())
        async with answer(socket, "GET", f"/containers/{container}/logs", query) as reader:
            while header := await _header(reader):
                lane, left = lanes.get(header[0], plain), int.from_bytes(header[4:])
                while left:
                    piece = await reader.read(min(left, READ_BYTES))
                    if not piece:
                        raise ConnectionError("the engine's answer broke off")
                    lane.take(piece)
                    left -= len(piece)


async def _header(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readexactly(HEADER_BYTES)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise ConnectionError("the engine's answer broke off") from error
        return b""


class _Lane:
    __slots__ = ("_file", "_skip")

    def __init__(self, file: BinaryIO, skip: int) -> None:
        self._file = file
        self._skip = max(0, skip)

    def take(self, piece: bytes) -> None:
        if len(piece) > self._skip:
            self._file.write(piece[self._skip :])
        self._skip = max(0, self._skip - len(piece))
