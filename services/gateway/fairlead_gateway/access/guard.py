"""Checks of the rights that routes declare, before a handler gets the request.

A thing that does not exist and one that the caller may not see are answered by the same bytes, so the answer about either is made
here, in one place. Start at `RouteGuard.admit`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from fairlead_gateway.access.caller import CLUSTER, OPEN_CALLER, Caller
from fairlead_gateway.access.callers import BLIND_S, CALLER, Callers, unauthenticated
from fairlead_gateway.access.route_rights import Right
from fairlead_gateway.access.targets import document_target, job_target, node_target, queue_target
from fairlead_gateway.errors import HttpError, not_found
from fairlead_gateway.views.fold import Views
from fairlead_gateway.why.dominant_reason import row_or_array
from fairlead_rights.access_list import Target
from fairlead_schemas.http.api import MissingRight
from fairlead_schemas.policies.rights import Verb

#: {kind of target: the verb by which a caller sees that it exists}
_SEES: dict[str, Verb] = {"job": "job:read", "queue": "queue:read", "node": "node:read", "pool": "node:read"}


class RouteGuard:
    """Lets requests through to the handlers of their routes. `retired`: returns the document of a job that has left the views,
    and raises the 404 of a job that nothing knows.
    """

    def __init__(self, views: Views, callers: Callers, retired: Callable[[str], Awaitable[bytes]]) -> None:
        self._views = views
        self.callers = callers
        self._retired = retired

    async def admit(self, right: Right, scope: Mapping[str, Any]) -> None:
        """Raise HttpError unless the request's caller has the right of its route: 401, 403, 404, or 503 while the gateway
        cannot know of revocations.
        """
        if self.callers.is_open or right.kind == "public":
            return
        caller: Caller = scope.get(CALLER, OPEN_CALLER)
        self.require_known(caller)
        match right.kind:
            case "signed-in" | "body":
                return
            case "listed":
                for verb in right.verbs:
                    if not caller.may_anywhere(verb):
                        raise caller.denial(verb, CLUSTER)
            case "cluster":
                for verb in right.verbs:
                    caller.require(verb, CLUSTER)
            case _:
                if not caller.may(right.verbs[0], CLUSTER):
                    await self._require(right, caller, scope["path_params"][right.parameter])

    def require_known(self, caller: Caller) -> None:
        """Raise HttpError (401) for a caller that is not signed in, (503) while the log's end is out of sight."""
        if not self.callers.is_current():
            raise behind_log()
        if not caller.is_open and not caller.principal:
            raise unauthenticated("no_credential", "sign in first: this needs a token or a session")

    async def _require(self, right: Right, caller: Caller, name: str) -> None:
        verb, sees = right.verbs[0], _SEES[right.kind]
        match right.kind:
            case "job":
                await self._require_job(caller, verb, name)
            case "node":
                row = self._views.nodes.rows.get(name)
                hidden = not_found("node", name[:80], hint="GET /v1/nodes lists them")
                if row is None:
                    raise hidden
                caller.require(verb, node_target(row), hidden=hidden, sees=sees)
            case "pool":
                hidden = not_found("pool", name[:80], hint="GET /v1/pools lists them")
                caller.require(verb, Target(pool=name), hidden=hidden, sees=sees)
            case _:
                hidden = not_found("queue", name[:80], hint="GET /v1/queues lists them; PUT creates one")
                caller.require(verb, queue_target(self._views, name), hidden=hidden, sees=sees)

    async def _require_job(self, caller: Caller, verb: Verb, job: str) -> None:
        row = row_or_array(self._views, job)
        if row is not None:
            target = job_target(self._views, row, job)
            if caller.may(verb, target):
                return
            if caller.may("job:read", target):
                raise caller.denial(verb, target)
        # Asked for a hidden job, too: the answer must not depend on which of the two it is.
        document = msgspec.json.decode(await self._retired(job))
        if row is None:
            target = document_target(self._views, document)
            if caller.may("job:read", target):
                caller.require(verb, target)
                return
        raise not_found("job", job)


def behind_log() -> HttpError:
    """Return the 503 of a gateway that would not notice a revocation."""
    return HttpError(
        503,
        "behind_log",
        f"this gateway has not seen the end of the log for {BLIND_S:g} s, so it cannot know of revoked rights",
        hint="GET /readyz names the condition",
        retry_after_s=2,
        why=MissingRight(reason="behind_log"),
    )
