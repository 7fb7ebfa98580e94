"""Attacks on applications through a real proxy. Each is tried with its guard, which stops it, and without, so that the test is known to see it."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_appproxy import app_server, head, passed_fields, tunnel_server
from fairlead_appproxy.app_runs import AppTable
from fairlead_appproxy.browser_rules import AppHosts
from fairlead_appproxy.head import Body, CarriedRequest
from fairlead_schemas.policies.apps import PROFILES, label_of, parse_label
from fairlead_schemas.wire.app_sessions import EntriesEnded, RenewEntries
from fairlead_schemas.wire.tunnels import digest
from tests.appproxy.app_world import LABEL, AppWorld, frame
from tests.kit.eventually import eventually_async

GUARDED = pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])


def without(monkeypatch: pytest.MonkeyPatch, guarded: bool, module: Any, name: str, instead: Any) -> None:
    """Take a guard out of the proxy, where the case is without it."""
    if not guarded:
        monkeypatch.setattr(module, name, instead)


@GUARDED
@pytest.mark.parametrize(
    "origin", ["http://evil.example", f"http://other-{LABEL}.localhost", "null", f"https://{LABEL}.localhost", ""]
)
async def test_a_websocket_of_another_page_is_refused(
    origin: str, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A3: the app hears nothing of it, whatever the cookie."""
    without(monkeypatch, guarded, app_server, "refusal", lambda *_: "")
    async with AppWorld() as world:
        cookie = await world.enter()
        _, _, status = await world.socket(cookie, origin=f"Origin: {origin}" if origin else "")
        assert (status, bool(world.app.heads)) == ((403, False) if guarded else (101, True))


