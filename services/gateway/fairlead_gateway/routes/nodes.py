"""Verbs of nodes beyond cordon and drain (`jobs.py`): taints, quarantine, repaired GPUs, windows, rollouts, the
breaker. Each is one command to the placer; bodies are in `request_bodies.py`.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Request, Response

from fairlead_gateway.command_results import CommandPublisher
from fairlead_gateway.errors import HttpError, not_found
from fairlead_gateway.http_messages import RequestHead, encode, read_head
from fairlead_gateway.routes.command_client import CommandClient, body_schema, encode_command, read_request
from fairlead_gateway.routes.documents import breaker_document, node_document, rollout_document, window_document
from fairlead_gateway.routes.query import AnyLimit, Continue, JsonResponse, answers_with, page_by_name
from fairlead_gateway.routes.request_bodies import (
    GpuRequest,
    MaintenanceRequest,
    NodeNameRequest,
    ReasonRequest,
    RolloutRequest,
    TaintRequest,
    maintenance_command,
    node_refusal,
    require_node,
    require_taint,
    rollout_command,
)
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http import api
from fairlead_schemas.wire import commands as cmd

#: {verb: (type of its body, command that it sends)}
NODE_VERBS: dict[str, tuple[type[msgspec.Struct], type[cmd.CommandBase]]] = {
    "taint": (TaintRequest, cmd.TaintNode),
    "untaint": (TaintRequest, cmd.UntaintNode),
    "quarantine": (ReasonRequest, cmd.QuarantineNode),
    "unquarantine": (ReasonRequest, cmd.UnquarantineNode),
    "restore": (GpuRequest, cmd.RestoreGpu),
    "declare-dead": (ReasonRequest, cmd.DeclareNodeDead),
    "remove": (ReasonRequest, cmd.RemoveNode),
}
ROLLOUT_VERBS: dict[str, tuple[type[msgspec.Struct], type[cmd.CommandBase]]] = {
    "pause": (ReasonRequest, cmd.PauseRollout),
    "resume": (ReasonRequest, cmd.ResumeRollout),
    "cancel": (ReasonRequest, cmd.CancelRollout),
    "done": (NodeNameRequest, cmd.FinishRolloutNode),
}


class NodeRoutes:
    """Sends one command and answers with the document that it changed."""

    def __init__(self, views: Views, placer: CommandPublisher, asking: CommandClient) -> None:
        self._views = views
        self._placer = placer
        self._asking = asking

    async def on_node(self, request: Request, node: str, verb: str) -> Response:
        """Carry out one of NODE_VERBS and return the node's document."""
        require_node(self._views, node)
        await self._verb(request, NODE_VERBS[verb], verb, {"node": node})
        row = self._views.nodes.rows.get(node)
        return JsonResponse(self._unseen(node) if row is None else node_document(self._views, row))

    async def on_rollout(self, request: Request, name: str, verb: str) -> Response:
        """Carry out one of ROLLOUT_VERBS and return the rollout's document. Raise Refused (404) for an unknown rollout."""
        if name not in self._views.plans.rollouts:
            raise not_found("rollout", name[:80], hint="GET /v1/rollouts lists them")
        await self._verb(request, ROLLOUT_VERBS[verb], verb, {"name": name[:80]})
        return self._rollout(name)

    async def start_rollout(self, request: Request) -> Response:
        """Begin one."""
        head, wish = read_head(request.scope["headers"]), await read_request(request, RolloutRequest)
        command_id = self._asking.command_id(self._placer, head, "rollout", encode(wish).decode())
        await self._send(rollout_command(wish, command_id, head.user))
        return self._rollout(wish.name)

    async def schedule(self, request: Request) -> Response:
        """A maintenance window."""
        head, wish = read_head(request.scope["headers"]), await read_request(request, MaintenanceRequest)
        command_id = self._asking.command_id(self._placer, head, "maintenance", encode(wish).decode())
        await self._send(maintenance_command(wish, command_id, head.user))
        row = self._views.plans.windows.get(wish.name)
        if row is None:
            return JsonResponse(self._unseen(wish.name))
        return JsonResponse(window_document(self._views, row))

    async def cancel_window(self, request: Request, name: str) -> Response:
        """Forget one."""
        if name not in self._views.plans.windows:
            raise not_found("maintenance window", name[:80], hint="GET /v1/maintenance lists them")
        await self._verb(request, (ReasonRequest, cmd.CancelMaintenance), "cancel", {"name": name[:80]})
        return JsonResponse({"name": name, "cancelled": True, "sequence": self._views.sequence})

    async def reset_breaker(self, request: Request) -> Response:
        """Let nodes be acted upon again."""
        await self._verb(request, (ReasonRequest, cmd.ResetBreaker), "reset", {})
        return JsonResponse(breaker_document(self._views))

    def _unseen(self, name: str) -> api.SubmitResult:
        """Answer for a thing that was changed and is in no view any more."""
        return api.SubmitResult(id=name, sequence=self._views.sequence)

    def _rollout(self, name: str) -> Response:
        row = self._views.plans.rollouts.get(name)
        if row is None:
            return JsonResponse(self._unseen(name))
        return JsonResponse(rollout_document(self._views, row))

    async def _verb(
        self,
        request: Request,
        kinds: tuple[type[msgspec.Struct], type[cmd.CommandBase]],
        verb: str,
        what: dict[str, str],
    ) -> None:
        wish_kind, kind = kinds
        head: RequestHead = read_head(request.scope["headers"])
        wish = await read_request(request, wish_kind)
        if kind is cmd.TaintNode and isinstance(wish, TaintRequest):
            require_taint(wish.taint)
        fields: dict[str, Any] = {
            name: value for name, value in msgspec.structs.asdict(wish).items() if name in kind.__struct_fields__
        }
        command_id = self._asking.command_id(self._placer, head, verb, *what.values(), encode(wish).decode())
        await self._send(kind(id=command_id, user=head.user, **what, **fields))

    async def _send(self, command: cmd.CommandBase) -> None:
        """Raises Refused; also where it is not decided in time, which is no refusal: it is stored, and answered 202."""
        size = len(encode_command(command)) + 2
        if size > cmd.MESSAGE_BYTES_MAX:
            raise HttpError(
                413, "too_large", f"the command has {size} bytes, at most {cmd.MESSAGE_BYTES_MAX} are taken"
            )
        if await self._asking.outcome(self._placer, command, refusal=node_refusal) is None:
            raise UndecidedCommand(self._asking.undecided(command))


