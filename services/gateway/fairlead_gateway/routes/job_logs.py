"""GET /v1/jobs/{id}/logs: a job's output as text, streamed, whole and in order.

Pieces carry byte offsets per (rank, stream); the bus may have dropped old ones and may repeat or reorder. Missing
bytes are requested from the agent's own file; bytes that are lost for good are reported in a line of their own.
Start at `output_assembly.py` (pieces in, text out) and then `OutputReader`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, NamedTuple

import msgspec
from fastapi import Query, Request, Response
from starlette.responses import StreamingResponse

from fairlead_bus.port import Bus, LogDamaged, Stored, Tail, Unavailable
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.callers import Callers, caller_of
from fairlead_gateway.access.streams import end_of, while_allowed
from fairlead_gateway.access.targets import job_target
from fairlead_gateway.errors import bad_field, not_found
from fairlead_gateway.routes.output_assembly import OutputStream, StreamAssembly, split_tag, tagged_ranks
from fairlead_gateway.routes.query import retired_job
from fairlead_gateway.routes.router import Router, on_job
from fairlead_gateway.sources.job_waits import JobWaits
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import EndedAttempt, JobRow
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.lifecycle import END_STATES
from fairlead_schemas.wire.reports import OutputPiece, ReadOutput, encode

STREAMS = ("stdout", "stderr")
#: A hole is waited for this long before the agent is asked: pieces may come out of order.
HOLE_S = 0.5
AGENT_TIMEOUT_S = 2.0
#: Without news for this long, a follower looks whether the job has ended.
IDLE_S = 0.5
#: After the job's end, output that is still on its way gets this long.
AFTER_END_S = 1.5
#: Of a text's last lines.
TAIL_LINES_MAX, TAIL_BYTES_MAX = 10_000, 2**20
#: How often a follower looks whether the job has got its place, should nothing wake it.
PLACE_LOOK_S = 1.0
#: Reasons of an end or a requeue after an attempt that may have had no program.
_NEVER_BEGAN = frozenset({"start_failed", "retry", "preflight"})

_piece = msgspec.json.Decoder(OutputPiece)


class OutputSource(NamedTuple):
    """Run and lanes of the requested output."""

    job: str
    attempt: int
    #: Node of each rank.
    nodes: tuple[str, ...]
    lanes: tuple[OutputStream, ...]
    #: Lines carry their rank (output_assembly.py): only this rank's are wanted, or all.
    tagged: bool = False
    only: int | None = None
    #: Reason why the attempt ended before its program began; "": it began, or may still begin.
    failed_start: str = ""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Bus subjects of the run's output; output of other jobs shares them."""
        return subjects.outputs_of_job(self.job, (node for lane in self.lanes for node in self.nodes[lane.rank :][:1]))


