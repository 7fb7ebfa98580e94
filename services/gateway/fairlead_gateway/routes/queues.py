"""Changes of queues and pools: a whole file, one queue's settings, the end of a queue. Each is one `ApplyQueues`.

The gateway checks what a file says by itself (`fairlead_schemas.queuefile.parse`); what needs the present tree the queue
service does, and refuses the whole change with one line per mistake, "<path>: <what>".

The explainer's answers on a pool: which runs would be moved so that big jobs start, and how the pool is packed, now
or at a past moment. Read-only.
"""

import re
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response

from fairlead_gateway.command_results import CommandPublisher
from fairlead_gateway.errors import HttpError, bad_parameter, invalid, not_found, rejected
from fairlead_gateway.http_messages import read_head
from fairlead_gateway.routes.command_client import CommandClient, body_schema, encode_command, read_json
from fairlead_gateway.routes.query import At, JsonResponse, answers_with
from fairlead_gateway.sources.historical_views import HistoricalViews
from fairlead_gateway.sources.service_queries import ExplainerClient
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queue_documents import queue_document, queue_documents
from fairlead_gateway.views.rows import OutcomeRow
from fairlead_schemas.http.api import QueueFileResult
from fairlead_schemas.queries.explainer import Ask, AskDefrag, AskPacking, ExplainerAnswer
from fairlead_schemas.queuefile.parse import InvalidQueues, read_queue_file, read_settings
from fairlead_schemas.queuefile.settings import QueueEntry, QueueRemoval
from fairlead_schemas.units.ids import is_queue_path
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.units.validation import FieldError, decode_object, field_error
from fairlead_schemas.wire.commands import MESSAGE_BYTES_MAX, ApplyQueues

FILE_BYTES_MAX = 512 * 1024
#: Mistakes that one answer names.
ERRORS_MAX = 100
HINT = "GET /v1/schemas/queues shows the fields of a queue file"

_LINE = re.compile(r"((?:queues|pools)\.\S*): (.+)\Z")


def queue_refusal(outcome: OutcomeRow) -> HttpError:
    """The answer to a change that the queue service refused: 404 and 409 as of any verb; with its lines 409 where only jobs
    of a queue are in the way, else 422."""
    conflict = outcome.code == "conflict"
    if outcome.code == "not_found" or (conflict and not _LINE.match(outcome.message)):
        return rejected(outcome.code, outcome.message, submit=False)
    lines = [line for line in outcome.message.splitlines() if line.strip()]
    errors = [_error(line) for line in lines]
    detail = lines[0] if len(lines) == 1 else f"{len(lines)} mistakes; nothing was changed"
    return HttpError(409 if conflict else 422, outcome.code, detail, errors=errors)


def _error(line: str) -> FieldError:
    """A line of the queue service: a path of the queue file, and what is wrong there."""
    found = _LINE.match(line)
    if found is None:
        return FieldError(field="", message=line)
    return FieldError(field=found[1], message=found[2])


class QueueRoutes:
    """Sends changes to the queue service."""

    def __init__(self, views: Views, gate: CommandPublisher, asking: CommandClient) -> None:
        self._views = views
        self._gate = gate
        self._asking = asking

    async def apply(self, request: Request, *, prune: bool, reclaim: bool) -> Response:
        """All of a queue file, or nothing of it."""
        head = read_head(request.scope["headers"])
        body = await read_json(request, FILE_BYTES_MAX)
        try:
            file = read_queue_file(_decode(body))
        except InvalidQueues as error:
            raise _invalid(error) from None
        wish = body.decode("latin-1"), "prune" if prune else "", "reclaim" if reclaim else ""
        command = ApplyQueues(
            id=self._asking.command_id(self._gate, head, "apply", *wish),
            user=head.user,
            pools=file.pools,
            queues=file.queues,
            prune=prune,
            reclaim=reclaim,
        )
        outcome = await self._send(command)
        if outcome is None:
            return self._asking.undecided(command)
        rows = [row for entry in file.queues if (row := self._views.queues.rows.get(entry.path)) and row.exists]
        configured, removed, unchanged = outcome.applied or (0, 0, 0)
        return JsonResponse(
            QueueFileResult(
                configured=configured,
                removed=removed,
                unchanged=unchanged,
                items=queue_documents(self._views, rows),
                sequence=self._views.sequence,
            )
        )

    async def put(self, request: Request, path: str) -> Response:
        """Create one queue or replace its settings."""
        head = read_head(request.scope["headers"])
        if not is_queue_path(path):
            told = f'expected names of a-z 0-9 _ - joined by "/", found "{path[:80]}"'
            raise invalid([FieldError(field="path", message=told)])
        body = await read_json(request)
        try:
            settings = read_settings(_decode(body), path)
        except InvalidQueues as error:
            raise _invalid(error) from None
        command = ApplyQueues(
            id=self._asking.command_id(self._gate, head, "put", path, body.decode("latin-1")),
            user=head.user,
            queues=(QueueEntry(path=path, settings=settings),),
        )
        row = self._views.queues.rows.get(path) if await self._send(command) is not None else None
        return self._asking.undecided(command) if row is None else JsonResponse(queue_document(self._views, row))

    async def delete(self, request: Request, path: str, move_to: str) -> Response:
        """End a queue; its waiting jobs move to `move_to`."""
        head = read_head(request.scope["headers"])
        if not is_queue_path(path):
            raise not_found("queue", path[:80])
        if move_to and not is_queue_path(move_to):
            raise bad_parameter("moveTo", f'expected a queue such as "research/vision", found "{move_to[:80]}"')
        command = ApplyQueues(
            id=self._asking.command_id(self._gate, head, "delete", path, move_to),
            user=head.user,
            remove=(QueueRemoval(path=path, move_to=move_to),),
        )
        try:
            outcome = await self._send(command)
        except HttpError as refused:
            row = self._views.queues.rows.get(path)
            if refused.status == 422 and (row is None or not row.exists):
                raise not_found("queue", path, hint="GET /v1/queues lists them") from None
            raise
        if outcome is None:
            return self._asking.undecided(command)
        return JsonResponse(
            {"path": path, "removed": True, "moved_to": move_to or None, "sequence": self._views.sequence}
        )

    async def _send(self, command: ApplyQueues) -> OutcomeRow | None:
        size = len(encode_command(command)) + 2
        if size > MESSAGE_BYTES_MAX:
            raise HttpError(
                413,
                "too_large",
                f"the change has {size} bytes, at most {MESSAGE_BYTES_MAX} are taken",
                hint="apply it in parts, a file may name only some of the queues",
            )
        return await self._asking.outcome(self._gate, command, refusal=queue_refusal)


