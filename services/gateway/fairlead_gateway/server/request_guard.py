"""Checks that every request passes before anything else is read: its Host, its origin, its head.

Owns which names the gateway answers to. A page in a browser can make its own name resolve to this machine (DNS
rebinding) and then counts as same-origin, so a request whose Host is an unknown name is refused for every method.
An address needs no list: a page that was loaded from this very address is ours. Pure. Start at `RequestGuard.check`.

The bound on refused changes by one client: a program that sends the same mistake in a loop.

Every refused command costs a decision and an event that is kept permanently, and a full log refuses every client.
So a client whose changes are refused again and again is answered 429 until its rate has fallen; accepted changes
count nothing. A client is an address with the user that it states: there is no other identity yet. Users can be
made up, so an address as a whole has a bound, too, wide enough for many people behind one proxy. A client counts there for
at most twice its own bound at once, and for at most its bound a minute, so that it takes several clients to close their
address to others. Pure: time is an argument.
"""

from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

from fairlead_gateway.errors import HttpError
from fairlead_gateway.server.cors import Cors
from fairlead_schemas.units.validation import FieldError, printable

SETTING = "FAIRLEAD_HTTP_HOSTS"
CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
HEADERS_MAX = 128
HEAD_BYTES_MAX = 64 * 1024
#: Key in the ASGI scope of a request target that is not a plain path, set by the server's protocol class.
TARGET = "fairlead.target"
_NO_CORS = Cors()
#: Remembered answers about Host headers; a client that sends many different ones must not fill the memory.
_REMEMBERED_MAX = 256


class RequestGuard:
    """Guard that decides which requests may pass. `hosts`: further names; `bound`: the address or name of the listener; `cors`: the
    origins whose pages count as our own.
    """

    def __init__(self, hosts: Iterable[str] = (), bound: str = "127.0.0.1", cors: Cors = _NO_CORS) -> None:
        self._cors = cors
        self._names = {"localhost", plain_name(bound), *map(plain_name, hosts)} - {""}
        self._remembered: dict[tuple[bytes, str], HttpError | None] = {}

    def check(self, scope: Mapping[str, Any]) -> HttpError | None:
        """Return the refusal of a request by its head alone; None lets it pass."""
        host = b""
        hosts = size = 0
        upgrades = False
        origins = sites = encodings = ()
        headers = scope["headers"]
        for name, value in headers:
            size += len(name) + len(value)
            if name == b"host":
                host, hosts = value, hosts + 1
            elif name == b"origin":
                origins = (*origins, value)
            elif name == b"sec-fetch-site":
                sites = (*sites, value)
            elif name == b"content-encoding":
                encodings = (*encodings, value)
            elif name == b"upgrade":
                upgrades = True
        if size > HEAD_BYTES_MAX or len(headers) > HEADERS_MAX:
            return _head_too_large(size, len(headers))
        if hosts != 1:
            return _bad_host(f"expected one Host header, found {hosts}")
        refused = self._check_host(host, scope)
        if refused is None and TARGET in scope:
            refused = self._check_target(scope[TARGET], scope)
        if refused is not None:
            return refused
        if upgrades and _loses_body(headers):
            return HttpError(
                400,
                "upgrade_with_body",
                "expected no Upgrade header with a body: the body would be lost",
                errors=[FieldError(field="Upgrade", message="expected none with a body")],
                hint="send plain HTTP/1.1 (curl: --http1.1)",
            )
        if scope["method"] in CHANGING and _is_foreign(origins, sites, host) and not self._is_listed(origins):
            return HttpError(
                403,
                "foreign_page",
                "a page of another origin may not change anything here",
                hint="call the gateway from its own pages, from a program, or without an Origin header",
            )
        if encodings and any(one.strip().lower() not in (b"", b"identity") for one in encodings):
            found = b", ".join(encodings)[:40].decode("latin-1")
            return HttpError(
                415,
                "content_encoding",
                f"expected a body without Content-Encoding, found {found}",
                errors=[FieldError(field="Content-Encoding", message=f"expected none, found {found}")],
                hint="send the body uncompressed",
            )
        return None

    def _is_listed(self, origins: tuple[bytes, ...]) -> bool:
        return len(origins) == 1 and self._cors.allows(origins[0])

    def _check_host(self, host: bytes, scope: Mapping[str, Any]) -> HttpError | None:
        server = scope.get("server")
        key = (host, server[0] if server else "")
        try:
            return self._remembered[key]
        except KeyError:
            pass
        refused = self._judge(host, key[1])
        if len(self._remembered) < _REMEMBERED_MAX:
            self._remembered[key] = refused
        return refused

    def _check_target(self, target: bytes, scope: Mapping[str, Any]) -> HttpError | None:
        """Hold the authority of an absolute-form target to the same rule: by RFC 9112 it counts instead of Host."""
        scheme, found, rest = target.partition(b"://")
        if not found or scheme.lower() not in (b"http", b"https"):
            return _bad_host("expected a request target that is a path, such as /v1/jobs")
        authority = rest.partition(b"/")[0].partition(b"?")[0]
        return self._check_host(authority, scope)

    def _judge(self, host: bytes, local: str) -> HttpError | None:
        name = host_name(host)
        if name is None:
            found = printable(host[:80].decode("latin-1"))
            return _bad_host(f'expected NAME, NAME:PORT, ADDRESS or [IPV6]:PORT as Host, found "{found}"')
        if name in self._names or _is_own_address(name, local):
            return None
        return HttpError(
            421,
            "unknown_host",
            f"this gateway does not answer to the name {name[:80]}",
            errors=[FieldError(field="Host", message="expected a name that the gateway answers to")],
            hint=f"use localhost or the gateway's address, or add the name to {SETTING} of the gateway",
        )


