"""Routes of the gateway: the list, in order, and the form of errors. No logic.

The hot routes are answered by the door before they reach this application, which only knows of them for its 405s
and its OpenAPI document.
"""

import asyncio
import re
from collections.abc import Callable, Collection
from functools import cache

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from fairlead_gateway import metrics, page
from fairlead_gateway.door import REQUEST_ID
from fairlead_gateway.folding import Folding
from fairlead_gateway.metrics import Metrics
from fairlead_gateway.openapi import install
from fairlead_gateway.problems import Refused, bad_parameter
from fairlead_gateway.reading import Json, answers_with
from fairlead_schemas.http import asyncapi
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire.conditions import Readiness

#: Built once: it is the same for every process of a version.
log_document = cache(asyncapi.document)


def build_app(
    folding: Folding,
    numbers: Metrics,
    routers: list[APIRouter],
    hot: Collection[tuple[str, str]],
    readiness: Callable[[], Readiness],
) -> FastAPI:
    """The application behind the door. `hot`: (method, path) that the door answers itself. `readiness` returns the
    body of `/readyz`."""
    app = FastAPI(
        title="Fairlead", version="1", docs_url=None, redoc_url=None, openapi_url=None,
        generate_unique_id_function=lambda route: route.name,
    )  # fmt: skip
    routers = [_own_routes(folding, numbers, readiness), *routers]
    for router in routers:
        app.include_router(router, dependencies=[Depends(_only_known_parameters)])
    install(app)

    def allowed(path: str) -> str:
        """Return the methods of a path, for `Allow`; "" for an unknown path.

        A path may have a route for each method, and Starlette names the first route's only. Of several templates that
        match, the most literal one is meant: "/v1/jobs/{job}:cancel", not "/v1/jobs/{job}" with a job called "7:cancel".
        """
        found: dict[int, set[str]] = {len(path): {method for method, hot_path in hot if hot_path == path}}
        for route in (route for router in (app.router, *routers) for route in router.routes):
            if isinstance(route, APIRoute) and route.path_regex.match(path):
                literal = len(re.sub(r"\{[^}]*\}", "", route.path))
                found.setdefault(literal, set()).update(route.methods or ())
        return next((", ".join(sorted(methods)) for _, methods in sorted(found.items(), reverse=True) if methods), "")

    _errors(app, folding, allowed)
    return app


def _own_routes(folding: Folding, numbers: Metrics, readiness: Callable[[], Readiness]) -> APIRouter:
    router = APIRouter()
    views = folding.views

    @router.get("/healthz", summary="The process works")
    async def healthz() -> Response:
        return Json({"status": "ok", "sequence": views.sequence})

    ready = answers_with("Readiness")

    @router.get(
        "/readyz", summary="Jobs are accepted and run; otherwise the conditions that hold",
        responses={**ready, 503: {**ready[200], "description": "Readiness, where it is not ready"}},
    )  # fmt: skip
    async def readyz() -> Response:
        body = readiness()
        return Json(body, status_code=200 if body.ready else 503)

    @router.get(
        "/metrics", summary="Prometheus metrics", response_class=Response,
        responses={200: {"description": "Prometheus text format", "content": {"text/plain": {"schema": {"type": "string"}}}}},
    )  # fmt: skip
    async def get_metrics() -> Response:
        numbers.lag.set(max(0, folding.log_end - views.sequence))
        await asyncio.gather(numbers.cluster.look(), numbers.telemetry.look())
        return Response(numbers.text(), media_type=metrics.MEDIA_TYPE)

    @router.get("/asyncapi.json", summary="AsyncAPI document of the event log")
    async def get_asyncapi() -> Response:
        return Json(log_document())

    @router.get("/", include_in_schema=False)
    async def index() -> Response:
        return Response(page.render(views), media_type="text/html; charset=utf-8")

    return router


def _only_known_parameters(request: Request) -> None:
    """A misspelt filter would be answered as if it were not there: with everything."""
    route = request.scope["route"]
    known = [field.alias for field in route.dependant.query_params]
    for name in request.query_params:
        if name not in known:
            expected = f"expected {', '.join(known)}" if known else "this path takes none"
            raise bad_parameter(name[:80], f"unknown query parameter; {expected}")


def _errors(app: FastAPI, folding: Folding, allowed: Callable[[str], str]) -> None:
    def answer(request: Request, refused: Refused) -> Response:
        request_id = request.scope.get(REQUEST_ID, "")
        headers = {name.decode(): value.decode() for name, value in refused.headers(request_id, folding.views.sequence)}
        return Response(refused.body(request_id), status_code=refused.status, headers=headers)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return answer(request, error)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        methods = allowed(request.url.path)
        if error.status_code == 404 and not methods:
            return answer(
                request,
                Refused(
                    404, "unknown_path", f"there is no {request.url.path}", hint="GET /openapi.json lists all paths"
                ),
            )
        # A path that the door answers has no route of its own for other methods: what looks like a 404 is a 405.
        status, detail = (405, "Method Not Allowed") if error.status_code == 404 else (error.status_code, error.detail)
        response = answer(request, Refused(status, f"http_{status}", f"{request.method} {request.url.path}: {detail}"))
        if status == 405:
            response.headers["allow"] = methods
        return response

    @app.exception_handler(RequestValidationError)
    async def not_valid(request: Request, error: RequestValidationError) -> Response:
        errors = [FieldError(field=str(one["loc"][-1]), message=str(one["msg"])) for one in error.errors()]
        return answer(request, Refused(422, "invalid", f"{errors[0].field}: {errors[0].message}", errors=errors))

    @app.exception_handler(ClientDisconnect)
    async def gone(_request: Request, _error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # no client reads it

    @app.exception_handler(Exception)
    async def failed(request: Request, _error: Exception) -> Response:
        return answer(
            request, Refused(500, "internal", "the gateway failed on this request; its log names the request id")
        )
