"""Pages of other origins: none unless they are listed; a listed page sends a token, never the cookie of a session."""

import httpx
import pytest

from fairlead_bus.environment_settings import BadSetting
from fairlead_gateway.server.cors import Cors
from fairlead_gateway.server.http_server import HttpSettings
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.access.socket_world import SocketWorld
from tests.gateway.world import GatewayWorld

BOARD = "https://board.example.org"
LISTED = HttpSettings(cors_origins=(BOARD, "http://localhost:5173"))
ASKED = {"origin": BOARD, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}


def allowed(answer: httpx.Response) -> str | None:
    """Return the origin whose pages may read the answer."""
    assert "access-control-allow-credentials" not in answer.headers
    return answer.headers.get("access-control-allow-origin")


async def test_without_a_setting_no_page_of_another_origin_gets_anything() -> None:
    """A preflight is a 405, an answer has no CORS header, a change is refused."""
    async with GatewayWorld() as world:
        asked = await world.http.options("/v1/jobs", headers=ASKED)
        assert (asked.status_code, allowed(asked)) == (405, None)
        read = await world.http.get("/v1/jobs", headers={"origin": BOARD})
        assert (read.status_code, allowed(read), read.headers.get("vary")) == (200, None, None)
        sent = await world.http.post("/v1/jobs", json={"command": ["true"]}, headers={"origin": BOARD})
        assert (sent.status_code, allowed(sent)) == (403, None)


async def test_a_listed_page_reads_and_changes() -> None:
    """Its preflight is answered for every path; answers and refusals may be read, with the headers that clients need."""
    async with GatewayWorld(http=LISTED) as world:
        for path in ("/v1/jobs", "/v1/jobs/1", "/v1/queues/a/b", "/nosuch"):
            asked = await world.http.options(path, headers=ASKED)
            assert (asked.status_code, allowed(asked), asked.content) == (204, BOARD, b"")
            assert "PATCH" in asked.headers["access-control-allow-methods"]
            assert "idempotency-key" in asked.headers["access-control-allow-headers"]
        page = {"origin": BOARD, "sec-fetch-site": "cross-site"}
        sent = await world.http.post("/v1/jobs", json={"command": ["true"]}, headers=page)
        assert (sent.status_code, allowed(sent), sent.headers["vary"]) == (201, BOARD, "Origin")
        assert "location" in sent.headers["access-control-expose-headers"]
        wrong = await world.http.post("/v1/jobs", json={"command": []}, headers=page)
        assert (wrong.status_code, allowed(wrong)) == (422, BOARD)
        unknown = await world.http.get("/nosuch", headers=page)
        assert (unknown.status_code, allowed(unknown)) == (404, BOARD)


@pytest.mark.parametrize(
    "origin",
    [
        "https://board.example.org.evil.example",
        "http://board.example.org",
        "https://board.example.org:8443",
        "HTTPS://BOARD.EXAMPLE.ORG",
        "null",
        "*",
        "",
    ],
)
async def test_an_origin_is_compared_as_a_whole(origin: str) -> None:
    """Scheme, host and port; browsers write it in lower case."""
    async with GatewayWorld(http=LISTED) as world:
        asked = await world.http.options("/v1/jobs", headers={**ASKED, "origin": origin})
        assert (asked.status_code, allowed(asked)) == (405, None)
        read = await world.http.get("/v1/jobs", headers={"origin": origin})
        assert (read.status_code, allowed(read), read.headers["vary"]) == (200, None, "Origin")
        sent = await world.http.post("/v1/jobs", json={"command": ["true"]}, headers={"origin": origin})
        assert sent.status_code == (201 if origin == "" else 403)


async def test_two_origins_are_none() -> None:
    """A listed one does not vouch for another."""
    async with GatewayWorld(http=LISTED) as world:
        headers = [("origin", BOARD), ("origin", "https://evil.example")]
        sent = await world.http.post("/v1/jobs", json={"command": ["true"]}, headers=headers)
        assert (sent.status_code, allowed(sent)) == (403, None)


async def test_a_listed_page_needs_a_token_and_gets_no_session() -> None:
    """Preflights carry no credential; a refusal may be read; a cookie is refused as from any foreign page."""
    async with SignedWorld(http=LISTED) as world:
        owner = world.http.headers.pop("authorization")
        assert (await world.http.options("/v1/jobs", headers=ASKED)).status_code == 204
        page = {"origin": BOARD}
        bare = await world.http.post("/v1/jobs", json={"command": ["true"]}, headers=page)
        assert (bare.status_code, allowed(bare)) == (401, BOARD)
        token = await world.http.post("/v1/jobs", json={"command": ["true"]}, headers={**page, "authorization": owner})
        assert (token.status_code, allowed(token)) == (201, BOARD)
        cookie = {**page, "cookie": "__Host-fairlead=" + owner.removeprefix("Bearer ")}
        refused = await world.http.post("/v1/jobs", json={"command": ["true"]}, headers=cookie)
        assert refused.status_code in (401, 403)


async def test_small_requests_on_a_socket_have_the_headers_too() -> None:
    """Those that skip ASGI: also the second one of a connection."""
    async with SocketWorld(http=LISTED) as world, world.line() as line:
        body = b'{"command": ["true"]}'
        head = (
            f"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\norigin: {BOARD}\r\nauthorization: {world.bearer('owner')['authorization']}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode()
        for _ in range(2):
            status, answer, _ = await line.send(head + body)
            assert status == 201
            assert f"access-control-allow-origin: {BOARD}".encode() in answer.lower()


@pytest.mark.parametrize("text", ["*", "board.example.org", "https://board.example.org/", "https://a b", "null"])
def test_a_setting_that_is_no_list_of_origins_is_refused(text: str) -> None:
    """ "*" as well: pages are listed one by one."""
    with pytest.raises(BadSetting, match="FAIRLEAD_CORS_ORIGINS: expected origins"):
        HttpSettings.from_environment({"FAIRLEAD_CORS_ORIGINS": text})


def test_the_setting_is_a_list() -> None:
    """Separated by commas; empty is off."""
    found = HttpSettings.from_environment({"FAIRLEAD_CORS_ORIGINS": " https://a.example , http://[::1]:3000,"})
    assert found.cors_origins == ("https://a.example", "http://[::1]:3000")
    assert not Cors(HttpSettings.from_environment({}).cors_origins)