class UndecidedCommand(Exception):
    """The command is stored and not decided in time; `answer` is the 202 that says so."""

    def __init__(self, answer: Response) -> None:
        super().__init__("not decided in time")
        self.answer = answer


async def _or_202(answer: Any) -> Response:
    try:
        return await answer
    except UndecidedCommand as undecided:
        return undecided.answer


def routes(verbs: NodeRoutes, views: Views) -> APIRouter:
    """All of them, for the app."""
    router = APIRouter()
    _add_verbs(router, verbs)
    _add_plans(router, verbs, views)
    return router


def _add_verbs(router: APIRouter, verbs: NodeRoutes) -> None:
    for verb, (wish, _) in NODE_VERBS.items():
        _add_verb(router, "nodes/{node}", verb, "node", f"{verb.capitalize()} a node", wish, verbs.on_node)
    for verb, (wish, _) in ROLLOUT_VERBS.items():
        title = "Report a node of a rollout as done" if verb == "done" else f"{verb.capitalize()} a rollout"
        _add_verb(router, "rollouts/{name}", verb, "rollout", title, wish, verbs.on_rollout)


def _add_verb(
    router: APIRouter,
    of: str,
    verb: str,
    kind: str,
    title: str,
    wish: type[msgspec.Struct],
    act: Callable[[Request, str, str], Awaitable[Response]],
) -> None:
    parameter = of.partition("{")[2].rstrip("}")

    @router.post(
        f"/v1/{of}:{verb}",
        summary=title,
        operation_id=f"{verb}_{kind}".replace("-", "_"),
        responses=answers_with(kind.capitalize(), "SubmitResult"),
        openapi_extra=body_schema(wish.__name__, required=wish is not ReasonRequest),
    )
    async def on_verb(name: Annotated[str, Path(alias=parameter)], request: Request) -> Response:
        return await _or_202(act(request, name, verb))


def _add_plans(router: APIRouter, verbs: NodeRoutes, views: Views) -> None:
    @router.get(
        "/v1/rollouts", summary="List rollouts, the last that ended included", responses=answers_with("RolloutPage")
    )
    async def list_rollouts(limit: AnyLimit = None, next: Continue = "") -> Response:
        rows, token = page_by_name(views.plans.rollouts, limit, next)
        items = [rollout_document(views, row) for row in rows]
        return JsonResponse(api.Page(items=items, next=token, sequence=views.sequence))

    @router.get("/v1/rollouts/{name}", summary="One rollout", responses=answers_with("Rollout"))
    async def get_rollout(name: str) -> Response:
        row = views.plans.rollouts.get(name)
        if row is None:
            raise not_found("rollout", name[:80], hint="GET /v1/rollouts lists them")
        return JsonResponse(rollout_document(views, row))

    @router.post(
        "/v1/rollouts",
        summary="Start a rollout",
        responses=answers_with("Rollout", "SubmitResult"),
        openapi_extra=body_schema("RolloutRequest"),
    )
    async def start_rollout(request: Request) -> Response:
        return await _or_202(verbs.start_rollout(request))

    @router.get("/v1/maintenance", summary="List maintenance windows", responses=answers_with("MaintenancePage"))
    async def list_maintenance(limit: AnyLimit = None, next: Continue = "") -> Response:
        rows, token = page_by_name(views.plans.windows, limit, next)
        items = [window_document(views, row) for row in rows]
        return JsonResponse(api.Page(items=items, next=token, sequence=views.sequence))

    @router.post(
        "/v1/maintenance",
        summary="Schedule a maintenance window",
        responses=answers_with("Maintenance", "SubmitResult"),
        openapi_extra=body_schema("MaintenanceRequest"),
    )
    async def schedule_maintenance(request: Request) -> Response:
        return await _or_202(verbs.schedule(request))

    @router.post(
        "/v1/maintenance/{name}:cancel",
        summary="Cancel a maintenance window",
        operation_id="cancel_maintenance",
        openapi_extra=body_schema("ReasonRequest", required=False),
    )
    async def cancel_window(name: str, request: Request) -> Response:
        return await _or_202(verbs.cancel_window(request, name))

    @router.get("/v1/breaker", summary="Whether nodes are acted upon automatically", responses=answers_with("Breaker"))
    async def get_breaker() -> Response:
        return JsonResponse(breaker_document(views))

    @router.post(
        "/v1/breaker:reset",
        summary="Reset the breaker",
        responses=answers_with("Breaker"),
        openapi_extra=body_schema("ReasonRequest", required=False),
    )
    async def reset_breaker(request: Request) -> Response:
        return await _or_202(verbs.reset_breaker(request))
