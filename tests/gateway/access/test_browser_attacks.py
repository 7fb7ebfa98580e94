"""Attacks through a user's browser: cookies of sibling hosts, caches between, pages that frame ours, and changes by any other page."""

import pytest

from fairlead_gateway.access.accounts import SignInAt
from fairlead_gateway.access.callers import session_cookie
from fairlead_gateway.server.http_server import HttpSettings
from tests.gateway.access.accounts_world import AccountsWorld

OURS, PLAIN = b"__Host-fairlead", b"fairlead"


@pytest.mark.parametrize(
    ("cookie", "found", "over_https"),
    [
        (b"fairlead=a", b"a", b""),
        (b"__Host-fairlead=a", b"a", b"a"),
        (b"__Host-fairlead=a; fairlead=evil", b"a", b"a"),
        (b"fairlead=evil; __Host-fairlead=a", b"a", b"a"),
        (b"__Host-fairlead=a; __Host-fairlead=b", b"", b""),
        (b"fairlead=a; fairlead=b", b"", b""),
        (b" fairlead = a ; x=y", b"a", b""),
        (b"Fairlead=a; xfairlead=b; fairlead", b"", b""),
    ],
)
def test_a_tossed_cookie_changes_no_sign_in(cookie: bytes, found: bytes, over_https: bytes) -> None:
    """A sibling host can set the plain name for all hosts of a domain; with the prefix browsers refuse that."""
    assert session_cookie(cookie) == found
    assert session_cookie(cookie, takes_plain=False) == over_https


async def test_a_cookie_without_the_prefix_says_nothing_behind_https() -> None:
    """Whether the gateway has the TLS itself or something in front of it."""
    async with AccountsWorld() as world:
        _, text = await world.session(await world.person("ann", ""))
        plain, ours = ({"cookie": f"{name.decode()}={text}"} for name in (PLAIN, OURS))
        address = "https://localhost/v1/whoami"
        assert [(await world.http.get(address, headers=each)).status_code for each in (plain, ours)] == [401, 200]
        assert (await world.http.get("/v1/whoami", headers=plain)).status_code == 200
        world.gateway.callers.takes_plain_cookie = False
        assert (await world.http.get("/v1/whoami", headers=plain)).status_code == 401


async def test_answers_of_one_caller_are_kept_by_no_cache_and_framed_by_no_page() -> None:
    """What a cache between has stored goes to the next one who asks for the same address."""
    async with AccountsWorld() as world:
        _, text = await world.session(await world.person("ann", ""))
        cookie = {"cookie": f"fairlead={text}"}
        for path in ("/", "/v1/whoami", "/v1/jobs", "/v1/audit/access", "/sign-in"):
            answer = await world.http.get(path, headers=cookie)
            assert answer.status_code == 200, answer.text
            assert answer.headers["cache-control"] == "no-store", path
            assert answer.headers["x-content-type-options"] == "nosniff", path
            is_page = answer.headers["content-type"].startswith("text/html")
            assert is_page == ("frame-ancestors 'none'" in answer.headers.get("content-security-policy", "")), path


async def test_no_route_takes_a_change_of_another_page() -> None:
    """All routes that change something, with a cookie, from wherever a browser says that it comes."""
    async with AccountsWorld(http=HttpSettings(refusals_per_minute=0)) as world:
        session, text = await world.gateway.accounts.open_session(await world.person("ann", ""), SignInAt("local"))
        routes = [
            (method, route.path)  # type: ignore[attr-defined]  # each is an APIRoute
            for router in world.gateway.routers
            for route in router.routes
            for method in route.methods - {"GET", "HEAD", "OPTIONS"}  # type: ignore[attr-defined]
        ]
        assert len(routes) > 60
        for method, path in routes:
            for sender in ({"origin": "https://evil.example"}, {"sec-fetch-site": "same-site"}, {}):
                headers = {"cookie": f"fairlead={text}", "content-type": "text/plain", **sender}
                answer = await world.http.request(method, path.replace(":path}", "}"), content="{}", headers=headers)
                assert answer.status_code == 403, (method, path, sender, answer.text)
        assert session in world.gateway.views.access.sessions
