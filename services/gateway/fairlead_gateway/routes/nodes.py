"""Verbs of nodes: cordons, drains, taints, quarantine, repaired GPUs, windows, rollouts, the breaker. Each is one command
to the placer, answered with the document that it changed; bodies are in `request_bodies.py`.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import Request, Response

from fairlead_gateway.command_results import CommandPublisher, ResultWaiter
from fairlead_gateway.errors import bad_field, not_found
from fairlead_gateway.http_messages import JsonResponse, encode, head_of, read_request
from fairlead_gateway.routes.documents import breaker_document, node_document, rollout_document, window_document
from fairlead_gateway.routes.query import AnyLimit, Continue, page_by_name
from fairlead_gateway.routes.request_bodies import (
    GpuRequest,
    MaintenanceRequest,
    NodeNameRequest,
    NodeRequest,
    ReasonRequest,
    RolloutRequest,
    TaintRequest,
    duration,
    maintenance_command,
    require_node,
    require_taint,
    rollout_command,
)
from fairlead_gateway.routes.router import Router
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http import api
from fairlead_schemas.wire import commands as cmd

#: {verb: (type of its body, command that it sends)}
type Verbs = dict[str, tuple[type[msgspec.Struct], type[cmd.CommandBase]]]
NODE_VERBS: Verbs = {
    "cordon": (NodeRequest, cmd.CordonNode),
    "uncordon": (NodeRequest, cmd.UncordonNode),
    "drain": (NodeRequest, cmd.DrainNode),
    "taint": (TaintRequest, cmd.TaintNode),
    "untaint": (TaintRequest, cmd.UntaintNode),
    "quarantine": (ReasonRequest, cmd.QuarantineNode),
    "unquarantine": (ReasonRequest, cmd.UnquarantineNode),
    "restore": (GpuRequest, cmd.RestoreGpu),
    "declare-dead": (ReasonRequest, cmd.DeclareNodeDead),
    "remove": (ReasonRequest, cmd.RemoveNode),
}
ROLLOUT_VERBS: Verbs = {
    "pause": (ReasonRequest, cmd.PauseRollout),
    "resume": (ReasonRequest, cmd.ResumeRollout),
    "cancel": (ReasonRequest, cmd.CancelRollout),
    "done": (NodeNameRequest, cmd.FinishRolloutNode),
}
#: Bodies that may be left out.
_OPTIONAL = (NodeRequest, ReasonRequest)


class NodeCommands:
    """Makes commands to the placer from requests, sends them and waits for their outcomes."""

    def __init__(self, views: Views, placer: CommandPublisher, waiter: ResultWaiter) -> None:
        self._views = views
        self._placer = placer
        self._waiter = waiter

    async def verb(
        self, request: Request, verb: str, body: type[msgspec.Struct], kind: type[cmd.CommandBase], **what: str
    ) -> None:
        """Carry out a verb whose body has fields of the command. `what`: the command's other fields."""
        head, wanted = head_of(request), await read_request(request, body)
        if "node" in what:
            require_node(self._views, what["node"])
        fields: dict[str, Any] = msgspec.structs.asdict(wanted)
        if isinstance(wanted, NodeRequest):
            if wanted.deadline and kind is not cmd.DrainNode:
                raise bad_field("deadline", f"{verb} takes none; drain does")
            fields["deadline_ns"] = duration("deadline", wanted.deadline)
        if isinstance(wanted, TaintRequest) and kind is cmd.TaintNode:
            require_taint(wanted.taint)
        fields = {name: value for name, value in fields.items() if name in kind.__struct_fields__}
        command_id = self._waiter.command_id(self._placer, head, verb, *what.values(), encode(wanted).decode())
        await self._waiter.carry_out(self._placer, kind(id=command_id, user=head.user, **what, **fields))

    async def plan[T: (RolloutRequest, MaintenanceRequest)](
        self, request: Request, verb: str, body: type[T], make: Callable[[T, str, str], cmd.CommandBase]
    ) -> T:
        """Begin a rollout or schedule a window. Return the body."""
        head, wanted = head_of(request), await read_request(request, body)
        command_id = self._waiter.command_id(self._placer, head, verb, encode(wanted).decode())
        await self._waiter.carry_out(self._placer, make(wanted, command_id, head.user))
        return wanted

    def shown[R](self, name: str, row: R | None, document: Callable[[Views, R], Any]) -> Response:
        """Return the document of a row; for a thing that was changed and is in no view any more its name."""
        unseen = api.SubmitResult(id=name, sequence=self._views.sequence)
        return JsonResponse(unseen if row is None else document(self._views, row))


def routes(views: Views, placer: CommandPublisher, waiter: ResultWaiter) -> Router:
    """Return all of them."""
    router, commands = Router(), NodeCommands(views, placer, waiter)
    _add_verbs(router, views, commands)
    _add_rollouts(router, views, commands)
    _add_windows(router, views, commands)
    _add_breaker(router, views, commands)
    return router


