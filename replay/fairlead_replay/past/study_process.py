"""A process that plays one study, as the asynchronous code around it sees it: lines in, lines out, and an end.

Threads read and write its pipes: they are closed when this says so, and not when an event loop finds the time. Start at `StudyProcess`.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from typing import Self

from fairlead_replay.whatif import worker

#: The process has its own environment: nothing of this one's keys.
ENVIRONMENT = (
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "COVERAGE_PROCESS_START",
)
#: Characters of its complaints that are kept.
COMPLAINT_CHARS = 2000


class StudyProcess:
    """Use `async with StudyProcess() as process`: it is gone behind that, whatever happens."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by __aexit__
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> Self:
        self._start()
        return self

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", worker.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        )
        self._reader = threading.Thread(target=self._read, name="study", daemon=True)
        self._reader.start()

    async def __aexit__(self, *_: object) -> None:
        self._process.kill()  # threads that read and write it end by that
        self._reader.join()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._complaints):
            with contextlib.suppress(OSError, ValueError):
                if pipe is not None:
                    pipe.close()

    def _read(self) -> None:
        out = self._process.stdout
        assert out is not None
        while line := out.readline(worker.LINE_BYTES_MAX):
            self._tell(line)
        self._tell(None)

    def _tell(self, line: bytes | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)

    async def words(self) -> AsyncIterator[worker.WorkerWord]:
        """Yield what it says, until it has ended. Raises msgspec.MsgspecError."""
        while (line := await self._lines.get()) is not None:
            yield worker.decode_word(line)

    async def write(self, data: bytes) -> bool:
        """Write to its input. False where it has ended."""
        return await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> bool:
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def close_input(self) -> None:
        """Let it end: it does so where its input closes."""
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    async def end(self) -> tuple[int, str]:
        """Return its exit code (negative: the signal) and its last complaints, once it has ended."""
        code = await asyncio.to_thread(self._process.wait)
        self._complaints.seek(0)
        return code, self._complaints.read()[-COMPLAINT_CHARS:].decode(errors="replace")
