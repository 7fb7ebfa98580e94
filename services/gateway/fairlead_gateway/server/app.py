"""Routes of the gateway: the list, in order, and the form of errors. No logic.

`fast_path.py` answers some of these routes before they reach this application, which has them in their plain form.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from fairlead_gateway.access.caller import CLUSTER
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.guard import RouteGuard
from fairlead_gateway.directories.scim_errors import error_answer
from fairlead_gateway.errors import EarlyAnswer, HttpError, bad_field, internal_error, invalid
from fairlead_gateway.http_messages import HEAD, ClientGone, JsonResponse, plain_response
from fairlead_gateway.monitoring import metrics
from fairlead_gateway.monitoring.metrics import Metrics
from fairlead_gateway.routes.entity_tags import require_taken
from fairlead_gateway.routes.pages import PAGE_HANDLERS
from fairlead_gateway.routes.router import ANY_QUERY, PUBLIC, Right, Router, on_cluster
from fairlead_gateway.routes.sign_on_pages import sign_in_first
from fairlead_gateway.server.fast_path import REQUEST_ID, VERSION
from fairlead_gateway.server.openapi import install
from fairlead_gateway.sources.live_views import LiveViews
from fairlead_schemas.http import asyncapi
from fairlead_schemas.http.api import API_VERSION, Version
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire.conditions import Condition, Readiness

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
    by_sequence = {handler for router in routers for handler in router.by_sequence}

    parameters: dict[Callable[..., Any], list[str]] = {}

    async def admit(request: Request) -> None:
        """Check the right before anything else is looked at. Raises KeyError, which is a 500, for a route without one."""
        if HEAD in request.scope:
            request.scope[HEAD].require_valid()
        await guard.admit(rights[request.scope["endpoint"]], request.scope)
        if request.method != "GET" and request.scope["route"].path.startswith("/v1/"):
            require_taken(request, (request.scope["route"].openapi_extra or {}).get("parameters", ()))
        if "at" in _only_known_parameters(request, parameters) and request.scope["endpoint"] not in by_sequence:
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

    return router


def _without_names(body: Readiness) -> Readiness:
    """Return readiness for those who may not see nodes: conditions by their codes only."""
    conditions = [Condition(code=each.code, message="") for each in body.conditions]
    return Readiness(
        ready=body.ready, bus=body.bus, sequence=body.sequence, log_end=body.log_end, conditions=conditions
    )


def _only_known_parameters(request: Request, parameters: dict[Callable[..., Any], list[str]]) -> list[str]:
    """Return the route's parameters. Raise HttpError (422) for an unknown one: a misspelt filter would be answered as if it were not
    there, with everything. Also for one that is given twice, of which one value would be left out. `parameters`: {handler: names of the query parameters that it and its dependencies take}, filled here.
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
    if len(request.query_params) < len(given := request.query_params.multi_items()):
        name, count = Counter(name for name, _ in given).most_common(1)[0]
        raise bad_field(
            name,
            f"expected the query parameter once, found it {count} times; join values that it takes several of by commas",
        )
    return known


def _query_names(dependant: Dependant) -> Iterable[str]:
    yield from (field.alias for field in dependant.query_params)
    for each in dependant.dependencies:
        yield from _query_names(each)


def _errors(app: FastAPI, allowed: Callable[[str], str], guard: RouteGuard) -> None:
    def answer(request: Request, early: EarlyAnswer) -> Response:
        if isinstance(early, HttpError):
            guard.note_denial(early, request.scope)
            if early.status == 401 and request.scope.get("endpoint") in PAGE_HANDLERS:
                return sign_in_first(request.url.path + (f"?{request.url.query}" if request.url.query else ""))
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
