"""POST /v1/sql and DELETE /v1/sql/{id}: queries for the telemetry service, answered in the requested form.

The caller and the query are passed on; telemetry decides what is read and what this caller sees. When a client
disconnects, its query is cancelled. Start at `routes`.
"""

import asyncio
import os
import re
from typing import Annotated, Any

from fastapi import Query, Request, Response

from fairlead_bus.port import Bus
from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.access.warehouse_rows import warehouse_caller
from fairlead_gateway.errors import HttpError, bad_field, not_found
from fairlead_gateway.http_messages import JsonResponse, encode, read_request
from fairlead_gateway.routes.access import known_principals
from fairlead_gateway.routes.request_bodies import SqlQueryRequest
from fairlead_gateway.routes.router import Router, extra_of, listed
from fairlead_gateway.sources.estimates_client import EstimatesClient
from fairlead_gateway.sources.service_queries import TelemetryFault, document_of, request_telemetry
from fairlead_gateway.views.fold import Views
from fairlead_schemas.queries.telemetry import MEDIA_TYPES, SQL_FORMATS, QueryCaller, SqlFormat
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.validation import FieldError

#: Longer than telemetry lets anybody wait and ask, by default.
TIMEOUT_S = 60.0

#: Number of further cancellations of a query without a client, and the pause before each.
CANCELS_MAX = 20
CANCEL_AGAIN_S = 0.1


#: Queries that name the table of estimates; and that with login names, and its rows at most.
_ESTIMATES = re.compile(r"\bstart_estimates\b", re.IGNORECASE)
_NAMES = re.compile(r"\bpeople\b", re.IGNORECASE)
PEOPLE_MAX = 15_000


class SqlRoutes:
    """Asks for people."""

    def __init__(self, views: Views, bus: Bus, accounts: Accounts, estimates: EstimatesClient) -> None:
        self._views = views
        self._bus = bus
        self._accounts = accounts
        self._estimates = estimates

    async def ask(self, request: Request, form: str) -> Response:
        """Answer one query. Raise HttpError."""
        caller = warehouse_caller(self._views, caller_of(request))
        wish = await read_request(request, SqlQueryRequest)
        if wish.id and not is_token(wish.id):
            raise bad_field("id", f'expected 1 to 63 of a-z 0-9 _ -, found "{wish.id[:80]}"')
        wanted = _format(form, request.headers.get("accept", ""))
        name = wish.id or os.urandom(16).hex()  # so that it can be cancelled when who asked goes away
        asked = {"caller": caller, "query": wish.query, "format": wanted, "id": name}
        asked |= {k: v for k, v in (("limit", wish.limit), ("timeout_s", wish.timeout_s)) if v is not None}
        if _NAMES.search(wish.query):
            asked["people"] = await self._people(caller_of(request))
        if _ESTIMATES.search(wish.query):
            asked["start_estimates"] = await self._estimates.rows(Sight(self._views, caller_of(request)))
        answer = await self._answer(request, caller, name, encode(asked))
        return _response(answer, wanted)

    async def _people(self, caller: Caller) -> dict[str, str]:
        """Return {principal: login name} of those whom a caller may know."""
        known = sorted(known_principals(self._views, caller))[:PEOPLE_MAX]
        return await self._accounts.people.logins(known)

    async def cancel(self, request: Request, name: str) -> Response:
        """End the caller's query of that name. Raise HttpError (404)."""
        caller = warehouse_caller(self._views, caller_of(request))
        if not await self._cancel(caller, name[:80]):
            raise not_found("query", name[:80], hint="it has ended, or it belongs to another user")
        return JsonResponse({"id": name, "cancelled": True})

    async def _answer(self, request: Request, caller: QueryCaller, name: str, asked: bytes) -> bytes:
        answering = asyncio.ensure_future(request_telemetry(self._bus, "sql", asked, TIMEOUT_S))
        leaving = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            for _ in range(CANCELS_MAX):  # the question may still be on its way when the first cancel arrives
                if answering.done() or await self._cancel(caller, name):
                    break
                await asyncio.sleep(CANCEL_AGAIN_S)
            return await answering
        finally:
            leaving.cancel()
            answering.cancel()

    async def _cancel(self, caller: QueryCaller, name: str) -> bool:
        question = encode({"caller": caller, "id": name})
        answer = await request_telemetry(self._bus, "sql_cancel", question, TIMEOUT_S)
        return bool(document_of(answer).get("cancelled"))


