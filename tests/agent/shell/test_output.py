"""Output goes out once and in order, whatever asks for it at the same time."""

import asyncio
import os
from pathlib import Path

import msgspec

from fairlead_agent.core.runs import RunKey
from fairlead_agent.runtimes.run_directory import cut_head
from fairlead_agent.shell.output import PIECE_BYTES_MAX, POLL_BYTES_MAX, OutputShipper
from fairlead_schemas.wire.reports import OutputPiece

KEY = RunKey("7", 1, 0)


async def test_an_end_during_a_poll_repeats_and_skips_nothing(tmp_path: Path) -> None:
    """The bus is slow: a poll is under way while more is printed and the run ends."""
    pieces: list[OutputPiece] = []
    gate = asyncio.Event()

    async def publish(subject: str, payload: bytes) -> None:
        pieces.append(msgspec.json.decode(payload, type=OutputPiece))
        await gate.wait()

    stdout, stderr = tmp_path / "stdout", tmp_path / "stderr"
    stdout.write_bytes(b"one\n")
    stderr.touch()
    shipper = OutputShipper("n1", publish)
    shipper.open(KEY, (str(stdout), str(stderr)))
    poll = asyncio.ensure_future(shipper.poll())
    await asyncio.sleep(0)
    stdout.write_bytes(b"one\ntwo\n")
    end = asyncio.ensure_future(shipper.ended(KEY))
    await asyncio.sleep(0.01)
    gate.set()
    await asyncio.gather(poll, end)
    assert [(piece.offset, piece.data, piece.last) for piece in pieces] == [(0, b"one\n", False), (4, b"two\n", True)]


async def test_freed_bytes_are_left_out_and_never_sent_as_nul(tmp_path: Path) -> None:
    """The job's `output.max` frees what is not shipped yet, between two polls and between two pieces of one poll. Each piece
    has the bytes of its offset, and the offsets show how many were dropped."""
    stdout, stderr = tmp_path / "stdout", tmp_path / "stderr"
    size, poll = 8 * POLL_BYTES_MAX, POLL_BYTES_MAX
    whole = os.urandom(size)
    stdout.write_bytes(whole)
    stderr.touch()
    pieces: list[OutputPiece] = []

    async def publish(subject: str, payload: bytes) -> None:
        piece = msgspec.json.decode(payload, type=OutputPiece)
        pieces.append(piece)
        if piece.offset == size - 4 * poll:
            cut_head(str(stdout), 2 * poll)

    shipper = OutputShipper("n1", publish)
    shipper.open(KEY, (str(stdout), str(stderr)))
    await shipper.poll()
    cut_head(str(stdout), 4 * poll)
    await shipper.poll()
    await shipper.ended(KEY)
    while not shipper.silent(KEY):
        await shipper.poll()
    assert all(piece.data == whole[piece.offset : piece.offset + len(piece.data)] for piece in pieces)
    assert sum(len(piece.data) for piece in pieces) == poll + PIECE_BYTES_MAX + 2 * poll
    assert pieces[-1].last and pieces[-1].offset + len(pieces[-1].data) == size