@GUARDED
@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("POST", ["Origin: http://evil.example"]),
        ("POST", ["Origin: null"]),
        ("DELETE", []),
        ("PATCH", ["Sec-Fetch-Site: same-site"]),
        ("POST", ["Sec-Fetch-Site: none"]),
        ("GET", ["Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"]),
        ("GET", ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors"]),
        ("GET", ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"]),
        ("GET", ["Origin: http://evil.example"]),
    ],
)
async def test_a_request_of_another_page_is_refused(
    method: str, fields: list[str], guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A2, A18: changes, scripts, and frames in which a click could be stolen; a neighbour is another page, too."""
    without(monkeypatch, guarded, app_server, "refusal", lambda *_: "")
    async with AppWorld() as world:
        cookie = await world.enter()
        status = (await world.ask("/", *fields, method=method, cookie=cookie)).status
        assert (status, bool(world.app.heads)) == ((403, False) if guarded else (200, True))


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("GET", ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"]),
        ("GET", ["Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors"]),
        ("GET", []),
        ("POST", ["Sec-Fetch-Site: same-origin", "Content-Length: 0"]),
        ("POST", [f"Origin: http://{LABEL}.localhost", "Content-Length: 0"]),
    ],
)
async def test_own_requests_and_opened_links_reach_the_app(method: str, fields: list[str]) -> None:
    """A link of another site opens it as a page."""
    async with AppWorld() as world:
        assert (await world.ask("/", *fields, method=method, cookie=await world.enter())).status == 200


def _everything(request: CarriedRequest, *_: Any) -> head.Fields:
    return request.fields


@GUARDED
@pytest.mark.parametrize("apps", ["", "https://apps.example.org"])
async def test_an_app_sees_no_credential(apps: str, guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A4: neither the cookie of its visitors, nor a token, nor the claims of a proxy; what is the app's own comes."""
    without(monkeypatch, guarded, app_server, "to_app", _everything)
    async with AppWorld(apps) as world:
        cookie = await world.enter()
        fields = ["Cookie: own=1", "Authorization: Bearer flp_abc", "X-Forwarded-User: root", "X-Fairlead-User: root"]
        got = (await world.ask("/", *fields, cookie=cookie)).body
        assert b"own=1" in got
        for secret in (cookie.encode(), b"flp_abc", b"root"):
            assert (secret in got) is not guarded


@GUARDED
@pytest.mark.parametrize(
    "line", ["fairlead-app=x; Path=/", "__Host-fairlead-app=x; Path=/; Secure", "a=b; Domain=localhost"]
)
async def test_an_app_sets_no_cookie_of_others(line: str, guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A4: neither the proxy's (fixation), nor one for its neighbours (tossing); its own are passed on."""
    without(monkeypatch, guarded, passed_fields, "_reaches_beyond", lambda _: False)
    async with AppWorld() as world:
        cookie = await world.enter()
        world.app.own = (
            f"HTTP/1.1 200 OK\r\nSet-Cookie: own=1; Path=/\r\nSet-Cookie: {line}\r\nContent-Length: 0\r\n\r\n".encode()
        )
        answer = await world.ask("/own", cookie=cookie)
        assert "own=1" in answer.head and (line in answer.head) is not guarded


@GUARDED
async def test_a_cookie_is_of_one_host(guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A5, A24: the cookie of one app opens no other, also where a proxy knows both."""
    async with AppWorld() as world:
        other = LABEL.replace("-7-", "-8-")
        cookie, _ = await world.enter(other), await world.enter()
        if not guarded:
            table = world.proxy.apps.table
            table.entries[LABEL, digest(cookie)] = table.entries[other, digest(cookie)]
        assert (await world.ask(cookie=cookie)).status == (403 if guarded else 200)


@GUARDED
@pytest.mark.parametrize(
    "field", ["Sec-Fetch-Mode: cors", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: iframe", "Sec-Fetch-Dest: image"]
)
async def test_a_code_is_taken_from_an_opened_page_alone(
    field: str, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A18: an image or a frame of another page uses up no code, and enters nothing."""
    async with AppWorld() as world:
        world.codes[digest("c")] = LABEL
        answer = await world.ask("/.fairlead/enter?code=c", *([field] if guarded else []))
        assert (answer.status, bool(world.codes)) == ((403, True) if guarded else (303, False))


async def test_an_entry_leads_to_the_first_page_of_the_app() -> None:
    """A18, A24: whatever else the link names; and nothing of the code is passed on to another page."""
    async with AppWorld() as world:
        for number, more in enumerate(
            ("&to=//evil.example", "&next=/%2f%2fevil", "#x", "&code=", "&x=%0d%0aSet-Cookie:a=b")
        ):
            world.codes[digest(f"c{number}")] = LABEL
            answer = await world.ask(f"/.fairlead/enter?code=c{number}{more}".partition("#")[0])
            assert answer.status == 303 and "\r\nLocation: /\r\n" in answer.head and "evil" not in answer.head
            assert "Referrer-Policy: no-referrer" in answer.head and "a=b" not in answer.head


@pytest.mark.parametrize(
    "path",
    [
        "/.fairlead/enter",
        "/.fairlead/enter?code=",
        "/.fairlead/enter?code=a&code=b",
        "/.fairlead/",
        "/.fairlead/tunnel",
        f"/.fairlead/enter?code={'x' * 2000}",
    ],
)
async def test_own_paths_reach_no_app(path: str) -> None:
    """They are the proxy's at every host of an app, with a cookie, too."""
    async with AppWorld() as world:
        assert (await world.ask(path, cookie=await world.enter())).status in (403, 404)
        assert not world.app.heads


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost",
        "127.0.0.1:8443",
        f"{LABEL}.evil.localhost",
        f"{LABEL}.localhost.evil.example",
        f"{LABEL}.apps.example.org.evil",
    ],
)
async def test_a_foreign_host_is_no_app(host: str) -> None:
    """A1: a name that leads here by another's doing (DNS rebinding) reaches nothing, with the cookie, too."""
    async with AppWorld() as world:
        assert (await world.ask(host=host, cookie=await world.enter())).status in (404, 421)
        assert not world.app.heads


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(PROFILES)), st.integers(1, 99), st.none() | st.integers(0, 99), st.integers(1, 99)
        ),
        unique=True,
        max_size=30,
    )
)
def test_labels_are_injective(apps: list[tuple[str, int, int | None, int]]) -> None:
    """A5: no two attempts have one name, also where the random part is the same; a label has the parts that it was made of."""
    parts = [
        (profile, f"{job}" if index is None else f"{job}_{index}", attempt) for profile, job, index, attempt in apps
    ]
    labels = [label_of(*each, "seed") for each in parts]
    assert len({label.rpartition("-")[0] for label in labels}) == len(set(parts))
    for each, label in zip(parts, labels, strict=True):
        found = parse_label(label)
        assert found is not None and tuple(found[:3]) == each
        assert len(label) <= 63 and label == label.lower()


def test_names_of_people_in_labels_would_collide() -> None:
    """The check above can fail: this is why no label has a name that people choose."""
    named = {f"{name}-{job}" for name, job in itertools.product(["a", "a-1"], ["1", "1-1"])}
    assert len(named) < 4


@pytest.mark.parametrize(
    "label",
    [
        "",
        "http-7-1",
        "http-07-1-abcdefgh",
        "HTTP-7-1-abcdefgh",
        "xn--http-7-1-abcdefgh",
        "http-7-1-abcdefg1",
        "http-7-1-abcdefgh.",
        "http-7-0-abcdefgh",
        "ftp-7-1-abcdefgh",
    ],
)
def test_other_labels_are_none(label: str) -> None:
    """A5: of another form, case or alphabet."""
    assert parse_label(label) is None


@pytest.mark.parametrize(
    "host",
    [
        b"..localhost",
        b"a..localhost",
        b".localhost",
        b"a b.localhost",
        b"a.localhost:99999x",
        b"a.apps.example.org:8443",
        b"a.b.apps.example.org",
        b"\xff.localhost",
    ],
)
def test_other_hosts_are_of_no_app(host: bytes) -> None:
    """A5: dots, ports and bytes that another reader could take otherwise."""
    assert AppHosts("https://apps.example.org").of(host) is None


