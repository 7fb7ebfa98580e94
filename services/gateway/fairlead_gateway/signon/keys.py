"""Metadata and signing keys of identity providers, fetched from the issuer and kept.

Keys are kept for as long as the issuer's Cache-Control says, within bounds. A failed fetch keeps the old ones, so neither a provider that
is down nor one that answers nonsense signs anybody out. A token with an unknown `kid` leads to one fetch a minute at most.
"""

import asyncio
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import structlog

from fairlead_gateway.signon.jwt_check import BadToken, TokenHeader, read_key

if TYPE_CHECKING:
    import httpx

log = structlog.get_logger()

KEPT_S_MIN, KEPT_S_MAX = 300.0, 86_400.0
#: Between two fetches for a `kid` that the kept keys lack, and after a fetch that failed.
REFETCH_S = 60.0
#: Between two fetches while no key was ever fetched.
FIRST_S = 5.0
FETCH_S = 3.0
BODY_BYTES_MAX = 256 * 1024
KEYS_MAX = 100
METADATA_KEPT_S = 3600.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")

_MAX_AGE = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,9})")


class ProviderUnavailable(Exception):
    """The identity provider does not answer, or not as its protocol says; it may be tried again."""


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """Discovery document of an issuer (OpenID Connect Discovery 1.0), the part that is used."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    end_session_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


def is_safe_url(url: str) -> bool:
    """Return True for https, and for http on this machine; without a user name or a fragment."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return False
    if not host or "@" in parts.netloc or parts.fragment or any(each <= " " or each == "\\" for each in url):
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)


async def fetch(http: "httpx.AsyncClient", method: str, url: str, **more: Any) -> "tuple[httpx.Response, bytes]":
    """Return an answer and its body. Redirects are not followed, so no answer leads to another host. Raise ProviderUnavailable for
    an address that is not safe, and for an answer that is late, too long or missing.
    """
    import httpx  # takes longer than all else of a gateway's start, which needs it only with providers

    if not is_safe_url(url):
        raise ProviderUnavailable(f"{url[:200]}: expected https")
    body = b""
    try:
        async with asyncio.timeout(FETCH_S), http.stream(method, url, follow_redirects=False, **more) as answer:
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > BODY_BYTES_MAX:
                    raise ProviderUnavailable(f"{url}: expected at most {BODY_BYTES_MAX} bytes")
    except TimeoutError:
        raise ProviderUnavailable(f"{url}: no answer within {FETCH_S:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ProviderUnavailable(f"{url}: {error or type(error).__name__}") from None
    return answer, body


class Issuer:
    """One issuer, with what it publishes. `monotonic`: seconds."""

    def __init__(self, issuer: str, http: "httpx.AsyncClient", monotonic: Callable[[], float] = time.monotonic) -> None:
        self.issuer = issuer
        self.http = http
        self._monotonic = monotonic
        self._metadata: Metadata | None = None
        self._metadata_until = float("-inf")
        self._keys: dict[str, dict[str, Any]] = {}
        self._keys_until = float("-inf")
        self._tried_at = float("-inf")
        self._turn = asyncio.Lock()

    async def metadata(self) -> Metadata:
        """Return the discovery document. Raise ProviderUnavailable where there is none yet and none can be fetched."""
        now = self._monotonic()
        if now >= self._metadata_until:
            try:
                self._metadata = await self._discover()
                self._metadata_until = now + METADATA_KEPT_S
            except ProviderUnavailable as error:
                if self._metadata is None:
                    raise
                log.warning("metadata of the issuer kept", issuer=self.issuer, reason=str(error))
                self._metadata_until = now + REFETCH_S
        assert self._metadata is not None, "fetched, or kept from before"
        return self._metadata

    async def _discover(self) -> Metadata:
        url = self.issuer.rstrip("/") + "/.well-known/openid-configuration"
        found = await self._read(url, Metadata)
        if found[1].issuer != self.issuer:
            raise ProviderUnavailable(f'{url}: expected the issuer "{self.issuer}", found "{found[1].issuer[:200]}"')
        for name in ("jwks_uri", "authorization_endpoint", "token_endpoint", "end_session_endpoint"):
            address = getattr(found[1], name)
            if address and not is_safe_url(address):
                raise ProviderUnavailable(f"{url}: {name}: expected https, found {address[:200]}")
        return found[1]

    async def key(self, header: TokenHeader) -> Any:
        """Return the public key for a token's header. Raise BadToken for a `kid` that the issuer does not have, and
        ProviderUnavailable where its keys were never fetched.
        """
        async with self._turn:
            now = self._monotonic()
            stale = now >= self._keys_until
            if (stale or header.kid not in self._keys) and now - self._tried_at >= (
                REFETCH_S if self._keys else FIRST_S
            ):
                self._tried_at = now
                await self._refetch()
        if header.kid not in self._keys:
            if not self._keys:
                raise ProviderUnavailable(f"{self.issuer}: its keys could not be fetched")
            raise BadToken("kid: the issuer has no such key")
        return read_key(self._keys[header.kid], header.alg)

    async def _refetch(self) -> None:
        try:
            answer, found = await self._read((await self.metadata()).jwks_uri, _KeySet)
        except ProviderUnavailable as error:
            log.warning("keys of the issuer kept", issuer=self.issuer, keys=len(self._keys), reason=str(error))
            return
        keys = {key["kid"]: key for key in found.keys[:KEYS_MAX] if isinstance(key.get("kid"), str)}
        if not keys:
            log.warning("keys of the issuer kept", issuer=self.issuer, keys=len(self._keys), reason="no key with a kid")
            return
        self._keys, self._keys_until = keys, self._monotonic() + kept_s(answer.headers.get("cache-control", ""))

    async def _read[T](self, url: str, kind: type[T]) -> "tuple[httpx.Response, T]":
        answer, body = await fetch(self.http, "GET", url, headers={"accept": "application/json"})
        if answer.status_code != 200:
            raise ProviderUnavailable(f"{url}: expected status 200, found {answer.status_code}")
        try:
            return answer, msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise ProviderUnavailable(f"{url}: {error}") from None


def kept_s(cache_control: str) -> float:
    """Return for how long an answer is kept by its Cache-Control header, within the bounds."""
    found = _MAX_AGE.search(cache_control.lower())
    return min(max(float(found[1]) if found else 0.0, KEPT_S_MIN), KEPT_S_MAX)
