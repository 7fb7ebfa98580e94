"""POST verbs on jobs and nodes, PUT of queues, POST of SQL: small bodies, one command each."""

from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from fairlead_bus.port import Bus, Unavailable
from fairlead_gateway.answers import Head, bind_key, encode, read_head, too_large
from fairlead_gateway.commands import CommandGate
from fairlead_gateway.deciding import Decisions
from fairlead_gateway.problems import Refused, invalid, not_found, rejected, wrong_media_type
from fairlead_gateway.reading import Json
from fairlead_gateway.views.documents import job_document, node_document, queue_document
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import Outcome
from fairlead_schemas import commands, subjects
from fairlead_schemas.api import SubmitResult
from fairlead_schemas.ids import is_job_id, is_queue_path, is_token
from fairlead_schemas.jobspec import FieldError, field_error
from fairlead_schemas.quantities import MILLI, QuantityError, parse_duration

BODY_BYTES_MAX = 64 * 1024
QUOTA_GPUS_MAX = 1_000_000
SQL_TIMEOUT_S = 30.0

JOB_VERBS = {"cancel": commands.CancelJob, "hold": commands.HoldJob, "release": commands.ReleaseJob}


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class NoWish(_Strict, frozen=True, kw_only=True):
    """Body of a verb that takes nothing."""


class NodeWish(_Strict, frozen=True, kw_only=True):
    """Body of cordon and drain. `deadline`: how long until what runs there is stopped; 0 waits for ever."""

    reason: str = ""
    deadline: str | int = 0


class QueueWish(_Strict, frozen=True, kw_only=True):
    """Body of PUT /v1/queues/{path}: the whole setting. null: no quota."""

    gpuQuota: int | None = None  # noqa: N815 -- the users' spelling


class SqlWish(_Strict, frozen=True, kw_only=True):
    """Body of POST /v1/sql."""

    query: str
    #: Rows at most; telemetry has a bound of its own.
    limit: int | None = None


class Verbs:
    """Sends one command and answers with the document that it changed."""

    def __init__(self, views: Views, bus: Bus, queue: CommandGate, placer: CommandGate, decisions: Decisions) -> None:
        self._views = views
        self._bus = bus
        self._queue = queue
        self._placer = placer
        self._decisions = decisions

    async def job(self, request: Request, job: str, verb: str) -> Response:
        """Cancel, hold or release a job."""
        head = read_head(request.scope["headers"])
        if not is_job_id(job):
            raise not_found("job", job[:80])
        await _body(request, NoWish)
        command = JOB_VERBS[verb](id=self._id(self._queue, head, verb, job), user=head.user, job=job)
        undecided = await self._decide(self._queue, command)
        row = self._views.jobs.rows.get(job)
        if undecided is not None or row is None:
            return undecided or Json(SubmitResult(id=job, sequence=self._views.sequence))
        return Json(job_document(self._views, row, self._views.at_ns))

    async def node(self, request: Request, node: str, verb: str) -> Response:
        """Cordon, uncordon or drain a node."""
        head = read_head(request.scope["headers"])
        if not is_token(node):
            raise not_found("node", node[:80])
        wish = await _body(request, NodeWish)
        if wish.deadline and verb != "drain":
            raise invalid([FieldError(field="deadline", message=f"{verb} takes none; drain does")])
        command_id = self._id(self._placer, head, verb, node, wish.reason, str(wish.deadline))
        command: commands.PlacerCommand
        match verb:
            case "cordon":
                command = commands.CordonNode(id=command_id, user=head.user, node=node, reason=wish.reason)
            case "uncordon":
                command = commands.UncordonNode(id=command_id, user=head.user, node=node)
            case _:
                command = commands.DrainNode(
                    id=command_id, user=head.user, node=node, reason=wish.reason, deadline_ns=_deadline(wish)
                )
        undecided = await self._decide(self._placer, command)
        row = self._views.nodes.rows.get(node)
        if undecided is not None or row is None:
            return undecided or Json({"id": node, "sequence": self._views.sequence})
        return Json(node_document(self._views, row))

    async def configure_queue(self, request: Request, path: str) -> Response:
        """Create a queue or replace its settings."""
        head = read_head(request.scope["headers"])
        if not is_queue_path(path):
            raise invalid(
                [FieldError(field="path", message=f'expected names of a-z 0-9 _ - joined by "/", found "{path[:80]}"')]
            )
        wish = await _body(request, QueueWish)
        if wish.gpuQuota is not None and not 0 <= wish.gpuQuota <= QUOTA_GPUS_MAX:
            raise invalid(
                [FieldError(field="gpuQuota", message=f"expected null or 0 to {QUOTA_GPUS_MAX}, found {wish.gpuQuota}")]
            )
        quota_milli = None if wish.gpuQuota is None else wish.gpuQuota * MILLI
        # PUT repeats safely by itself: the id is never made from a key.
        command = commands.ConfigureQueue(
            id=self._queue.new_id(), user=head.user, path=path, gpu_quota_milli=quota_milli
        )
        undecided = await self._decide(self._queue, command)
        return undecided or Json(queue_document(self._views, self._views.queues.rows[path]))

    async def sql(self, request: Request) -> Response:
        """Forward a query to the telemetry service."""
        wish = await _body(request, SqlWish)
        asked = {"query": wish.query} if wish.limit is None else {"query": wish.query, "limit": wish.limit}
        try:
            answer = await self._bus.request(subjects.rpc("telemetry", "sql"), encode(asked), timeout_s=SQL_TIMEOUT_S)
        except Unavailable:
            raise Refused(503, "telemetry_away", "the telemetry service does not answer", retry_after_s=5) from None
        return Json(msgspec.Raw(_sql_answer(answer)))

    def _id(self, gate: CommandGate, head: Head, *wish: str) -> str:
        return self._decisions.keyed_id(bind_key(head.user, "verb", head.key), *wish) if head.key else gate.new_id()

    async def _decide(self, gate: CommandGate, command: commands.CommandBase) -> Response | None:
        """None once it is carried out; the 202 when it is not decided in time. Raises Refused."""
        self._decisions.require_ready()
        outcome: Outcome | None = await self._decisions.outcome(gate, command.id, commands_encode(command))
        if outcome is None:
            result = SubmitResult(command=command.id, sequence=self._views.sequence)
            return Json(result, status_code=202, headers={"location": f"/v1/commands/{command.id}"})
        if outcome.code:
            raise rejected(outcome.code, outcome.message, submit=False)
        return None