async def _gone(request: Request) -> None:
    """Returns when who asked has gone. The body has been read: nothing else comes."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _format(parameter: str, accept: str) -> SqlFormat:
    """Return the format requested by ?format=, else by the Accept header; JSON where neither names one. Raise HttpError."""
    if parameter:
        for form in SQL_FORMATS:
            if parameter == form:
                return form
        raise bad_field("format", f'expected one of {", ".join(SQL_FORMATS)}, found "{parameter[:40]}"')
    types = [each.partition(";")[0].strip().lower() for each in accept.split(",")]
    for named in types:
        for form, media_type in MEDIA_TYPES.items():
            if named == media_type:
                return form
        if named in ("", "*/*", "application/*"):
            return "json"
        if named == "text/*":
            return "csv"
    told = f"expected Accept {', '.join(MEDIA_TYPES.values())}; found {accept[:80]}"
    raise HttpError(406, "not_acceptable", told, errors=[FieldError(field="Accept", message=told)])


def _response(answer: bytes, form: SqlFormat) -> Response:
    """Return the body in the requested form, with the answer's other fields in headers. Raise HttpError for an error."""
    head, _, body = (answer, b"", answer) if form == "json" else answer.partition(b"\n")
    told = _checked(head)
    headers = {"x-fairlead-sequence": str(told.get("sequence", ""))}
    if told.get("truncated"):
        headers["x-fairlead-truncated"] = str(told.get("cut", ""))
    if told.get("left_out"):
        headers["x-fairlead-left-out"] = str(told["left_out"])
    return Response(body, media_type=MEDIA_TYPES[form], headers=headers)


def _checked(head: bytes) -> dict[str, Any]:
    """Return the answer's head. Raise the HttpError that matches its fault."""
    try:
        return document_of(head)
    except TelemetryFault as fault:
        if fault.code in ("busy", "internal"):
            raise
        field, _, message = fault.detail.partition(": ")
        if fault.code != "bad_request" or field not in SqlQueryRequest.__struct_fields__:
            field, message = "query", fault.detail
        errors = [FieldError(field=field, message=message)]
        raise HttpError(422, fault.code, fault.detail, errors=errors, hint=fault.hint) from None


def routes(sql: SqlRoutes) -> Router:
    """Return all of them."""
    router = Router()
    contents: dict[str, Any] = {
        media_type: {"schema": {"type": "object"} if form == "json" else {"type": "string", "format": "binary"}}
        for form, media_type in MEDIA_TYPES.items()
    }

    right = listed("sql:read")

    def add(method: str, path: str, summary: str, extra: dict[str, Any], **more: Any) -> Any:
        route = router.api_route(path, methods=[method], summary=summary, openapi_extra=extra_of(right, extra), **more)
        return router.guarded(right, route)

    @add(
        "POST",
        "/v1/sql",
        "Query the warehouse: one statement that reads, over what the caller may see",
        router.body(SqlQueryRequest),
        responses={
            200: {
                "description": "Rows, as Accept or ?format= asks; a header X-Fairlead-Truncated where they were cut, X-Fairlead-Left-Out where the tables lack some of the caller's",
                "content": contents,
            }
        },
    )
    async def query_sql(
        request: Request, format: Annotated[str, Query(json_schema_extra={"enum": ["", *SQL_FORMATS]})] = ""
    ) -> Response:
        return await sql.ask(request, format)

    @add("DELETE", "/v1/sql/{name}", "Cancel a query by the id that it was asked under", {})
    async def cancel_sql(request: Request, name: str) -> Response:
        return await sql.cancel(request, name)

    return router
