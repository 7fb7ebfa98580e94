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
from fairlead_gateway.access.targets import (
    document_target,
    job_target,
    node_target,
    queue_target,
    service_target,
    volume_target,
)
from fairlead_gateway.errors import HttpError, not_found
from fairlead_gateway.views.fold import Views
from fairlead_gateway.why.dominant_reason import row_or_array
from fairlead_rights.access_list import Target
from fairlead_schemas.http.api import MissingRight
from fairlead_schemas.policies.rights import Verb
from fairlead_schemas.wire.access_records import ADDRESS_CHARS_MAX, TARGET_CHARS_MAX, AccessEntry, AccessKind

#: {kind of target: the verb by which a caller sees that it exists}
_SEES: dict[str, Verb] = {
    "job": "job:read",
    "queue": "queue:read",
    "node": "node:read",
    "pool": "node:read",
    "volume": "volume:read",
    "service": "job:read",
}


class RouteGuard:
    """Lets requests through to the handlers of their routes. `retired`: returns the document of a job that has left the views,
    and raises the 404 of a job that nothing knows.
    """

    def __init__(
        self,
        views: Views,
        callers: Callers,
        retired: Callable[[str], Awaitable[bytes]],
        note: Callable[[AccessEntry], None] = lambda _entry: None,
    ) -> None:
        """`note`: keeps an entry of the record of access."""
        self._views = views
        self._note = note
        self.callers = callers
        self._retired = retired

    def admits_known(self, right: Right, scope: Mapping[str, Any]) -> bool:
        """Return True for a request that needs a caller alone before its handler checks the rest; False: ask `admit`. Raise as `admit`
        does. Most requests to fast routes are such ones.
        """
        if right.kind != "body":
            return False
        caller: Caller = scope.get(CALLER, OPEN_CALLER)
        if not caller.principal or self.callers.blind_s() >= BLIND_S:
            self.require_known(caller)
        return True

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
            case "either":
                if not any(caller.may(verb, CLUSTER) for verb in right.verbs):
                    raise caller.denial(right.verbs[0], CLUSTER)
            case _:
                name = scope["path_params"][right.parameter]
                if not caller.may(right.verbs[0], CLUSTER):
                    await self._require(right, caller, name)
                if right.kind == "job" and right.verbs[0] == "job:read":
                    self._note_read(caller, name, scope)

    async def admit_again(self, right: Right, scope: Mapping[str, Any]) -> None:
        """Raise HttpError where the caller of a request about a job has lost its right, or its credential, while the request waited.
        Notes nothing: the request was noted when it came.
        """
        if self.callers.is_open:
            return
        caller: Caller = scope.get(CALLER, OPEN_CALLER)
        self.require_known(caller)
        if self.callers.ended(caller):
            raise unauthenticated("no_credential", "sign in again: the token or session ended while this waited")
        if not caller.may(right.verbs[0], CLUSTER):
            await self._require(right, caller, scope["path_params"][right.parameter])

    def _note_read(self, caller: Caller, job: str, scope: Mapping[str, Any]) -> None:
        """Note that somebody looks into a job of somebody else."""
        self._note_look("read", "job:read", caller, job, scope)

    def note_entry(self, caller: Caller, job: str, scope: Mapping[str, Any]) -> None:
        """Note that somebody has entered a job of somebody else."""
        self._note_look("entered", "session:open", caller, job, scope)

    def _note_look(self, kind: AccessKind, verb: Verb, caller: Caller, job: str, scope: Mapping[str, Any]) -> None:
        row = row_or_array(self._views, job)
        if row is not None and row.user != caller.principal and not caller.is_open:
            self._note(
                AccessEntry(
                    kind=kind,
                    at_ns=0,
                    principal=caller.principal,
                    via=caller.via,
                    verb=verb,
                    target=f"job:{row.id}",
                    owner=row.user if row.user in self._views.access.kinds else "",
                    address=address_of_scope(scope),
                )
            )

    def note_denial(self, error: HttpError, scope: Mapping[str, Any]) -> None:
        """Note a refusal for want of a right."""
        caller: Caller = scope.get(CALLER, OPEN_CALLER)
        if error.status != 403 or error.why is None or not error.why.verb or caller.is_open:
            return
        self._note(
            AccessEntry(
                kind="denied",
                at_ns=0,
                principal=caller.principal,
                via=caller.via,
                verb=error.why.verb,
                target=error.why.on[:TARGET_CHARS_MAX],
                address=address_of_scope(scope),
            )
        )

    def require_known(self, caller: Caller) -> None:
        """Raise HttpError (401) for a caller that is not signed in, (503) while the log's end is out of sight."""
        if not self.callers.is_current():
            raise behind_log()
        if not caller.is_open and not caller.principal:
            raise caller.refused or unauthenticated("no_credential", "sign in first: this needs a token or a session")

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
            case "volume":
                what, hint = ("dataset", "GET /v1/datasets") if "@" in name else ("volume", "GET /v1/volumes")
                hidden = not_found(what, name[:80], hint=f"{hint} lists them")
                target = volume_target(self._views, name.partition("@")[0])
                if target is None:
                    raise hidden
                caller.require(verb, target, hidden=hidden, sees=sees)
            case "service":
                hidden = not_found("service", name[:80], hint="GET /v1/services lists them")
                target = service_target(self._views, name)
                if target is None:
                    raise hidden
                caller.require(verb, target, hidden=hidden, sees=sees)
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


def address_of_scope(scope: Mapping[str, Any]) -> str:
    """Return the address that a request comes from."""
    peer = scope.get("client")
    return peer[0][:ADDRESS_CHARS_MAX] if peer else ""


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