commands_encode = msgspec.json.Encoder(order="deterministic").encode


async def _body[T: msgspec.Struct](request: Request, kind: type[T]) -> T:
    """The decoded body; an empty one stands for {}. Raises Refused."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise too_large(BODY_BYTES_MAX)
    if not body.strip():
        body = b"{}"
    else:
        found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if found != "application/json":
            raise wrong_media_type(found, "application/json")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise invalid([field_error(error, known=kind.__struct_fields__)]) from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise invalid([FieldError(field="", message=f"expected JSON in UTF-8: {type(error).__name__}")]) from None


def _deadline(wish: NodeWish) -> int:
    try:
        return parse_duration(wish.deadline)
    except QuantityError as error:
        raise invalid([FieldError(field="deadline", message=str(error))]) from None


def _sql_answer(answer: bytes) -> bytes:
    """Telemetry's answer, or the Refused that it stands for: {"error": {"code", "message"}} or {"error": text}."""
    try:
        document: Any = msgspec.json.decode(answer)
    except msgspec.MsgspecError:
        raise Refused(503, "telemetry_away", "the telemetry service answered something that is no JSON") from None
    error: Any = document.get("error") if isinstance(document, dict) else None
    if error:
        told = error if isinstance(error, dict) else {"message": str(error)}
        code, message, hint = told.get("code", "sql"), told.get("message", ""), told.get("hint", "")
        if code in {"busy", "internal"}:
            raise Refused(503, code, message, hint=hint, retry_after_s=1)
        raise Refused(422, code, message, errors=[FieldError(field="query", message=message)], hint=hint)
    return answer


def routes(verbs: Verbs) -> APIRouter:
    """All of them, for the app."""
    router = APIRouter()

    def add_job_verb(verb: str) -> None:
        @router.post(f"/v1/jobs/{{job}}:{verb}", summary=f"{verb.capitalize()} a job", operation_id=f"{verb}_job")
        async def act(job: str, request: Request) -> Response:
            return await verbs.job(request, job, verb)

    def add_node_verb(verb: str) -> None:
        @router.post(
            f"/v1/nodes/{{node}}:{verb}", summary=f"{verb.capitalize()} a node", operation_id=f"{verb}_node",
            openapi_extra=_body_schema("NodeWish", required=False),
        )  # fmt: skip
        async def act(node: str, request: Request) -> Response:
            return await verbs.node(request, node, verb)

    for verb in JOB_VERBS:
        add_job_verb(verb)
    for verb in ("cordon", "uncordon", "drain"):
        add_node_verb(verb)

    @router.put("/v1/queues/{path:path}", summary="Create or change a queue", openapi_extra=_body_schema("QueueWish"))
    async def configure_queue(path: str, request: Request) -> Response:
        return await verbs.configure_queue(request, path)

    @router.post("/v1/sql", summary="Query the warehouse", openapi_extra=_body_schema("SqlWish"))
    async def sql(request: Request) -> Response:
        return await verbs.sql(request)

    return router


def _body_schema(name: str, *, required: bool = True) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    return {"requestBody": {"required": required, "content": content}}
