"""Processes, servers and streams of the cluster over HTTP, and the level of the log's format, which is raised here.

The access service decides about the level; that every process knows it is seen here alone, by their signs of presence.
"""

from typing import Annotated

import msgspec
from fastapi import Request, Response

from fairlead_bus.port import Bus
from fairlead_gateway.command_results import CommandPublisher, ResultWaiter
from fairlead_gateway.errors import HttpError
from fairlead_gateway.http_messages import JsonResponse, head_of, read_request
from fairlead_gateway.monitoring.processes import ProcessTable, copies_of_streams, server_rows, stream_rows
from fairlead_gateway.routes.router import Router, on_cluster
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http import status as doc
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire.levels import LEVEL


class LevelRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of a raise: the level of the log's format from which on it may be written."""

    level: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class ClusterStatusRoutes:
    """Documents of the cluster's processes, and the command that raises the level."""

    def __init__(
        self, views: Views, bus: Bus, processes: ProcessTable, gate: CommandPublisher, waiter: ResultWaiter
    ) -> None:
        self._views, self._bus, self._processes = views, bus, processes
        self._gate, self._waiter = gate, waiter

    async def document(self) -> doc.ClusterStatus:
        """Return the status as of now."""
        copies = await copies_of_streams(self._bus)
        level = self._views.access.level
        return doc.ClusterStatus(
            sequence=self._views.sequence,
            level=level,
            raisable=self._processes.raisable(),
            hindrances=self._processes.hindrances(LEVEL) if level < LEVEL else [],
            processes=self._processes.rows(),
            servers=server_rows(copies),
            streams=stream_rows(copies),
        )

    async def raise_level(self, request: Request) -> None:
        """Raise the level as a request asks for. Raise HttpError (409) with the names of processes that do not know it."""
        head, wanted = head_of(request), await read_request(request, LevelRequest)
        if wanted.level > self._views.access.level and (found := self._processes.hindrances(wanted.level)):
            hint = "upgrade and restart them, or end them: `fairlead upgrade plan` lists all processes"
            raise HttpError(409, "older_process", f"level {wanted.level} is not raised: {'; '.join(found)}", hint=hint)
        command_id = self._waiter.command_id(self._gate, head, "RaiseLevel", str(wanted.level))
        user = (
            "" if head.caller.is_open else head.user
        )  # without sign-on nobody has a role, and everybody may do everything
        command = cmd.RaiseLevel(id=command_id, user=user, authority=head.authority, level=wanted.level)
        await self._waiter.carry_out(self._gate, command)


def routes(status: ClusterStatusRoutes) -> Router:
    """Return the routes."""
    router = Router()

    @router.read(
        "/v1/status",
        "Processes of services, servers of the bus, copies of streams, and the level of the log",
        doc.ClusterStatus,
        right=on_cluster("node:read"),
    )
    async def get_status() -> Response:
        return JsonResponse(await status.document())

    @router.command(
        "POST",
        "/v1/status:raise",
        "Let events of a newer level be written; refused while a process runs that does not know it",
        doc.ClusterStatus,
        right=on_cluster("rights:grant"),
        body=LevelRequest,
        operation_id="raise_level",
    )
    async def raise_level(request: Request) -> Response:
        await status.raise_level(request)
        return JsonResponse(await status.document())

    return router
