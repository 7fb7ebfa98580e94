"""The estimator: a process that is sent the log on stdin and answers questions on stdout, one after the other.

It has no connection, no clock and no file: what it says follows from what it was sent. Its priority is below that of every
service. Frames are in `frames.py`.
"""

import contextlib
import os
import resource
import sys
from typing import BinaryIO

import msgspec

from fairlead_replay.estimates.answers import ledger_answer, start_answer
from fairlead_replay.estimates.core import EstimatorCore
from fairlead_replay.estimates.frames import Ask, Commits, Dump, Frame, Restore, read_frame, write_answer
from fairlead_schemas.queries import estimates as q
from fairlead_schemas.wire.commit import decode_commit

NICENESS = 10
#: Address space that it may take.
MEMORY_MAX = 6 * 1024**3


class Worker:
    """State of the process."""

    def __init__(self) -> None:
        self._core = EstimatorCore()

    def take(self, frame: Frame) -> bytes | None:
        """Do what a frame says; the answer to a question."""
        match frame:
            case Commits():
                for sequence, payload in frame.commits:
                    self._core.evolve(sequence, decode_commit(payload))
                return None
            case Restore():
                return self._restore(frame.state)
            case Dump():
                return self._core.dump()
            case Ask():
                return q.encode(self._answer(frame.question))

    def _restore(self, state: bytes) -> bytes:
        try:
            self._core = EstimatorCore.load(state)
        except Exception:  # noqa: BLE001 -- whatever the bytes of another version make of the decoder: the log is folded anew
            self._core = EstimatorCore()
        return str(self._core.sequence).encode()

    def _answer(self, payload: bytes) -> q.EstimatesAnswer:
        core = self._core
        try:
            ask = q.decode_ask(payload)
        except msgspec.MsgspecError as error:
            return q.EstimatesAnswer(error="invalid", message=str(error))
        try:
            return start_answer(core, ask) if isinstance(ask, q.AskStart) else ledger_answer(core, ask)
        except Exception as error:  # noqa: BLE001 -- one question that no core can play must not take the others with it
            message = f"{type(error).__name__}: {str(error)[:200]}"
            return q.EstimatesAnswer(sequence=core.sequence, error="failed", message=message)


def main(source: BinaryIO, sink: BinaryIO) -> None:
    """Serve until the other side closes."""
    worker = Worker()
    while (frame := read_frame(source)) is not None:
        answer = worker.take(frame)
        if answer is not None:
            write_answer(sink, answer)


if __name__ == "__main__":
    os.nice(NICENESS)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    main(sys.stdin.buffer, sys.stdout.buffer)
