"""The checks of every request's head: which names the gateway answers to, whose pages may change something."""

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fairlead_gateway.server.request_guard import HEAD_BYTES_MAX, HEADERS_MAX, TARGET, RequestGuard, host_name

GUARD = RequestGuard(["fairlead.example.org", "Gateway"], bound="10.0.0.7")


def scope(*headers: tuple[str, str], method: str = "GET", target: bytes = b"", local: str = "127.0.0.1") -> Any:
    """Build an ASGI scope with the fields that the guard reads."""
    found: dict[str, Any] = {
        "method": method,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        "server": (local, 8080),
    }
    return found | ({TARGET: target} if target else {})


def status(found: Any, guard: RequestGuard = GUARD) -> int:
    """Return the refusal's status, 0 for a request that passes."""
    refused = guard.check(found)
    return 0 if refused is None else refused.status


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "localhost:8080",
        "localhost.:1",
        "127.0.0.1",
        "127.0.0.1:18200",
        "127.9.9.9",
        "[::1]",
        "[::1]:8080",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]:80",
        "10.0.0.7:8080",
        "localhost:",
        "fairlead.example.org",
        "Fairlead.Example.ORG.:443",
        "gateway:8080",
    ],
)
def test_known_names_pass(host: str) -> None:
    """Loopback, the bound address and the names of the setting, in any case, with any port, with a final dot."""
    assert status(scope(("host", host))) == 0


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "xlocalhost",
        "a.localhost",
        "10.0.0.8",
        "127.0.0.1.evil.example",
        "[2001:db8::1]",
        "example.org",
        "192.168.0.1",
        "0.0.0.0",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_other_hosts_are_misdirected_for_every_method(host: str, method: str) -> None:
    """By rebinding its own name, a page cannot read or change anything."""
    refused = GUARD.check(
        scope(("host", host), ("origin", f"http://{host}"), ("sec-fetch-site", "same-origin"), method=method)
    )
    assert refused is not None and refused.status == 421
    assert refused.errors[0].field == "Host" and "FAIRLEAD_HTTP_HOSTS" in refused.hint


@pytest.mark.parametrize(
    "host",
    [
        "",
        " ",
        "localhost localhost",
        "localhost,evil",
        "[::1",
        "::1",
        "[::1]x",
        "[nope]",
        "localhost:abc",
        "localhost:123456",
        "user@localhost",
        "localhost/x",
        "localhost..",
        ".localhost",
        "local host",
        "localhost\x00",
        "löcalhost",
        "localhost:80:80",
    ],
)
def test_malformed_hosts_are_bad_requests(host: str) -> None:
    """A value that is no host is refused as such, never taken for a known name."""
    assert status(scope(("host", host))) == 400


def test_exactly_one_host_is_expected() -> None:
    """None, or two even if equal, are refused: two readers could take different ones."""
    assert status(scope()) == 400
    assert status(scope(("host", "localhost"), ("host", "localhost"))) == 400
    assert status(scope(("host", "localhost"), ("host", "evil.example"))) == 400


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"http://localhost:8080/v1/jobs", 0),
        (b"HTTP://127.0.0.1/v1/jobs?x=1", 0),
        (b"http://evil.example/v1/jobs", 421),
        (b"http://evil.example?localhost", 421),
        (b"http://localhost@evil.example/", 400),
        (b"evil.example:443", 400),
        (b"ftp://localhost/", 400),
        (b"*", 400),
        (b"http:///v1/jobs", 400),
    ],
)
def test_an_absolute_target_counts_as_a_host(target: bytes, expected: int) -> None:
    """RFC 9112 3.2.2: its authority is what the request is for, whatever Host is."""
    assert status(scope(("host", "localhost"), target=target)) == expected


