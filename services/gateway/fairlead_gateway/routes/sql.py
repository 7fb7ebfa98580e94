"""POST /v1/sql and DELETE /v1/sql/{id}: people's questions to the telemetry service, in the form that they want.

It passes on who asks and what; telemetry decides what is read and what this caller sees. Who goes away is not answered any more: the
query is cancelled. Start at `routes`.
"""

import asyncio
import os
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response

from fairlead_bus.port import Bus
from fairlead_gateway.errors import HttpError, bad_parameter, invalid, not_found
from fairlead_gateway.http_messages import encode
from fairlead_gateway.routes.command_client import body_schema, read_request
from fairlead_gateway.routes.identities import Identities
from fairlead_gateway.routes.query import JsonResponse
from fairlead_gateway.sources import service_queries
from fairlead_schemas.queries.telemetry import MEDIA_TYPES, SQL_FORMATS, Caller, SqlFormat
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.validation import FieldError

#: Longer than telemetry lets anybody wait and ask, by default.
TIMEOUT_S = 60.0

#: Number of further cancellations of a query without a client, and the pause before each.
CANCELS_MAX = 20
CANCEL_AGAIN_S = 0.1


class SqlQueryRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/sql."""

    query: str
    #: Rows at most; telemetry has a bound of its own.
    limit: int | None = None
    #: Seconds that it may take; telemetry has a bound of its own.
    timeout_s: float | None = None
    #: A name to cancel it by, 1 to 63 of a-z 0-9 _ -; of several queries at once each needs another.
    id: str = ""


class SqlRoutes:
    """Asks for people."""

    def __init__(self, bus: Bus, identities: Identities) -> None:
        self._bus = bus
        self._identities = identities

    async def ask(self, request: Request, form: str) -> Response:
        """Answer one query. Raise Refused."""
        caller = caller_of(self._identities, request)
        wish = await read_request(request, SqlQueryRequest)
        if wish.id and not is_token(wish.id):
            raise invalid([FieldError(field="id", message=f'expected 1 to 63 of a-z 0-9 _ -, found "{wish.id[:80]}"')])
        wanted = _format(form, request.headers.get("accept", ""))
        name = wish.id or os.urandom(16).hex()  # so that it can be cancelled when who asked goes away
        asked = {"caller": caller, "query": wish.query, "format": wanted, "id": name}
        asked |= {k: v for k, v in (("limit", wish.limit), ("timeout_s", wish.timeout_s)) if v is not None}
        answer = await self._answer(request, caller, name, encode(asked))
        return _response(answer, wanted)

    async def cancel(self, request: Request, name: str) -> Response:
        """End the caller's query of that name. Raises Refused (404)."""
        caller = caller_of(self._identities, request)
        if not await self._cancel(caller, name[:80]):
            raise not_found("query", name[:80], hint="it has ended, or it belongs to another user")
        return JsonResponse({"id": name, "cancelled": True})

    async def _answer(self, request: Request, caller: Caller, name: str, asked: bytes) -> bytes:
        answering = asyncio.ensure_future(service_queries.query_telemetry(self._bus, "sql", asked, TIMEOUT_S))
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

    async def _cancel(self, caller: Caller, name: str) -> bool:
        question = encode({"caller": caller, "id": name})
        answer = await service_queries.query_telemetry(self._bus, "sql_cancel", question, TIMEOUT_S)
        return bool(service_queries.document_of(answer).get("cancelled"))


def caller_of(identities: Identities, request: Request) -> Caller:
    """Return the caller of a request. Raise Refused (401)."""
    return identities.caller(request.headers.get("authorization", ""))


async def _gone(request: Request) -> None:
    """Returns when who asked has gone. The body has been read: nothing else comes."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _format(parameter: str, accept: str) -> SqlFormat:
    """Return the format requested by ?format=, else by the Accept header; JSON where neither names one. Raise Refused."""
    if parameter:
        for form in SQL_FORMATS:
            if parameter == form:
                return form
        raise bad_parameter("format", f'expected one of {", ".join(SQL_FORMATS)}, found "{parameter[:40]}"')
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
    """Return the body in the requested form, with the answer's other fields in headers. Raise Refused for an error."""
    head, _, body = (answer, b"", answer) if form == "json" else answer.partition(b"\n")
    told = _checked(head)
    headers = {"x-fairlead-sequence": str(told.get("sequence", ""))}
    if told.get("truncated"):
        headers["x-fairlead-truncated"] = str(told.get("cut", ""))
    if told.get("left_out"):
        headers["x-fairlead-left-out"] = str(told["left_out"])
    return Response(body, media_type=MEDIA_TYPES[form], headers=headers)


def _checked(head: bytes) -> dict[str, Any]:
    """Return the answer's head. Raise the Refused that matches its error: {"error": {"code", "message", "hint"}}."""
    document = service_queries.document_of(head)
    fault = service_queries.fault_of(document)
    if fault is None:
        return document
    code, message, hint = fault
    if code in {"busy", "internal"}:
        raise HttpError(503, code, message, hint=hint, retry_after_s=1)
    field, _, told = message.partition(": ")
    if code != "bad_request" or field not in SqlQueryRequest.__struct_fields__:
        field, told = "query", message
    raise HttpError(422, code, message, errors=[FieldError(field=field, message=told)], hint=hint)


def routes(sql: SqlRoutes) -> APIRouter:
    """All of them, for the app."""
    router = APIRouter()
    contents: dict[str, Any] = {
        media_type: {"schema": {"type": "object"} if form == "json" else {"type": "string", "format": "binary"}}
        for form, media_type in MEDIA_TYPES.items()
    }

    @router.post(
        "/v1/sql",
        summary="Query the warehouse: one statement that reads, over what the caller may see",
        openapi_extra=body_schema("SqlQueryRequest"),
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

    @router.delete("/v1/sql/{name}", summary="Cancel a query by the id that it was asked under")
    async def cancel_sql(request: Request, name: str) -> Response:
        return await sql.cancel(request, name)

    return router
