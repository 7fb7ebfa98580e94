"""GET /v1/jobs/{job}/files and GET /v1/jobs/{job}/archive: files of a run's own directory, and its kept outputs, from its node.

The node's agent answers, a directory or a part of a file at a time; it follows no link and reads nothing else. An archive is made here
as it is sent, so its size is not known before. What cannot be read is left out, and named in its last member: a broken
archive would cost the rest. Start at `Archive.members`.
"""

import asyncio
import posixpath
import tarfile
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, NamedTuple

import msgspec
from fastapi import Query, Request, Response
from starlette.responses import StreamingResponse

from fairlead_bus.port import Bus, Unavailable
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.callers import Callers, caller_of
from fairlead_gateway.access.streams import end_of, while_allowed
from fairlead_gateway.access.targets import job_target
from fairlead_gateway.errors import HttpError, bad_field, not_found
from fairlead_gateway.http_messages import JsonResponse
from fairlead_gateway.routes.job_logs import require_run, retired_source
from fairlead_gateway.routes.router import Router, on_job
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http.api import RunDirectory, RunFile
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339
from fairlead_schemas.wire import subjects, trees
from fairlead_schemas.wire.run_files import CHUNK_BYTES_MAX, FileEntry, ReadFiles, RunFiles, decode_files, encode

AGENT_TIMEOUT_S = 10.0
#: Parts of one file that are asked for at once.
ASKED_AT_ONCE = 4
#: Last member of an archive that is not whole: a line for each thing that is missing.
ERRORS_MEMBER = ".fairlead-errors"
ERRORS_MAX = 100
DEPTH_MAX = 64
MEMBERS_MAX = 500_000
#: Zeros in place of what a file has lost while it was read. Beyond, the archive ends without its end.
ZEROS_MAX = 64 * 2**20
#: The end of the year 9999.
_SECONDS_MAX = 253_402_300_799
OUTPUTS_PATH = "/"

Path = Annotated[
    str,
    Query(
        max_length=trees.PATH_BYTES_MAX,
        description="Relative to the run's own directory; none: all of it; / for the kept outputs, NAME or NAME/PATH within one.",
    ),
]
Rank = Annotated[int, Query(ge=0)]
Attempt = Annotated[int | None, Query(ge=1, description="None: the newest.")]


class RunPlace(NamedTuple):
    """Rank of a run, and its node."""

    job: str
    attempt: int
    rank: int
    node: str


class NodeFiles:
    """Files of one rank, as its node's agent shows them."""

    def __init__(self, bus: Bus, place: RunPlace) -> None:
        self._bus, self.place = bus, place

    async def ask(self, path: str, *, after: str = "", offset: int = 0, bytes_max: int = CHUNK_BYTES_MAX) -> RunFiles:
        """Return the agent's answer. Raises Unavailable."""
        place = self.place
        question = ReadFiles(
            job=place.job,
            attempt=place.attempt,
            rank=place.rank,
            path=path,
            after=after,
            offset=offset,
            bytes_max=bytes_max,
        )
        subject = subjects.rpc_node(place.node, "files")
        try:
            return decode_files(await self._bus.request(subject, encode(question), timeout_s=AGENT_TIMEOUT_S))
        except msgspec.MsgspecError as error:
            raise Unavailable(f"{place.node} answers in another way: {error}") from error

    async def look(self, path: str, *, after: str = "", bytes_max: int = 0) -> tuple[RunFiles, FileEntry]:
        """Return the answer, and what is at the path. Raise HttpError (404, 422, 503)."""
        try:
            found = await self.ask(path, after=after, bytes_max=bytes_max)
        except Unavailable:
            node = self.place.node
            raise HttpError(503, "node_silent", f"{node} does not answer", hint=f"fairlead nodes {node}") from None
        if found.absent:
            place = self.place
            detail = f"job {place.job}, attempt {place.attempt}, rank {place.rank}: {found.error}"
            raise HttpError(404, "unknown_file", detail, hint=f"fairlead cp {place.job}: lists what is there")
        if found.error or found.entry is None:
            raise bad_field("path", found.error or "the node's agent names nothing there")
        return found, found.entry


class _Broken(Exception):
    """The archive cannot be continued."""


