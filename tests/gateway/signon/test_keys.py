"""Keys of a provider: kept while they may be, fetched again when they change, never lost, never from another place."""

import asyncio
from typing import Any

import httpx
import pytest

from fairlead_gateway.signon import keys
from fairlead_gateway.signon.jwt_check import BadToken, TokenHeader
from fairlead_gateway.signon.keys import Issuer, ProviderUnavailable, is_safe_url, kept_s
from tests.kit.token_issuer import ISSUER, TokenIssuer, private_key, public_jwk

K1, K2 = TokenHeader("ES256", "k1", ""), TokenHeader("ES256", "k2", "")


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def world() -> tuple[TokenIssuer, Issuer, Clock]:
    """Return an issuer as the test and as the gateway have it."""
    played, clock = TokenIssuer(), Clock()
    return played, Issuer(ISSUER, played.client(), clock), clock


async def test_keys_are_fetched_once_and_again_after_their_time() -> None:
    """Without Cache-Control they are kept for five minutes."""
    played, issuer, clock = world()
    for _ in range(3):
        await issuer.key(K1)
    assert played.fetched("/jwks") == 1
    clock.now += keys.KEPT_S_MIN + 1
    await issuer.key(K1)
    assert played.fetched("/jwks") == 2


def test_cache_control_counts_within_bounds() -> None:
    """Five minutes to a day, whatever the header says."""
    for header, expected in (
        ("", 300),
        ("no-store", 300),
        ("max-age=5", 300),
        ("public, max-age=7200", 7200),
        ("max-age=999999999", 86_400),
        ("s-maxage=7200", 300),
    ):
        assert kept_s(header) == expected, header


async def test_a_flood_of_unknown_kids_leads_to_one_fetch_a_minute() -> None:
    """A new key is found within that minute."""
    played, issuer, clock = world()
    await issuer.key(K1)
    for _ in range(50):
        with pytest.raises(BadToken, match="kid"):
            await issuer.key(K2)
    assert played.fetched("/jwks") == 1
    rotated = private_key("ES256")
    played.answers["/jwks"] = lambda _: httpx.Response(200, json={"keys": [public_jwk(rotated, "ES256", "k2")]})
    clock.now += keys.REFETCH_S
    await asyncio.gather(*(issuer.key(K2) for _ in range(20)))
    assert played.fetched("/jwks") == 2


BROKEN: dict[str, Any] = {
    "down": httpx.ConnectError("refused"),
    "500": httpx.Response(500),
    "no JSON": httpx.Response(200, text="<html>"),
    "no keys": httpx.Response(200, json={"keys": []}),
    "huge": httpx.Response(200, content=b" " * (keys.BODY_BYTES_MAX + 1)),
    "redirected": httpx.Response(302, headers={"location": "https://evil.example/jwks"}),
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
async def test_a_failed_fetch_keeps_the_old_keys(answer: Any) -> None:
    """Neither a broken answer nor none empties them, and a redirect is not followed."""
    played, issuer, clock = world()
    await issuer.key(K1)

    def broken(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    played.answers["/jwks"] = broken
    clock.now += keys.KEPT_S_MAX
    assert await issuer.key(K1) is not None
    assert played.fetched("/jwks") == 2


async def test_a_slow_provider_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After FETCH_S the sign-in fails, and says why."""
    monkeypatch.setattr(keys, "FETCH_S", 0.05)

    async def never(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        return httpx.Response(200)

    http = httpx.AsyncClient(transport=httpx.MockTransport(never))
    with pytest.raises(ProviderUnavailable, match="no answer within"):
        await Issuer(ISSUER, http).metadata()


@pytest.mark.parametrize(
    "more",
    [
        {"issuer": ISSUER + "/"},
        {"issuer": "https://evil.example"},
        {"jwks_uri": "http://idp.example.org/jwks"},
        {"token_endpoint": "file:///etc/passwd"},
    ],
)
async def test_discovery_of_another_issuer_or_without_tls_is_refused(more: dict[str, str]) -> None:
    """The issuer is compared as text."""
    played, issuer, _ = world()
    played.answers["/.well-known/openid-configuration"] = lambda _: httpx.Response(200, json=played.metadata(**more))
    with pytest.raises(ProviderUnavailable, match="expected"):
        await issuer.metadata()


def test_addresses_are_https_or_of_this_machine() -> None:
    """User names, fragments and blanks are refused."""
    for good in ("https://idp.example.org/x", "http://127.0.0.1:4000", "http://localhost/x", "http://[::1]:1"):
        assert is_safe_url(good), good
    for bad in (
        "http://idp.example.org",
        "https://a@b/",
        "https://a/#b",
        "ftp://a",
        "https://",
        "https://a b",
        "x",
        "http://localhost.evil.org",
    ):
        assert not is_safe_url(bad), bad
