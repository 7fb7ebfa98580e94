"""Routes of the gateway: the list, in order, and the form of errors; and the first page: what this is, live counts, where
to go. No logic.

`fast_path.py` answers some of these routes before they reach this application, which has them in their plain form.

Plain HTML; the web pages proper come later.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from html import escape
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from fairlead_gateway.access.caller import CLUSTER
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.guard import RouteGuard
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.directories.scim_errors import error_answer
from fairlead_gateway.errors import EarlyAnswer, HttpError, bad_field, internal_error, invalid
from fairlead_gateway.http_messages import HEAD, ClientGone, JsonResponse, plain_response
from fairlead_gateway.monitoring import metrics
from fairlead_gateway.monitoring.metrics import Metrics
from fairlead_gateway.routes.documents import node_documents
from fairlead_gateway.routes.entity_tags import require_taken
from fairlead_gateway.routes.router import ANY_QUERY, PUBLIC, SIGNED_IN, Right, Router, on_cluster
from fairlead_gateway.server.fast_path import REQUEST_ID, VERSION
from fairlead_gateway.server.openapi import install
from fairlead_gateway.sources.live_views import LiveViews
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queue_documents import queue_documents
from fairlead_schemas.http import asyncapi
from fairlead_schemas.http.api import API_VERSION, Queue, Version
from fairlead_schemas.units.quantities import format_milli
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire.conditions import Condition, Readiness

_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}
table{border-collapse:collapse;margin:.5rem 0 1.5rem}th,td{text-align:left;padding:.2rem 1rem .2rem 0;border-bottom:1px solid #8884}
td.n,th.n{text-align:right}code{background:#8882;padding:.1rem .3rem;border-radius:.2rem}"""

_LINKS = (
    ("/v1/jobs", "jobs"),
    ("/v1/nodes", "nodes"),
    ("/v1/queues", "queues"),
    ("/v1/pools", "pools"),
    ("/v1/cluster", "the whole cluster"),
    ("/v1/map", "every GPU and who holds it"),
    ("/v1/events?from=1", "events"),
    ("/v1/schemas/job", "JSON Schema of a job file"),
    ("/openapi.json", "OpenAPI"),
    ("/asyncapi.json", "AsyncAPI"),
    ("/metrics", "metrics"),
    ("/readyz", "readiness"),
)


_PAGE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "no-referrer",
}


