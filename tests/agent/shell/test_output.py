"""Output goes out once and in order, whatever asks for it at the same time."""

import asyncio
from pathlib import Path

import msgspec

from fairlead_agent.core.runs import RunKey
from fairlead_agent.shell.output import OutputShipper
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
    shipper.open(KEY, (stdout, stderr))
    poll = asyncio.ensure_future(shipper.poll())
    await asyncio.sleep(0)
    stdout.write_bytes(b"one\ntwo\n")
    end = asyncio.ensure_future(shipper.ended(KEY))
    await asyncio.sleep(0.01)
    gate.set()
    await asyncio.gather(poll, end)
    assert [(piece.offset, piece.data, piece.last) for piece in pieces] == [(0, b"one\n", False), (4, b"two\n", True)]