class OutputReader:
    """Request for output: reads the stream, fills holes, prefixes lines of gangs with their rank."""

    def __init__(self, bus: Bus, views: Views, source: OutputSource, follow: JobWaits | None = None) -> None:
        """`follow`: wait with these for the run's end; None: only what there is now."""
        self._bus = bus
        self._views = views
        self._source = source
        self._follow = follow
        self._lanes = {lane: StreamAssembly() for lane in source.lanes}
        self._partial: dict[OutputStream, bytes] = {}
        #: Only the last lines are wanted.
        self._brief = False
        #: Since when each lane with a hole has had one.
        self._hole_since: dict[OutputStream, float] = {}
        #: True once a line has reported that output is kept no longer.
        self._told = False
        #: Nodes that did not answer, and of each of their ranks the first stream whose end was asked of them.
        self._silent: set[str] = set()
        self._cut: dict[int, OutputStream] = {}
        self._prefixed = len(source.nodes) > 1 and len({lane.rank for lane in source.lanes}) > 1

    async def text_with_notes(self, tail: int = 0) -> AsyncIterator[bytes]:
        """Yield the text, then the reason of a failed start, and a line for each node that has not answered: its output may
        continue there.
        """
        async for chunk in self.text(tail):
            yield chunk
        if reason := " ".join(self._source.failed_start.split()):
            yield f"[fairlead: attempt {self._source.attempt} never began: {reason}]\n".encode()
        for lane in self._cut.values():
            yield _silent(self._source, lane, self._lanes[lane].offset)

    async def text(self, tail: int = 0) -> AsyncIterator[bytes]:
        """The output; with `tail` so many last lines of what there is now; with follow then until every lane has ended."""
        if tail:
            follow, self._follow, self._brief = self._follow, None, True
            yield await last_lines(self.text(), tail)
            self._follow, self._brief = follow, False
            if follow is None:
                return
            self._silent.clear()
            self._cut.clear()
        async for chunk in self._from_stream():
            yield chunk
        async for chunk in self._all_rest():
            yield chunk
        for lane in self._source.lanes:
            if rest := self._partial.pop(lane, b""):
                yield self._line(lane.rank, rest)

    async def _from_stream(self) -> AsyncIterator[bytes]:
        until = None if self._follow else await self._newest()
        if until == 0:
            return
        tail = await self._tail()
        loop = asyncio.get_running_loop()
        waiting: asyncio.Task[list[Stored]] | None = None
        news_at, read = loop.time(), 0
        newest: int | None = None
        has_asked = False
        try:
            while not all(assembly.ended for assembly in self._lanes.values()):
                waiting = waiting or asyncio.create_task(tail.next())
                done = await self._wait(waiting, may_end=newest is None)
                if done:
                    finished, waiting = waiting, None
                    try:
                        stored = finished.result()
                    except LogDamaged:
                        # The stream went back, as it may: a crash loses its newest, and the agent sends again.
                        await tail.close()
                        tail = await self._tail()
                        continue
                    own = [chunk for one in stored if (chunk := self._take(one)) is not None]
                    news_at, read = loop.time() if own else news_at, stored[-1].sequence
                    if chunk := b"".join(own):
                        yield chunk
                    if until is not None and read >= until:
                        break
                if self._waits_too_long(loop.time()):
                    async for chunk in self._fill_holes():
                        yield chunk
                if self._follow and newest is None and self._has_ended():
                    newest = await self._newest()
                if newest is not None and not has_asked and read >= newest:
                    # The agent sends before it reports the end. Its file has what is not here, and says that nothing follows.
                    has_asked = True
                    async for chunk in self._all_rest():
                        yield chunk
                    continue
                idle_s = loop.time() - news_at
                if idle_s > AFTER_END_S and (until is not None or self._has_ended()):
                    break
        finally:
            if waiting is not None:
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await waiting
            await tail.close()

    async def _wait(self, waiting: asyncio.Task[list[Stored]], *, may_end: bool) -> bool:
        """Wait for output, for the end of a followed run if it `may_end`, or for IDLE_S. Return True for output."""
        if self._follow is None or not may_end:
            await asyncio.wait((waiting,), timeout=IDLE_S)
        else:
            with self._follow.awaited(self._has_ended) as end:
                await asyncio.wait((waiting, end), timeout=IDLE_S, return_when=asyncio.FIRST_COMPLETED)
        return waiting.done()

    def _waits_too_long(self, now: float) -> bool:
        """Return True if a hole has been there for HOLE_S, or too much is held behind one."""
        holes = {lane for lane, assembly in self._lanes.items() if assembly.hole is not None}
        self._hole_since = {lane: self._hole_since.get(lane, now) for lane in holes}
        overfull = any(self._lanes[lane].is_overfull for lane in holes)
        return overfull or any(now - since > HOLE_S for since in self._hole_since.values())

    async def _tail(self) -> Tail:
        return await self._bus.tail(subjects.OUTPUT, after=0, subject=self._source.subjects)

    async def _newest(self) -> int:
        """The newest sequence now under the subjects that have the job's output; 0 where the bus holds none."""
        newest = 0
        for subject in self._source.subjects:
            with contextlib.suppress(Unavailable):
                stored = await self._bus.last(subjects.OUTPUT, subject)
                newest = max(newest, stored.sequence if stored else 0)
        return newest

    def _take(self, stored: Stored) -> bytes | None:
        """Return the text that a message adds; None for a message of another run."""
        try:
            piece = _piece.decode(stored.payload)
        except msgspec.MsgspecError:
            return None
        source, rank = self._source, piece.rank
        if (piece.job, piece.attempt) != (source.job, source.attempt):
            return None
        if rank < 0 or subjects.node_of_output(stored.subject) not in source.nodes[rank : rank + 1]:
            return None  # a node may say what its own ranks have printed, and nothing for others
        lane = OutputStream(rank, piece.stream)
        assembly = self._lanes.get(lane)
        return self._dress(lane, assembly.add(piece)) if assembly is not None else b""

    async def _fill_holes(self) -> AsyncIterator[bytes]:
        for lane, assembly in self._lanes.items():
            if self._brief and assembly.hole is not None:
                assembly.skip_to(assembly.hole[1] - TAIL_BYTES_MAX)
            while (hole := assembly.hole) is not None:
                piece = await self._ask(lane, hole[0], hole[1] - hole[0])
                if piece is not None and piece.data and piece.offset < hole[1]:  # the head of its file may be gone
                    yield self._dress(lane, assembly.add(piece))
                else:
                    lost, rest = assembly.skip_hole()
                    yield self._dress(lane, self._missing(lane, lost) + rest)

    async def _all_rest(self) -> AsyncIterator[bytes]:
        async for chunk in self._fill_holes():
            yield chunk
        for lane in self._source.lanes:
            async for chunk in self._rest(lane):
                yield chunk

    async def _rest(self, lane: OutputStream) -> AsyncIterator[bytes]:
        """Yield the output that the bus never had, from the agent's file."""
        assembly = self._lanes[lane]
        while not assembly.ended:
            piece = await self._ask(lane, assembly.offset, 65536)
            if piece is not None and piece.gone:
                if not self._told and not self._source.failed_start:
                    yield _gone(self._source, lane, assembly.offset, piece.gone)
                self._told = True
                return
            if piece is None and self._is_silent(lane):
                self._cut.setdefault(lane.rank, lane)
            if piece is None or (not piece.data and not piece.last):
                return
            before = assembly.offset
            if chunk := self._dress(lane, assembly.add(piece)):
                yield chunk
            if assembly.hole is not None:  # its file begins later: its head is not kept
                lost, rest = assembly.skip_hole()
                yield self._dress(lane, self._missing(lane, lost) + rest)
            if assembly.offset == before and not assembly.ended:
                return

    def _missing(self, lane: OutputStream, lost: int) -> bytes:
        """Return the line that replaces bytes missing both on the bus and in the node's file."""
        missing = f"{lost} bytes of {lane.stream}"
        if self._is_silent(lane):
            return f"[fairlead: {missing} are missing: {self._source.nodes[lane.rank]}, which may have them, does not answer]\n".encode()
        return f"[fairlead: {missing} are gone]\n".encode()

    def _is_silent(self, lane: OutputStream) -> bool:
        return self._source.nodes[lane.rank] in self._silent

    async def _ask(self, lane: OutputStream, offset: int, size: int) -> OutputPiece | None:
        """A piece from the file of the rank's node; None where it gives none. A silent node is asked once."""
        if self._is_silent(lane):
            return None
        output_source = ReadOutput(
            job=self._source.job,
            attempt=self._source.attempt,
            rank=lane.rank,
            stream=lane.stream,
            offset=offset,
            bytes_max=min(size, 65536),
        )
        subject = subjects.rpc_node(self._source.nodes[lane.rank], "output")
        try:
            return _piece.decode(await self._bus.request(subject, encode(output_source), timeout_s=AGENT_TIMEOUT_S))
        except Unavailable:
            self._silent.add(self._source.nodes[lane.rank])
            return None
        except msgspec.MsgspecError:
            return None

    def _dress(self, lane: OutputStream, data: bytes) -> bytes:
        """Whole lines with their rank in front, for gangs and where one rank's are wanted; as it is for others."""
        if not data or not (self._prefixed or self._source.tagged):
            return data
        *lines, rest = (self._partial.get(lane, b"") + data).split(b"\n")
        self._partial[lane] = rest
        return b"".join(self._line(lane.rank, line) for line in lines)

    def _line(self, node_rank: int, line: bytes) -> bytes:
        """Return a line as it is shown; b"" for a line that was not requested."""
        if self._source.tagged:
            rank, rest = split_tag(line)
            if rank is not None and self._source.only in (None, rank):
                return b"[rank %d] %b\n" % (rank, rest)
            if rank is not None or self._source.only is not None:
                return b""
        return b"[%d] %b\n" % (node_rank, line) if self._prefixed else line + b"\n"

    def _has_ended(self) -> bool:
        row = self._views.jobs.rows.get(self._source.job)
        return row is None or row.state in END_STATES or row.attempt != self._source.attempt or row.run_ended


