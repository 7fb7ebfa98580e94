"""Browser's end of apps: takes requests at the hosts of apps from those who have entered, and passes them on over connections that nodes make.

The app hears of nothing before the cookie, the host and the page that asks are right. Bodies and frames pass unread. Start at `AppServer.serve`.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import parse_qs

import structlog

from fairlead_appproxy.app_pages import cookie_name, entered_answer, error_page
from fairlead_appproxy.app_runs import OPEN_OF_APP_MAX, AppRun, AppTable, Visitor
from fairlead_appproxy.body_end import BadFraming
from fairlead_appproxy.browser_rules import AppHost, AppHosts, is_navigation, refusal
from fairlead_appproxy.connection import CutOff, HttpConnection, Silent, pass_body
from fairlead_appproxy.frame_splice import splice_frames
from fairlead_appproxy.head import (
    UNTIL_CLOSE,
    CarriedAnswer,
    CarriedRequest,
    Fields,
    HeadRefused,
    read_answer,
    read_request,
)
from fairlead_appproxy.passed_fields import Asker, from_app, own_cookie, to_app
from fairlead_schemas.wire.app_sessions import AppAnswer, ConnectApp, ConnectReplica, EnterApp, FindEntry
from fairlead_schemas.wire.tunnels import MEET_S, digest

ENTER_PATH = b"/.fairlead/enter"
#: The proxy's own paths at the host of an app.
OWN_PATHS = b"/.fairlead/"
#: From the first byte of a head to its end; between two requests of a connection; and until an app begins to answer.
HEAD_S, KEEP_ALIVE_S, ANSWER_S = 10.0, 75.0, 3600.0
#: A connection to an app that is free is kept for so long, so many of one app.
SPARE_S, SPARES_MAX = 20.0, 64
#: So fresh for a request that must not be sent twice: an app may close a free connection while the request is on its way.
FRESH_S = 2.0
CODE_BYTES_MAX = 200
#: Questions to the gateways at a time.
QUESTIONS_MAX = 100
_IDEMPOTENT = frozenset([b"GET", b"HEAD", b"OPTIONS"])

type Ask = Callable[[EnterApp | FindEntry | ConnectApp | ConnectReplica], Awaitable[AppAnswer]]
#: Answers one request: (whether another may follow, whether it is a WebSocket now). Raises RequestRefused.
type AnswerOne = Callable[[CarriedRequest, HttpConnection], Awaitable[tuple[bool, bool]]]

log = structlog.get_logger()


class RequestRefused(Exception):
    """Request that is not passed on: status and words of the answer."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class NotConnected(RequestRefused):
    """No connection to the app came about: nothing of the request was sent."""


class _Spare(NamedTuple):
    """Free connection to an app, since a time."""

    connection: HttpConnection
    since: float


