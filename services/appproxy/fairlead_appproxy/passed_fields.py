"""Fields that pass through the proxy: an app never sees our credentials, and sets none of ours. Pure.

Bodies and paths are never rewritten. Start at `to_app` and `from_app`.
"""

from base64 import b64decode
from typing import NamedTuple

from fairlead_appproxy.head import CarriedAnswer, CarriedRequest, Fields

#: Cookies with these beginnings are the proxy's own and the gateway's. `__Host-` keeps other hosts from setting them (RFC 6265bis); browsers take
#: it over https alone, so on a person's own machine they go without.
OWN_COOKIES = (b"__host-fairlead", b"fairlead")
#: Beginnings of the cluster's tokens: of people, sign-ins, refreshes and apps.
TOKENS = (b"flp_", b"fls_", b"flr_", b"fla_")
#: Fields of one connection (RFC 9110, 7.6.1).
_OF_CONNECTION = frozenset(
    b"connection keep-alive proxy-connection proxy-authorization proxy-authenticate te upgrade http2-settings trailer".split()
)
#: Fields by which a proxy tells who asks; whoever else sends them lies.
_OF_PROXIES = frozenset([b"forwarded", b"x-real-ip", b"x-original-uri", b"x-original-url", b"x-rewrite-url"])


class Asker(NamedTuple):
    """What an app is told of the client."""

    address: str
    host: str
    scheme: str = "https"


def to_app(head: CarriedRequest, asker: Asker) -> Fields:
    """Return the fields of a request as the app gets them: without our cookies and tokens and without claims of proxies
    before, with ours instead. `Host` stays the public one, which apps compare with `Origin`.
    """
    found: list[tuple[bytes, bytes]] = []
    for name, value in head.fields:
        # WSGI and CGI do not tell an underscore from a hyphen.
        read_as = name.replace(b"_", b"-")
        if read_as in _OF_CONNECTION or read_as in _OF_PROXIES or read_as.startswith((b"x-forwarded-", b"x-fairlead-")):
            continue
        if read_as in (b"authorization", b"cookie") and name != read_as:
            continue
        if name == b"authorization" and _is_ours(value):
            continue
        kept = _without_ours(value) if name == b"cookie" else value
        if kept or name != b"cookie":
            found.append((name, kept))
    found += [
        (b"x-forwarded-for", asker.address.encode()),
        (b"x-forwarded-host", asker.host.encode()),
        (b"x-forwarded-proto", asker.scheme.encode()),
    ]
    found += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")] if head.is_websocket else []
    return tuple(found)


def from_app(head: CarriedAnswer) -> Fields:
    """Return the fields of an answer as the client gets them: without cookies that are ours or reach beyond the app's host,
    and without the offer of another server.
    """
    found = [
        (name, value)
        for name, value in head.fields
        if name not in _OF_CONNECTION
        and name != b"alt-svc"
        and not name.startswith(b"x-fairlead-")
        and not (name == b"set-cookie" and _reaches_beyond(value))
    ]
    return (*found, (b"connection", b"Upgrade"), (b"upgrade", b"websocket")) if head.status == 101 else tuple(found)


def own_cookie(head: CarriedRequest, name: bytes) -> bytes:
    """Return the value of one of the proxy's cookies, b"" where there is none, or where there are two that differ."""
    found = {
        value
        for field in head.values(b"cookie")
        for each, _, value in (part.strip(b" \t").partition(b"=") for part in field.split(b";"))
        if each == name
    }
    return found.pop() if len(found) == 1 else b""


def _is_ours(authorization: bytes) -> bool:
    """Return whether a credential holds one of our tokens; Basic ones are encoded, so that they are decoded to see it."""
    scheme, _, value = authorization.partition(b" ")
    if scheme.lower() == b"basic":
        value = _decoded(value)
    return any(token in value for token in TOKENS)


def _decoded(text: bytes) -> bytes:
    try:
        return b64decode(text.strip(), validate=False)
    except ValueError:
        return text


def _without_ours(cookies: bytes) -> bytes:
    kept = (part.strip(b" \t") for part in cookies.split(b";"))
    return b"; ".join(part for part in kept if part and not part.lower().startswith(OWN_COOKIES))


def _reaches_beyond(cookie: bytes) -> bool:
    pair, *attributes = cookie.split(b";")
    domain = any(each.partition(b"=")[0].strip(b" \t").lower() == b"domain" for each in attributes)
    return domain or pair.strip(b" \t").lower().startswith(OWN_COOKIES)
