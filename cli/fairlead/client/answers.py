"""Requests and answers of the gateway's HTTP API, whatever carries them: addresses, queries, answers decoded to their types, typed errors.

Pure. Knows no path of the API. Errors are those of `fairlead.errors`; `LinkBroken` and `LinkRefused` are the faults of a connection, which
`AsyncTransport` turns into them.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from fairlead.errors import InputRefused, Unreachable, from_problem
from fairlead_schemas.http.api import Page, Problem

DEFAULT_URL = "http://127.0.0.1:8080"
PORT_MAX = 65535
TIMEOUT_S = 30.0
#: A 503 that asks for at most this many seconds of patience gets them.
SOON_S = 2
#: What an answer looks like that no gateway gave.
NO_GATEWAY_HINT = "is this the address of a gateway, of this version? Set FAIRLEAD_URL"
#: Header with the version of the gateway's package, on every answer.
VERSION_HEADER = "X-Fairlead-Version"
#: Header with sequence and time of an answer about the past.
AT_HEADER = "X-Fairlead-At"
AT_HINT = (
    "--at and FAIRLEAD_AT are for verbs that read the cluster's state: jobs, show, why, nodes, queues, packing, defrag, idle, \
rollout, maintenance, breaker, access, prices, usage, tokens, volumes, datasets"
)
AT_SQL_HINT = "fairlead sql \"SELECT … FROM events WHERE time <= '2026-11-24 03:12'\": the tables jobs, runs and allocations have the times of each row"
#: Paths whose answers a client needs in any case, and that do not depend on the moment.
TIMELESS = frozenset({"/v1/whoami"})
#: Paths that take `at`.
_PAST = re.compile(
    r"/v1/(jobs(/[^/]+(/why)?)?|nodes(/[^/]+)?|queues(/.+)?|pools(/[^/]+/(packing|defrag))?|cluster|map(/columns)?|prices|idle|rollouts(/[^/]+)?|maintenance|breaker"
    r"|access(/why)?|groups|commands/[^/]+|usage|use|tokens|storage-classes|volumes(/[^/]+)?|datasets(/[^/]+)?)"
)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")
#: Characters that a path may contain as they are (RFC 3986, 3.3); a percent sign begins what is quoted already.
_PATH_SAFE = "/:@!$&'()*+,;=~%"


class LinkBroken(Exception):
    """The connection to a gateway broke, or there was none. The request can be sent again."""


class LinkRefused(Exception):
    """A gateway answered, but not in a way that sending again would mend."""


class Headers(Protocol):
    """Headers of an answer, by their names in any case."""

    def get(self, key: str, /) -> str | None:
        """Return a header's value; None where there is none."""
        ...


class FilePart(NamedTuple):
    """Bytes of a file, with what is known of the whole file."""

    data: bytes
    size: int
    #: Changes with the file's content.
    tag: str
    #: SHA-256 in hex digits; "" where it was not asked for.
    digest: str
    offset: int


class Answer(NamedTuple):
    """Status, headers and whole body of an answer."""

    status: int
    headers: Headers
    content: bytes

    def is_soon_better(self) -> bool:
        """Return True for a gateway that announces an answer in a moment, because it has just started or is busy."""
        wait = self.headers.get("Retry-After") or ""
        return self.status == 503 and wait.isdecimal() and int(wait) <= SOON_S


def has_past(path: str) -> bool:
    """Return True for a path that takes `at`."""
    return _PAST.fullmatch(path) is not None


def addresses_of(urls: str) -> list[str]:
    """Return the addresses of a list with commas. Raises InputRefused."""
    return [address(each.strip().rstrip("/")) for each in urls.split(",") if each.strip()] or [address(urls)]


def address(url: str) -> str:
    """Return an address that can be one of a gateway, as it is. Raises InputRefused."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 0) <= PORT_MAX
    except ValueError:
        fits = False
    if not fits or _UNPRINTABLE.search(url) or " " in url:
        raise InputRefused(
            f'url: expected an address such as "{DEFAULT_URL}", found "{url}"',
            hint="name it with --url or FAIRLEAD_URL",
        )
    return url


def target_of(path: str, query: Mapping[str, Any]) -> str:
    """Return path and query as a request line has them. Raises InputRefused for a path with control characters."""
    if _UNPRINTABLE.search(path):
        raise InputRefused(f"a name that cannot be part of a URL: {path!r}")
    return quote(path, safe=_PATH_SAFE) + (f"?{urlencode(query)}" if query else "")


def header(name: str, value: str) -> str:
    """Return a value that a header can carry, as it is. Raises InputRefused, without the value: it may be a secret."""
    if not (value.isascii() and value.isprintable()):
        raise InputRefused(f"{name}: expected printable ASCII characters only")
    return value


def decode[T](content: bytes | str, kind: type[T]) -> T:
    """Decode an answer to its type; unknown fields are ignored. Raises Unreachable: what answers otherwise is no gateway."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unreachable(
            f"what answers is not the gateway that was expected: {error}", hint=NO_GATEWAY_HINT
        ) from error


def decode_page[T](content: bytes, item: type[T]) -> Page[T]:
    """Decode a list answer. Raises as `decode`."""
    return decode(content, Page[item])  # type: ignore[valid-type] -- a type made at run time


def if_match(unchanged_since: int | None) -> dict[str, str]:
    """Return the header by which a change is made only if nothing has changed after a log sequence; None: none."""
    return {} if unchanged_since is None else {"If-Match": f'W/"{unchanged_since}"'}


def query_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the query without unset values (None and "")."""
    return {key: value for key, value in values.items() if value not in (None, "")}


def raise_for(status: int, content: bytes) -> None:
    """Raise the typed error of a status from 400 on. An answer without problem+json still names its status."""
    if status < 400:
        return
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except msgspec.MsgspecError:
        text = content.decode(errors="replace").strip()[:200]
        problem = Problem(type="about:blank", title=f"HTTP {status}", status=status, detail=text)
    raise from_problem(problem)
