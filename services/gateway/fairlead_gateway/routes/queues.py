"""Changes of queues and pools: a whole file, one queue's settings, the end of a queue. Each is one `ApplyQueues`.

The gateway checks what a file says by itself (`fairlead_schemas.queuefile.parse`); what needs the present tree the queue
service does, and refuses the whole change with one line per mistake, "<path>: <what>".

The explainer's answers on a pool: which runs would be moved so that big jobs start, and how the pool is packed, now
or at a past moment. Read-only.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from fastapi import Query, Request, Response

from fairlead_gateway.access.caller import CLUSTER, Caller
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.redaction import shown_defrag, shown_to
from fairlead_gateway.access.submits import require_submit
from fairlead_gateway.access.targets import Sight, queue_target
from fairlead_gateway.command_results import CommandPublisher, ResultWaiter
from fairlead_gateway.errors import HttpError, bad_field, not_found, rejected
from fairlead_gateway.http_messages import JsonResponse, RequestHead, head_of, read_file, read_json, read_request
from fairlead_gateway.routes import entity_tags, grammar
from fairlead_gateway.routes.entity_tags import entity_tag, key_part, unchanged_since
from fairlead_gateway.routes.query import At
from fairlead_gateway.routes.queue_roles import QueueRoles
from fairlead_gateway.routes.request_bodies import EmptyRequest, ReasonRequest
from fairlead_gateway.routes.router import Router, in_body, on_pool, on_queue
from fairlead_gateway.sources.historical_views import HistoricalViews
from fairlead_gateway.sources.service_queries import ExplainerClient
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queue_documents import queue_document, queue_documents
from fairlead_gateway.views.rows import OutcomeRow
from fairlead_rights.access_list import Target
from fairlead_schemas.http.api import Queue, QueueFileResult
from fairlead_schemas.queries.cluster_map import PoolPacking
from fairlead_schemas.queries.explainer import Ask, AskDefrag, AskPacking, Defrag, ExplainerAnswer
from fairlead_schemas.queuefile.parse import QueueFileWords, read_queue_file, read_settings
from fairlead_schemas.queuefile.settings import PoolEntry, QueueEntry, QueueRemoval
from fairlead_schemas.queuefile.settings_format import QueueWords
from fairlead_schemas.units.ids import is_queue_path
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire.commands import ApplyQueues, DrainQueue, HoldQueue, ReleaseQueue

FILE_BYTES_MAX = 512 * 1024
HINT = "GET /v1/schemas/queues shows the fields of a queue file"

_LINE = re.compile(r"((?:queues|pools)\.\S*): (.+)\Z")


def queue_refusal(outcome: OutcomeRow) -> HttpError:
    """Return the answer to a change that the queue service refused: as of any verb, or its lines as errors; then 409 where
    only jobs of a queue are in the way, else 422."""
    conflict = outcome.code == "conflict"
    if outcome.code == "not_found" or (conflict and not _LINE.match(outcome.message)):
        return rejected(outcome.code, outcome.message)
    if outcome.code == entity_tags.REFUSED:
        return entity_tags.stale_refusal(outcome, "/v1/queues")
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


def require_queue_changes(
    views: Views, caller: Caller, pools: Iterable[PoolEntry], queues: Iterable[QueueEntry], *, prune: bool
) -> None:
    """Raise HttpError (403, 404) unless the caller may set every pool and queue of a file, in the pool where it is and in the one
    that its settings name. `prune` removes what the file does not name, so it needs the right on the cluster.
    """
    if caller.may("queue:set", CLUSTER):
        return
    if prune:
        raise caller.denial("queue:set", CLUSTER)
    for pool in pools:
        hidden = not_found("pool", pool.pool[:80], hint="GET /v1/pools lists them")
        caller.require("queue:set", Target(pool=pool.pool), hidden=hidden, sees="queue:read")
    for queue in queues:
        hidden = not_found("queue", queue.path[:80], hint="GET /v1/queues lists them; PUT creates one")
        target = queue_target(views, queue.path)
        caller.require("queue:set", target, hidden=hidden, sees="queue:read")
        if queue.settings.pool:
            caller.require("queue:set", target._replace(pool=queue.settings.pool))


class QueueChanges:
    """Changes of queues as commands to the queue service, and of the roles in their files."""

    def __init__(self, views: Views, gate: CommandPublisher, waiter: ResultWaiter, roles: QueueRoles) -> None:
        self.views = views
        self.roles = roles
        self._gate = gate
        self._waiter = waiter

    async def send(self, head: RequestHead, kind: str, content: Iterable[str], **fields: Any) -> OutcomeRow:
        """Send an `ApplyQueues` with these fields, and return its outcome. `kind` and `content`: what one Idempotency-Key may repeat. Raise
        HttpError with every mistake, in the caller's words.
        """
        command_id = self._waiter.command_id(self._gate, head, kind, *content)
        command = ApplyQueues(id=command_id, user=head.user, authority=head.authority, **fields)
        command = await self.roles.with_ids(command, head.caller)
        return await self._waiter.carry_out(self._gate, command, shown_to(self.views, head.caller, queue_refusal))

    def existing(self) -> set[str]:
        """Return the paths of all queues."""
        return {row.path for row in self.views.queues.existing()}

    async def apply(
        self, head: RequestHead, body: bytes, *, prune: bool, reclaim: bool, seen: int | None
    ) -> QueueFileResult:
        """Apply a queue file with its roles; with `seen` only if nothing that it names has changed after that sequence. Raise
        HttpError.
        """
        file = read_file(body, read_queue_file, HINT)
        require_queue_changes(self.views, head.caller, file.pools, file.queues, prune=prune)
        checked = await self.roles.check(head, [entry.path for entry in file.queues], file.roles)
        outcome = await self.send(
            head,
            "apply",
            (body.decode("latin-1"), "prune" if prune else "", "reclaim" if reclaim else "", *key_part(seen)),
            pools=file.pools,
            queues=file.queues,
            prune=prune,
            reclaim=reclaim,
            unchanged_since=seen,
        )
        await self.roles.apply(head, checked)
        return self._result(head, file.queues, outcome.applied or (0, 0, 0))

    def _result(self, head: RequestHead, queues: Iterable[QueueEntry], counts: tuple[int, int, int]) -> QueueFileResult:
        views, sight = self.views, Sight(self.views, head.caller)
        configured, removed, unchanged = counts
        rows = [row for entry in queues if (row := views.queues.rows.get(entry.path)) and row.exists]
        return QueueFileResult(
            configured=configured,
            removed=removed,
            unchanged=unchanged,
            items=queue_documents(views, [row for row in rows if sight.queue(row.path)]),
            sequence=views.sequence,
        )

    async def put(self, head: RequestHead, path: str, body: bytes, seen: int | None) -> Queue:
        """Create or change one queue with its roles. Raise HttpError."""
        settings, stated = read_file(body, lambda value: read_settings(value, path), HINT)
        queues = (QueueEntry(path=path, settings=settings),)
        require_queue_changes(self.views, head.caller, (), queues, prune=False)
        checked = await self.roles.check(head, [path], {path: stated})
        content = path, body.decode("latin-1"), *key_part(seen)
        await self.send(head, "put", content, queues=queues, unchanged_since=seen)
        await self.roles.apply(head, checked)
        row = self.views.queues.rows.get(path)
        if row is None:  # a command that is repeated under its key, of a queue that is gone since
            raise not_found("queue", path, hint="GET /v1/queues lists them")
        return queue_document(self.views, row)

    async def remove(self, head: RequestHead, path: str, move_to: str, seen: int | None) -> None:
        """Remove one queue; all roles at it end with it. Raise HttpError, 404 for a queue that is gone."""
        removal = (QueueRemoval(path=path, move_to=move_to),)
        try:
            await self.send(head, "delete", (path, move_to, *key_part(seen)), remove=removal, unchanged_since=seen)
        except HttpError as refused:
            if refused.status == 422 and path not in self.existing():
                raise not_found("queue", path, hint="GET /v1/queues lists them") from None
            raise

    async def close(self, head: RequestHead, path: str, verb: str, reason: str) -> Queue:
        """Hold, drain or release one queue. Raise HttpError."""
        command_id = self._waiter.command_id(self._gate, head, f"{verb}-queue", path, reason)
        fields = {"reason": reason} if reason else {}
        command = CLOSING_VERBS[verb](id=command_id, user=head.user, authority=head.authority, path=path, **fields)  # type: ignore[call-arg]  # a release has no reason, and its route takes none
        await self._waiter.carry_out(self._gate, command)
        row = self.views.queues.rows.get(path)
        if row is None or not row.exists:  # a command that is repeated under its key, of a queue that is gone since
            raise not_found("queue", path, hint="GET /v1/queues lists them")
        return queue_document(self.views, row)


CLOSING_VERBS = {"hold": HoldQueue, "drain": DrainQueue, "release": ReleaseQueue}
_CLOSING_WORDS = {
    "hold": "Start nothing new of a queue and of those below it",
    "drain": "Accept no further jobs in a queue and in those below it",
    "release": "End the hold and the drain of a queue",
}


def queue_routes(changes: QueueChanges) -> Router:
    """Return the routes that change queues."""
    router = Router()
    _add_apply(router, changes)
    _add_put(router, changes)
    _add_delete(router, changes)
    for verb in CLOSING_VERBS:
        _add_closing(router, changes, verb)
    return router


def _add_apply(router: Router, changes: QueueChanges) -> None:
    @router.command(
        "POST",
        "/v1/queues:apply",
        "Apply a queue file",
        QueueFileResult,
        right=in_body("queue:set"),
        body=QueueFileWords,
        matched=True,
    )
    async def apply_queues(
        request: Request,
        prune: Annotated[bool, Query(description="Remove all queues and pools that the file does not name.")] = False,
        reclaim: Annotated[
            bool, Query(description="Ask running jobs to yield where a queue now holds more than its maximum.")
        ] = False,
    ) -> Response:
        head, body = head_of(request), await read_json(request, FILE_BYTES_MAX)
        applied = await changes.apply(head, body, prune=prune, reclaim=reclaim, seen=unchanged_since(request))
        return JsonResponse(applied, headers={"etag": entity_tag(applied.sequence)})


def _add_put(router: Router, changes: QueueChanges) -> None:
    @router.command(
        "PUT",
        "/v1/queues/{path:path}",
        "Create or change a queue",
        Queue,
        right=on_queue("queue:set"),
        body=QueueWords,
        matched=True,
    )
    async def put_queue(path: str, request: Request) -> Response:
        head = head_of(request)
        if not is_queue_path(path):
            message = f'expected names of a-z 0-9 _ - joined by "/", found "{path[:80]}"'
            raise bad_field("path", message)
        queue = await changes.put(head, path, await read_json(request), unchanged_since(request))
        return JsonResponse(queue, headers={"etag": entity_tag(changes.views.sequence)})


def _add_delete(router: Router, changes: QueueChanges) -> None:
    views = changes.views

    @router.command("DELETE", "/v1/queues/{path:path}", "Remove a queue", right=on_queue("queue:set"), matched=True)
    async def delete_queue(
        path: str,
        request: Request,
        move_to: Annotated[
            str,
            Query(
                alias="moveTo",
                json_schema_extra=grammar.QUEUE,
                description="Where its waiting jobs go; else it must have none.",
            ),
        ] = "",
    ) -> Response:
        head = head_of(request)
        if not is_queue_path(path):
            raise not_found("queue", path[:80])
        if move_to and not is_queue_path(move_to):
            raise bad_field("moveTo", f'expected a queue such as "research/vision", found "{move_to[:80]}"')
        if move_to:
            require_submit(views, head.caller, move_to, "", "moveTo")
        await changes.remove(head, path, move_to, unchanged_since(request))
        return JsonResponse({"path": path, "removed": True, "moved_to": move_to or None, "sequence": views.sequence})


def _add_closing(router: Router, changes: QueueChanges, verb: str) -> None:
    kind = EmptyRequest if verb == "release" else ReasonRequest

    @router.command(
        "POST",
        f"/v1/queues/{{path:path}}:{verb}",
        _CLOSING_WORDS[verb],
        Queue,
        right=on_queue("queue:set"),
        body=kind,
        required=False,
        operation_id=f"{verb}_queue",
    )
    async def close_queue(path: str, request: Request) -> Response:
        head, wanted = head_of(request), await read_request(request, kind)
        if not is_queue_path(path):
            raise not_found("queue", path[:80], hint="GET /v1/queues lists them")
        reason = wanted.reason if isinstance(wanted, ReasonRequest) else ""
        return JsonResponse(await changes.close(head, path, verb, reason))


def pool_routes(live: Views, past: HistoricalViews, explaining: ExplainerClient) -> Router:
    """Return the explainer's answers on a pool."""
    router = Router()

    async def ask(request: Request, views: Views, pool: str, question: Ask) -> ExplainerAnswer:
        """`views`: of the moment that is asked about."""
        if all(row.name != pool for row in views.queues.pool_rows()):
            sight = Sight(live, caller_of(request), views)
            known = [row.name for row in views.queues.pool_rows() if sight.pool(row.name)]
            raise not_found("pool", pool, hint="GET /v1/pools lists them", known=known)
        answer = await explaining.ask(question)
        if answer.error:
            raise HttpError(503, answer.error, answer.message, hint="the explainer answers this", retry_after_s=1)
        return answer

    @router.read(
        "/v1/pools/{pool}/defrag",
        "Which runs would be moved so that big jobs start, now or at a past moment; nothing is done",
        Defrag,
        right=on_pool("node:read"),
    )
    async def get_pool_defrag(pool: str, request: Request, at: At = "") -> Response:
        seen = await past.moment(at)
        question = AskDefrag(pool=pool, at=seen.of_past, now_ns=seen.now_ns if seen.is_past else 0)
        found = (await ask(request, seen.views, pool, question)).defrag
        assert found is not None, "an answer without an error has what was asked for"
        return JsonResponse(shown_defrag(Sight(live, caller_of(request), seen.views), found), headers=seen.headers)

    @router.read(
        "/v1/pools/{pool}/packing",
        "By which policy nodes are chosen, what is free and of use, and the largest jobs that could start; "
        "now or at a past moment",
        PoolPacking,
        right=on_pool("node:read"),
    )
    async def get_pool_packing(pool: str, request: Request, at: At = "") -> Response:
        if not at:
            silent = tuple(node for node in live.nodes.rows if live.silent_s(node))
            return JsonResponse((await ask(request, live, pool, AskPacking(pool=pool, away=silent))).packing)
        seen = await past.moment(at)
        then = seen.views
        found = (await ask(request, then, pool, AskPacking(pool=pool, at=then.sequence))).packing
        assert found is not None, "an answer without an error has what was asked for"
        return JsonResponse(msgspec.structs.replace(found, at=rfc3339(then.at_ns)), headers=seen.headers)

    return router
