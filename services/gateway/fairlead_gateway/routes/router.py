"""Routes with the types of their bodies and answers, from which the OpenAPI document is made (`server/openapi.py`).

`Router` is FastAPI's with one method for each kind of route: `read` answers from views, `command` sends one command, and
`fast` may be answered without FastAPI (`server/fast_path.py`). It knows no job, node or queue.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, get_args

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.routing import Match

from fairlead_gateway.access.route_rights import (
    PUBLIC,
    SIGNED_IN,
    Right,
    in_body,
    listed,
    on_cluster,
    on_cluster_either,
    on_job,
    on_node,
    on_pool,
    on_queue,
    on_service,
    on_volume,
)
from fairlead_gateway.errors import HttpResponse
from fairlead_gateway.http_messages import (
    DEFAULT_USER,
    KEY_CHARS_MAX,
    LIST_BYTES_MAX,
    REFUSED_ELEMENTS,
    RequestHead,
    head_of,
    plain_response,
    read_body,
)
from fairlead_schemas.http import api, cloudevents

__all__ = [
    "ANY_QUERY",
    "PUBLIC",
    "SIGNED_IN",
    "FastRoute",
    "Right",
    "Router",
    "extra_of",
    "in_body",
    "json_content",
    "listed",
    "on_cluster",
    "on_cluster_either",
    "on_job",
    "on_node",
    "on_pool",
    "on_queue",
    "on_service",
    "on_volume",
    "one_or_list",
]

#: Names of components that are not the name of their type; a page of X is "XPage".
_NAMES: dict[Any, str] = {
    api.IdleOverview: "Idle",
    api.IdleFileResult: "IdleApplied",
    api.QueueFileResult: "QueuesApplied",
    cloudevents.CloudEventOut: "Event",
}
#: Handlers whose callers decide on the query's names: identity providers add parameters of their own, which RFC 6749 wants ignored.
ANY_QUERY: set[Callable[..., Any]] = set()
FORM_TYPE = "application/x-www-form-urlencoded"
#: Answers a fast route from the request's head and body.
type FastHandler = Callable[[RequestHead, bytes], Awaitable[HttpResponse]]


class FastRoute(NamedTuple):
    """Route of a POST that needs nothing of FastAPI: no parameters, and a body that its handler decodes."""

    answer: FastHandler
    media_types: tuple[bytes, ...]
    right: Right


def _start_of(path: str) -> str:
    """Return the first two names of a path without a verb: "/v1/jobs" of "/v1/jobs/7:cancel" and of "/v1/jobs:dryrun"."""
    return "/".join(path.split("/", 3)[:3]).partition(":")[0]


def _header(name: str, description: str, bounds: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "string", **bounds}
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


_KEY = _header(
    "Idempotency-Key",
    "Repeating a request under one key changes nothing more; bound to the user.",
    {"minLength": 1, "maxLength": KEY_CHARS_MAX, "pattern": r"^[!-~]([ -~]*[!-~])?$"},
)
_USER = _header(
    "X-Fairlead-User",
    f"Without sign-on the name of the caller; none: {DEFAULT_USER}. Refused with sign-on.",
    {"pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"},
)
_IF_MATCH = _header(
    "If-Match",
    "Change it only if it has not changed since the answer with this ETag; else 412.",
    {"pattern": r'^(\*|(W/)?"[0-9]{1,18}")$'},
)
_ACT_AS = _header("X-Fairlead-Act-As", "Principal for whom an admin of the cluster acts.", {"maxLength": 64})


def extra_of(right: Right, extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what the OpenAPI document states of a route: its right, and the credentials that it takes."""
    security: list[dict[str, Any]] = [] if right.kind == "public" else [{"token": []}, {"session": []}]
    return {**(extra or {}), "security": security, "x-fairlead-right": right.words}


