"""Common steps of all verbs: read a small body strictly, send one command, wait for its outcome."""

from collections.abc import Callable

import msgspec
from fastapi import Request, Response

from fairlead_gateway.command_results import CommandPublisher, ResultWaiter
from fairlead_gateway.errors import HttpError, invalid, rejected, wrong_media_type
from fairlead_gateway.http_messages import RequestHead, bind_key, repeated_key_errors, too_large
from fairlead_gateway.routes.query import JsonResponse
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import OutcomeRow
from fairlead_schemas.http.api import SubmitResult
from fairlead_schemas.units.validation import FieldError, field_error
from fairlead_schemas.wire.commands import CommandBase

BODY_BYTES_MAX = 64 * 1024

encode_command = msgspec.json.Encoder(order="deterministic").encode


def command_refusal(outcome: OutcomeRow) -> HttpError:
    """The answer to a command that its service refused."""
    return rejected(outcome.code, outcome.message, submit=False)


class CommandClient:
    """Sends commands, one at a time."""

    def __init__(self, views: Views, decisions: ResultWaiter) -> None:
        self._views = views
        self._decisions = decisions

    def command_id(self, gate: CommandPublisher, head: RequestHead, *wish: str) -> str:
        """Return an id for this command, the same one again under the same Idempotency-Key. Raise Refused (409)."""
        return self._decisions.keyed_id(bind_key(head.user, "verb", head.key), *wish) if head.key else gate.new_id()

    async def outcome(
        self,
        gate: CommandPublisher,
        command: CommandBase,
        *,
        refusal: Callable[[OutcomeRow], HttpError] = command_refusal,
    ) -> OutcomeRow | None:
        """Return the outcome of a command once it is carried out; None when it is not decided in time. Raise Refused."""
        self._decisions.require_ready()
        outcome = await self._decisions.outcome(gate, command.id, encode_command(command))
        if outcome is not None and outcome.code:
            raise refusal(outcome)
        return outcome

    def undecided(self, command: CommandBase) -> Response:
        """The 202: it is stored, and decided later."""
        result = SubmitResult(command=command.id, sequence=self._views.sequence)
        return JsonResponse(result, status_code=202, headers={"location": f"/v1/commands/{command.id}"})


async def read_json(request: Request, limit: int = BODY_BYTES_MAX) -> bytes:
    """The body, b"{}" for an empty one. Raises Refused when it is too large or says to be no JSON."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise too_large(limit)
    if not body.strip():
        return b"{}"
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found != "application/json":
        raise wrong_media_type(found, "application/json")
    return body


async def read_request[T: msgspec.Struct](request: Request, kind: type[T]) -> T:
    """Return the decoded body; an empty body counts as {}. Raise Refused."""
    body = await read_json(request)
    try:
        wish, repeated = msgspec.json.decode(body, type=kind), repeated_key_errors(body)
    except msgspec.MsgspecError as error:
        raise invalid([field_error(error, known=kind.__struct_fields__)]) from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise invalid([FieldError(field="", message=f"expected JSON in UTF-8: {type(error).__name__}")]) from None
    if repeated:
        raise invalid(repeated)
    return wish


def body_schema(name: str, *, required: bool = True) -> "dict[str, object]":
    """Return the OpenAPI description of a body, by the name of its schema."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    return {"requestBody": {"required": required, "content": content}}