def _gone(source: OutputSource, lane: OutputStream, offset: int, why: str) -> bytes:
    what = f"nothing after byte {offset} of {lane.stream}" if offset else "no output of this attempt"
    return f"[fairlead: {source.nodes[lane.rank]} has {what}: {why}]\n".encode()


def _silent(source: OutputSource, lane: OutputStream, offset: int) -> bytes:
    since = f"after byte {offset} of {lane.stream}" if offset else "of this attempt"
    return f"[fairlead: {source.nodes[lane.rank]} does not answer: output {since} may be missing]\n".encode()


async def last_lines(text: AsyncIterator[bytes], count: int) -> bytes:
    """The last lines of a text, in bounded memory: of more than a megabyte, its last."""
    kept = b""
    async for chunk in text:
        kept += chunk
        if len(kept) > 2 * TAIL_BYTES_MAX:
            kept = kept[-TAIL_BYTES_MAX:]
    lines = kept[-TAIL_BYTES_MAX:].splitlines(keepends=True)
    return b"".join(lines[-count:])


def routes(views: Views, bus: Bus, callers: Callers, waits: JobWaits) -> Router:
    """GET /v1/jobs/{id}/logs."""
    router = Router()

    @router.read(
        "/v1/jobs/{job}/logs",
        "A job's output",
        right=on_job("job:read"),
        response_class=Response,
        responses={
            200: {
                "description": "Lines as they were printed",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            }
        },
    )
    async def get_job_logs(
        job: str,
        request: Request,
        follow: bool = False,
        rank: Annotated[int | None, Query(ge=0)] = None,
        stream: Annotated[
            str, Query(json_schema_extra={"enum": ["", *STREAMS]}, description="stdout or stderr; default both.")
        ] = "",
        attempt: Annotated[int | None, Query(ge=1)] = None,
        tail: Annotated[
            int, Query(ge=0, le=TAIL_LINES_MAX, description="Only so many last lines (and what follows).")
        ] = 0,
    ) -> Response:
        if stream and stream not in STREAMS:
            raise bad_field("stream", f'expected stdout or stderr, found "{stream[:20]}"')
        row = views.jobs.rows.get(job)
        headers = {"cache-control": "no-store"}
        if row is None:
            source = await retired_source(bus, job, rank, stream, attempt)
            text = OutputReader(bus, views, source, waits if follow else None).text_with_notes(tail)
        else:
            require_run(views, row, rank, attempt)
            text = _live(bus, views, row, _Asked(rank, stream, attempt, waits if follow else None, tail))
        caller = caller_of(request)
        if follow and not caller.is_open:
            text = while_allowed(text, end_of(callers, caller, lambda: _may_read(views, caller, job)), _last_line)
        return StreamingResponse(text, media_type="text/plain; charset=utf-8", headers=headers)

    return router


