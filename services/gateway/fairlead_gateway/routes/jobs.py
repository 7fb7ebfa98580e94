"""POST verbs on jobs and nodes: small bodies, one command each (queues: `queues.py`)."""

import msgspec
from fastapi import APIRouter, Request, Response

from fairlead_gateway.command_results import CommandPublisher
from fairlead_gateway.errors import invalid
from fairlead_gateway.http_messages import read_head
from fairlead_gateway.routes.command_client import CommandClient, body_schema, read_request
from fairlead_gateway.routes.documents import job_document, node_document
from fairlead_gateway.routes.query import JsonResponse, answers_with
from fairlead_gateway.routes.request_bodies import require_job, require_node
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http.api import SubmitResult
from fairlead_schemas.units.ids import is_queue_path
from fairlead_schemas.units.quantities import QuantityError, parse_duration
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire import commands

JOB_VERBS = {"cancel": commands.CancelJob, "hold": commands.HoldJob, "release": commands.ReleaseJob}


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class EmptyRequest(_Strict, frozen=True, kw_only=True):
    """Body of a verb that takes nothing."""


class CancelRequest(_Strict, frozen=True, kw_only=True):
    """Body of a cancel. `save`: what runs is to have its notice first, where its job file names one."""

    save: bool = False


class NodeRequest(_Strict, frozen=True, kw_only=True):
    """Body of cordon and drain. `deadline`: time until the runs there are stopped; 0 waits without limit."""

    reason: str = ""
    deadline: str | int = 0


class MoveRequest(_Strict, frozen=True, kw_only=True):
    """Body of a move: where to."""

    queue: str


class JobRoutes:
    """Sends one command and answers with the document that it changed."""

    def __init__(self, views: Views, queue: CommandPublisher, placer: CommandPublisher, asking: CommandClient) -> None:
        self._views = views
        self._queue = queue
        self._placer = placer
        self._asking = asking

    async def job(self, request: Request, job: str, verb: str) -> Response:
        """Cancel, hold or release a job."""
        head = read_head(request.scope["headers"])
        save = verb == "cancel" and (await read_request(request, CancelRequest)).save
        if verb != "cancel":
            await read_request(request, EmptyRequest)
        require_job(self._views, job)
        if save:
            command_id = self._asking.command_id(self._queue, head, verb, job, "save")
            return await self._job(commands.CancelJob(id=command_id, user=head.user, job=job, save=True), job)
        command_id = self._asking.command_id(self._queue, head, verb, job)
        return await self._job(JOB_VERBS[verb](id=command_id, user=head.user, job=job), job)

    async def move(self, request: Request, job: str) -> Response:
        """Put a waiting job into another queue."""
        head = read_head(request.scope["headers"])
        queue = (await read_request(request, MoveRequest)).queue
        require_job(self._views, job)
        if not is_queue_path(queue):
            told = f'expected a queue such as "research/vision", found "{queue[:80]}"'
            raise invalid([FieldError(field="queue", message=told)])
        command_id = self._asking.command_id(self._queue, head, "move", job, queue)
        return await self._job(commands.MoveJob(id=command_id, user=head.user, job=job, queue=queue), job)

    async def _job(self, command: commands.QueueCommand, job: str) -> Response:
        if await self._asking.outcome(self._queue, command) is None:
            return self._asking.undecided(command)
        row = self._views.jobs.rows.get(job)
        if row is None:
            return JsonResponse(SubmitResult(id=job, sequence=self._views.sequence))
        return JsonResponse(job_document(self._views, row, self._views.at_ns))

    async def node(self, request: Request, node: str, verb: str) -> Response:
        """Cordon, uncordon or drain a node."""
        head = read_head(request.scope["headers"])
        wish = await read_request(request, NodeRequest)
        require_node(self._views, node)
        if wish.deadline and verb != "drain":
            raise invalid([FieldError(field="deadline", message=f"{verb} takes none; drain does")])
        command_id = self._asking.command_id(self._placer, head, verb, node, wish.reason, str(wish.deadline))
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
        if await self._asking.outcome(self._placer, command) is None:
            return self._asking.undecided(command)
        row = self._views.nodes.rows.get(node)
        if row is None:
            return JsonResponse(SubmitResult(id=node, sequence=self._views.sequence))
        return JsonResponse(node_document(self._views, row))


def _deadline(wish: NodeRequest) -> int:
    try:
        return parse_duration(wish.deadline)
    except QuantityError as error:
        raise invalid([FieldError(field="deadline", message=str(error))]) from None


def routes(verbs: JobRoutes) -> APIRouter:
    """All of them, for the app."""
    router = APIRouter()

    def add_job_verb(verb: str) -> None:
        body = body_schema("CancelRequest" if verb == "cancel" else "EmptyRequest", required=False)

        @router.post(
            f"/v1/jobs/{{job}}:{verb}",
            summary=f"{verb.capitalize()} a job",
            operation_id=f"{verb}_job",
            responses=answers_with("Job", "SubmitResult"),
            openapi_extra=body,
        )
        async def act(job: str, request: Request) -> Response:
            return await verbs.job(request, job, verb)

    def add_node_verb(verb: str) -> None:
        @router.post(
            f"/v1/nodes/{{node}}:{verb}",
            summary=f"{verb.capitalize()} a node",
            operation_id=f"{verb}_node",
            responses=answers_with("Node", "SubmitResult"),
            openapi_extra=body_schema("NodeRequest", required=False),
        )
        async def act(node: str, request: Request) -> Response:
            return await verbs.node(request, node, verb)

    for verb in JOB_VERBS:
        add_job_verb(verb)
    for verb in ("cordon", "uncordon", "drain"):
        add_node_verb(verb)

    @router.post(
        "/v1/jobs/{job}:move",
        summary="Move a waiting job to another queue",
        responses=answers_with("Job", "SubmitResult"),
        openapi_extra=body_schema("MoveRequest"),
    )
    async def move_job(job: str, request: Request) -> Response:
        return await verbs.move(request, job)

    return router
