"""GET routes over the views: jobs, nodes, queues, commands, cluster, its map (`why`: `why.py`). They never wait for the bus,
except for jobs that have left the views, which the telemetry service still knows, and for shares of queues, which the explainer counts. The filter of job lists: `job_filter.py`.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Annotated, Any

import msgspec
from fastapi import Query, Request, Response

from fairlead_bus.port import Bus, Unavailable
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.guard import RouteGuard
from fairlead_gateway.access.redaction import scrub, shown_job, shown_map, shown_node, shown_retired_job
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.command_results import owner_mark
from fairlead_gateway.errors import bad_field, not_found, unknown_choice
from fairlead_gateway.http_messages import JsonResponse, encode
from fairlead_gateway.page_tokens import bad_token, page_token, place_of
from fairlead_gateway.routes import grammar
from fairlead_gateway.routes.documents import job_document, node_document, node_documents
from fairlead_gateway.routes.entity_tags import entity_tag, has_seen, tagged
from fairlead_gateway.routes.job_filter import JobFilter, JobQuery, job_filter
from fairlead_gateway.routes.router import PUBLIC, SIGNED_IN, Router, listed, on_job, on_node, on_queue
from fairlead_gateway.sources.historical_views import HistoricalViews, SeenMoment
from fairlead_gateway.sources.job_waits import UNTIL, JobWaits
from fairlead_gateway.sources.service_queries import ExplainerClient
from fairlead_gateway.views.cluster_map import cluster_map, known_places
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queue_documents import add_shares, pool_document, queue_document, queue_documents
from fairlead_gateway.views.rows import JobRow
from fairlead_schemas.http import api, json_schema
from fairlead_schemas.queries.cluster_map import ClusterMap
from fairlead_schemas.queries.explainer import AskQueues, QueueStanding
from fairlead_schemas.units.ids import is_job_id
from fairlead_schemas.units.timestamps import parse_rfc3339, rfc3339
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.lifecycle import END_STATES

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
TELEMETRY_TIMEOUT_S = 2.0
#: A wait for a job ends within the time after which clients and proxies give up.
WAIT_S_MAX = 20

AT_WORDS = 'The answer as of then: a log sequence, an RFC 3339 time with its zone, or how long ago ("2 hours ago").'
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Items per page.")]
AnyLimit = Annotated[int | None, Query(ge=1, description="Items per page (default: all).")]
Continue = Annotated[
    str,
    Query(
        alias="continue",
        json_schema_extra={"pattern": "^[A-Za-z0-9_-]*$"},
        description="The `next` of the page before.",
    ),
]
At = Annotated[
    str,
    Query(json_schema_extra=grammar.MOMENT, description=AT_WORDS),
]
Until = Annotated[
    str,
    Query(json_schema_extra={"enum": ["", *UNTIL]}, description="Answer when the job has started, or has ended."),
]
WaitS = Annotated[
    int, Query(ge=0, le=WAIT_S_MAX, description="With `until`: answer after so many seconds in any case.")
]
Shares = Annotated[bool, Query(description="With `share`: fair share, past use, budgets; asks the explainer.")]
OnePool = Annotated[str, Query(description="Only the nodes of this pool.")]
OneRack = Annotated[str, Query(description="Only the nodes of this rack, as their label names it.")]


def routes(
    views: Views,
    bus: Bus,
    past: HistoricalViews,
    guard: RouteGuard,
    waits: JobWaits,
    explaining: ExplainerClient,
) -> Router:
    """Return all reading routes."""
    router = Router()
    _add_jobs(router, views, past)
    _add_job(router, views, bus, guard, waits, past)
    _add_cluster(router, views, past)
    _add_nodes(router, views, past)
    _add_queues(router, views, past, explaining)
    _add_commands(router, views, past)
    return router


def _add_jobs(router: Router, views: Views, past: HistoricalViews) -> None:
    @router.read("/v1/jobs", "List jobs, newest first", api.Page[api.Job], right=listed("job:read"))
    async def list_jobs(
        request: Request,
        state: Annotated[
            str, Query(json_schema_extra=grammar.STATES, description="One state or several, joined by commas.")
        ] = "",
        queue: Annotated[
            str,
            Query(
                json_schema_extra=grammar.QUEUES,
                description="One queue or several, joined by commas, with all queues below.",
            ),
        ] = "",
        user: Annotated[
            str, Query(json_schema_extra=grammar.TOKENS, description="One user or several, joined by commas.")
        ] = "",
        name: Annotated[
            str, Query(description='One name or several, joined by commas; "*" stands for any characters.')
        ] = "",
        label: Annotated[str, Query(description='Labels that a job has, all of them: "team=vision,stage".')] = "",
        project: Annotated[str, Query(description="One project or several, joined by commas.")] = "",
        since: Annotated[
            str,
            Query(
                json_schema_extra=grammar.SINCE,
                description='Without jobs that had ended before: an RFC 3339 time, or how long ago, "1d".',
            ),
        ] = "",
        elements: Annotated[bool, Query(description="False: arrays stand for their elements.")] = True,
        limit: Limit = LIMIT_DEFAULT,
        next: Continue = "",
        at: At = "",
    ) -> Response:
        seen = await page_at(past, at, next)
        sight = Sight(views, caller_of(request), seen.views)
        query = JobQuery(state, queue, user, name, label, project, since, elements)
        wanted = job_filter(seen.views, query, seen.now_ns, sight)
        before = _born(next)
        found = list(islice(_matching(seen.views, wanted, before, sight), limit + 1))
        token = page_token(str(found[limit - 1].born), seen.of_past) if len(found) > limit else None
        items = [shown_job(sight, job_document(seen.views, row, seen.now_ns)) for row in found[:limit]]
        return JsonResponse(api.Page(items=items, next=token, sequence=seen.views.sequence), headers=seen.headers)

    @router.read("/v1/schemas/job", "JSON Schema of a job file", right=PUBLIC)
    async def job_schema() -> Response:
        return JsonResponse(json_schema.document("job"))

    @router.read("/v1/schemas/queues", "JSON Schema of a queue file", right=PUBLIC)
    async def queues_schema() -> Response:
        return JsonResponse(json_schema.document("queues"))


def _add_job(router: Router, views: Views, bus: Bus, guard: RouteGuard, waits: JobWaits, past: HistoricalViews) -> None:
    right = on_job("job:read")

    @router.read(
        "/v1/jobs/{job}",
        "One job, at once, when it has started or ended, or at a past moment",
        api.Job,
        right=right,
    )
    async def get_job(job: str, request: Request, until: Until = "", wait_s: WaitS = 0, at: At = "") -> Response:
        if until and until not in UNTIL:
            raise bad_field("until", f'expected one of {", ".join(UNTIL)}, found "{until[:20]}"')
        if bool(until) != bool(wait_s):
            raise bad_field("wait_s" if until else "until", "expected both `until` and `wait_s`, or none of them")
        if until and at:
            raise bad_field("until", "expected no `until` with `at`: nothing happens in the past")
        if until:
            await waits.until(job, until, wait_s)
            await guard.admit_again(right, request.scope)
        seen = await past.moment(at)
        sight = Sight(views, caller_of(request), seen.views)
        row = seen.views.jobs.rows.get(job)
        if row is None:
            return JsonResponse(await _retired_then(bus, job, seen, sight), headers=seen.headers)
        tag = entity_tag(row.changed_seq if row.state in END_STATES else seen.views.sequence)
        if has_seen(request, tag):
            return Response(status_code=304, headers={"etag": tag, **seen.headers})
        if seen.is_past and not sight.job(row):
            raise not_found("job", job)
        document = shown_job(sight, job_document(seen.views, row, seen.now_ns, count_ahead=True))
        return JsonResponse(document, headers={"etag": tag, **seen.headers})


def _add_cluster(router: Router, views: Views, past: HistoricalViews) -> None:
    @router.read("/v1/cluster", "The whole cluster, now or at a past moment", api.Cluster, right=SIGNED_IN)
    async def get_cluster(request: Request, at: At = "") -> Response:
        seen = await past.moment(at)
        sight = Sight(views, caller_of(request), seen.views)
        return JsonResponse(cluster_document(seen.views, sight), headers=seen.headers)

    @router.read(
        "/v1/map",
        "Every GPU and who holds it, and what pools have left; now or at a past moment",
        ClusterMap,
        right=listed("node:read"),
    )
    async def get_map(request: Request, at: At = "", pool: OnePool = "", rack: OneRack = "") -> Response:
        seen = await past.moment(at)
        sight = Sight(views, caller_of(request), seen.views)
        pools, racks = known_places(seen.views, sight.node)
        for name, wanted, known in (("pool", pool, pools), ("rack", rack, racks)):
            if wanted and wanted not in known:
                raise unknown_choice(name, wanted, known)
        document = shown_map(sight, cluster_map(seen.views, pool=pool, rack=rack, sees=sight.node))
        return JsonResponse(document, headers=seen.headers)


def _add_nodes(router: Router, views: Views, past: HistoricalViews) -> None:
    @router.read("/v1/nodes", "List nodes, now or at a past moment", api.Page[api.Node], right=listed("node:read"))
    async def list_nodes(request: Request, limit: AnyLimit = None, next: Continue = "", at: At = "") -> Response:
        seen = await page_at(past, at, next)
        sight = Sight(views, caller_of(request), seen.views)
        known = {name: row for name, row in seen.views.nodes.rows.items() if sight.node(row)}
        rows, token = page_by_name(known, limit, next, seen)
        items = [shown_node(sight, each) for each in node_documents(seen.views, rows)]
        return JsonResponse(api.Page(items=items, next=token, sequence=seen.views.sequence), headers=seen.headers)

    @router.read("/v1/nodes/{node}", "One node, now or at a past moment", api.Node, right=on_node("node:read"))
    async def get_node(node: str, request: Request, at: At = "") -> Response:
        seen = await past.moment(at)
        row = seen.views.nodes.rows.get(node)
        sight = Sight(views, caller_of(request), seen.views)
        if row is None:
            known = [name for name, each in seen.views.nodes.rows.items() if sight.node(each)]
            raise not_found("node", node, hint="GET /v1/nodes lists them", known=known)
        return JsonResponse(shown_node(sight, node_document(seen.views, row)), headers=seen.headers)


def _add_queues(router: Router, views: Views, past: HistoricalViews, explaining: ExplainerClient) -> None:
    @router.read("/v1/queues", "List queues, now or at a past moment", api.Page[api.Queue], right=listed("queue:read"))
    async def list_queues(
        request: Request, limit: AnyLimit = None, next: Continue = "", shares: Shares = False, at: At = ""
    ) -> Response:
        seen = await page_at(past, at, next)
        standings = await _standings(explaining, seen) if shares else {}
        sight = Sight(views, caller_of(request), seen.views)
        known = {row.path: row for row in seen.views.queues.existing() if sight.queue(row.path)}
        rows, token = page_by_name(known, limit, next, seen)
        page = api.Page(items=queue_documents(seen.views, rows), next=token, sequence=seen.views.sequence)
        if shares:  # counted by another process, perhaps for another sequence: no tag
            add_shares(seen.views, page.items, standings)
            return JsonResponse(page, headers=seen.headers)
        return tagged(request, page, seen.views.sequence, seen.headers)

    @router.read(
        "/v1/pools",
        "List pools of nodes and queues, now or at a past moment",
        api.Page[api.Pool],
        right=listed("queue:read"),
    )
    async def list_pools(request: Request, limit: AnyLimit = None, next: Continue = "", at: At = "") -> Response:
        seen = await page_at(past, at, next)
        sight = Sight(views, caller_of(request), seen.views)
        known = {row.name: row for row in seen.views.queues.pool_rows() if sight.pool(row.name)}
        rows, token = page_by_name(known, limit, next, seen)
        items = [_shown_pool(sight, pool_document(seen.views, row)) for row in rows]
        page = api.Page(items=items, next=token, sequence=seen.views.sequence)
        return tagged(request, page, seen.views.sequence, seen.headers)

    @router.read(
        "/v1/queues/{path:path}", "One queue, now or at a past moment", api.Queue, right=on_queue("queue:read")
    )
    async def get_queue(path: str, request: Request, shares: Shares = False, at: At = "") -> Response:
        seen = await past.moment(at)
        standings = await _standings(explaining, seen) if shares else {}
        row = seen.views.queues.rows.get(path)
        if row is None or not row.exists:
            sight = Sight(views, caller_of(request), seen.views)
            known = [each.path for each in seen.views.queues.existing() if sight.queue(each.path)]
            raise not_found("queue", path, hint="GET /v1/queues lists them; PUT creates one", known=known)
        document = queue_document(seen.views, row)
        if shares:
            add_shares(seen.views, [document], standings)
            return JsonResponse(document, headers=seen.headers)
        return tagged(request, document, seen.views.sequence, seen.headers)


def _add_commands(router: Router, views: Views, past: HistoricalViews) -> None:
    @router.read(
        "/v1/commands/{command}",
        "Outcome of a command, as far as it was decided then",
        api.CommandOutcome,
        right=SIGNED_IN,
    )
    async def get_command(command: str, request: Request, at: At = "") -> Response:
        seen = await past.moment(at)
        outcome, caller = seen.views.outcomes.get(command), caller_of(request)
        sight = Sight(views, caller, seen.views)
        if outcome is None or not (sight.is_whole or command.endswith(owner_mark(caller.principal))):
            raise not_found(
                "command", command, hint="not decided yet, never stored, or too old to be remembered; ask again"
            )
        found = api.CommandOutcome(
            id=command,
            outcome="rejected" if outcome.code else "repeated" if outcome.repeated else "done",
            job=outcome.job or None,
            code=outcome.code or None,
            message=outcome.message if sight.is_whole else scrub(sight, outcome.message),
            decided_at=outcome.sequence,
            sequence=seen.views.sequence,
        )
        return JsonResponse(found, headers=seen.headers)


# ---------------------------------------------------------------------------------------- jobs


async def _standings(explaining: ExplainerClient, seen: SeenMoment) -> dict[str, QueueStanding]:
    """{path: standing} of all queues at a moment; nothing where the explainer does not answer."""
    question = AskQueues(at=seen.views.sequence if seen.is_past else 0)
    return {each.queue: each for each in (await explaining.ask(question)).queues}


def _shown_pool(sight: Sight, pool: api.Pool) -> api.Pool:
    pool.queues = [path for path in pool.queues if sight.queue(path)]
    return pool


def _matching(views: Views, wanted: JobFilter, before: int, sight: Sight) -> Iterable[JobRow]:
    for row in reversed(views.jobs.rows.values()):
        if not (before and row.born >= before) and wanted.matches(row) and sight.job(row):
            yield row


def page_by_name[R](
    rows: Mapping[str, R], limit: int | None, token: str, seen: SeenMoment | None = None
) -> tuple[list[R], str | None]:
    """Return one page of named rows in order of name, and the token of the next page (None: there is none).

    A token has a name: the next page begins behind it, no matter which rows came or went meanwhile. `seen`: the moment of the rows.
    """
    _, place = place_of(token)
    names = sorted(name for name in rows if name > place)
    limit = limit or max(1, len(names))
    sequence = seen.of_past if seen is not None else 0
    return [rows[name] for name in names[:limit]], page_token(names[limit - 1], sequence) if len(
        names
    ) > limit else None


async def page_at(past: HistoricalViews, at: str, token: str) -> SeenMoment:
    """Return the moment that a page is of. The token of a page of the past names the moment's sequence, so that all pages of a list
    are of one moment, however `at` names it. Raise HttpError.
    """
    sequence, _ = place_of(token)
    return await past.moment(sequence or at)


def _born(token: str) -> int:
    try:
        return int(place_of(token)[1] or "0")
    except ValueError:
        raise bad_token() from None


async def retired_job(bus: Bus, job: str) -> bytes:
    """Return a job that has left the views, as telemetry knows it. Raise HttpError (404; the hint says when telemetry does not answer)."""
    if not is_job_id(job):
        raise not_found("job", job[:80])
    try:
        answer = await bus.request(subjects.rpc("telemetry", "job"), encode({"id": job}), timeout_s=TELEMETRY_TIMEOUT_S)
    except Unavailable:
        raise not_found(
            "job", job, hint="it may have been retired; the telemetry service, which keeps history, does not answer"
        ) from None
    if not answer or answer == b"null" or b'"id"' not in answer:
        raise not_found("job", job)
    return answer


async def _retired_then(bus: Bus, job: str, seen: SeenMoment, sight: Sight) -> Any:
    """Return a job that had left the views at a moment, as telemetry knows it: it does not change any more. Raise HttpError (404) also
    for one that was submitted later.
    """
    found = await retired_job(bus, job)
    if seen.is_past and not was_retired(found, seen.views):
        raise not_found("job", job, hint=f"it was submitted later than sequence {seen.views.sequence}")
    return shown_retired_job(sight, found)


def was_retired(document: bytes, then: Views) -> bool:
    """Return True if the job of a document had left the views at a moment: it is not in them, and had ended before."""
    ended = msgspec.json.decode(document).get("ended_at")
    return isinstance(ended, str) and parse_rfc3339(ended) <= then.at_ns


def cluster_document(views: Views, sight: Sight) -> api.Cluster:
    """Return nodes, queues and job counts as of the views, as far as the caller may see them now."""
    rows = (row for _, row in sorted(views.nodes.rows.items()) if sight.node(row))
    nodes = [shown_node(sight, each) for each in node_documents(views, rows)]
    return api.Cluster(
        sequence=views.sequence,
        at=rfc3339(views.at_ns) if views.at_ns else None,
        jobs=views.job_counts() if sight.all_jobs else views.job_counts(lambda path: sight.jobs_of(path)),
        gpus=sum(node.gpus for node in nodes if node.state != "lost"),
        gpus_free=sum(node.gpus_free for node in nodes),
        nodes=nodes,
        queues=queue_documents(views, (row for row in views.queues.existing() if sight.queue(row.path))),
    )