class Archive:
    """A tar archive of what is at a path, made as it is read."""

    def __init__(self, files: NodeFiles, path: str, entry: FileEntry) -> None:
        self._files, self._path, self._entry = files, path, entry
        self._errors: list[str] = []
        self._count = 0

    async def members(self) -> AsyncIterator[bytes]:
        """Yield the archive. Names within it begin with the last name of the path; of a whole directory, with the names in it."""
        top = posixpath.basename(self._path)
        waiting = [(self._path, top, self._entry)]
        try:
            while waiting:
                path, name, entry = waiting.pop()
                if name:
                    async for chunk in self._member(path, name, entry):
                        yield chunk
                self._count += 1
                if self._count > MEMBERS_MAX:
                    self._missing(f"there are more than {MEMBERS_MAX} files")
                    break
                if entry.kind == "directory":
                    waiting += reversed([each async for each in self._below(path, name)])
        except _Broken:
            return
        except Unavailable:
            self._missing(f"{self._files.place.node} does not answer any more")
        if self._errors:
            text = "".join(f"{line}\n" for line in self._errors).encode()
            info = tarfile.TarInfo(ERRORS_MEMBER)
            info.size = len(text)
            yield _header(info) + text + _padding(len(text))
        yield bytes(2 * tarfile.BLOCKSIZE)

    async def _below(self, path: str, name: str) -> AsyncIterator[tuple[str, str, FileEntry]]:
        after = ""
        if name.count("/") >= DEPTH_MAX:
            self._missing(f"{name}: its directories are more than {DEPTH_MAX} deep")
            return
        while True:
            found = await self._files.ask(path, after=after)
            if found.error:
                self._missing(f"{name or path}: {found.error}")
                return
            before = after
            for entry in found.entries:
                if after and entry.name <= after:
                    continue  # a node that says the same again would never come to an end
                if "/" in entry.name or trees.path_fault(entry.name):
                    self._missing(f"{name or path}: a name that cannot be a file's: {entry.name[:80]!r}")
                    continue
                below = entry.name if path in ("", OUTPUTS_PATH) else f"{path}/{entry.name}"
                yield below, f"{name}/{entry.name}" if name else entry.name, entry
                after = entry.name
            if not found.more or after == before:
                return

    async def _member(self, path: str, name: str, entry: FileEntry) -> AsyncIterator[bytes]:
        info = tarfile.TarInfo(name)
        info.mtime = min(max(0, entry.modified_ns // SECOND_NS), _SECONDS_MAX)
        match entry.kind:
            case "directory":
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                yield _header(info)
            case "link":
                info.type, info.linkname = tarfile.SYMTYPE, entry.target
                yield _header(info)
            case "file":
                info.mode = 0o755 if entry.executable else 0o644
                async for chunk in self._file(path, info):
                    yield chunk
            case _:
                self._missing(f"{name}: neither a file nor a directory or link")

    async def _file(self, path: str, info: tarfile.TarInfo) -> AsyncIterator[bytes]:
        """Yield a file as long as it was when its first part was read; a file that grows meanwhile is cut there."""
        first = await self._files.ask(path)
        if first.error or first.entry is None or first.entry.kind != "file":
            self._missing(f"{info.name}: {first.error or 'it is another thing now'}")
            return
        info.size = first.entry.size
        yield _header(info)
        sent = 0
        async for data in self._parts(path, first.data, info.size):
            sent += len(data)
            yield data
        if info.size - sent > ZEROS_MAX:
            raise _Broken
        if sent < info.size:
            self._missing(f"{info.name}: became shorter while it was read; zeros follow {sent} bytes")
        for count in _steps(info.size - sent):
            yield bytes(count)
        yield _padding(info.size)

    async def _parts(self, path: str, first: bytes, size: int) -> AsyncIterator[bytes]:
        """Yield the parts of a file up to its size, or to the first that is shorter than it should be."""
        yield first[:size]
        if len(first) < min(size, CHUNK_BYTES_MAX):
            return
        offsets = iter(range(CHUNK_BYTES_MAX, size, CHUNK_BYTES_MAX))
        asked: list[tuple[int, asyncio.Task[RunFiles]]] = []
        try:
            while True:
                while len(asked) < ASKED_AT_ONCE and (offset := next(offsets, None)) is not None:
                    asked.append((offset, asyncio.ensure_future(self._files.ask(path, offset=offset))))
                if not asked:
                    return
                offset, task = asked.pop(0)
                wanted = min(CHUNK_BYTES_MAX, size - offset)
                data = (await task).data[:wanted]
                yield data
                if len(data) < wanted:
                    return
        finally:
            for _, task in asked:
                task.cancel()
            await asyncio.gather(*(task for _, task in asked), return_exceptions=True)

    def _missing(self, line: str) -> None:
        if len(self._errors) < ERRORS_MAX:
            self._errors.append(line)


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


def _steps(count: int) -> Iterator[int]:
    while count > 0:
        yield min(count, CHUNK_BYTES_MAX)
        count -= CHUNK_BYTES_MAX


async def _place(views: Views, bus: Bus, job: str, rank: int, attempt: int | None) -> RunPlace:
    """Return where a rank of a job is or was. Raise HttpError."""
    row = views.jobs.rows.get(job)
    if row is None:
        source = await retired_source(bus, job, rank, "stdout", attempt)
        nodes, found = source.nodes, source.attempt
    else:
        require_run(views, row, rank, attempt)
        earlier = attempt is not None and attempt != row.attempt
        nodes = row.past.get(str(attempt), ()) if earlier else tuple(part.node for part in row.parts)
        found = attempt or row.attempt
    if not nodes:
        raise HttpError(409, "not_started", f"job {job} has no files: it has not started", hint=f"fairlead why {job}")
    if rank >= len(nodes):
        raise not_found("rank", str(rank), hint=f"job {job} has files on {len(nodes)} nodes, from rank 0 on")
    return RunPlace(job, found, rank, nodes[rank])


def routes(views: Views, bus: Bus, callers: Callers) -> Router:
    """Return both routes."""
    router = Router()

    @router.read(
        "/v1/jobs/{job}/files",
        "What is at a path of a job's own directory, or its kept outputs",
        RunDirectory,
        right=on_job("job:read"),
    )
    async def get_job_files(
        job: str, path: Path = "", rank: Rank = 0, attempt: Attempt = None, after: Annotated[str, Query()] = ""
    ) -> Response:
        files = NodeFiles(bus, await _place(views, bus, job, rank, attempt))
        found, entry = await files.look(path, after=after)
        document = RunDirectory(
            job=job,
            attempt=files.place.attempt,
            rank=rank,
            node=files.place.node,
            path=path,
            entry=_shown(entry),
            entries=[_shown(each) for each in found.entries],
            next=found.entries[-1].name if found.more and found.entries else None,
            sequence=views.sequence,
        )
        return JsonResponse(document)

    @router.read(
        "/v1/jobs/{job}/archive",
        "What is at a path of a job's own directory, or its kept outputs, as a tar archive",
        right=on_job("job:read"),
        response_class=Response,
        responses={
            200: {
                "description": f"A tar archive; its last member is {ERRORS_MEMBER} if something could not be read",
                "content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}},
            }
        },
    )
    async def get_job_archive(
        job: str, request: Request, path: Path = "", rank: Rank = 0, attempt: Attempt = None
    ) -> Response:
        files = NodeFiles(bus, await _place(views, bus, job, rank, attempt))
        _, entry = await files.look(path)
        members = Archive(files, path, entry).members()
        caller = caller_of(request)
        if not caller.is_open:
            members = while_allowed(members, end_of(callers, caller, lambda: _may_read(views, caller, job)), _nothing)
        return StreamingResponse(members, media_type="application/x-tar", headers={"cache-control": "no-store"})

    return router


def _may_read(views: Views, caller: Caller, job: str) -> bool:
    row = views.jobs.rows.get(job)
    return row is None or caller.may("job:read", job_target(views, row))


def _nothing(_: str) -> bytes:
    """An archive that ends early has no end: its reader notices."""
    return b""


def _shown(entry: FileEntry) -> RunFile:
    return RunFile(
        name=entry.name,
        kind=entry.kind,
        size=entry.size,
        modified_at=rfc3339(entry.modified_ns) if 0 < entry.modified_ns < _SECONDS_MAX * SECOND_NS else None,
        executable=entry.executable,
        target=entry.target,
    )
