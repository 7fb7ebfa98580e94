"""People's SQL: keeps a fresh enough copy of the warehouse and one obedient worker process.

Owns the copies, the worker's life and the queue of questions in front of it. What may be asked is
decided in `sql_gate.py`, how it is run in `sql_worker.py`. Start at `Sql.ask`.
"""

import asyncio
import os
import shutil
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import structlog

ROWS_MAX = 10_000
DEADLINE_S = 10.0
#: How much longer than its deadline a query may take to obey its interruption before the process is killed.
OBEY_S = 2.0
WAITING_MAX = 16
#: Who has waited longer is told so instead: whoever asked has most likely gone.
WAIT_S = 15.0
#: A copy is made anew when it is older than this, the warehouse has moved on, and copying stays under a 20th of all time.
FRESH_S = 1.0
COPY_SHARE = 20

log = structlog.get_logger("telemetry.sql")


class SqlRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What rpc("telemetry", "sql") takes."""

    query: str
    limit: int = ROWS_MAX


class Sql:
    """Answers questions one at a time."""

    def __init__(
        self,
        directory: Path,
        *,
        copy_to: Callable[[Path], Awaitable[None]],
        version: Callable[[], int],
        deadline_s: float = DEADLINE_S,
        fresh_s: float = FRESH_S,
    ) -> None:
        """`copy_to` writes a consistent copy of the warehouse; `version` tells whether it changed."""
        self._directory = directory / "copies"
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        self._copy_to = copy_to
        self._version = version
        self._deadline_s = deadline_s
        self._fresh_s = fresh_s
        self._copy: Path | None = None
        self._copied_version = 0
        self._copied_at = 0.0
        self._copying_s = 0.0
        self._copies = 0
        self._worker: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def ask(self, request: bytes) -> bytes:
        """The JSON answer to the JSON of a SqlRequest: rows and the sequence they are true for, or an error."""
        try:
            asked = msgspec.json.decode(request, type=SqlRequest)
        except msgspec.MsgspecError as error:
            return _error("bad_request", str(error), 'send {"query": "SELECT …", "limit": 100}')
        if self._waiting >= WAITING_MAX:
            return _error("busy", f"{WAITING_MAX} queries are waiting already", "try again in a moment")
        self._waiting += 1
        came = time.monotonic()
        try:
            async with self._turn:
                if time.monotonic() - came > WAIT_S:
                    return _error("busy", f"others' queries took more than {WAIT_S:g} s", "try again in a moment")
                return await self._answer(asked)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End the worker and remove the copies."""
        async with self._turn:
            await self._kill()
            shutil.rmtree(self._directory, ignore_errors=True)

    async def _answer(self, asked: SqlRequest) -> bytes:
        path = await self._fresh_copy()
        limit = min(max(asked.limit, 0), ROWS_MAX)
        question = {"path": str(path), "query": asked.query, "limit": limit, "deadline_s": self._deadline_s}
        try:
            async with asyncio.timeout(self._deadline_s + OBEY_S):
                return await self._exchange(msgspec.json.encode(question))
        except TimeoutError:
            await self._kill()
            log.warning("sql_worker_killed", query=asked.query[:500])
            return _error("deadline", f"killed after {self._deadline_s + OBEY_S:g} s", "filter by time or sequence")
        except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError):
            await self._kill()
            log.warning("sql_worker_died", query=asked.query[:500])
            return _error("worker_died", "the query ended the process that ran it", "ask for less at once")
        except asyncio.CancelledError:
            await self._kill()  # half an answer may be in the pipe
            raise

    async def _fresh_copy(self) -> Path:
        """The newest copy, made anew when it is stale."""
        age_s, version = time.monotonic() - self._copied_at, self._version()
        old = self._copy
        if old is not None and (
            version == self._copied_version or age_s < max(self._fresh_s, COPY_SHARE * self._copying_s)
        ):
            return old
        self._copies += 1
        # The file's name is the database's name in SHOW DATABASES; the folder tells copies apart.
        copy = self._directory / str(self._copies) / "warehouse.duckdb"
        copy.parent.mkdir()
        started = time.monotonic()
        try:
            await self._copy_to(copy)
        except BaseException:
            shutil.rmtree(copy.parent, ignore_errors=True)  # a full disk must not fill further
            raise
        self._copied_at = time.monotonic()
        self._copying_s = self._copied_at - started
        self._copy, self._copied_version = copy, version
        if old is not None:  # the worker may still have it open, and lets go at the next question
            shutil.rmtree(old.parent, ignore_errors=True)
        log.debug("warehouse_copied", version=version, bytes=copy.stat().st_size, ms=round(self._copying_s * 1000, 1))
        return copy

    async def _exchange(self, question: bytes) -> bytes:
        if self._worker is None or self._worker.returncode is not None:
            self._worker = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "fairlead_telemetry.sql_worker",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                cwd=self._directory, env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )  # fmt: skip
        stdin, stdout = self._worker.stdin, self._worker.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(struct.pack(">I", len(question)) + question)
        await stdin.drain()
        (size,) = struct.unpack(">I", await stdout.readexactly(4))
        return await stdout.readexactly(size)

    async def _kill(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None and worker.returncode is None:
            worker.kill()
            await worker.wait()


def _error(code: str, message: str, hint: str) -> bytes:
    return msgspec.json.encode({"error": {"code": code, "message": message, "hint": hint}})