def host_name(host: bytes) -> str | None:
    """Return the name or address of a Host value in its one spelling: lower case, without port, brackets or final dot.

    None for a value that is not `uri-host [ ":" port ]` (section 7.2 of RFC 9110).
    """
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        inside, closed, port = text[1:].partition("]")
        try:
            address = IPv6Address(inside)
        except ValueError:
            return None
        if not closed or not _is_port(port):
            return None
        return str(address.ipv4_mapped or address)
    name, colon, port = text.partition(":")
    if not _is_port(colon + port):
        return None
    name = name.removesuffix(".")
    labels = name.split(".")
    if not name or len(name) > 253 or not all(map(_is_label, labels)):
        return None
    return name


def _is_port(text: str) -> bool:
    return not text or (
        text[0] == ":" and len(text) <= 6 and (text[1:].isascii() and (text[1:].isdigit() or text == ":"))
    )


def _is_label(text: str) -> bool:
    return 0 < len(text) <= 63 and text.isascii() and text.replace("-", "").replace("_", "").isalnum()


def plain_name(text: str) -> str:
    """Return a configured name in the spelling of `host_name`, "" for one that is none; brackets of IPv6 may be left out."""
    bare = text.strip()
    if ":" in bare and not bare.startswith("["):
        bare = f"[{bare}]"
    return host_name(bare.encode()) or ""


def _is_own_address(name: str, local: str) -> bool:
    """Return True for a loopback address, and for the address at which this connection arrived."""
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or name == plain_name(local)


def _loses_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return True for a request to change protocols that has a body; the parser stops in front of the body."""
    asked = has_body = False
    for name, value in headers:
        if name == b"connection":
            asked = asked or b"upgrade" in value.lower()
        elif name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 ")):
            has_body = True
    return asked and has_body


def _is_foreign(origins: tuple[bytes, ...], sites: tuple[bytes, ...], host: bytes) -> bool:
    """Return True for a request by a page of another origin, as the browser states it.

    Every value of a repeated header must be ours: readers differ in which one they take.
    """
    if any(sites):
        return any(site not in (b"same-origin", b"none") for site in sites)
    return any(origin.partition(b"://")[2].lower() != host.lower() for origin in origins if origin)


def _bad_host(message: str) -> HttpError:
    return HttpError(400, "bad_host", message, errors=[FieldError(field="Host", message=message)])


def _head_too_large(size: int, count: int) -> HttpError:
    return HttpError(
        431,
        "head_too_large",
        f"expected at most {HEADERS_MAX} headers of {HEAD_BYTES_MAX} bytes together, found {count} of {size} bytes",
    )


#: Clients that are remembered; with more, those with the fewest refusals are forgotten.
CLIENTS_MAX = 10_000
#: The bound of an address in those of one client.
ADDRESS_FACTOR = 10


#: An address with a stated user, or (None) with all of them.
type _Key = tuple[str, str | None]


class _Level(NamedTuple):
    """Refusals that count against a client at a moment; they decay evenly."""

    refusals: float
    at_s: float


class RefusalLimit:
    """A leaky bucket for each client: `per_minute` refusals at once, and as many a minute; 0: no bound."""

    def __init__(self, per_minute: int) -> None:
        self._most = float(per_minute)
        self._levels: dict[_Key, _Level] = {}

    def check(self, client: tuple[str, str], now_s: float) -> HttpError | None:
        """Return the refusal (429) of a client or address over its bound, else None."""
        if not self._levels:
            return None
        address, _ = client
        bounds = (client, "this client"), ((address, None), "all clients of this address together")
        for key, whose in bounds:
            most = self._bound(key)
            over = self._level(key, now_s) - (most - 1)
            if over > 0:
                wait_s = int(over / most * 60) + 1
                return HttpError(
                    429,
                    "too_many_refusals",
                    f"over {most:.0f} changes of {whose} were refused within a minute; further ones wait",
                    hint="correct what the refusals name before sending more; reads are still served",
                    retry_after_s=wait_s,
                )
        return None

    def count(self, client: tuple[str, str], refusals: int, now_s: float) -> None:
        """Count refused changes of a client."""
        if not self._most:
            return
        if len(self._levels) >= CLIENTS_MAX - 1 and client not in self._levels:
            self._forget(now_s)
        address: _Key = (client[0], None)
        before = self._level(client, now_s)
        # Bounded, so that one answer about a long list cannot shut a client out for hours.
        after = min(before + refusals, 2 * self._most)
        self._levels[client] = _Level(after, now_s)
        level = min(self._level(address, now_s) + after - before, 2 * self._bound(address))
        self._levels[address] = _Level(level, now_s)

    def _bound(self, key: _Key) -> float:
        return self._most if key[1] is not None else ADDRESS_FACTOR * self._most

    def _level(self, key: _Key, now_s: float) -> float:
        found = self._levels.get(key)
        if found is None:
            return 0.0
        return max(0.0, found.refusals - (now_s - found.at_s) * self._bound(key) / 60)

    def _forget(self, now_s: float) -> None:
        kept = sorted(self._levels, key=lambda key: self._level(key, now_s))[CLIENTS_MAX // 2 :]
        self._levels = {key: self._levels[key] for key in kept if self._level(key, now_s)}