class AppServer:
    """Server of the hosts of apps. `ask` asks the gateways and raises ConnectionError; `node_address`: where nodes reach this proxy."""

    def __init__(self, hosts: AppHosts, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self.hosts, self._ask, self._clock = hosts, ask, clock
        self.table = AppTable()
        self.node_address = ""
        #: Whether a label that is not in the table is of something that still runs: connections to it are kept.
        self.is_known: Callable[[str], bool] = lambda _label: False
        #: {digest of a ticket: the connection that a node makes with it}
        self._expected: dict[str, asyncio.Future[HttpConnection]] = {}
        self._spares: dict[str, deque[_Spare]] = {}
        #: Connections whose request is with an app: (client, app).
        self._waiting: set[tuple[HttpConnection, HttpConnection]] = set()
        self._questions = asyncio.Semaphore(QUESTIONS_MAX)

    # ------------------------------------------------------------------ the node's end

    def take_node(self, ticket: str) -> asyncio.Future[HttpConnection] | None:
        """Return where to put the connection of a node that comes with a ticket, None for a ticket of no app."""
        return self._expected.pop(digest(ticket), None)

    async def _connect(self, entered: Visitor, spare_s: float) -> tuple[HttpConnection, bool]:
        """Return a connection to the app, and whether it was used before, at most so long ago. Raises NotConnected."""
        spares = self._spares.get(entered.run.label)
        while spares:
            spare, since = spares.pop()
            if spare.is_reusable and self._clock() - since < spare_s:
                return spare, True
            spare.abort()
        return await self._new_connection(entered), False

    async def _new_connection(self, entered: Visitor) -> HttpConnection:
        ticket = secrets.token_urlsafe(32)
        coming = asyncio.get_running_loop().create_future()
        self._expected[digest(ticket)] = coming
        try:
            answer = await self._asked(entered.connect_question(self.node_address, ticket))
            if answer.status:
                raise NotConnected(answer.status, answer.words)
            entered.run.token = answer.token
            async with asyncio.timeout(MEET_S):
                return await coming
        except TimeoutError:
            raise NotConnected(504, "the node of the application has not come to the proxy") from None
        finally:
            self._expected.pop(digest(ticket), None)

    async def _asked(self, question: EnterApp | FindEntry | ConnectApp | ConnectReplica) -> AppAnswer:
        if self._questions.locked():
            raise NotConnected(503, "the app proxy is busy; try again")
        async with self._questions:
            try:
                return await self._ask(question)
            except ConnectionError:
                raise NotConnected(503, "no gateway answers the app proxy; try again") from None

    def _keep(self, run: AppRun, connection: HttpConnection) -> None:
        spares = self._spares.setdefault(run.label, deque())
        if len(spares) >= SPARES_MAX or not connection.is_reusable or not self._is_known(run.label):
            connection.abort()
            return
        spares.append(_Spare(connection, self._clock()))

    def _is_known(self, label: str) -> bool:
        return label in self.table.runs or self.is_known(label)

    # ------------------------------------------------------------------ the browser's end

    async def serve(self, head: CarriedRequest, client: HttpConnection) -> bool:
        """Handle a connection from its first request on. Returns True where it lives on by itself, as a WebSocket."""
        return await serve_requests(head, client, self._request, _as_page)

    async def _request(self, head: CarriedRequest, client: HttpConnection) -> tuple[bool, bool]:
        """Answer one request; return (whether another may follow, whether it is a WebSocket now). Raises RequestRefused."""
        host = self.hosts.of(head.values(b"host")[0])
        if host is None:
            raise RequestRefused(421, "this connection is of applications; nothing of that name is here")
        if head.target.startswith(OWN_PATHS):
            return await self._enter(head, host, client), False
        entered = await self._entered(head, host)
        if words := refusal(head, host):
            raise RequestRefused(403, words)
        run = entered.run
        if run.open >= OPEN_OF_APP_MAX:
            raise RequestRefused(503, f"the application has {OPEN_OF_APP_MAX} requests and sockets open already")
        run.presence.request(head, self._clock())
        run.open += 1
        key, spliced = object(), False
        entered.cuts[key] = client.abort
        try:
            goes_on, spliced = await self.exchange(head, host, client, entered, key)
            return goes_on, spliced
        finally:
            if not spliced:
                run.open -= 1
                entered.cuts.pop(key, None)

    async def _enter(self, head: CarriedRequest, host: AppHost, client: HttpConnection) -> bool:
        path, _, query = head.target.partition(b"?")
        codes = parse_qs(query.decode("latin-1"), max_num_fields=4).get("code", []) if len(query) < 1000 else []
        if path != ENTER_PATH or head.method != b"GET" or not head.body.is_empty:
            raise RequestRefused(404, "nothing of the app proxy is here")
        if head.values(b"sec-fetch-mode") not in ([], [b"navigate"]) or head.values(b"sec-fetch-dest") not in (
            [],
            [b"document"],
        ):
            raise RequestRefused(403, "an application is entered by opening its link as a page")
        if len(codes) != 1 or len(codes[0]) > CODE_BYTES_MAX:
            raise RequestRefused(403, "expected a code: open the application by fairlead open")
        secret = secrets.token_urlsafe(32)
        answer = await self._asked(EnterApp(label=host.label, code=digest(codes[0]), cookie=digest(secret)))
        if answer.entry is None:
            raise RequestRefused(answer.status or 403, answer.words)
        self.table.admit(host.label, digest(secret), answer.entry)
        log.info("application entered", label=host.label, principal=answer.entry.principal)
        await client.write(entered_answer(host, secret))
        return False

    async def _entered(self, head: CarriedRequest, host: AppHost) -> Visitor:
        """Return who asks. Raises RequestRefused where nobody has entered under the cookie."""
        cookie = own_cookie(head, cookie_name(host))
        key = digest(cookie.decode("latin-1")) if cookie else ""
        found = self.table.entries.get((host.label, key))
        if found is not None:
            return found
        now = self._clock()
        if known := self.table.refused(host.label, key, now):
            raise RequestRefused(*known)
        answer = await self._asked(FindEntry(label=host.label, cookie=key))
        if answer.entry is not None:
            return self.table.admit(host.label, key, answer.entry)
        if answer.status != 503:
            self.table.refuse(host.label, key, now, answer.status, answer.words)
        raise RequestRefused(answer.status, answer.words)

    # ------------------------------------------------------------------ one exchange with the app

    async def exchange(
        self, head: CarriedRequest, host: AppHost, client: HttpConnection, entered: Visitor, key: object
    ) -> tuple[bool, bool]:
        """Pass a request to an app and its answer back; return as `_request`. Raises RequestRefused, NotConnected."""
        app, was_used = await self._connect(entered, SPARE_S if _is_safe(head) else FRESH_S)
        entered.cuts[key] = lambda: (client.abort(), app.abort())[0]
        pair = (client, app)
        self._waiting.add(pair)
        sending: asyncio.Task[None] | None = None
        keeps = False
        try:
            try:
                await app.write(self._request_bytes(head, host, client, entered.run))
                if not head.body.is_empty:
                    sending = asyncio.create_task(pass_body(client, app, head.body))
                answer = await self._answer(head, client, app)
            except ConnectionError:
                if client.has_gone:
                    raise
                if not was_used or not _is_safe(head):
                    raise RequestRefused(502, "the application has closed the connection without an answer") from None
                # An app may close a free connection at any time; nothing of the answer has come.
                app.abort()
                return await self._again(head, host, client, entered, key)
            if answer.status == 101:
                await self._upgrade(answer, client, app, entered, key)
                return False, True
            client_stays = head.keep_alive and answer.body != UNTIL_CLOSE
            await pass_body(
                app,
                client,
                answer.body,
                _answer_bytes(answer, keep_alive=client_stays, sets_cookies=entered.sets_cookies),
            )
            sent = sending is None or (sending.done() and not sending.cancelled() and sending.exception() is None)
            keeps = answer.keep_alive and sent
            return client_stays and sent, False
        except HeadRefused as refused:
            raise RequestRefused(502, f"the application's answer cannot be passed on: {refused.words}") from None
        except (BadFraming, CutOff):
            client.abort()  # it has a part of an answer, which must not look whole
            return False, False
        finally:
            self._waiting.discard(pair)
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            if keeps:
                self._keep(entered.run, app)
            elif not app.is_passed_on:
                app.abort()

    async def _again(
        self, head: CarriedRequest, host: AppHost, client: HttpConnection, entered: Visitor, key: object
    ) -> tuple[bool, bool]:
        for spare in self._spares.pop(entered.run.label, ()):
            spare.connection.abort()
        return await self.exchange(head, host, client, entered, key)

    async def _answer(self, head: CarriedRequest, client: HttpConnection, app: HttpConnection) -> CarriedAnswer:
        """Return the head of the answer; interim ones are passed on. Raises ConnectionError where none comes."""
        while True:
            try:
                data = await app.head(ANSWER_S, HEAD_S)
            except Silent:
                raise RequestRefused(504, "the application does not answer") from None
            if not data:
                raise ConnectionResetError
            answer = read_answer(data, head)
            if not answer.is_interim:
                return answer
            await client.write(_answer_bytes(answer, keep_alive=True))

    def _request_bytes(self, head: CarriedRequest, host: AppHost, client: HttpConnection, run: AppRun) -> bytes:
        fields = to_app(head, Asker(client.address, host.host, host.scheme))
        if run.profile.authorization and run.token:
            own = (b"authorization", run.profile.authorization.replace("{token}", run.token).encode())
            fields = (*(each for each in fields if each[0] != b"authorization"), own)
        return b"%b %b HTTP/1.1\r\n%b\r\n" % (head.method, head.target, _lines(fields))

    async def _upgrade(
        self, answer: CarriedAnswer, client: HttpConnection, app: HttpConnection, entered: Visitor, key: object
    ) -> None:
        await client.write(_answer_bytes(answer, keep_alive=True))
        run, opened_at = entered.run, self._clock()

        def lost() -> None:
            if entered.cuts.pop(key, None) is not None:
                run.open -= 1

        entered.cuts[key] = splice_frames(client, app, lambda: _note(run, opened_at, self._clock()), lost)

    # ------------------------------------------------------------------ upkeep

    def sweep(self) -> None:
        """Cut what nobody waits for any more: requests whose client has gone, and connections that are free for long."""
        for client, app in [*self._waiting]:
            if client.has_gone:
                app.abort()
        now = self._clock()
        for label, spares in [*self._spares.items()]:
            while spares and (now - spares[0].since > SPARE_S or not self._is_known(label)):
                spares.popleft().connection.abort()
            if not spares:
                del self._spares[label]

    def end(self, cookie: str, label: str, status: int, words: str) -> None:
        """End an entry: what is open of it is cut."""
        self.table.end(cookie, label)
        self.table.refuse(label, cookie, self._clock(), status, words)
        log.info("entry ended", label=label, reason=words)

    def close(self) -> None:
        """Cut everything."""
        for label, cookie in [*self.table.entries]:
            self.table.end(cookie, label)
        self.sweep()


async def serve_requests(
    head: CarriedRequest,
    client: HttpConnection,
    answer: AnswerOne,
    refused_bytes: Callable[[RequestRefused | HeadRefused, CarriedRequest | None], bytes],
) -> bool:
    """Handle a connection from its first request on. `refused_bytes`: the answer to a request that is refused; None: to no request. Returns
    True where it lives on by itself, as a WebSocket.
    """
    while True:
        try:
            goes_on, spliced = await answer(head, client)
        except RequestRefused as refused:
            await client.write(refused_bytes(refused, head))
            goes_on, spliced = False, False
        if spliced or not goes_on:
            return spliced
        try:
            data = await client.head(KEEP_ALIVE_S, HEAD_S)
            if not data:
                return False
            head = read_request(data)
        except HeadRefused as refused:
            await client.write(refused_bytes(refused, None))
            return False
        except Silent:
            return False


def _as_page(refused: RequestRefused | HeadRefused, head: CarriedRequest | None) -> bytes:
    return error_page(refused.status, refused.words, as_page=head is not None and is_navigation(head))


def _is_safe(head: CarriedRequest) -> bool:
    """Return whether a request may be sent twice."""
    return head.method in _IDEMPOTENT and head.body.is_empty


def _note(run: AppRun, opened_at: float, now: float) -> None:
    run.presence.frames(opened_at, now)


def _lines(fields: Fields) -> bytes:
    return b"".join([b"%b: %b\r\n" % each for each in fields])


def _answer_bytes(answer: CarriedAnswer, *, keep_alive: bool, sets_cookies: bool = True) -> bytes:
    closes = b"" if keep_alive else b"connection: close\r\n"
    fields = tuple(each for each in from_app(answer) if sets_cookies or each[0] != b"set-cookie")
    return b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (answer.status, answer.reason, _lines(fields), closes)
