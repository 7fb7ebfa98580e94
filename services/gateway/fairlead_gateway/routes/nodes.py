"""Verbs of nodes: cordons, drains, taints, quarantine, repaired GPUs, windows, rollouts, the breaker. Each is one command
to the placer, answered with the document that it changed; bodies are in `request_bodies.py`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from fastapi import Request, Response

from fairlead_gateway.access.caller import CLUSTER, Caller
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.redaction import shown_node, shown_to
from fairlead_gateway.access.targets import Sight, node_target
from fairlead_gateway.command_results import CommandPublisher, ResultWaiter, verb_refusal
from fairlead_gateway.errors import HttpError, bad_field, not_found
from fairlead_gateway.http_messages import JsonResponse, encode, head_of, read_request
from fairlead_gateway.routes.documents import breaker_document, node_document, rollout_document, window_document
from fairlead_gateway.routes.query import AnyLimit, At, Continue, page_at, page_by_name
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
    unknown_node,
)
from fairlead_gateway.routes.router import Router, in_body, listed, on_cluster, on_node
from fairlead_gateway.sources.historical_views import HistoricalViews
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import RolloutRow, WindowRow
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


def sees_plan(sight: Sight, row: RolloutRow | WindowRow) -> bool:
    """Return True if the caller may read every node of a rollout or window."""
    return all(sight.node_id(node) for node in row.nodes)


def seen_plans[R: (RolloutRow, WindowRow)](sight: Sight, rows: dict[str, R]) -> dict[str, R]:
    """Return the rollouts or windows of which the caller may read every node."""
    return {name: row for name, row in rows.items() if sees_plan(sight, row)}


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
        await self._waiter.carry_out(
            self._placer,
            kind(id=command_id, user=head.user, authority=head.authority, **what, **fields),
            shown_to(self._views, head.caller, verb_refusal),
        )

    async def plan[T: (RolloutRequest, MaintenanceRequest)](
        self, request: Request, verb: str, body: type[T], make: Callable[[T, str, str], cmd.CommandBase]
    ) -> T:
        """Begin a rollout or schedule a window. Return the body."""
        head, wanted = head_of(request), await read_request(request, body)
        command_id = self._waiter.command_id(self._placer, head, verb, encode(wanted).decode())
        command = msgspec.structs.replace(make(wanted, command_id, head.user), authority=head.authority)
        chosen = wanted.selector or (isinstance(wanted, RolloutRequest) and wanted.all)
        self._require_nodes(head.caller, None if chosen else wanted.nodes)
        await self._waiter.carry_out(self._placer, command, shown_to(self._views, head.caller, verb_refusal))
        return wanted

    def _require_nodes(self, caller: Caller, nodes: Iterable[str] | None) -> None:
        """Raise HttpError (403, 404) unless the caller may operate every one of the nodes. None: nodes chosen by their labels, which
        may be any.
        """
        if nodes is None:
            caller.require("node:operate", CLUSTER)
            return
        if caller.may("node:operate", CLUSTER):
            return
        for node in nodes:
            row, hidden = self._views.nodes.rows.get(node), unknown_node(node)
            if row is None:
                raise hidden
            caller.require("node:operate", node_target(row), hidden=hidden, sees="node:read")

    def require_plan(
        self, caller: Caller, row: RolloutRow | WindowRow | None, unknown: HttpError, *, changes: bool
    ) -> None:
        """Raise HttpError unless the caller may see a rollout or window, or operate its nodes if it `changes` it. `unknown`: the
        answer where there is none, and where the caller may not see one of its nodes.
        """
        if row is None or not sees_plan(Sight(self._views, caller), row):
            raise unknown
        if changes:
            self._require_nodes(caller, row.nodes)

    def shown[R](self, name: str, row: R | None, document: Callable[[Views, R], Any]) -> Response:
        """Return the document of a row; for a thing that was changed and is in no view any more its name."""
        unseen = api.SubmitResult(id=name, sequence=self._views.sequence)
        return JsonResponse(unseen if row is None else document(self._views, row))


def routes(views: Views, placer: CommandPublisher, waiter: ResultWaiter, past: HistoricalViews) -> Router:
    """Return all of them."""
    router, commands = Router(), NodeCommands(views, placer, waiter)
    _add_verbs(router, views, commands)
    _add_rollouts(router, views, commands, past)
    _add_windows(router, views, commands, past)
    _add_breaker(router, views, commands, past)
    return router


def _add_verbs(router: Router, views: Views, commands: NodeCommands) -> None:
    def add(verb: str, body: type[msgspec.Struct], kind: type[cmd.CommandBase]) -> None:
        @router.command(
            "POST",
            f"/v1/nodes/{{node}}:{verb}",
            f"{verb.capitalize()} a node",
            api.Node,
            api.SubmitResult,
            right=on_node("node:operate"),
            body=body,
            required=body not in _OPTIONAL,
            operation_id=f"{verb}_node".replace("-", "_"),
        )
        async def act(node: str, request: Request) -> Response:
            await commands.verb(request, verb, body, kind, node=node)
            sight = Sight(views, caller_of(request))
            return commands.shown(
                node, views.nodes.rows.get(node), lambda views, row: shown_node(sight, node_document(views, row))
            )

    for verb, (body, kind) in NODE_VERBS.items():
        add(verb, body, kind)


def _add_rollouts(router: Router, views: Views, commands: NodeCommands, past: HistoricalViews) -> None:
    def unknown(name: str) -> HttpError:
        return not_found("rollout", name[:80], hint="GET /v1/rollouts lists them")

    def require(request: Request, name: str) -> None:
        commands.require_plan(caller_of(request), views.plans.rollouts.get(name), unknown(name), changes=True)

    def shown(name: str) -> Response:
        return commands.shown(name, views.plans.rollouts.get(name), rollout_document)

    @router.read(
        "/v1/rollouts",
        "List rollouts, the last that ended included, now or at a past moment",
        api.Page[api.Rollout],
        right=listed("node:read"),
    )
    async def list_rollouts(request: Request, limit: AnyLimit = None, next: Continue = "", at: At = "") -> Response:
        seen = await page_at(past, at, next)
        known = seen_plans(Sight(views, caller_of(request), seen.views), seen.views.plans.rollouts)
        rows, token = page_by_name(known, limit, next, seen)
        items = [rollout_document(seen.views, row) for row in rows]
        return JsonResponse(api.Page(items=items, next=token, sequence=seen.views.sequence), headers=seen.headers)

    @router.read("/v1/rollouts/{name}", "One rollout, now or at a past moment", api.Rollout, right=in_body("node:read"))
    async def get_rollout(name: str, request: Request, at: At = "") -> Response:
        seen = await past.moment(at)
        row = seen.views.plans.rollouts.get(name)
        if row is None or not sees_plan(Sight(views, caller_of(request), seen.views), row):
            raise unknown(name)
        return JsonResponse(rollout_document(seen.views, row), headers=seen.headers)

    @router.command(
        "POST",
        "/v1/rollouts",
        "Start a rollout",
        api.Rollout,
        api.SubmitResult,
        right=in_body("node:operate"),
        body=RolloutRequest,
    )
    async def start_rollout(request: Request) -> Response:
        return shown((await commands.plan(request, "rollout", RolloutRequest, rollout_command)).name)

    def add(verb: str, body: type[msgspec.Struct], kind: type[cmd.CommandBase]) -> None:
        @router.command(
            "POST",
            f"/v1/rollouts/{{name}}:{verb}",
            "Report a node of a rollout as done" if verb == "done" else f"{verb.capitalize()} a rollout",
            api.Rollout,
            api.SubmitResult,
            right=in_body("node:operate"),
            body=body,
            required=body not in _OPTIONAL,
            operation_id=f"{verb}_rollout",
        )
        async def act(name: str, request: Request) -> Response:
            require(request, name)
            await commands.verb(request, verb, body, kind, name=name)
            return shown(name)

    for verb, (body, kind) in ROLLOUT_VERBS.items():
        add(verb, body, kind)


def _add_windows(router: Router, views: Views, commands: NodeCommands, past: HistoricalViews) -> None:
    @router.read(
        "/v1/maintenance",
        "List maintenance windows, now or at a past moment",
        api.Page[api.Maintenance],
        right=listed("node:read"),
    )
    async def list_maintenance(request: Request, limit: AnyLimit = None, next: Continue = "", at: At = "") -> Response:
        seen = await page_at(past, at, next)
        known = seen_plans(Sight(views, caller_of(request), seen.views), seen.views.plans.windows)
        rows, token = page_by_name(known, limit, next, seen)
        items = [window_document(seen.views, row) for row in rows]
        return JsonResponse(api.Page(items=items, next=token, sequence=seen.views.sequence), headers=seen.headers)

    @router.command(
        "POST",
        "/v1/maintenance",
        "Schedule a maintenance window",
        api.Maintenance,
        api.SubmitResult,
        right=in_body("node:operate"),
        body=MaintenanceRequest,
    )
    async def schedule_maintenance(request: Request) -> Response:
        name = (await commands.plan(request, "maintenance", MaintenanceRequest, maintenance_command)).name
        return commands.shown(name, views.plans.windows.get(name), window_document)

    @router.command(
        "POST",
        "/v1/maintenance/{name}:cancel",
        "Cancel a maintenance window",
        right=in_body("node:operate"),
        body=ReasonRequest,
        required=False,
        operation_id="cancel_maintenance",
    )
    async def cancel_window(name: str, request: Request) -> Response:
        unknown = not_found("maintenance window", name[:80], hint="GET /v1/maintenance lists them")
        commands.require_plan(caller_of(request), views.plans.windows.get(name), unknown, changes=True)
        await commands.verb(request, "cancel", ReasonRequest, cmd.CancelMaintenance, name=name)
        return JsonResponse({"name": name, "cancelled": True, "sequence": views.sequence})


def _add_breaker(router: Router, views: Views, commands: NodeCommands, past: HistoricalViews) -> None:
    @router.read(
        "/v1/breaker",
        "Whether nodes are acted upon automatically, now or at a past moment",
        api.Breaker,
        right=on_cluster("node:read"),
    )
    async def get_breaker(at: At = "") -> Response:
        seen = await past.moment(at)
        return JsonResponse(breaker_document(seen.views), headers=seen.headers)

    @router.command(
        "POST",
        "/v1/breaker:reset",
        "Reset the breaker",
        api.Breaker,
        right=on_cluster("node:operate"),
        body=ReasonRequest,
        required=False,
    )
    async def reset_breaker(request: Request) -> Response:
        await commands.verb(request, "reset", ReasonRequest, cmd.ResetBreaker)
        return JsonResponse(breaker_document(views))