def json_content(schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    """Return the OpenAPI description of a body or an answer in one media type."""
    return {media_type: {"schema": schema}}


def one_or_list(schema: dict[str, Any], **bounds: int) -> dict[str, Any]:
    """Return the schema of one thing or a list of such things."""
    return {"oneOf": [schema, {"type": "array", "items": schema, **bounds}]}


class Router(APIRouter):
    """Routes of one kind, the types that they publish, and the fast ones among them."""

    def __init__(self) -> None:
        super().__init__()
        #: {name of a component: its type}
        self.published: dict[str, Any] = {}
        #: {(method, path): route}
        self.fast_routes: dict[tuple[str, str], FastRoute] = {}
        #: Handlers whose moments the gateway names to another service by their sequence alone: they need no views of the past.
        self.by_sequence: set[Callable[..., Any]] = set()
        #: {handler: the right that its route needs}
        self.rights: dict[Callable[..., Any], Right] = {}
        #: {number of routes: starts of their paths; none where one starts with a parameter}
        self._starts: dict[int, frozenset[str]] = {}

    def matches(self, scope: MutableMapping[str, Any]) -> tuple[Match, MutableMapping[str, Any]]:
        """Return whether a route matches, as FastAPI's does, which asks a hundred routes one after the other, twice. A router whose paths
        all start otherwise is passed over.
        """
        starts = self._starts.get(len(self.routes))
        if starts is None:
            starts = frozenset(_start_of(getattr(route, "path", "{")) for route in self.routes)
            if any("{" in start for start in starts):
                starts = frozenset[str]()
            self._starts = {len(self.routes): starts}
        if starts and _start_of(scope["path"]) not in starts:
            return Match.NONE, {}
        return super().matches(scope)

    def guarded(self, right: Right, decorate: Any) -> Any:
        """Return a route's decorator that also notes the right. Every route of the gateway is made through it."""

        def note(handler: Callable[..., Any]) -> Callable[..., Any]:
            self.rights[handler] = right
            return decorate(handler)

        return note

    def ref(self, kind: Any) -> dict[str, str]:
        """Return a reference to a type's schema, which is published."""
        page = get_args(kind)
        plain = page[0] if page else kind
        name: str = (_NAMES.get(plain) or plain.__name__) + ("Page" if page else "")
        self.published[name] = kind
        return {"$ref": f"#/components/schemas/{name}"}

    def answers(self, *kinds: Any, status: int = 200) -> dict[int | str, dict[str, Any]]:
        """Return the description of an answer that is one of some types; nothing for a document without a schema."""
        if not kinds:
            return {}
        references = [self.ref(kind) for kind in kinds]
        schema = references[0] if len(references) == 1 else {"anyOf": references}
        names = " or ".join(reference["$ref"].rpartition("/")[2] for reference in references)
        return {status: {"description": names, "content": json_content(schema)}}

    def body(self, kind: Any, *, required: bool = True) -> dict[str, Any]:
        """Return the description of a JSON body."""
        return {"requestBody": {"required": required, "content": json_content(self.ref(kind))}}

    def read(self, path: str, summary: str, *answers: Any, right: Right, by_sequence: bool = False, **more: Any) -> Any:
        """Decorate a route that reads. `by_sequence`: its moments are not asked of the process for the past. `more`: further arguments
        of FastAPI's.
        """
        more.setdefault("responses", self.answers(*answers))
        decorate = self.guarded(right, self.get(path, summary=summary, openapi_extra=extra_of(right), **more))

        def note(handler: Callable[..., Any]) -> Callable[..., Any]:
            if by_sequence:
                self.by_sequence.add(handler)
            return decorate(handler)

        return note

    def command(
        self,
        method: str,
        path: str,
        summary: str,
        *answers: Any,
        right: Right,
        body: type[msgspec.Struct] | None = None,
        required: bool = True,
        operation_id: str | None = None,
        status: int = 200,
        matched: bool = False,
        keyed: bool = True,
        form: tuple[str, ...] = (),
    ) -> Any:
        """Decorate a route that sends a command: it takes an Idempotency-Key unless `keyed` is False, and may answer 202. `status`: of its
        answer; `matched`: it takes If-Match; `form`: the fields of the form that it takes instead of JSON.
        """
        names = [_USER, _ACT_AS] if right.kind != "public" else []
        headers = [*([_KEY] if keyed else ()), *names, *([_IF_MATCH] if matched else ())]
        extra = {"parameters": headers, **({} if body is None else self.body(body, required=required))}
        if form:
            fields = {"type": "object", "properties": {name: {"type": "string"} for name in form}}
            extra["requestBody"] = {"required": True, "content": json_content(fields, FORM_TYPE)}
        route = self.api_route(
            path,
            methods=[method],
            summary=summary,
            operation_id=operation_id,
            responses={**self.answers(*answers, status=status), 202: self.submit_results()[202]},
            openapi_extra=extra_of(right, extra),
        )
        return self.guarded(right, route)

    def submit_results(self) -> dict[int | str, dict[str, Any]]:
        """Return the description of the answers to submits, of which verbs have the 202."""
        one = self.ref(api.SubmitResult)
        either = json_content(one_or_list(one))
        repeated = "Decided: a list's results in order, or what an earlier request under the key led to"
        undecided = "Stored, not decided yet; GET /v1/commands/{id} shows the outcome"
        return {
            201: {"description": "Decided: the decision is in the log", "content": json_content(one)},
            200: {"description": repeated, "content": either},
            202: {"description": undecided, "content": either},
        }

    def fast(
        self,
        path: str,
        summary: str,
        answer: FastHandler,
        *,
        right: Right,
        operation_id: str,
        bodies: dict[bytes, dict[str, Any]],
        responses: dict[int | str, dict[str, Any]],
        keyed: bool = False,
        also: tuple[bytes, ...] = (),
        description: str | None = None,
    ) -> None:
        """Add the route of a POST that `server/fast_path.py` may answer, and its plain form. `bodies`: {media type: schema}; `also`:
        further media types, which the description describes.
        """
        route = self.fast_routes["POST", path] = FastRoute(answer, (*bodies, *also), right)
        content = {
            name: each for kind, schema in bodies.items() for name, each in json_content(schema, kind.decode()).items()
        }

        extra = {
            "parameters": [_KEY, _USER, _ACT_AS] if keyed else [_USER, _ACT_AS],
            "requestBody": {"required": True, "content": content},
        }
        status = next(int(status) for status in responses)

        @self.guarded(
            right,
            self.post(
                path,
                summary=summary,
                description=description,
                operation_id=operation_id,
                status_code=status,
                responses=responses,
                openapi_extra=extra_of(right, extra),
            ),
        )
        async def plain(request: Request) -> Response:
            head = head_of(request)
            response = await route.answer(
                head, await read_body(head, request.receive, LIST_BYTES_MAX, route.media_types)
            )
            request.scope[REFUSED_ELEMENTS] = response.refusals
            return plain_response(response)
