"""`python -m fairlead_replay.whatif.worker`: one study in a process of its own, which can be bounded and ended.

It reaches no network and no file. On its standard input come a line with the order, the commits of the log as lines of an export,
and a line "end"; on its standard output go lines about how far it is, and one with the findings or with what was wrong. The input
stays open until whoever ordered has what it wants: where it closes, the process ends.

An order that needs more memory than it may have fails in words (`Refusal`), as does a wrong change, a damaged log, or a play that
cannot go on. Start at `main`.
"""

import os
import resource
import select
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from fairlead_bus.port import LogDamaged, Stored
from fairlead_replay.export import ExportError, decode_line
from fairlead_replay.whatif.documents import whole_document
from fairlead_replay.whatif.overlay import InvalidOverlay, read_overlay
from fairlead_replay.whatif.player import PlayStalled
from fairlead_replay.whatif.record import LogRecorder, LogWindow, WindowError
from fairlead_replay.whatif.study import run_study
from fairlead_schemas.units.validation import FieldError

#: Bytes below the bound of memory at which any failure is counted as one of memory.
BOUND_ROOM = 32 * 1024**2
#: Line that ends the commits.
END = b"end\n"
#: Commits between two words about the reading.
SAID_EVERY = 20_000
#: The work of people who wait for the cluster itself goes first.
NICENESS = 10
#: Bytes of one line of the output: a document.
LINE_BYTES_MAX = 64 * 1024**2


class StudyOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to play."""

    change: dict[str, Any]
    from_ns: int = 0
    to_ns: int = 0
    seeds: int = 0
    closed: bool = False
    grid_ns: int = 0
    #: Bytes of memory at most; 0: no bound.
    memory_bytes: int = 0


class StudyRefusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why there are no findings. `errors`: (field, message) of what was wrong with the order."""

    message: str
    errors: tuple[tuple[str, str], ...] = ()


class WorkerWord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a worker: how far it is, or its last word (`document` or `refusal`)."""

    state: Literal["reading", "playing", "enough", "over"] = "over"
    commits: int = 0
    done: int = 0
    plays: int = 0
    document: dict[str, Any] | None = None
    refusal: StudyRefusal | None = None


_order = msgspec.json.Decoder(StudyOrder)
_word = msgspec.json.Decoder(WorkerWord)
_encode = msgspec.json.Encoder().encode


def encode_order(order: StudyOrder) -> bytes:
    """Return the first line of a worker's input."""
    return _encode(order) + b"\n"


def decode_word(line: bytes) -> WorkerWord:
    """Return what a line of a worker's output says. Raises msgspec.MsgspecError."""
    return _word.decode(line)


class StudyWork:
    """The order as it is carried out. `say` gets each word."""

    def __init__(self, source: BinaryIO, out: BinaryIO) -> None:
        self._source, self._out = source, out
        self._order = _order.decode(source.readline())

    def _say(self, word: WorkerWord) -> None:
        self._out.write(_encode(word) + b"\n")
        self._out.flush()

    def carry_out(self) -> None:
        """Read, play, and say what was found or what was wrong."""
        if self._order.memory_bytes:
            bound_memory(self._order.memory_bytes)
        try:
            word = self._findings()
        except BaseException as error:
            unbound_memory()
            if not (is_at_bound(self._order.memory_bytes) or is_of_memory(error)):
                raise
            mib = self._order.memory_bytes // 1024**2
            word = refusal(f"it needs more than {mib} MiB of memory; choose a shorter window (FAIRLEAD_WHATIF_MAX_MIB)")
        self._say(word)

    def _findings(self) -> WorkerWord:
        order = self._order
        try:
            overlay = read_overlay(order.change)
            recorder, count = LogRecorder(LogWindow(order.from_ns, order.to_ns)), 0
            for stored in self._commits():
                if not recorder.take(stored):
                    self._say(WorkerWord(state="enough", commits=count))
                    break
                count += 1
                if count % SAID_EVERY == 0:
                    self._say(WorkerWord(state="reading", commits=count))
            recording = recorder.finish()
            self._say(WorkerWord(state="playing", commits=count, plays=2 + 2 * order.seeds))
            study = run_study(
                recording,
                overlay,
                seeds=order.seeds,
                closed=order.closed,
                grid_ns=order.grid_ns,
                progress=lambda done, plays: self._say(
                    WorkerWord(state="playing", commits=count, done=done, plays=plays)
                ),
            )
            return WorkerWord(document=whole_document(study))
        except InvalidOverlay as error:
            return refusal(
                str(error), [FieldError(field=f"change.{e.field}".rstrip("."), message=e.message) for e in error.errors]
            )
        except WindowError as error:
            field, _, message = str(error).partition(": ")
            return refusal(str(error), [FieldError(field=field, message=message)] if field in ("from", "to") else [])
        except PlayStalled as error:
            if is_of_memory(error):
                raise
            return refusal(f"cannot be played: {error}")
        except LogDamaged as error:
            return refusal(f"DAMAGED: {error}")
        except (ExportError, ValueError) as error:
            return refusal(str(error))

    def _commits(self) -> Iterator[Stored]:
        for line in iter(self._source.readline, b""):
            if line == END:
                return
            yield decode_line(line)
        raise SystemExit(3)  # whoever ordered has gone


def refusal(message: str, errors: list[FieldError] | None = None) -> WorkerWord:
    """Return the last word of a study without findings."""
    return WorkerWord(
        refusal=StudyRefusal(message=message, errors=tuple((each.field, each.message) for each in errors or ()))
    )


def bound_memory(most: int) -> None:
    """Let allocations beyond a number of bytes fail."""
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def unbound_memory() -> None:
    """Take the bound away, so that the failure can be put in words."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def is_at_bound(most: int) -> bool:
    """Return True where nearly all memory is used: libraries meet the bound with errors of any kind."""
    if not most:
        return False
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize() > most - BOUND_ROOM


def is_of_memory(error: BaseException | None) -> bool:
    """Return True if an error comes of a lack of memory: a core's state, or a play, may have been what met it."""
    while error is not None:
        if isinstance(error, MemoryError) or MemoryError.__name__ in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def leave_with_input() -> None:
    """End this process once whoever writes its input has gone, read or not."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)
    poll.poll()
    os._exit(3)


def main() -> None:
    """Carry out the order on the standard input."""
    os.nice(NICENESS)
    threading.Thread(target=leave_with_input, daemon=True).start()
    StudyWork(sys.stdin.buffer, sys.stdout.buffer).carry_out()


if __name__ == "__main__":
    main()