def _decode(body: bytes) -> Any:
    try:
        return decode_object(body)
    except msgspec.MsgspecError as error:
        # Of maps within maps a decoder knows the depth at best: "[...][...]" is no path that anybody wrote.
        raise invalid([FieldError(field="", message=field_error(error).message)]) from None


def _invalid(error: InvalidQueues) -> HttpError:
    count = len(error.errors)
    detail = "" if count == 1 else f"{count} mistakes; nothing was changed"
    return invalid(error.errors[:ERRORS_MAX], detail=detail, hint=HINT)


def queue_routes(verbs: QueueRoutes) -> APIRouter:
    """All of them, for the app."""
    router = APIRouter()

    @router.post(
        "/v1/queues:apply",
        summary="Apply a queue file",
        responses=answers_with("QueuesApplied"),
        openapi_extra=body_schema("QueueFileWords"),
    )
    async def apply_queues(
        request: Request,
        prune: Annotated[bool, Query(description="Remove all queues and pools that the file does not name.")] = False,
        reclaim: Annotated[
            bool, Query(description="Ask running jobs to yield where a queue now holds more than its maximum.")
        ] = False,
    ) -> Response:
        return await verbs.apply(request, prune=prune, reclaim=reclaim)

    @router.put(
        "/v1/queues/{path:path}",
        summary="Create or change a queue",
        responses=answers_with("Queue"),
        openapi_extra=body_schema("QueueWords"),
    )
    async def put_queue(path: str, request: Request) -> Response:
        return await verbs.put(request, path)

    @router.delete("/v1/queues/{path:path}", summary="Remove a queue")
    async def delete_queue(
        path: str,
        request: Request,
        move_to: Annotated[
            str, Query(alias="moveTo", description="Where its waiting jobs go; else it must have none.")
        ] = "",
    ) -> Response:
        return await verbs.delete(request, path, move_to)

    return router


def pool_routes(live: Views, past: HistoricalViews, explaining: ExplainerClient) -> APIRouter:
    """All of them, for the app."""
    router = APIRouter()

    async def ask(views: Views, pool: str, question: Ask) -> ExplainerAnswer:
        """`views`: of the moment that is asked about."""
        if all(row.name != pool for row in views.queues.pool_rows()):
            raise not_found("pool", pool, hint="GET /v1/pools lists them")
        answer = await explaining.ask(question)
        if answer.error:
            raise HttpError(503, answer.error, answer.message, hint="the explainer answers this", retry_after_s=1)
        return answer

    @router.get(
        "/v1/pools/{pool}/defrag",
        summary="Which runs would be moved so that big jobs start; nothing is done",
        responses=answers_with("Defrag"),
    )
    async def get_pool_defrag(pool: str) -> Response:
        return JsonResponse((await ask(live, pool, AskDefrag(pool=pool))).defrag)

    @router.get(
        "/v1/pools/{pool}/packing",
        summary="By which policy nodes are chosen, what is free and of use, and the largest jobs that could start; "
        "now or at a past moment",
        responses=answers_with("PoolPacking"),
    )
    async def get_pool_packing(pool: str, at: At = "") -> Response:
        if not at:
            silent = tuple(node for node in live.nodes.rows if live.silent_s(node))
            return JsonResponse((await ask(live, pool, AskPacking(pool=pool, away=silent))).packing)
        then = await past.views_at(at)
        if not then.sequence:
            raise bad_parameter("at", f"the log begins later than {at[:40]}")
        found = (await ask(then, pool, AskPacking(pool=pool, at=then.sequence))).packing
        assert found is not None, "an answer without an error has what was asked for"
        return JsonResponse(msgspec.structs.replace(found, at=rfc3339(then.at_ns)))

    return router