def test_the_address_a_connection_arrived_at_is_known() -> None:
    """Bound to every address, the gateway answers to the one that was called; a page of a foreign name has none."""
    everywhere = RequestGuard(bound="0.0.0.0")
    assert status(scope(("host", "192.168.7.3:8080"), local="192.168.7.3"), everywhere) == 0
    assert status(scope(("host", "192.168.7.3:8080"), local="192.168.7.4"), everywhere) == 421
    assert status(scope(("host", "[2001:db8::5]"), local="2001:db8::5"), RequestGuard(bound="::")) == 0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("origin", "http://localhost")], 0),
        ([("origin", "http://evil.example")], 403),
        ([("origin", "null")], 403),
        ([("sec-fetch-site", "cross-site")], 403),
        ([("sec-fetch-site", "same-site")], 403),
        ([("sec-fetch-site", "none")], 0),
        ([("origin", "http://evil.example"), ("origin", "http://localhost")], 403),
        ([("origin", "http://localhost"), ("origin", "http://evil.example")], 403),
        ([("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-origin")], 403),
        ([("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], 403),
        ([("sec-fetch-site", ""), ("origin", "http://evil.example")], 403),
        ([], 0),
    ],
)
def test_pages_of_other_origins_may_read_but_not_change(headers: list[tuple[str, str]], expected: int) -> None:
    """The browser's headers about the page count; programs send none."""
    assert status(scope(("host", "localhost"), *headers, method="POST")) == expected
    assert status(scope(("host", "localhost"), *headers)) == 0


@pytest.mark.parametrize(("coding", "expected"), [("gzip", 415), ("identity", 0), ("br, gzip", 415), ("Identity ", 0)])
def test_encoded_bodies_are_refused_by_name(coding: str, expected: int) -> None:
    """A body that would be read as it is although it is compressed."""
    refused = GUARD.check(scope(("host", "localhost"), ("content-encoding", coding), method="POST"))
    assert (0 if refused is None else refused.status) == expected
    assert refused is None or refused.errors[0].field == "Content-Encoding"


def test_a_repeated_encoding_does_not_hide_the_first() -> None:
    """Every Content-Encoding counts, in any order."""
    for codings in (("gzip", "identity"), ("identity", "gzip")):
        assert status(scope(("host", "localhost"), *(("content-encoding", one) for one in codings))) == 415
    assert status(scope(("host", "localhost"), ("content-encoding", "identity"), ("content-encoding", ""))) == 0


def test_a_malformed_host_is_quoted_in_one_printable_line() -> None:
    """The message shows the value as text, without control characters."""
    refused = GUARD.check(scope(("host", "a\nb c")))
    assert refused is not None and refused.detail.endswith('found "a\\nb c"')


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("content-length", "20")], 400),
        ([("connection", "keep-alive, upgrade"), ("upgrade", "websocket"), ("transfer-encoding", "chunked")], 400),
        ([("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c")], 0),
        ([("connection", "Upgrade"), ("upgrade", "h2c"), ("content-length", "0")], 0),
        ([("upgrade", "h2c"), ("content-length", "20")], 0),
    ],
)
def test_a_body_with_an_upgrade_is_refused_by_name(headers: list[tuple[str, str]], expected: int) -> None:
    """Some clients offer HTTP/2 with every request. The parser then drops the body, which would read as an empty one."""
    refused = GUARD.check(scope(("host", "localhost"), *headers, method="POST"))
    assert (0 if refused is None else refused.status) == expected
    assert refused is None or (refused.errors[0].field, "--http1.1" in refused.hint) == ("Upgrade", True)


def test_heads_are_bounded() -> None:
    """By the number of headers, and by their bytes together."""
    many = [("x-a", "1")] * HEADERS_MAX
    assert status(scope(("host", "localhost"), *many[1:])) == 0
    assert status(scope(("host", "localhost"), *many)) == 431
    assert status(scope(("host", "localhost"), ("x-a", "1" * HEAD_BYTES_MAX))) == 431


#: Pieces of which known names, and names that only look like them, are made.
PIECES = st.sampled_from(
    [
        "localhost",
        "LOCALHOST",
        "fairlead.example.org",
        "gateway",
        "10.0.0.7",
        "127.0.0.1",
        "[::1]",
        ".",
        ":80",
        "evil",
        "",
    ]
)


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(st.text(max_size=80) | st.lists(PIECES, min_size=1, max_size=3).map("".join))
def test_only_known_spellings_pass(text: str) -> None:
    """For any header, a request passes only if its Host normalises to a known name or address."""
    value = text.encode("utf-8", "surrogatepass").decode("latin-1")
    assume(status(scope(("host", value))) == 0)
    name = host_name(value.encode("latin-1"))
    assert name in {"localhost", "fairlead.example.org", "gateway", "10.0.0.7", "::1"} or name.startswith("127.")  # type: ignore[union-attr]


@given(st.from_regex(r"(localhost|evil\.example|127\.0\.0\.1|\[::1\]|gateway)\.?(:[0-9]{0,6})?", fullmatch=True))
def test_ports_and_final_dots_change_nothing(host: str) -> None:
    """A name is known or unknown by itself."""
    expected = 421 if "evil" in host else 0
    assert status(scope(("host", host))) in {expected, 400}


def test_remembered_hosts_are_bounded() -> None:
    """A client that sends ever new names does not fill the memory, and is still judged right."""
    guard = RequestGuard()
    for number in range(2000):
        assert status(scope(("host", f"n{number}.example")), guard) == 421
    assert status(scope(("host", "localhost")), guard) == 0
    assert len(guard._remembered) <= 256  # pyright: ignore[reportPrivateUsage]
