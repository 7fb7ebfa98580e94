# Made by docs/synchronous.py of asynchronous/transport.py; `make docs` writes it again.
"""Connection of a client to a gateway: addresses, headers, repeats, and pages joined.

Knows no path of the API. Every POST carries an Idempotency-Key, so it is safe to send again when the connection breaks
before the answer. `Transport` does so automatically, a bounded number of times. Errors are those of `fairlead.errors`.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from fairlead.client import contexts
from fairlead.client.answers import (
    AT_HEADER,
    AT_HINT,
    AT_SQL_HINT,
    TIMELESS,
    TIMEOUT_S,
    VERSION_HEADER,
    Answer,
    LinkBroken,
    LinkRefused,
    addresses_of,
    decode,
    decode_page,
    has_past,
    header,
    query_of,
    raise_for,
    target_of,
)
from fairlead.client.settings import settings_of
from fairlead.client.sync_link import GatewayLink, in_thread, pause
from fairlead.errors import FairleadError, InputRefused, NotFound, Unreachable
from fairlead_schemas.http.api import Page

if TYPE_CHECKING:
    import httpx

#: How often one request is sent again when the connection breaks.
RESENDS_MAX = 3
PAGE_ITEMS = 1000


class Transport:
    """Connections of one user to a gateway, or to several of one cluster, one at a time; `Client` adds the API's requests.

    `url` may name several gateways of one cluster, separated by commas. Without it, the gateway is that of the environment, of a
    context, or of the local stack; and without `token`, so is the credential (`settings.py`). `user` counts only where no
    credential is sent. `at` is a past moment that every answer is about: a log sequence, an RFC 3339 time, or "2 hours ago"; all
    requests of the client are then about one sequence. `transport` replaces the network in tests. Raises InputRefused. Usable as a
    context manager.
    """

    def __init__(
        self,
        url: str = "",
        token: str = "",
        user: str = "",
        *,
        context: str = "",
        at: str = "",
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        settings = settings_of(url, token, user, context)
        #: Gateways of one cluster: any of them answers alike. The first is used until it cannot be reached.
        self.urls = addresses_of(settings.url)
        self.url = self.urls[0]
        self.user = settings.user
        self._credential = settings.credential
        self._link = GatewayLink(self.urls, transport)
        self._me = ""
        #: Moment that requests are about ("": the present), and what the first answer about it was of: sequence and time.
        self.at = at
        self.as_of = ""
        #: Version of the gateway that answered last; "" before the first answer.
        self.server_version = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._link.close()

    def me(self) -> str:
        """Return the user's name as the jobs' documents have it: with a credential, that of its principal."""
        if self._credential is None:
            return self.user
        if not self._me:
            try:
                found = decode((self._get("/v1/whoami")).content, dict[str, Any])
                self._me = found.get("login") or found["principal"]
            except NotFound:  # a gateway of an earlier version
                self._me = self.user
        return self._me

    def _pages[T](self, path: str, filters: dict[str, Any], item: type[T], limit: int) -> Page[T]:
        """All pages joined. The sequence is that of the first, so `events --from` misses nothing."""
        joined: Page[T] | None = None
        query = {**filters, "limit": min(limit, PAGE_ITEMS) if limit else PAGE_ITEMS}
        while True:
            page = decode_page((self._get(path, query)).content, item)
            if joined is None:
                joined = page
            else:
                joined.items += page.items
            if page.next is None or (limit and len(joined.items) >= limit):
                return Page(items=joined.items[: limit or None], next=page.next, sequence=joined.sequence)
            query["continue"] = page.next

    def _get(self, path: str, query: dict[str, Any] | None = None) -> Answer:
        return self._send("GET", path, query=query_of(self._then(path, query or {})))

    def _then(self, path: str, query: dict[str, Any]) -> dict[str, Any]:
        """Return the query of a GET with the client's moment, unless it names one. Raises InputRefused for a path without a past."""
        if not self.at or query.get("at") or path in TIMELESS:
            return query
        if not has_past(path):
            raise InputRefused(f"--at: {path} has no past", hint=AT_HINT)
        return {**query, "at": self.at}

    def _note_moment(self, answer: Answer) -> None:
        """Pin further requests to the sequence of the first answer about the past: "2 hours ago" moves on."""
        found = answer.headers.get(AT_HEADER)
        if self.at and found and not self.as_of:
            self.as_of, self.at = found, found.partition(" ")[0]

    def _post(
        self,
        path: str,
        body: Any,
        *,
        key: str = "",
        query: dict[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        own = {"Idempotency-Key": header("key", key) or uuid.uuid4().hex, **(headers or {})}
        return self._send("POST", path, json=body, query=query, headers=own)

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        """Send a request, again where that may help, and return its answer. Raises FairleadError."""
        if self.at and method != "GET":
            if path == "/v1/sql":
                raise InputRefused(
                    "--at: SQL is asked of everything up to now; name the moment in the query", hint=AT_SQL_HINT
                )
            raise InputRefused("--at: the past cannot be changed, and this request is about the present", hint=AT_HINT)
        target = target_of(path, query or {})
        body = content if json is None else msgspec.json.encode(json)
        kind = "application/json" if content is None else "application/octet-stream"
        sent = {**({} if body is None else {"Content-Type": kind}), **(headers or {})}
        refreshed = False
        for attempt in range(RESENDS_MAX + 1):
            credentials = self._credentials()
            try:
                answer = self._link.request(method, self.url + target, {**credentials, **sent}, body, timeout_s)
            except LinkBroken as error:
                if attempt == RESENDS_MAX:
                    raise self._unreachable(error) from error
                self._turn_to_next()
            except LinkRefused as error:
                raise self._unreachable(error) from error
            else:
                self.server_version = answer.headers.get(VERSION_HEADER) or self.server_version
                if answer.status == 401 and not refreshed and self._refresh():
                    refreshed = True
                    continue
                if attempt == RESENDS_MAX or not answer.is_soon_better():
                    raise_for(answer.status, answer.content)
                    self._note_moment(answer)
                    return answer
            pause(0.1 * 2**attempt)
        raise Unreachable(f"{self.url} answers 401 although the token is new")

    def _try(self, path: str, timeout_s: float) -> Answer | None:
        """Send one GET of a public page once, and return its answer, whatever its status; None where there is none."""
        try:
            known = {} if self._credential is None else self._credentials()
            return self._link.request("GET", self.url + path, known, None, timeout_s)
        except (LinkBroken, LinkRefused):
            return None

    def _credentials(self) -> dict[str, str]:
        """Return the headers that name the sender: the credential, or without any the user's name."""
        if self._credential is None:
            return {"X-Fairlead-User": self.user}
        if self._credential.is_due():
            self._refresh()
        return {"Authorization": f"Bearer {self._credential.token}"}

    def _refresh(self) -> bool:
        """Replace the access token by a new one; False where there is nothing to replace it with."""
        credential = self._credential
        return credential is not None and in_thread(credential.refresh)

    def _turn_to_next(self) -> None:
        """Use the next gateway from now on, where several are named."""
        self.url = self.urls[(self.urls.index(self.url) + 1) % len(self.urls)]

    def _unreachable(self, error: Exception) -> FairleadError:
        addresses = ",".join(self.urls)
        if name := contexts.load().name_of(addresses):
            hint = f"this is the context {name}; `fairlead context list` has the others"
        else:
            hint = "start a local cluster with `fairlead up`, or set FAIRLEAD_URL"
        return Unreachable(f"{', '.join(self.urls)} cannot be reached: {error}", hint=hint)

    @contextmanager
    def _stream(
        self, path: str, query: Mapping[str, Any], headers: Mapping[str, str] | None = None, read_s: float | None = None
    ) -> "Iterator[httpx.Response]":
        """Open a stream that may be silent for `read_s` seconds (None: for any time). Raises FairleadError, Unreachable also where the
        stream breaks off.
        """
        if self.at:
            raise InputRefused(f"--at: {path} has no past", hint=AT_HINT)
        is_open = False
        url = self.url + target_of(path, query)
        try:
            with self._link.stream(url, {**self._credentials(), **(headers or {})}, read_s) as answer:
                if answer.status_code >= 400:
                    raise_for(answer.status_code, answer.read())
                is_open = True
                yield answer
        except (LinkBroken, LinkRefused) as error:
            if is_open:
                raise Unreachable(f"the answer broke off: {error}") from error
            raise self._unreachable(error) from error