SMUGGLED: dict[str, tuple[bytes, str, Callable[..., Any]]] = {
    "length and coding": (
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "_body",
        lambda *_: Body(-1),
    ),
    "two lengths": (b"Content-Length: 0\r\nContent-Length: 5\r\n\r\nabcde", "_body", lambda *_: Body(0)),
    "coding with a space": (b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "_lines", lambda data, _: _lenient(data)),
    "coding of another name": (b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "_body", lambda *_: Body(0)),
    "folded line": (b"X: a\r\n Content-Length: 5\r\n\r\n", "_lines", lambda data, _: _lenient(data)),
    "bare line feed": (b"X: a\nContent-Length: 5\r\n\r\n", "_lines", lambda data, _: _lenient(data)),
    "signed length": (b"Content-Length: +0\r\n\r\n", "_body", lambda *_: Body(0)),
}


def _lenient(data: bytes) -> tuple[bytes, head.Fields]:
    """Read lines as a forgiving reader does."""
    first, *rest = data[:-4].split(b"\r\n")
    pairs = [line.partition(b":") for line in rest]
    return first, tuple((name.strip().lower(), value.strip()) for name, _, value in pairs)


@GUARDED
@pytest.mark.parametrize("name", SMUGGLED)
async def test_a_smuggled_request_is_refused(name: str, guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A8: heads that two readers could take for different messages end at the proxy."""
    rest, guard, instead = SMUGGLED[name]
    async with AppWorld() as world:
        cookie = await world.enter()
        await world.ask(cookie=cookie)  # a connection to the app is there, which the forgiving reader could not make
        world.app.heads.clear()
        without(monkeypatch, guarded, head, guard, instead)
        start = f"POST /a HTTP/1.1\r\nHost: {world.host}\r\nOrigin: http://{world.host}\r\nCookie: fairlead-app={cookie}\r\n"
        reader, writer = await world.connect()
        writer.write(start.encode() + rest)
        if guarded:
            assert b" 400 " in await reader.readuntil(b"\r\n")
            assert not world.app.heads
        else:
            await eventually_async(lambda: world.app.heads)


@pytest.mark.parametrize(
    "body",
    [b"3;a=b\r\nabc\r\n0\r\n\r\n", b"3\nabc\r\n0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"-1\r\n", b"0x3\r\nabc\r\n0\r\n\r\n"],
)
async def test_a_body_with_doubtful_chunks_is_cut(body: bytes) -> None:
    """A8: extensions, trailers and bare line feeds are read in several ways; what follows is no second request."""
    async with AppWorld() as world:
        cookie = await world.enter()
        start = f"POST /a HTTP/1.1\r\nHost: {world.host}\r\nOrigin: http://{world.host}\r\nCookie: fairlead-app={cookie}\r\n"
        reader, writer = await world.connect()
        writer.write(
            start.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"GET /second HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        async with asyncio.timeout(5):
            await reader.readuntil(b"\r\n\r\n")
        assert not any(each.startswith(b"GET /second") for each in world.app.heads)


@GUARDED
async def test_a_slow_head_is_cut(guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A8: one that comes byte by byte holds a place for a bounded time, also behind a first request."""
    for module in (tunnel_server, app_server):
        monkeypatch.setattr(module, "HEAD_S", 0.5 if guarded else 60.0)
    async with AppWorld() as world:
        cookie = await world.enter()
        reader, writer = await world.connect()
        writer.write(f"GET / HTTP/1.1\r\nHost: {world.host}\r\nCookie: fairlead-app={cookie}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        is_cut = False
        for byte in itertools.islice(_drip(), 20):
            writer.write(byte)
            await asyncio.sleep(0.1)
            is_cut = is_cut or reader.at_eof() or writer.is_closing()
        assert is_cut is guarded


def _drip() -> Iterator[bytes]:
    yield from (bytes([each]) for each in b"GET / HTTP/1.1\r\nHost: " + b"a" * 100)


async def test_a_huge_head_is_cut() -> None:
    """A8: ten thousand fields, or one without end; the proxy reads no more than its bound."""
    async with AppWorld() as world:
        cookie = await world.enter()
        for rest in (b"X: y\r\n" * 10_000, b"X: " + b"y" * 100_000):
            reader, writer = await world.connect()
            writer.write(f"GET / HTTP/1.1\r\nHost: {world.host}\r\nCookie: fairlead-app={cookie}\r\n".encode() + rest)
            assert b" 431 " in await reader.readuntil(b"\r\n")
        assert not world.app.heads


@GUARDED
async def test_an_ended_right_cuts_the_socket(guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A12: with the role, sign-in, token or run by which it was opened; what is sent afterwards reaches no app."""
    without(monkeypatch, guarded, AppTable, "end", lambda *_: None)
    async with AppWorld() as world:
        cookie = await world.enter()
        reader, writer, _ = await world.socket(cookie)
        world.ended = EntriesEnded(ended={digest(cookie): (403, "the right to it has ended")})
        asked = [each for each in world.asked if isinstance(each, RenewEntries)]
        await eventually_async(
            lambda: (
                len([each for each in world.asked if isinstance(each, RenewEntries)]) > len(asked) + 1
                or reader.at_eof()
            )
        )
        writer.write(sent := frame(b"x"))
        with contextlib.suppress(ConnectionError):
            assert await reader.read(100) == (b"" if guarded else sent)