def render_index(views: Views, sight: Sight) -> str:
    """The page as of the views, with the rows that the caller may see."""
    nodes = node_documents(views, (row for _, row in sorted(views.nodes.rows.items()) if sight.node(row)))
    queues = queue_documents(views, (row for row in views.queues.existing() if sight.queue(row.path)))
    counts = views.job_counts() if sight.all_jobs else views.job_counts(lambda path: sight.jobs_of(path))
    sender = (
        "There is no sign-on here: everybody may do everything."
        if sight.caller.is_open
        else f"Signed in as {escape(sight.caller.user)}."
    )
    simulated = sum(node.simulated for node in nodes)
    told = f" ({simulated} simulated)" if simulated else ""
    links = " · ".join(f'<a href="{escape(path)}">{escape(name)}</a>' for path, name in _LINKS)
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Fairlead</title><style>{_STYLE}</style>
<h1>Fairlead</h1>
<p>A GPU cluster you can question: submit jobs, share GPUs, and ask <em>why</em>. Every decision is an event
in one log; this page is true for sequence <b>{views.sequence}</b>. {sender}</p>
<p>{links}</p>
<h2>Jobs</h2>{_table(("state", "jobs"), [(state, str(count)) for state, count in counts.items()])}
<h2>Nodes: {len(nodes)}{told}</h2>{_table(("node", "state", "GPUs", "free"), [(n.id, n.state, str(n.gpus), str(n.gpus_free)) for n in nodes[:200]])}
<h2>Queues</h2>{_table(_QUEUE_HEADS, [_queue(q) for q in queues[:200]])}
<p>Try: <code>fairlead submit -- echo hello</code>, then <code>fairlead why last</code>.</p></html>"""


_QUEUE_HEADS = ("queue", "waiting", "running", "GPUs charged", "guaranteed", "maximum", "borrowed")


def _queue(queue: Queue) -> tuple[str, ...]:
    amounts = (queue.guaranteed.get("gpu"), queue.maximum.get("gpu"), queue.borrowed.get("gpu"))
    told = ["–" if amount is None else format_milli(amount) for amount in amounts]
    return queue.path, str(queue.waiting), str(queue.running), format_milli(queue.gpu_milli_charged), *told


def _table(names: tuple[str, ...], rows: "list[tuple[str, ...]]") -> str:
    if not rows:
        return "<p>none</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


#: Built once: it is the same for every process of a version.
log_document = cache(asyncapi.document)


def build_app(
    folding: LiveViews,
    numbers: Metrics,
    routers: list[Router],
    readiness: Callable[[], Readiness],
    guard: RouteGuard,
    forward_past: Callable[[Request], Awaitable[None]],
) -> FastAPI:
    """Return the application with all routes, each behind the guard. `readiness` returns the body of `/readyz`. The gateway's own
    routes are added to `routers`. `forward_past`: is called for each request of a route that takes a moment, and may answer it.
    """
    app = FastAPI(
        title="Fairlead",
        version="1",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    routers.append(_own_routes(folding, numbers, readiness))
    routers.append(install(app, routers, is_open=guard.callers.is_open))
    rights = rights_of(routers)

    parameters: dict[Callable[..., Any], list[str]] = {}

    async def admit(request: Request) -> None:
        """Check the right before anything else is looked at. Raises KeyError, which is a 500, for a route without one."""
        if HEAD in request.scope:
            request.scope[HEAD].require_valid()
        await guard.admit(rights[request.scope["endpoint"]], request.scope)
        if request.method != "GET" and request.scope["route"].path.startswith("/v1/"):
            require_taken(request, (request.scope["route"].openapi_extra or {}).get("parameters", ()))
        if "at" in _only_known_parameters(request, parameters):
            await forward_past(request)

    for router in routers:
        app.include_router(router, dependencies=[Depends(admit)])

    def allowed(path: str) -> str:
        """Return the methods of a path, for `Allow`; "" for an unknown path.

        A path may have a route for each method, and Starlette names the first route's only. Of several templates that
        match, the most literal one is meant: "/v1/jobs/{job}:cancel", not "/v1/jobs/{job}" with a job called "7:cancel".
        """
        found: dict[int, set[str]] = {}
        for route in (route for router in (app.router, *routers) for route in router.routes):
            if isinstance(route, APIRoute) and route.path_regex.match(path):
                literal = len(re.sub(r"\{[^}]*\}", "", route.path))
                found.setdefault(literal, set()).update(route.methods or ())
        return next((", ".join(sorted(methods)) for _, methods in sorted(found.items(), reverse=True) if methods), "")

    _errors(app, allowed, guard)
    return app


def rights_of(routers: Iterable[Router]) -> dict[Callable[..., Any], Right]:
    """Return {handler: the right of its route}."""
    return {handler: right for router in routers for handler, right in router.rights.items()}


def route_rights(routers: Iterable[Router]) -> dict[tuple[str, str], Right]:
    """Return {(method, path): right} of all routes. Raise KeyError for a route without one."""
    return {
        (method, route.path): router.rights[route.endpoint]
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods or ())
    }


def _own_routes(folding: LiveViews, numbers: Metrics, readiness: Callable[[], Readiness]) -> Router:
    router = Router()
    views = folding.views

    @router.read("/healthz", "The process works", right=PUBLIC)
    async def healthz() -> Response:
        return JsonResponse({"status": "ok", "sequence": views.sequence})

    @router.read("/version", "Version of the gateway, and of its API", Version, right=PUBLIC)
    async def get_version() -> Response:
        return JsonResponse(Version(version=VERSION.decode(), api=API_VERSION, sequence=views.sequence))

    ready = router.answers(Readiness)

    @router.read(
        "/readyz",
        "Jobs are accepted and run; otherwise the conditions that hold",
        right=PUBLIC,
        responses={**ready, 503: {**ready[200], "description": "Readiness, where it is not ready"}},
    )
    async def readyz(request: Request) -> Response:
        body = readiness()
        if not caller_of(request).may("node:read", CLUSTER):
            body = _without_names(body)
        return JsonResponse(body, status_code=200 if body.ready else 503)

    @router.read(
        "/metrics",
        "Prometheus metrics",
        right=on_cluster("job:read", "queue:read", "node:read"),
        response_class=Response,
        responses={
            200: {"description": "Prometheus text format", "content": {"text/plain": {"schema": {"type": "string"}}}}
        },
    )
    async def get_metrics() -> Response:
        numbers.lag.set(max(0, folding.log_end - views.sequence))
        await asyncio.gather(numbers.cluster.look(), numbers.telemetry.look())
        return Response(numbers.text(), media_type=metrics.MEDIA_TYPE)

    @router.read("/asyncapi.json", "AsyncAPI document of the event log", right=PUBLIC)
    async def get_asyncapi() -> Response:
        return JsonResponse(log_document())

    @router.read(
        "/favicon.ico", "Icon that browsers ask for with every page: none", right=PUBLIC, include_in_schema=False
    )
    async def no_icon() -> Response:
        return Response(status_code=204, headers={"cache-control": "public, max-age=86400"})

    @router.read("/", "First page", right=SIGNED_IN, include_in_schema=False)
    async def index(request: Request) -> Response:
        page = render_index(views, Sight(views, caller_of(request)))
        return Response(page, media_type="text/html; charset=utf-8", headers=_PAGE_HEADERS)

    return router


def _without_names(body: Readiness) -> Readiness:
    """Return readiness for those who may not see nodes: conditions by their codes only."""
    conditions = [Condition(code=each.code, message="") for each in body.conditions]
    return Readiness(
        ready=body.ready, bus=body.bus, sequence=body.sequence, log_end=body.log_end, conditions=conditions
    )


def _only_known_parameters(request: Request, parameters: dict[Callable[..., Any], list[str]]) -> list[str]:
    """Return the route's parameters. Raise HttpError (422) for an unknown one: a misspelt filter would be answered as if it were not
    there, with everything. `parameters`: {handler: names of the query parameters that it and its dependencies take}, filled here.
    """
    route = request.scope["route"]
    if route.endpoint in ANY_QUERY:
        return []
    known = parameters.get(route.endpoint)
    if known is None:
        known = parameters[route.endpoint] = list(_query_names(route.dependant))
    for name in request.query_params:
        if name not in known:
            expected = f"expected {', '.join(known)}" if known else "this path takes none"
            raise bad_field(name[:80], f"unknown query parameter; {expected}")
    return known


def _query_names(dependant: Dependant) -> Iterable[str]:
    yield from (field.alias for field in dependant.query_params)
    for each in dependant.dependencies:
        yield from _query_names(each)


def _errors(app: FastAPI, allowed: Callable[[str], str], guard: RouteGuard) -> None:
    def answer(request: Request, early: EarlyAnswer) -> Response:
        if isinstance(early, HttpError):
            guard.note_denial(early, request.scope)
        return plain_response(error_answer(request.url.path, early, request.scope.get(REQUEST_ID, "")))

    @app.exception_handler(EarlyAnswer)
    async def answered_early(request: Request, early: EarlyAnswer) -> Response:
        return answer(request, early)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        path, status = request.url.path, error.status_code
        if status == 404:
            hint = "GET /openapi.json lists all paths"
            return answer(request, HttpError(404, "unknown_path", f"there is no {path}", hint=hint))
        response = answer(request, HttpError(status, f"http_{status}", f"{request.method} {path}: {error.detail}"))
        if status == 405:
            response.headers["allow"] = allowed(path)
        return response

    @app.exception_handler(RequestValidationError)
    async def not_valid(request: Request, error: RequestValidationError) -> Response:
        errors = [FieldError(field=str(one["loc"][-1]), message=str(one["msg"])) for one in error.errors()]
        return answer(request, invalid(errors))

    @app.exception_handler(ClientGone)
    async def gone(_request: Request, _error: ClientGone) -> Response:
        return Response(status_code=400)  # no client reads it

    @app.exception_handler(Exception)
    async def failed(request: Request, _error: Exception) -> Response:
        return answer(request, internal_error())
