"""Heads of HTTP/1.1 messages, read strictly: what two readers could take for different messages is refused. Pure.

RFC 9112 allows a recipient to repair much (bare line feeds, folded lines, several lengths). Each repair is a way to hide
a second request from one of two readers, so here nothing is repaired. Start at `read_request`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

HEAD_MAX = 32 * 1024
#: Of the answer to a message that is refused: of a client's request, or of an app's answer.
BAD_REQUEST, TOO_LARGE, NOT_SUPPORTED, BAD_VERSION, BAD_GATEWAY = 400, 431, 501, 505, 502

type Fields = tuple[tuple[bytes, bytes], ...]
type _Stated = Mapping[bytes, Sequence[bytes]]

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
#: Origin form alone: an absolute target names a second host, `*` and authorities are for other proxies.
_TARGET = re.compile(rb"/[!-\"$-~]*")
#: RFC 9110, 5.5: visible characters, spaces, tabs, and bytes above ASCII.
_VALUE = re.compile(rb"[\t -~\x80-\xff]*")
#: Lines that `_field` takes, each with its end: one look at all of them is several times faster.
_FIELDS = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*\r\n)*")
_HOST = re.compile(rb"(?:[0-9A-Za-z._\-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
#: Longer ones overflow somewhere.
_LENGTH = re.compile(rb"[0-9]{1,18}")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t -~\x80-\xff]*))?")
#: Options of `Connection` that clients send. Naming another field there makes some readers drop that field.
_CONNECTION_OPTIONS = frozenset([b"close", b"keep-alive", b"upgrade", b"te", b"http2-settings"])
#: Fields on which the framing of a message depends.
_FRAMING = frozenset(
    b"host connection content-length transfer-encoding upgrade sec-websocket-key sec-websocket-version".split()
)
#: Methods that ask for a tunnel, or for the request as the app received it, credentials included.
_METHODS_REFUSED = frozenset([b"CONNECT", b"TRACE", b"TRACK"])


class HeadRefused(Exception):
    """A head that is not taken: the status of the answer, and the reason in words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class Body(NamedTuple):
    """Framing of a message's body: its length in bytes, CHUNKED, or UNTIL_CLOSE."""

    length: int

    @property
    def is_empty(self) -> bool:
        """True where nothing follows the head."""
        return self.length == 0


EMPTY, CHUNKED, UNTIL_CLOSE = Body(0), Body(-1), Body(-2)


class CarriedRequest(NamedTuple):
    """Head of a request. Names of fields are in lower case, values without spaces around them, both in their order."""

    method: bytes
    target: bytes
    fields: Fields
    body: Body
    #: False where the client closes after the answer.
    keep_alive: bool
    #: True for a handshake of a WebSocket that is complete as far as its head shows.
    is_websocket: bool

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of a field, in their order."""
        return [value for each, value in self.fields if each == name]


class CarriedAnswer(NamedTuple):
    """Head of an app's answer; fields as in `CarriedRequest`."""

    status: int
    reason: bytes
    fields: Fields
    body: Body
    keep_alive: bool

    @property
    def is_interim(self) -> bool:
        """True for 1xx, which another head follows; 101 ends HTTP."""
        return 100 <= self.status < 200 and self.status != 101


def end_of_head(data: bytes | bytearray) -> int:
    """Return how many bytes the head takes with its empty line, 0 while it is not complete. Raises HeadRefused where it is
    longer than HEAD_MAX.
    """
    end = data.find(b"\r\n\r\n", 0, HEAD_MAX)
    if end >= 0:
        return end + 4
    if len(data) >= HEAD_MAX:
        raise HeadRefused(TOO_LARGE, f"the head is longer than {HEAD_MAX} bytes")
    return 0


def read_request(head: bytes) -> CarriedRequest:
    """Read a request's head, its empty line included. Raises HeadRefused."""
    line, fields = _lines(head, BAD_REQUEST)
    parts = line.split(b" ")
    if len(parts) != 3:
        raise HeadRefused(BAD_REQUEST, "the request line is not METHOD TARGET VERSION with one space between")
    method, target, version = parts
    if version != b"HTTP/1.1":
        raise HeadRefused(BAD_VERSION, "the version is not HTTP/1.1")
    if not _TOKEN.fullmatch(method):
        raise HeadRefused(BAD_REQUEST, "the method is no token")
    if method in _METHODS_REFUSED:
        raise HeadRefused(NOT_SUPPORTED, f"{method.decode()} is not carried")
    if not _TARGET.fullmatch(target):
        raise HeadRefused(BAD_REQUEST, "the target does not begin with / or has characters that a URL cannot have")
    stated = _stated(fields)
    hosts = stated.get(b"host", ())
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        raise HeadRefused(BAD_REQUEST, "expected exactly one Host, of a name or address and a port")
    options = _options(stated)
    if unknown := options - _CONNECTION_OPTIONS:
        raise HeadRefused(BAD_REQUEST, f"Connection names {min(unknown).decode('latin-1')}")
    body = _body(stated, BAD_REQUEST)
    return CarriedRequest(
        method, target, fields, body, b"close" not in options, _is_websocket(method, stated, options, body)
    )