def _add_verbs(router: Router, views: Views, commands: NodeCommands) -> None:
    def add(verb: str, body: type[msgspec.Struct], kind: type[cmd.CommandBase]) -> None:
        @router.command(
            "POST",
            f"/v1/nodes/{{node}}:{verb}",
            f"{verb.capitalize()} a node",
            api.Node,
            api.SubmitResult,
            body=body,
            required=body not in _OPTIONAL,
            operation_id=f"{verb}_node".replace("-", "_"),
        )
        async def act(node: str, request: Request) -> Response:
            await commands.verb(request, verb, body, kind, node=node)
            return commands.shown(node, views.nodes.rows.get(node), node_document)

    for verb, (body, kind) in NODE_VERBS.items():
        add(verb, body, kind)


def _add_rollouts(router: Router, views: Views, commands: NodeCommands) -> None:
    def require(name: str) -> None:
        if name not in views.plans.rollouts:
            raise not_found("rollout", name[:80], hint="GET /v1/rollouts lists them")

    def shown(name: str) -> Response:
        return commands.shown(name, views.plans.rollouts.get(name), rollout_document)

    @router.read("/v1/rollouts", "List rollouts, the last that ended included", api.Page[api.Rollout])
    async def list_rollouts(limit: AnyLimit = None, next: Continue = "") -> Response:
        rows, token = page_by_name(views.plans.rollouts, limit, next)
        items = [rollout_document(views, row) for row in rows]
        return JsonResponse(api.Page(items=items, next=token, sequence=views.sequence))

    @router.read("/v1/rollouts/{name}", "One rollout", api.Rollout)
    async def get_rollout(name: str) -> Response:
        require(name)
        return shown(name)

    @router.command("POST", "/v1/rollouts", "Start a rollout", api.Rollout, api.SubmitResult, body=RolloutRequest)
    async def start_rollout(request: Request) -> Response:
        return shown((await commands.plan(request, "rollout", RolloutRequest, rollout_command)).name)

    def add(verb: str, body: type[msgspec.Struct], kind: type[cmd.CommandBase]) -> None:
        @router.command(
            "POST",
            f"/v1/rollouts/{{name}}:{verb}",
            "Report a node of a rollout as done" if verb == "done" else f"{verb.capitalize()} a rollout",
            api.Rollout,
            api.SubmitResult,
            body=body,
            required=body not in _OPTIONAL,
            operation_id=f"{verb}_rollout",
        )
        async def act(name: str, request: Request) -> Response:
            require(name)
            await commands.verb(request, verb, body, kind, name=name)
            return shown(name)

    for verb, (body, kind) in ROLLOUT_VERBS.items():
        add(verb, body, kind)


def _add_windows(router: Router, views: Views, commands: NodeCommands) -> None:
    @router.read("/v1/maintenance", "List maintenance windows", api.Page[api.Maintenance])
    async def list_maintenance(limit: AnyLimit = None, next: Continue = "") -> Response:
        rows, token = page_by_name(views.plans.windows, limit, next)
        items = [window_document(views, row) for row in rows]
        return JsonResponse(api.Page(items=items, next=token, sequence=views.sequence))

    @router.command(
        "POST",
        "/v1/maintenance",
        "Schedule a maintenance window",
        api.Maintenance,
        api.SubmitResult,
        body=MaintenanceRequest,
    )
    async def schedule_maintenance(request: Request) -> Response:
        name = (await commands.plan(request, "maintenance", MaintenanceRequest, maintenance_command)).name
        return commands.shown(name, views.plans.windows.get(name), window_document)

    @router.command(
        "POST",
        "/v1/maintenance/{name}:cancel",
        "Cancel a maintenance window",
        body=ReasonRequest,
        required=False,
        operation_id="cancel_maintenance",
    )
    async def cancel_window(name: str, request: Request) -> Response:
        if name not in views.plans.windows:
            raise not_found("maintenance window", name[:80], hint="GET /v1/maintenance lists them")
        await commands.verb(request, "cancel", ReasonRequest, cmd.CancelMaintenance, name=name)
        return JsonResponse({"name": name, "cancelled": True, "sequence": views.sequence})


def _add_breaker(router: Router, views: Views, commands: NodeCommands) -> None:
    @router.read("/v1/breaker", "Whether nodes are acted upon automatically", api.Breaker)
    async def get_breaker() -> Response:
        return JsonResponse(breaker_document(views))

    @router.command("POST", "/v1/breaker:reset", "Reset the breaker", api.Breaker, body=ReasonRequest, required=False)
    async def reset_breaker(request: Request) -> Response:
        await commands.verb(request, "reset", ReasonRequest, cmd.ResetBreaker)
        return JsonResponse(breaker_document(views))
