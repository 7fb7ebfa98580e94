"""Fields that an app and a client get: an app that prints all it was sent prints none of our credentials."""

from base64 import b64encode

import pytest

from fairlead_appproxy.head import CarriedRequest, read_answer, read_request
from fairlead_appproxy.passed_fields import Asker, from_app, own_cookie, to_app

ASKER = Asker("192.0.2.7", "app.example.org")
TOKEN = b"flp_" + b"a" * 36


def request(*lines: bytes) -> CarriedRequest:
    """Read a request with these lines."""
    return read_request(b"\r\n".join([b"GET / HTTP/1.1", b"Host: app.example.org", *lines, b"", b""]))


@pytest.mark.parametrize(
    "line",
    [
        b"Authorization: Bearer " + TOKEN,
        b"Authorization: bearer  " + TOKEN,
        b"Authorization: Basic " + b64encode(b"ada:" + TOKEN),
        b"Authorization: Basic " + b64encode(TOKEN + b":"),
        b"Authorization: token " + TOKEN,
        b"Cookie: __Host-fairlead-app=secret",
        b"Cookie: __HOST-Fairlead-app=secret",
        b"X-Forwarded-For: 198.51.100.1",
        b"X_Forwarded_For: 198.51.100.1",
        b"X-Fairlead-User: root",
        b"Forwarded: for=198.51.100.1",
        b"X-Original-URL: /admin",
        b"Proxy-Authorization: Basic x",
        b"TE: trailers",
        b"Upgrade: h2c",
        b"HTTP2-Settings: AAMAAABkAAQAAP__",
    ],
)
def test_an_app_does_not_get(line: bytes) -> None:
    """Our credentials, claims of other proxies, and fields of this connection."""
    assert to_app(request(line), ASKER) == to_app(request(), ASKER)


def test_an_app_gets_the_rest_unchanged() -> None:
    """Its own cookies and credentials, in their order, and who asks by our word."""
    lines = (b"Cookie: a=1; __Host-fairlead-app=secret; b=2", b"Authorization: token jupyter", b"Accept: */*")
    assert to_app(request(*lines), ASKER) == (
        (b"host", b"app.example.org"),
        (b"cookie", b"a=1; b=2"),
        (b"authorization", b"token jupyter"),
        (b"accept", b"*/*"),
        (b"x-forwarded-for", b"192.0.2.7"),
        (b"x-forwarded-host", b"app.example.org"),
        (b"x-forwarded-proto", b"https"),
    )


def test_a_handshake_stays_one() -> None:
    """Its two fields of this connection are given on."""
    lines = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Key: a", b"Sec-WebSocket-Version: 13")
    fields = to_app(request(*lines), ASKER)
    assert fields[-2:] == ((b"connection", b"Upgrade"), (b"upgrade", b"websocket"))


@pytest.mark.parametrize(
    "cookie",
    [
        b"a=1; Domain=example.org",
        b"a=1; domain = .example.org",
        b"a=1;DOMAIN=app.example.org",
        b"__Host-fairlead-app=forged; Path=/; Secure",
        b"__host-FAIRLEAD-app=forged",
    ],
)
def test_an_app_sets_no_cookie_that_is_ours_or_reaches_beyond_its_host(cookie: bytes) -> None:
    """No cookie of the proxy, and no cookie of the whole domain."""
    answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: " + cookie + b"\r\nSet-Cookie: own=1; Path=/\r\nAlt-Svc: h3\r\n\r\n"
    assert from_app(read_answer(answer, request())) == ((b"set-cookie", b"own=1; Path=/"),)


def test_our_cookie_is_read_where_it_is_one() -> None:
    """Two that differ may be forged, so that neither counts."""
    name = b"__Host-fairlead-app"
    assert own_cookie(request(b"Cookie: a=1; __Host-fairlead-app=x"), name) == b"x"
    assert own_cookie(request(b"Cookie: __Host-fairlead-app=x; __Host-fairlead-app=y"), name) == b""
    assert own_cookie(request(b"Cookie: __Host-fairlead-app=x", b"Cookie: __Host-fairlead-app=y"), name) == b""
    assert own_cookie(request(), name) == b""