def _may_read(views: Views, caller: Caller, job: str) -> bool:
    """Return True while the caller may read the job. One that has left the views has ended, and so does its output soon."""
    row = views.jobs.rows.get(job)
    return row is None or caller.may("job:read", job_target(views, row))


def _last_line(reason: str) -> bytes:
    return f"[fairlead: this stream ended: {reason}]\n".encode()


class _Asked(NamedTuple):
    rank: int | None
    stream: str
    attempt: int | None
    follow: JobWaits | None
    tail: int


async def _live(bus: Bus, views: Views, row: JobRow, asked: _Asked) -> AsyncIterator[bytes]:
    """A known job's output. A follower of a job that still waits gets it once the job has a place; the wait is
    inside the answer, so that it ends when the client goes away."""
    attempt = asked.attempt
    earlier = attempt is not None and attempt != row.attempt

    def has_place() -> bool:
        return bool(earlier or row.parts or row.state in END_STATES or row.id not in views.jobs.rows)

    while asked.follow and not has_place():
        with asked.follow.awaited(has_place) as placed:
            await asyncio.wait((placed,), timeout=PLACE_LOOK_S)
    nodes = row.past.get(str(attempt), ()) if earlier else tuple(part.node for part in row.parts)
    tagged = None if earlier else _tagged(views, row)
    source = output_source(row.id, attempt or row.attempt, nodes, asked.rank, asked.stream, tagged is not None)
    source = source._replace(failed_start=failed_start(row, source.attempt))
    async for chunk in OutputReader(bus, views, source, asked.follow).text_with_notes(asked.tail):
        yield chunk


