"""POST /v1/whatif and questions about the studies that it starts: the process for the past plays and answers, this passes on.

That process knows what a reader of a study may see. Its watch is server-sent events: how far the study is, each time that changes,
until it is over or the caller's right is. Start at `WhatIfRoutes`.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import msgspec
from fastapi import Query, Request, Response

from fairlead_bus.port import Bus, Unavailable
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.callers import Callers, caller_of
from fairlead_gateway.access.streams import end_of, while_allowed
from fairlead_gateway.errors import HttpError
from fairlead_gateway.http_messages import JsonResponse, read_request
from fairlead_gateway.routes.events import WATCHED, WatchResponse, last_event
from fairlead_gateway.routes.router import Router, extra_of, listed
from fairlead_gateway.sources.past_client import past_caller, whole_body
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http.api import WhatIf
from fairlead_schemas.queries import past, studies
from fairlead_schemas.queries.studies import StudyQuestion, StudyWish
from fairlead_schemas.units.validation import FieldError

#: A process that is behind the log is asked again after this pause, for so long.
AGAIN_S, BEHIND_S = 0.2, 5.0
#: Words where no process answers.
AWAY = "no process for the past answers: it plays studies"
ELSEWHERE = "fairlead whatif --data DIR plays an exported log on any machine"
#: States after which nothing changes.
OVER = frozenset({"done", "failed", "cancelled"})
#: Watches that may be open at once.
WATCHES_MAX = 256


class WhatIfRoutes:
    """Asks the process that plays."""

    def __init__(self, views: Views, bus: Bus, callers: Callers) -> None:
        self._views, self._bus, self.callers = views, bus, callers
        self._watches = 0

    async def start(self, request: Request) -> Response:
        """Order a study. Raise HttpError."""
        wish = await read_request(request, StudyWish)
        caller = self._caller(request)
        question = StudyQuestion(verb="start", wish=wish, caller=caller, sequence=self._views.sequence, brief=True)
        found = await self._asked(studies.START, question)
        name = msgspec.json.decode(found)["id"]
        return JsonResponse(msgspec.Raw(found), 202, headers={"location": f"/v1/whatif/{name}"})

    async def about(self, request: Request, name: str, **words: Any) -> bytes:
        """Return the document of a study. `words`: of the question. Raise HttpError."""
        question = StudyQuestion(name=name, caller=self._caller(request), sequence=self._views.sequence, **words)
        return await self._asked(_address(name), question)

    def watch(self, request: Request, name: str) -> Response:
        """Return server-sent events. Raise HttpError (503) for too many."""
        if self._watches >= WATCHES_MAX:
            raise HttpError(503, "busy", f"{self._watches} watches are open already", retry_after_s=5)
        caller = caller_of(request)
        stream = self._words(request, name)
        if not caller.is_open:
            stream = while_allowed(stream, end_of(self.callers, caller, lambda: _may(caller)), last_event)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return WatchResponse(stream, media_type="text/event-stream", headers=headers)

    async def _words(self, request: Request, name: str) -> AsyncGenerator[bytes]:
        self._watches += 1
        try:
            seen = -1
            while True:
                try:
                    found = await self.about(request, name, verb="read", brief=True, seen=seen)
                except HttpError as error:
                    yield last_event(error.code)
                    return
                about = msgspec.json.decode(found, type=WhatIf)
                if about.revision > seen:
                    seen = about.revision
                    yield b"id: %d\nevent: progress\ndata: %b\n\n" % (seen, found)
                else:
                    yield b": at %d\n\n" % seen
                if about.state in OVER:
                    yield last_event(about.state)
                    return
        finally:
            self._watches -= 1

    @staticmethod
    def _caller(request: Request) -> past.PastCaller:
        return past_caller(caller_of(request))

    async def _asked(self, subject: str, question: StudyQuestion) -> bytes:
        try:
            async with asyncio.timeout(studies.ANSWER_S + BEHIND_S):
                head, body = await self._once(subject, question)
                while head.error == "behind":
                    await asyncio.sleep(AGAIN_S)
                    head, body = await self._once(subject, question)
                if not head.error:
                    whole = await whole_body(head, body, lambda number: self._piece(subject, head.answer, number))
                    if whole is not None:
                        return _taken(head.status, whole)
        except TimeoutError:
            raise HttpError(503, "past_away", AWAY, hint=ELSEWHERE, retry_after_s=5) from None
        except Unavailable:
            if question.verb != "start":
                raise _unknown(question.name) from None
            raise HttpError(503, "past_away", AWAY, hint=ELSEWHERE, retry_after_s=5) from None
        except (msgspec.MsgspecError, zlib.error) as error:
            raise HttpError(503, "past_away", f"the process for the past is not understood: {error}") from error
        raise HttpError(503, "past_failed", head.message or "a part of the answer is gone; ask again", retry_after_s=1)

    async def _piece(self, subject: str, answer: str, number: int) -> tuple[past.PastAnswer, bytes]:
        return await self._once(subject, StudyQuestion(verb="piece", name=answer, piece=number))

    async def _once(self, subject: str, question: StudyQuestion) -> tuple[past.PastAnswer, bytes]:
        answer = await self._bus.request(subject, studies.encode(question), timeout_s=studies.ANSWER_S)
        return past.decode_answer(answer)


def _may(caller: Caller) -> bool:
    return caller.may_anywhere("sql:read")


def _address(name: str) -> str:
    """Return where a study is asked about. Raise HttpError (404) for a name that no process gives."""
    process, _, number = name.partition("-")
    is_name = len(process) == studies.PROCESS_CHARS and process.isascii() and process.isalnum()
    if not (is_name and number.isascii() and number.isdecimal() and len(number) <= 12):
        raise _unknown(name)
    return studies.follow_up(name)


def _unknown(name: str) -> HttpError:
    hint = "studies are kept in the memory of the process that played them, the newest ones"
    return HttpError(404, "unknown_whatif", f"there is no study {name[:80]}", hint=hint)


def _taken(status: int, body: bytes) -> bytes:
    """Return the body of an answer that is none of an error. Raise HttpError."""
    if status < 400:
        return body
    refused = studies.decode_refused(body)
    errors = [FieldError(field=field, message=message) for field, message in refused.errors]
    wait_s = 30 if status in (429, 503) else 0
    raise HttpError(status, refused.code, refused.detail, errors=errors, hint=refused.hint, retry_after_s=wait_s)


def routes(whatifs: WhatIfRoutes) -> Router:
    """Return all of them."""
    router = Router()
    right = listed("sql:read")

    @router.guarded(
        right,
        router.api_route(
            "/v1/whatif",
            methods=["POST"],
            summary="Play a part of the log again under another policy",
            status_code=202,
            responses=router.answers(WhatIf, status=202),
            openapi_extra=extra_of(right, router.body(StudyWish)),
        ),
    )
    async def start_whatif(request: Request) -> Response:
        return await whatifs.start(request)

    @router.read("/v1/whatif/{name}", "How far a study is, and what it has found", WhatIf, right=right)
    async def get_whatif(
        request: Request,
        name: str,
        even_so: Annotated[
            bool, Query(description="Show effects also where the control does not match the record.")
        ] = False,
    ) -> Response:
        return JsonResponse(msgspec.Raw(await whatifs.about(request, name, verb="read", even_so=even_so)))

    @router.read(
        "/v1/whatif/{name}/progress",
        "How far a study is, each time that changes, as server-sent events",
        right=right,
        responses={
            200: {
                "description": "Events `progress` with a WhatIf without findings, then one `end`",
                "content": {"text/event-stream": {"schema": WATCHED}},
            }
        },
    )
    async def watch_whatif(request: Request, name: str) -> Response:
        await whatifs.about(request, name, verb="read", brief=True)
        return whatifs.watch(request, name)

    @router.guarded(
        right,
        router.api_route(
            "/v1/whatif/{name}",
            methods=["DELETE"],
            summary="End a study, or take it out of the line",
            responses=router.answers(WhatIf),
            openapi_extra=extra_of(right),
        ),
    )
    async def cancel_whatif(request: Request, name: str) -> Response:
        return JsonResponse(msgspec.Raw(await whatifs.about(request, name, verb="cancel", brief=True)))

    return router
