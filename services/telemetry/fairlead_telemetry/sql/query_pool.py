"""Entry of people's queries: a bounded line, a worker for each, and answers or errors as JSON. Start at `Desk.ask`.

A worker serves callers of one scope only, and is kept a while for their next query.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import structlog

from fairlead_schemas.queries.telemetry import ROWS_MAX, SqlCancel, SqlRequest
from fairlead_telemetry.sql.copies import FRESH_S, WarehouseCopies
from fairlead_telemetry.sql.member_copy import MemberScope, scope_of
from fairlead_telemetry.sql.worker_process import OBEY_S, WorkerGone, WorkerProcess

DEADLINE_S = 10.0
WAITING_MAX = 16
#: Of these, one user's.
WAITING_OF_ONE_MAX = 8
#: Queries that run at the same time: the machine is shared with the services that decide.
AT_ONCE = 2
#: Workers that are kept for the next question.
IDLE_MAX = 4
#: A question that has waited longer is refused for that reason: its client has most likely gone.
WAIT_S = 15.0

log = structlog.get_logger("telemetry.sql")


class QueryPool:
    """Answers questions, two at a time."""

    def __init__(
        self,
        directory: Path,
        *,
        copy_to: Callable[[Path], Awaitable[None]],
        version: Callable[[], int],
        deadline_s: float = DEADLINE_S,
        fresh_s: float = FRESH_S,
        wait_s: float = WAIT_S,
    ) -> None:
        """`copy_to` writes a consistent copy of the warehouse; `version` tells whether it changed."""
        self._wait_s = wait_s
        self.copies = WarehouseCopies(directory, copy_to=copy_to, version=version, fresh_s=fresh_s)
        self.deadline_s = deadline_s
        self._turns = asyncio.Semaphore(AT_ONCE)
        #: Workers that do nothing, with their scope; the one that was used last behind.
        self._idle: list[tuple[MemberScope | None, WorkerProcess]] = []
        self._busy: set[WorkerProcess] = set()
        #: Users of questions that wait or are being answered.
        self._line: list[str] = []
        #: {(user, id): set when it is to end}
        self._stops: dict[tuple[str, str], asyncio.Event] = {}

    @property
    def pids(self) -> list[int]:
        """Processes that work at a query now."""
        return [worker.pid for worker in self._busy if worker.pid is not None]

    async def ask(self, request: bytes) -> bytes:
        """The answer to the JSON of a SqlRequest, in the form that it asks for, or an error."""
        try:
            question = msgspec.json.decode(request, type=SqlRequest)
        except msgspec.MsgspecError as error:
            return _error("bad_request", str(error), 'send {"caller": {…}, "query": "SELECT …", "limit": 100}')
        if refusal := self._refusal(question):
            return refusal
        user, stopped = question.caller.user, asyncio.Event()
        self._line.append(user)
        if question.id:
            self._stops[user, question.id] = stopped
        try:
            return await self._in_turn(question, stopped)
        finally:
            self._line.remove(user)
            self._stops.pop((user, question.id), None)

    async def cancel(self, request: bytes) -> bytes:
        """End a question by its id; {"cancelled": whether there was one}."""
        try:
            question = msgspec.json.decode(request, type=SqlCancel)
        except msgspec.MsgspecError as error:
            return _error("bad_request", str(error), 'send {"caller": {…}, "id": "…"}')
        found = [
            stop
            for (user, name), stop in self._stops.items()
            if name == question.id and (user == question.caller.user or question.caller.role == "admin")
        ]
        for stop in found:
            stop.set()
        return msgspec.json.encode({"cancelled": bool(found)})

    async def close(self) -> None:
        """End the workers and remove the copies."""
        for stop in self._stops.values():
            stop.set()
        async with self._all_turns():
            for _, worker in self._idle:
                await worker.kill()
            self._idle.clear()
            self.copies.close()

    def _refusal(self, question: SqlRequest) -> bytes:
        """Return the reason, as an answer, for which the query is not taken up at all; b"" where it is taken up."""
        wanted = question.timeout_s
        if wanted is not None and not 0 < wanted <= self.deadline_s:
            message = f"timeout_s: expected more than 0 and at most {self.deadline_s:g} seconds, found {wanted:g}"
            return _error("bad_request", message, "FAIRLEAD_SQL_DEADLINE_S sets the most")
        if question.limit < 0:
            return _error("bad_request", f"limit: expected at least 0 rows, found {question.limit}", "")
        if question.id and (question.caller.user, question.id) in self._stops:
            return _error(
                "bad_request", f"id: a query {question.id[:80]!r} of yours is being answered", "choose another"
            )
        if len(self._line) >= WAITING_MAX:
            return _error("busy", f"{WAITING_MAX} queries are waiting already", "try again in a moment")
        if self._line.count(question.caller.user) >= WAITING_OF_ONE_MAX:
            return _error(
                "busy", f"{WAITING_OF_ONE_MAX} queries of yours are waiting already", "wait for their answers"
            )
        return b""

    async def _in_turn(self, question: SqlRequest, stopped: asyncio.Event) -> bytes:
        came = time.monotonic()
        async with self._turns:
            if stopped.is_set():
                return _error("cancelled", "stopped as asked", "")
            if time.monotonic() - came > self._wait_s:
                return _error("busy", f"others' queries took more than {self._wait_s:g} s", "try again in a moment")
            return await self._answer(question, stopped)

    async def _answer(self, question: SqlRequest, stopped: asyncio.Event) -> bytes:
        scope = scope_of(question.caller)
        path = await self.copies.fresh(scope)
        limit = min(question.limit, ROWS_MAX)
        deadline_s = self.deadline_s if question.timeout_s is None else question.timeout_s
        fields: dict[str, Any] = {"user": question.caller.user, "query": question.query[:500]}
        async with self._worker(scope) as worker:
            try:
                return await worker.answer(
                    path,
                    question.query,
                    limit,
                    deadline_s,
                    question.format,
                    stopped,
                    question.people,
                    question.start_estimates,
                )
            except TimeoutError:
                log.warning("sql_worker_killed", **fields)
                return _error("deadline", f"killed after {deadline_s + OBEY_S:g} s", "filter by time or sequence")
            except WorkerGone:
                if stopped.is_set():
                    return _error("cancelled", "stopped as asked", "")
                log.warning("sql_worker_died", **fields)
                return _error("worker_died", "the query ended the process that ran it", "ask for less at once")

    @asynccontextmanager
    async def _worker(self, scope: MemberScope | None) -> AsyncIterator[WorkerProcess]:
        """Yield a worker that served this scope before, or a new one."""
        at = next((i for i, (served, _) in enumerate(self._idle) if served == scope), None)
        worker = WorkerProcess(self.copies.folder) if at is None else self._idle.pop(at)[1]
        self._busy.add(worker)
        try:
            yield worker
        finally:
            self._busy.remove(worker)
            self._idle.append((scope, worker))
            while len(self._idle) > IDLE_MAX:
                await self._idle.pop(0)[1].kill()

    @asynccontextmanager
    async def _all_turns(self) -> AsyncIterator[None]:
        for _ in range(AT_ONCE):
            await self._turns.acquire()
        try:
            yield
        finally:
            for _ in range(AT_ONCE):
                self._turns.release()


def _error(code: str, message: str, hint: str) -> bytes:
    return msgspec.json.encode({"error": {"code": code, "message": message, "hint": hint}})
