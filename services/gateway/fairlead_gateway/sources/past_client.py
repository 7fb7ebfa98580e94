"""Requests about the past, asked of the process that keeps states of it; without that process the gateway folds by itself.

A request with a moment is passed on as it came, once its caller has the right of its route, and the process gives the whole answer:
status, headers, body. Start at `PastClient.forward`.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

import msgspec
import structlog

from fairlead_bus.port import Bus, Unavailable
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.errors import EarlyAnswer, HttpError, HttpResponse
from fairlead_gateway.page_tokens import place_of
from fairlead_gateway.views.fold import Views
from fairlead_schemas.queries import past
from fairlead_schemas.wire import subjects

log = structlog.get_logger()

#: A process that is busy is asked again after this pause.
AGAIN_S = 0.1
#: Tries to get all pieces of one answer: another process may be asked for a piece.
TRIES = 3


class Forwarded(EarlyAnswer):
    """Answer of the process for the past."""

    def __init__(self, answer: HttpResponse) -> None:
        super().__init__()
        self._answer = answer

    def response(self, request_id: str) -> HttpResponse:
        """Return the answer as it is; it names the request already where it is an error."""
        return self._answer


class PastClient:
    """Asks the process. `wait_s`: for one answer. `count` gets "past" or "gateway" for each request with a moment."""

    def __init__(
        self,
        bus: Bus,
        views: Views,
        *,
        wait_s: float = past.ANSWER_S,
        count: Callable[[str], None] = lambda _by: None,
    ) -> None:
        self._bus = bus
        self._views = views
        self._wait_s = wait_s
        self._count = count
        self.forwarded = 0

    async def forward(self, request: Any, request_id: str) -> None:
        """Raise Forwarded with the answer to a request that names a past moment. Return where it names none, or where no process
        answers: the gateway then tries by itself.
        """
        query: bytes = request.scope["query_string"]
        if not _names_moment(query.decode("latin-1")):
            return
        caller = caller_of(request)
        question = past.PastQuestion(
            path=request.scope["path"][: past.TARGET_CHARS_MAX],
            query=query.decode("latin-1")[: past.TARGET_CHARS_MAX],
            seen=request.headers.get("if-none-match", "")[: past.TARGET_CHARS_MAX],
            request_id=request_id,
            sequence=self._views.sequence,
            caller=past_caller(caller),
        )
        found = await self._ask(question)
        self._count("gateway" if found is None else "past")
        if found is not None:
            self.forwarded += 1
            raise Forwarded(found)

    async def _ask(self, question: past.PastQuestion) -> HttpResponse | None:
        try:
            async with asyncio.timeout(self._wait_s):
                for _ in range(TRIES):
                    if (found := await self._whole(question)) is not None:
                        return found
        except (Unavailable, TimeoutError):
            pass
        except (msgspec.MsgspecError, zlib.error) as error:
            log.warning("the process for the past is not understood", reason=str(error))
        return None

    async def _whole(self, question: past.PastQuestion) -> HttpResponse | None:
        """Return the answer with its whole body; None where there is none, or a piece of it is gone."""
        head, body = await self._once(question)
        while head.error == "busy":
            await asyncio.sleep(AGAIN_S)
            head, body = await self._once(question)
        if head.error:
            if head.error != "behind":
                log.warning("the process for the past has not answered", reason=head.message)
            return None
        whole = await whole_body(
            head, body, lambda number: self._once(past.PastQuestion(answer=head.answer, piece=number))
        )
        if whole is None:
            return None
        headers = dict(head.headers)
        media_type = headers.pop("content-type", "application/json").encode()
        headers.pop("content-length", None)
        stated = tuple((name.encode(), value.encode()) for name, value in headers.items())
        return HttpResponse(head.status, whole, stated, media_type)

    async def _once(self, question: past.PastQuestion) -> tuple[past.PastAnswer, bytes]:
        payload = past.encode_question(question)
        return past.decode_answer(await self._bus.request(subjects.PAST, payload, timeout_s=self._wait_s))


def past_caller(caller: Caller) -> past.PastCaller:
    """Return the sender of a request as the process for the past knows it."""
    return past.PastCaller(
        is_open=caller.is_open,
        principal=caller.principal,
        credential=caller.credential,
        is_token=caller.is_token,
        act_as=caller.act_as,
        expires_ns=caller.expires_ns,
    )


async def whole_body(
    head: past.PastAnswer, body: bytes, ask: Callable[[int], Awaitable[tuple[past.PastAnswer, bytes]]]
) -> bytes | None:
    """Return the body of an answer, whose further pieces `ask` returns by their numbers; None where one is gone. Raises zlib.error."""
    parts = [body]
    for number in range(1, min(head.pieces, past.PIECES_MAX)):
        piece, part = await ask(number)
        if piece.error:
            return None
        parts.append(part)
    whole = b"".join(parts)
    return zlib.decompress(whole) if head.compressed else whole


def _names_moment(query: str) -> bool:
    """Return True for a query with a moment, or with a token of a page of the past."""
    found = parse_qs(query, keep_blank_values=True)
    if any(found.get("at", ())):
        return True
    try:
        return any(place_of(token)[0] for token in found.get("continue", ()))
    except HttpError:  # a token that the route refuses
        return False
