"""Odd bytes in every field of the routes of accounts: refused by name, never an error of the gateway, and nothing is stored (A15, A21)."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.gateway.access.accounts_world import PASSWORD, AccountsWorld

ODD = {
    "empty": "",
    "nul": "a\0b",
    "line": "ann\nadmin",
    "return": "ann\r\nset-cookie: x=1",
    "escape": "\x1b]52;c;aGk=\x07",
    "override": "ann\u202enimda",
    "look-alike": "\u0430nn",
    "combining": "e\u0301" * 40,
    "wide": "\uff41\uff4e\uff4e",
    "dots": "../../principal.x",
    "stars": "*.>",
    "quote": "'\"><script>alert(1)</script>",
    "formula": "=HYPERLINK(1)",
    "group": "group:",
    "group of nothing": "group:\0",
    "long": "a" * 300,
    "huge": "a" * 300_000,
    "percent": "%2e%2e%2f",
    "space": " ann ",
    "upper": "ANN",
}
#: {(method, path): body in which each text field is tried}
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/people"): {"login": "ann", "name": "Ann", "email": "ann@corp.example", "password": PASSWORD},
    ("POST", "/v1/service-accounts"): {"login": "ci", "name": "CI"},
    ("POST", "/v1/access:grant"): {"subject": "owner", "role": "viewer", "scope": "queue:default"},
    ("POST", "/v1/access:revoke"): {"subject": "owner", "role": "viewer", "scope": "queue:default"},
    ("POST", "/v1/tokens"): {"name": "ci", "expires_in": "1h", "for": "ci"},
    ("POST", "/v1/sign-in/local"): {"login": "nemo", "password": PASSWORD},
    ("POST", "/v1/sign-in/link"): {"code": "x"},
}
#: Fields that take any printable text, which is shown escaped.
FREE = frozenset({"name", "email", "password"})
PATHS = (
    "/v1/people/{}",
    "/v1/people/{}:suspend",
    "/v1/people/{}:password",
    "/v1/tokens/{}",
    "/v1/queues/{}",
    "/v1/jobs/{}",
    "/v1/nodes/{}",
)
QUERIES = (
    "/v1/access?subject={}",
    "/v1/access?scope={}",
    "/v1/access?continue={}",
    "/v1/access/why?verb={}",
    "/v1/access/why?verb=job:read&on={}",
    "/v1/access/why?verb=job:read&on=queue:{}",
    "/v1/access/why?verb=job:read&subject={}",
    "/v1/access/why?verb=job:read&at={}",
    "/v1/tokens?of={}",
    "/v1/groups?continue={}",
    "/v1/audit/access?about={}",
)


@pytest.fixture(name="quick_hashes")
def _quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash at once: it is the text around a hash that is tried."""
    monkeypatch.setattr("fairlead_gateway.access.passwords.ITERATIONS", 1)
    monkeypatch.setattr("fairlead_gateway.access.passwords.MEMORY_KIB", 64)


@pytest.mark.usefixtures("quick_hashes")
@pytest.mark.parametrize("route", BODIES, ids=str)
async def test_odd_text_in_a_body(route: tuple[str, str]) -> None:
    """A field that cannot hold it is refused; the gateway's log of commands has no such text."""
    method, path = route
    async with AccountsWorld() as world:
        for field in BODIES[route]:
            for name, text in ODD.items():
                world.gateway.callers._floods.clear()
                answer = await world.send(method, path, {**BODIES[route], field: text})
                assert answer.status_code < 500 or answer.status_code == 503, (field, name, answer.text)
                if field not in FREE and (field, name) != ("for", "empty"):
                    assert answer.status_code >= 400, (field, name, answer.text)
                assert "\x1b" not in answer.text and "\r" not in answer.text and "<script>" not in str(answer.headers)
        answer = await world.http.request(
            method,
            path,
            content=b'{"login":"\\ud800","subject":"\\ud800","name":"\\ud800","code":"\\ud800"}',
            headers={"authorization": f"Bearer {world.owner}", "content-type": "application/json"},
        )
        assert 400 <= answer.status_code < 500


async def test_odd_text_in_paths_and_queries() -> None:
    """For every method that a path has."""
    async with AccountsWorld(queue=True) as world:
        for name, text in ODD.items():
            part = quote(text[:2000], safe="")
            for form in PATHS:
                for method in ("GET", "POST", "DELETE"):
                    answer = await world.send(method, form.format(part), {})
                    assert answer.status_code < 500, (form, name, answer.text)
            for form in QUERIES:
                answer = await world.send("GET", form.format(part))
                assert answer.status_code < 500, (form, name, answer.text)


@pytest.mark.parametrize(
    "field", ["authorization", "cookie", "x-fairlead-act-as", "idempotency-key", "accept", "user-agent"]
)
async def test_odd_bytes_in_a_header(field: str) -> None:
    """Any bytes that HTTP lets through."""
    values = [
        b"\xff\xfe",
        b"Bearer ",
        b"Bearer \xff",
        b"Bearer a b",
        b"bearer\ta",
        b"fairlead=",
        b"fairlead=\xff",
        b"fairlead=a;fairlead=b",
        b";" * 2000,
        b"__Host-fairlead=a; fairlead=a",
        b"=" * 100,
        b"\x80" * 8000,
        b"'\"><script>",
    ]
    async with AccountsWorld() as world:
        for value in values:
            world.gateway.callers._floods.clear()
            for method, path in (("GET", "/v1/whoami"), ("POST", "/v1/tokens"), ("GET", "/sign-in"), ("GET", "/")):
                headers = [(field.encode(), value)]
                if field != "authorization":
                    headers.append((b"authorization", b"Bearer " + world.owner.encode()))
                answer = await world.http.request(method, path, headers=headers, content=b"{}")
                assert answer.status_code < 500, (value, answer.text)
                assert answer.status_code >= 400 or field != "authorization" or path == "/sign-in"
