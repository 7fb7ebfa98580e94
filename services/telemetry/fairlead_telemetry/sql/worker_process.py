"""Worker process from the service's side: a query goes in, its answer comes out. The process is interrupted on request, and
killed where it does not obey.

A frame is a 4-byte big-endian length and JSON, or the answer of `worker.py`. A worker serves one scope only, for its
whole life: a person who breaks the engine finds nothing of others in its memory.
"""

import asyncio
import os
import struct
import sys
from pathlib import Path
from typing import Any

import msgspec

from fairlead_schemas.queries.telemetry import SqlFormat

#: How much longer than its deadline, or than a cancel, a query may take to obey before the process is killed.
OBEY_S = 2.0
#: A process says that it is there within this; far more than it takes.
START_S = 60.0


class WorkerQuery(msgspec.Struct, tag="question"):
    """Query on one copy."""

    number: int
    path: str
    query: str
    limit: int
    deadline_s: float
    format: SqlFormat = "json"
    #: {principal: login name}, of this query alone.
    people: dict[str, str] = {}
    #: Rows of `start_estimates`, of this query alone.
    start_estimates: list[list[Any]] = []


class WorkerInterrupt(msgspec.Struct, tag="stop"):
    """Interrupt the question of this number, if it is still being answered."""

    number: int


class WorkerGone(Exception):
    """The process ended under the question."""


class WorkerProcess:
    """Worker process that is not started before its first query."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._worker: asyncio.subprocess.Process | None = None
        self._number = 0

    @property
    def pid(self) -> int | None:
        """PID of the running process; None where there is none."""
        return None if self._worker is None else self._worker.pid

    async def answer(
        self,
        path: Path,
        query: str,
        limit: int,
        deadline_s: float,
        form: SqlFormat,
        stopped: asyncio.Event,
        people: dict[str, str] | None = None,
        start_estimates: list[list[Any]] | None = None,
    ) -> bytes:
        """The worker's answer; `stopped` interrupts it. Raises TimeoutError where it does not obey, Gone where it ends."""
        self._number += 1
        question = WorkerQuery(
            self._number, str(path), query, limit, deadline_s, form, people or {}, start_estimates or []
        )
        stopping: asyncio.Task[None] | None = None
        try:
            worker = await self._started()
            stopping = asyncio.create_task(self._stop(stopped, worker, question.number))
            async with asyncio.timeout(deadline_s + OBEY_S):
                return await _exchange(worker, question)
        except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError) as error:
            await self.kill()
            raise WorkerGone from error
        except BaseException:  # half an answer may be in the pipe
            await self.kill()
            raise
        finally:
            if stopping is not None:
                stopping.cancel()

    async def kill(self) -> None:
        """End it at once."""
        worker, self._worker = self._worker, None
        if worker is not None and worker.returncode is None:
            worker.kill()
            await worker.wait()

    async def _stop(self, stopped: asyncio.Event, worker: asyncio.subprocess.Process, number: int) -> None:
        """Ask for the end, then enforce it; cancelled as soon as there is an answer."""
        await stopped.wait()
        _send(worker, WorkerInterrupt(number))
        await asyncio.sleep(OBEY_S)
        if worker.returncode is None:
            worker.kill()

    async def _started(self) -> asyncio.subprocess.Process:
        if self._worker is not None and self._worker.returncode is None:
            return self._worker
        self._worker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "fairlead_telemetry.sql.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=self._directory,
            env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        async with asyncio.timeout(START_S):
            await _receive(self._worker)
        return self._worker


async def _exchange(worker: asyncio.subprocess.Process, question: WorkerQuery) -> bytes:
    _send(worker, question)
    assert worker.stdin is not None
    await worker.stdin.drain()
    return await _receive(worker)


def _send(worker: asyncio.subprocess.Process, frame: WorkerQuery | WorkerInterrupt) -> None:
    assert worker.stdin is not None
    body = msgspec.json.encode(frame)
    worker.stdin.write(struct.pack(">I", len(body)) + body)


async def _receive(worker: asyncio.subprocess.Process) -> bytes:
    assert worker.stdout is not None
    (size,) = struct.unpack(">I", await worker.stdout.readexactly(4))
    return await worker.stdout.readexactly(size)
