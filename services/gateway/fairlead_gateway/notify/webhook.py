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
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import cache
from urllib.parse import urlsplit

import h11

from fairlead_gateway.notify.allowed_hosts import URL_CHARS_MAX, AllowedHosts, HostRefused, WebhookUrl, is_address

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
        self._connection: _Connection | None = None

    async def send(self, message_id: str, body: bytes, limit_s: float) -> None:
        """Deliver one message. Raise SendFailed."""
        try:
            async with asyncio.timeout(limit_s):
                url = judged_url(self._url, self._allowed)
                _judge(await self._post(url, message_id, body))
        except HostRefused as error:
            raise SendFailed(f"not sent: {error}") from None
        except TimeoutError:
            await self.close()
            raise SendFailed(f"no answer within {limit_s:g} s") from None
        except h11.RemoteProtocolError:
            raise SendFailed("the receiver does not answer as HTTP has it") from None
        except OSError:
            raise SendFailed("the connection to the receiver failed") from None

    async def _post(self, url: WebhookUrl, message_id: str, body: bytes) -> int:
        """Send a message, and return the status of the answer. A kept connection may have ended meanwhile: then over a new one."""
        kept, self._connection = self._connection, None
        if kept is not None:
            try:
                return await self._over(kept, url, message_id, body)
            except (OSError, h11.RemoteProtocolError):
                pass
        connection = await _connect(url, await self._address(url))
        return await self._over(connection, url, message_id, body)

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

    async def _over(self, connection: "_Connection", url: WebhookUrl, message_id: str, body: bytes) -> int:
        timestamp = int(self._clock())
        headers = {
            "host": _host_of(url),
            "content-type": f"{MEDIA_TYPE}; charset=utf-8",
            "content-length": str(len(body)),
            "user-agent": "fairlead-notifier",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(self._secret, message_id, timestamp, body),
        }
        try:
            status = await connection.exchange(url.target, headers, body)
        except BaseException:
            connection.close()
            raise
        if connection.is_reusable():
            self._connection = connection
        else:
            connection.close()
        return status

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Connection:
    """Connection to a receiver. One exchange at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.CLIENT)

    async def exchange(self, target: str, headers: Mapping[str, str], body: bytes) -> int:
        """Send a POST and return the status of its answer. Raise OSError, or RemoteProtocolError for what is no HTTP."""
        request = h11.Request(method="POST", target=target, headers=list(headers.items()))
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()
        status, size = 0, 0
        while size <= ANSWER_BYTES_MAX:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(ANSWER_BYTES_MAX))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                size += len(event.data)
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                break
        return status

    def is_reusable(self) -> bool:
        """Prepare for another exchange; return False where the receiver, or a long answer, does not allow one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def close(self) -> None:
        """Close it without waiting for the receiver."""
        self._writer.transport.abort()


async def _connect(url: WebhookUrl, address: str) -> _Connection:
    """Connect to a judged address; its certificate must be the name's. Raise SendFailed."""
    tls = {"ssl": _tls(), "server_hostname": url.host} if url.scheme == "https" else {}
    try:
        return _Connection(*await asyncio.open_connection(address, url.port, **tls))
    except ssl.SSLCertVerificationError:
        raise SendFailed("the receiver's certificate is not valid for its name") from None
    except TimeoutError:
        raise
    except OSError:
        raise SendFailed("the receiver cannot be connected to") from None


def _host_of(url: WebhookUrl) -> str:
    """Return the value of the header Host."""
    named = f"[{url.host}]" if ":" in url.host else url.host
    usual = 443 if url.scheme == "https" else 80
    return named if url.port == usual else f"{named}:{url.port}"


def _judge(status: int) -> None:
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise SendFailed(f"the receiver answered {status}: redirects are not followed")
    raise SendFailed(f"the receiver answered {status}", gone=status == 410)
