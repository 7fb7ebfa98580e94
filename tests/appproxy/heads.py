"""Heads of requests, and small damage to them."""

import random

GET = b"GET /lab?a=1 HTTP/1.1\r\nHost: app.example.org\r\nAccept: */*\r\n\r\n"
POST = b"POST /api HTTP/1.1\r\nHost: app.example.org:443\r\nContent-Length: 12\r\n\r\n"
SOCKET = (
    b"GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def with_line(line: bytes, head: bytes = GET) -> bytes:
    """Return the head with one more line at its end."""
    return head[:-2] + line + b"\r\n\r\n"


#: Pieces that a mutated request is made of: what smuggling is tried with.
PIECES = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b":",
        b",",
        b"0",
        b"/",
        b"\x00",
        b"\x0b",
        b"\xff",
        b";a=b",
        b"chunked",
        b"HTTP/1.1",
    ),
    *(b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n", b"Host: b\r\n", b"Connection: close\r\n"),
)


def mutated(rng: random.Random, head: bytes) -> bytes:
    """Return the head with one to three pieces put in, taken out or put in the place of others."""
    for _ in range(rng.randint(1, 3)):
        at, length = rng.randrange(len(head)), rng.choice((0, 0, 1, 2, 5))
        head = head[:at] + rng.choice((b"", *PIECES)) + head[at + length :]
    return head if head.endswith(b"\r\n\r\n") else head + b"\r\n\r\n"