def read_answer(head: bytes, request: CarriedRequest) -> CarriedAnswer:
    """Read the head of an app's answer, its empty line included. Raises HeadRefused."""
    line, fields = _lines(head, BAD_GATEWAY)
    found = _STATUS_LINE.fullmatch(line)
    if found is None:
        raise HeadRefused(BAD_GATEWAY, "the app's status line is not HTTP/1.1 STATUS REASON")
    minor, code, reason = found.groups()
    stated = _stated(fields)
    status, options = int(code), _options(stated)
    body = _body(stated, BAD_GATEWAY)
    if status == 101 and not request.is_websocket:
        raise HeadRefused(BAD_GATEWAY, "the app changes the protocol though nobody asked for it")
    # RFC 9112, 6.3: these have no body whatever their fields state.
    if request.method == b"HEAD" or status < 200 or status in (204, 304):
        body = EMPTY
    elif b"content-length" not in stated and b"transfer-encoding" not in stated:
        body = UNTIL_CLOSE
    old = minor == b"0"
    if old and body == CHUNKED:
        raise HeadRefused(BAD_GATEWAY, "an HTTP/1.0 answer cannot be chunked")
    keep_alive = body != UNTIL_CLOSE and (b"keep-alive" in options if old else b"close" not in options)
    return CarriedAnswer(status, reason or b"", fields, body, keep_alive)


def _lines(head: bytes, status: int) -> tuple[bytes, Fields]:
    if len(head) > HEAD_MAX:
        raise HeadRefused(TOO_LARGE, f"the head is longer than {HEAD_MAX} bytes")
    if not head.endswith(b"\r\n\r\n"):
        raise HeadRefused(status, "the head does not end with an empty line")
    first, _, rest = head[:-2].partition(b"\r\n")
    if not rest:
        return first, ()
    lines = rest[:-2].split(b"\r\n")
    if not _FIELDS.fullmatch(rest):
        return first, tuple([_field(line, status) for line in lines])
    parts = [line.partition(b":") for line in lines]
    return first, tuple([(name.lower(), value.strip(b" \t")) for name, _, value in parts])


def _field(line: bytes, status: int) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    # A folded line begins with a space, so its name is no token; so is a name with a space before its colon.
    if not colon or not _TOKEN.fullmatch(name):
        raise HeadRefused(status, "a line of the head is not NAME: VALUE")
    value = value.strip(b" \t")
    if not _VALUE.fullmatch(value):
        raise HeadRefused(status, f"the value of {name.decode()} has control characters")
    return name.lower(), value


def _stated(fields: Fields) -> dict[bytes, list[bytes]]:
    """Return the values of the fields on which the framing depends, by name."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        if name in _FRAMING:
            found.setdefault(name, []).append(value)
    return found


def _options(stated: _Stated) -> set[bytes]:
    if b"connection" not in stated:
        return set()
    words = (word.strip(b" \t").lower() for value in stated[b"connection"] for word in value.split(b","))
    return {word for word in words if word}


def _body(stated: _Stated, status: int) -> Body:
    lengths, codings = stated.get(b"content-length", ()), stated.get(b"transfer-encoding", ())
    if len(lengths) + len(codings) > 1:
        raise HeadRefused(status, "more than one Content-Length or Transfer-Encoding")
    if codings:
        if codings[0].lower() != b"chunked":
            raise HeadRefused(status, "Transfer-Encoding is not chunked")
        return CHUNKED
    if not lengths:
        return EMPTY
    if not _LENGTH.fullmatch(lengths[0]):
        raise HeadRefused(status, "Content-Length is no number")
    return Body(int(lengths[0]))


def _is_websocket(method: bytes, stated: _Stated, options: set[bytes], body: Body) -> bool:
    """Return whether it is a handshake of RFC 6455; an upgrade to anything else is no upgrade here. Raises HeadRefused for
    half a handshake, which an app could complete.
    """
    upgrades = [value.lower() for value in stated.get(b"upgrade", ())]
    if b"websocket" not in b",".join(upgrades):
        return False
    keys, versions = stated.get(b"sec-websocket-key", ()), stated.get(b"sec-websocket-version", ())
    whole = upgrades == [b"websocket"] and b"upgrade" in options and len(keys) == 1 and [*versions] == [b"13"]
    if not whole or method != b"GET" or not body.is_empty:
        raise HeadRefused(BAD_REQUEST, "a WebSocket needs a GET without a body, one key, and version 13")
    return True
