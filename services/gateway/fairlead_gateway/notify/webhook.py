"""Webhooks: one POST for each message, signed as Standard Webhooks 1.0 has it, to an address that was judged before.

The receiver gets `webhook-id`, the same for every attempt of a message, `webhook-timestamp`, and `webhook-signature`, an HMAC-SHA256 over
both and the body with the rule's key. Redirects are not followed, since they would lead past the judgement of the address. Nothing of
an answer's body is kept or shown. Start at `WebhookSender.send`.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fairlead_gateway.notify.allowed_hosts import URL_CHARS_MAX, AllowedHosts, HostRefused, WebhookUrl, is_address

if TYPE_CHECKING:
    import httpx

SECRET_PREFIX = "whsec_"  # noqa: S105 -- the public prefix of a key's text
_SECRET_BYTES = 32
MEDIA_TYPE = "application/cloudevents+json"
#: Bytes of an answer that are read, so that its connection can serve the next message; a longer answer costs the connection.
ANSWER_BYTES_MAX = 16 * 1024


class SendFailed(Exception):
    """A message was not delivered. The text says why, to the rule's owner, and names nothing of the rule: it is stored. `gone`: the receiver wants no more of them."""

    def __init__(self, reason: str, *, gone: bool = False) -> None:
        super().__init__(reason)
        self.gone = gone


def new_secret() -> str:
    """Return a new key for signatures, as receivers' libraries take it."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`. `timestamp`: Unix s of the attempt."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    digest = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


def parse_url(text: str) -> WebhookUrl:
    """Return the parts of a webhook's URL. Raise HostRefused, which says what was expected."""
    if len(text) > URL_CHARS_MAX or not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise HostRefused(f"expected a URL of at most {URL_CHARS_MAX} printable ASCII characters")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise HostRefused("expected a URL such as https://hooks.example.org/fairlead") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise HostRefused("expected a URL such as https://hooks.example.org/fairlead")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise HostRefused("expected a URL without a user name and a fragment")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = parts.hostname.rstrip(".")
    return WebhookUrl(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), target)


def judged_url(text: str, allowed: AllowedHosts) -> WebhookUrl:
    """Return the parts of a URL whose host may be sent to, as far as that is known without a look-up. Raise HostRefused."""
    url = parse_url(text)
    allowed.require_host(url.host)
    if is_address(url.host):
        allowed.require_address(url.host, url.scheme)
    elif url.scheme == "http" and not allowed.networks:
        raise HostRefused("expected https: plain http is for allowed networks")
    return url


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


class WebhookSender:
    """Sends the messages of one rule, over one connection while they follow each other. Close it after use.

    `threads`: for look-ups of names, which may hang; not the loop's own, which others share. `clock`: Unix s.
    """

    def __init__(
        self, url: str, secret: str, allowed: AllowedHosts, threads: Executor, clock: Callable[[], float] = time.time
    ) -> None:
        self._url, self._secret, self._allowed = url, secret, allowed
        self._threads, self._clock = threads, clock
        self._http: httpx.AsyncClient | None = None

    async def send(self, message_id: str, body: bytes, limit_s: float) -> None:
        """Deliver one message. Raise SendFailed."""
        import httpx  # takes longer than the rest of the process's start, which needs it with webhooks only

        try:
            async with asyncio.timeout(limit_s):
                url = judged_url(self._url, self._allowed)
                await self._post(url, await self._address(url), message_id, body)
        except HostRefused as error:
            raise SendFailed(f"not sent: {error}") from None
        except TimeoutError:
            raise SendFailed(f"no answer within {limit_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            raise SendFailed(_words_of(error)) from None

    async def _address(self, url: WebhookUrl) -> str:
        """Return an address of the host. Every address of a name is judged: one that is not allowed refuses the name."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(
                self._threads, lambda: socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
            )
        except (OSError, UnicodeError):
            raise SendFailed("the host's name has no address") from None
        addresses = [str(entry[4][0]) for entry in found]
        for address in addresses:
            self._allowed.require_address(address, url.scheme)
        return addresses[0]

    async def _post(self, url: WebhookUrl, address: str, message_id: str, body: bytes) -> None:
        import httpx

        if self._http is None:
            self._http = httpx.AsyncClient(verify=_tls(), trust_env=False, timeout=60, follow_redirects=False)
        shown = f"[{address}]" if ":" in address else address
        named = f"[{url.host}]" if ":" in url.host else url.host
        timestamp = int(self._clock())
        request = self._http.build_request(
            "POST",
            f"{url.scheme}://{shown}:{url.port}{url.target}",
            content=body,
            headers={
                "host": named if url.port in (80, 443) else f"{named}:{url.port}",
                "content-type": f"{MEDIA_TYPE}; charset=utf-8",
                "user-agent": "fairlead-notifier",
                "webhook-id": message_id,
                "webhook-timestamp": str(timestamp),
                "webhook-signature": signature(self._secret, message_id, timestamp, body),
            },
            extensions={"sni_hostname": url.host},
        )
        response = await self._http.send(request, stream=True)
        try:
            size = 0
            async for piece in response.aiter_raw():
                size += len(piece)
                if size > ANSWER_BYTES_MAX:
                    break
        finally:
            await response.aclose()
        _judge(response.status_code)

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None


def _judge(status: int) -> None:
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise SendFailed(f"the receiver answered {status}: redirects are not followed")
    raise SendFailed(f"the receiver answered {status}", gone=status == 410)


def _words_of(error: Exception) -> str:
    """Return the kind of a failed connection in words, without the text of libraries, which may name addresses."""
    if "CERTIFICATE" in str(error).upper():
        return "the receiver's certificate is not valid for its name"
    if "connect" in type(error).__name__.lower():
        return "the receiver cannot be connected to"
    return f"the connection failed ({type(error).__name__})"