def failed_start(row: JobRow, attempt: int) -> str:
    """Return the reason why an ended attempt never began; "" for an attempt that began, or has not ended."""
    ended: JobRow | EndedAttempt | None = row if row.state == "failed" else None
    if attempt != row.attempt:
        ended = next((each for each in row.attempts if each.attempt == attempt), None)
    if ended is None or ended.started_ns or ended.reason not in _NEVER_BEGAN:
        return ""
    return ended.message if ended.exit_code is None and ended.signal is None else ""


def _tagged(views: Views, row: JobRow) -> int | None:
    """Return the number of ranks that tag the lines of the row's attempt; None where lines carry no tags."""
    return tagged_ranks(views.jobs.spec_of(row), row.parts, row.request.tasks)


def require_run(views: Views, row: JobRow, rank: int | None, attempt: int | None) -> None:
    """Raise HttpError for an array, and for an attempt or a rank that the job does not have."""
    if row.elements is not None:
        first = row.array[0] if row.array else 0
        raise bad_field("job", f"{row.id} is an array; ask for one element, such as {row.id}_{first}")
    if attempt is not None and attempt > row.attempt:
        raise not_found("attempt", str(attempt), hint=f"job {row.id} is in attempt {row.attempt}")
    ranks = (_tagged(views, row) if row.parts and attempt in (None, row.attempt) else None) or _ranks(row, attempt)
    if rank is not None and rank >= ranks:
        raise not_found("rank", str(rank), hint=f"job {row.id} has {ranks} rank{'' if ranks == 1 else 's'}")


def _ranks(row: JobRow, attempt: int | None) -> int:
    """Return the number of parts of the attempt's placement; before it is placed, the most that it may have."""
    if attempt is not None and attempt != row.attempt:
        return len(row.past.get(str(attempt), ())) or row.request.units
    return len(row.parts) or row.request.units


async def retired_source(bus: Bus, job: str, rank: int | None, stream: str, attempt: int | None) -> OutputSource:
    """Return where the output of a job is that has left the views. Raise HttpError."""
    document = msgspec.json.decode(await retired_job(bus, job))
    nodes = tuple(document.get("nodes") or ())
    if rank is not None and rank >= max(1, len(nodes)):
        raise not_found("rank", str(rank), hint=f"job {job} has {len(nodes)} rank{'' if len(nodes) == 1 else 's'}")
    last = document.get("attempt", 1)
    if attempt not in (None, last):
        raise not_found("attempt", str(attempt), hint=f"of a retired job the last attempt's output is found: {last}")
    detail = (document.get("reason") or {}).get("detail") or {}
    failed = document.get("message", "") if detail.get("reason") == "start_failed" else ""
    return output_source(job, last, nodes, rank, stream)._replace(failed_start=failed)


def output_source(
    job: str, attempt: int, nodes: tuple[str, ...], rank: int | None, stream: str, tagged: bool = False
) -> OutputSource:
    ranks = range(len(nodes)) if rank is None or tagged else (rank,)
    lanes = tuple(OutputStream(one, name) for one in ranks for name in ((stream,) if stream else STREAMS))
    return OutputSource(job, attempt, nodes, lanes, tagged, rank if tagged else None)
