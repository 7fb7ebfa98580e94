"""Connection of the Python client to a gateway: addresses, headers, retries, pages, and answers decoded to their types.

Knows no path of the API. Every POST carries an Idempotency-Key, so it is safe to send again when the connection breaks
before the answer. `Wire` does so automatically, a bounded number of times. Errors are those of `errors.py`.
"""

import getpass
import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import msgspec

from fairlead.errors import FairleadError, InputRefused, Unreachable, from_problem
from fairlead.http_library import httpx
from fairlead_schemas.http.api import Page, Problem
from fairlead_schemas.units.ids import TOKEN_CHARS_MAX, is_token

DEFAULT_URL = "http://127.0.0.1:8080"
PORT_MAX = 65535
TIMEOUT_S = 30.0
#: How often one request is sent again when the connection breaks.
RESENDS_MAX = 3
#: A 503 that asks for at most this many seconds of patience gets them.
SOON_S = 2
PAGE_ITEMS = 1000
USER_HINT = "name yourself with --as or FAIRLEAD_USER"
#: What an answer looks like that no gateway gave.
NO_GATEWAY_HINT = "is this the address of a gateway, of this version? Set FAIRLEAD_URL"


class Transport:
    """Connections of one user to a gateway, or to several of one cluster, one at a time; `Client` adds the API's requests."""

    def __init__(
        self, url: str = "", token: str = "", user: str = "", *, transport: httpx.BaseTransport | None = None
    ) -> None:
        given = url or os.environ.get("FAIRLEAD_URL") or DEFAULT_URL
        #: Gateways of one cluster: any of them answers alike. The first is talked to until it cannot be reached.
        self.urls = [_address(each.strip().rstrip("/")) for each in given.split(",") if each.strip()]
        self.url = self.urls[0] if self.urls else _address(given)
        self.user = user or os.environ.get("FAIRLEAD_USER") or _login()
        if not is_token(self.user):
            raise InputRefused(
                f'user: expected 1 to {TOKEN_CHARS_MAX} of a-z 0-9 _ -, found "{self.user}"', hint=USER_HINT
            )
        token = _header("FAIRLEAD_TOKEN", token or os.environ.get("FAIRLEAD_TOKEN", ""))
        headers = {"X-Fairlead-User": self.user, **({"Authorization": f"Bearer {token}"} if token else {})}
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=TIMEOUT_S,
            transport=transport,
            trust_env=False,
            # Reading the certificates takes longer than a request; plain HTTP has none, and redirects are not followed.
            verify=any(each.startswith("https:") for each in self.urls),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _pages[T](self, path: str, filters: dict[str, Any], item: type[T], limit: int) -> Page[T]:
        """All pages joined. The sequence is that of the first, so `events --from` misses nothing."""
        joined: Page[T] | None = None
        query = {**filters, "limit": min(limit, PAGE_ITEMS) if limit else PAGE_ITEMS}
        while True:
            page = decode_page(self._get(path, query).content, item)
            if joined is None:
                joined = page
            else:
                joined.items += page.items
            if page.next is None or (limit and len(joined.items) >= limit):
                return Page(items=joined.items[: limit or None], next=page.next, sequence=joined.sequence)
            query["continue"] = page.next

    def _get(self, path: str, query: dict[str, Any] | None = None) -> httpx.Response:
        return self._send("GET", path, params=query_of(query or {}))

    def _post(self, path: str, body: Any, *, key: str = "", query: dict[str, Any] | None = None) -> httpx.Response:
        headers = {"Idempotency-Key": _header("key", key) or uuid.uuid4().hex}
        return self._send("POST", path, json=body, params=query or {}, headers=headers)

    def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        for attempt in range(RESENDS_MAX + 1):
            try:
                answer = self._http.request(method, path, **arguments)
            except httpx.TransportError as error:
                if attempt == RESENDS_MAX:
                    raise self._unreachable(error) from error
                self._turn_to_next()
            except httpx.RequestError as error:  # it answers, but not in a way that asking again would mend
                raise self._unreachable(error) from error
            except httpx.InvalidURL as error:
                raise InputRefused(f"a name that cannot be part of a URL: {error}") from error
            else:
                if attempt == RESENDS_MAX or not _soon_better(answer):
                    raise_for(answer)
                    return answer
            time.sleep(0.1 * 2**attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _turn_to_next(self) -> None:
        """Talk to the next gateway from now on, where several are named."""
        self.url = self.urls[(self.urls.index(self.url) + 1) % len(self.urls)]
        self._http.base_url = self.url

    def _unreachable(self, error: Exception) -> FairleadError:
        return Unreachable(
            f"{', '.join(self.urls)} cannot be reached: {error}",
            hint="start a local cluster with `fairlead up`, or set FAIRLEAD_URL",
        )

    @contextmanager
    def _stream(self, path: str, query: dict[str, Any]) -> Iterator[httpx.Response]:
        try:
            with self._http.stream("GET", path, params=query, timeout=httpx.Timeout(TIMEOUT_S, read=None)) as answer:
                raise_for(answer, stream=True)
                yield answer
        except httpx.RequestError as error:
            raise self._unreachable(error) from error


def _soon_better(answer: httpx.Response) -> bool:
    """True for a gateway that says itself that it will answer in a moment (it has just started, or is busy)."""
    wait = answer.headers.get("Retry-After", "")
    return answer.status_code == 503 and wait.isdecimal() and int(wait) <= SOON_S


def _address(url: str) -> str:
    """The address itself, once it can be one. Raises Refused."""
    try:
        parts = httpx.URL(url)
        fits = parts.scheme in ("http", "https") and bool(parts.host) and (parts.port or 0) <= PORT_MAX
    except httpx.InvalidURL:
        fits = False
    if not fits:
        raise InputRefused(
            f'url: expected an address such as "{DEFAULT_URL}", found "{url}"',
            hint="name it with --url or FAIRLEAD_URL",
        )
    return url


def _header(name: str, value: str) -> str:
    """Return the value if a header can carry it. Raises Refused, without the value: it may be a secret."""
    if not (value.isascii() and value.isprintable()):
        raise InputRefused(f"{name}: expected printable ASCII characters only")
    return value


def decode[T](content: bytes | str, kind: type[T]) -> T:
    """An answer as what it must be. Raises Unreachable: what answers otherwise is no gateway."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unreachable(
            f"what answers is not the gateway that was expected: {error}", hint=NO_GATEWAY_HINT
        ) from error


def decode_page[T](content: bytes, item: type[T]) -> Page[T]:
    """A list answer. Raises as `decode`."""
    return decode(content, Page[item])  # type: ignore[valid-type] -- a type made at run time


def query_of(values: dict[str, Any]) -> dict[str, Any]:
    """Return the query without unset values (None and "")."""
    return {key: value for key, value in values.items() if value not in (None, "")}


def raise_for(answer: httpx.Response, *, stream: bool = False) -> None:
    """Raises the typed error of an answer that is none. An answer without problem+json still names its status."""
    if answer.status_code < 400:
        return
    if stream:
        answer.read()
    try:
        problem = msgspec.json.decode(answer.content, type=Problem)
    except msgspec.MsgspecError:
        text = answer.text.strip()[:200]
        problem = Problem(
            type="about:blank", title=f"HTTP {answer.status_code}", status=answer.status_code, detail=text
        )
    raise from_problem(problem)


def _login() -> str:
    """The login name as a user name of Fairlead: lower case, other characters replaced by "-"."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # no passwd entry, as in many containers
        return "unknown"
    return re.sub(r"[^a-z0-9_-]", "-", name.lower()).strip("-_")[:TOKEN_CHARS_MAX] or "unknown"
