"""Heads that are taken and refused, each refusal a way to hide a request; what is taken, h11 reads alike."""

import random

import h11
import pytest

from fairlead_appproxy.head import (
    BAD_GATEWAY,
    BAD_REQUEST,
    BAD_VERSION,
    CHUNKED,
    EMPTY,
    HEAD_MAX,
    NOT_SUPPORTED,
    TOO_LARGE,
    UNTIL_CLOSE,
    Body,
    HeadRefused,
    end_of_head,
    read_answer,
    read_request,
)
from tests.appproxy.heads import GET, POST, SOCKET, mutated, with_line


def test_a_request_is_read_with_its_fields_in_order() -> None:
    """Names are in lower case, and values without the spaces around them."""
    head = read_request(with_line(b"X-A:  1 \t", GET))
    assert (head.method, head.target, head.body, head.keep_alive) == (b"GET", b"/lab?a=1", EMPTY, True)
    assert head.fields == ((b"host", b"app.example.org"), (b"accept", b"*/*"), (b"x-a", b"1"))
    assert not head.is_websocket


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (POST, Body(12)),
        (with_line(b"Transfer-Encoding: Chunked"), CHUNKED),
        (with_line(b"Content-Length: 0"), EMPTY),
    ],
)
def test_a_body_is_framed_as_the_head_states(head: bytes, body: Body) -> None:
    """By its length, or in chunks."""
    assert read_request(head).body == body


def test_a_handshake_of_a_websocket_is_seen() -> None:
    """In the form of RFC 6455 and browsers."""
    assert read_request(SOCKET).is_websocket
    assert not read_request(with_line(b"Upgrade: h2c")).is_websocket


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (GET.replace(b"\r\n", b"\n"), BAD_REQUEST),
        (with_line(b"X: a\nContent-Length: 5"), BAD_REQUEST),
        (with_line(b"X: a\rContent-Length: 5"), BAD_REQUEST),
        (with_line(b"X: a\r\n folded"), BAD_REQUEST),
        (with_line(b"X : a"), BAD_REQUEST),
        (with_line(b": a"), BAD_REQUEST),
        (with_line(b"no colon"), BAD_REQUEST),
        (with_line(b"X\x00: a"), BAD_REQUEST),
        (with_line(b"X: a\x00b"), BAD_REQUEST),
        (with_line(b"X: \x7f"), BAD_REQUEST),
        (with_line("Contént-Length: 5".encode()), BAD_REQUEST),
        (with_line(b"Content-Length: 12", POST), BAD_REQUEST),
        (with_line(b"Content-Length: 13", POST), BAD_REQUEST),
        (with_line(b"Transfer-Encoding: chunked", POST), BAD_REQUEST),
        (with_line(b"Content-Length: +5"), BAD_REQUEST),
        (with_line(b"Content-Length: -5"), BAD_REQUEST),
        (with_line(b"Content-Length: 5, 5"), BAD_REQUEST),
        (with_line(b"Content-Length: 0x5"), BAD_REQUEST),
        (with_line(b"Content-Length:"), BAD_REQUEST),
        (with_line(b"Content-Length: 1234567890123456789"), BAD_REQUEST),
        (with_line("Content-Length: ５".encode()), BAD_REQUEST),
        (with_line(b"Transfer-Encoding: gzip, chunked"), BAD_REQUEST),
        (with_line(b"Transfer-Encoding: xchunked"), BAD_REQUEST),
        (with_line(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"), BAD_REQUEST),
        (with_line(b'Transfer-Encoding: "chunked"'), BAD_REQUEST),
        (with_line(b"Transfer-Encoding: \x0bchunked"), BAD_REQUEST),
        (with_line(b"Transfer_Encoding : chunked"), BAD_REQUEST),
        (with_line(b"Host: other.example.org"), BAD_REQUEST),
        (GET.replace(b"Host: app.example.org\r\n", b""), BAD_REQUEST),
        (GET.replace(b"app.example.org", b""), BAD_REQUEST),
        (GET.replace(b"app.example.org", b"user@app.example.org"), BAD_REQUEST),
        (GET.replace(b"app.example.org", b"app.example.org/x"), BAD_REQUEST),
        (GET.replace(b"app.example.org", b"a b"), BAD_REQUEST),
        (GET.replace(b"app.example.org", b"app.example.org:"), BAD_REQUEST),
        (GET.replace(b"/lab?a=1", b"http://other.example.org/"), BAD_REQUEST),
        (GET.replace(b"/lab?a=1", b"*"), BAD_REQUEST),
        (GET.replace(b"/lab?a=1", b"/a b"), BAD_REQUEST),
        (GET.replace(b"/lab?a=1", b"/a#b"), BAD_REQUEST),
        (GET.replace(b"/lab?a=1", b"/a\tb"), BAD_REQUEST),
        (GET.replace(b"/lab?a=1", b"/\xc3\xa9"), BAD_REQUEST),
        (GET.replace(b"GET /", b"GET  /"), BAD_REQUEST),
        (GET.replace(b"GET /", b" GET /"), BAD_REQUEST),
        (b"\r\n" + GET, BAD_REQUEST),
        (GET.replace(b"GET", b"G(T"), BAD_REQUEST),
        (GET.replace(b"GET", b"CONNECT"), NOT_SUPPORTED),
        (GET.replace(b"GET", b"TRACE"), NOT_SUPPORTED),
        (GET.replace(b"HTTP/1.1", b"HTTP/1.0"), BAD_VERSION),
        (GET.replace(b"HTTP/1.1", b"HTTP/2.0"), BAD_VERSION),
        (GET.replace(b"HTTP/1.1", b"http/1.1"), BAD_VERSION),
        (GET.replace(b" HTTP/1.1", b""), BAD_REQUEST),
        (with_line(b"Connection: close, Host"), BAD_REQUEST),
        (with_line(b"Connection: Cookie"), BAD_REQUEST),
        (SOCKET.replace(b"GET", b"POST"), BAD_REQUEST),
        (SOCKET.replace(b"Version: 13", b"Version: 8"), BAD_REQUEST),
        (SOCKET.replace(b"keep-alive, Upgrade", b"keep-alive"), BAD_REQUEST),
        (SOCKET.replace(b"Upgrade: websocket", b"Upgrade: websocket, h2c"), BAD_REQUEST),
        (with_line(b"Sec-WebSocket-Key: again", SOCKET), BAD_REQUEST),
        (with_line(b"Content-Length: 3", SOCKET), BAD_REQUEST),
        (GET[:-2], BAD_REQUEST),
        (with_line(b"X: " + b"a" * HEAD_MAX), TOO_LARGE),
        (with_line(b"\r\n".join([b"X: a"] * HEAD_MAX)), TOO_LARGE),
    ],
)
def test_what_two_readers_could_read_differently_is_refused(head: bytes, status: int) -> None:
    """Each with the status of its answer and words."""
    with pytest.raises(HeadRefused) as refused:
        read_request(head)
    assert refused.value.status == status and refused.value.words


def test_the_end_of_a_head_is_found_in_parts() -> None:
    """A head that never ends is cut at its bound."""
    assert end_of_head(GET + b"more") == len(GET)
    assert [end_of_head(GET[:length]) for length in (0, 1, len(GET) - 1)] == [0, 0, 0]
    with pytest.raises(HeadRefused):
        end_of_head(b"GET / HTTP/1.1\r\nX: " + b"a" * HEAD_MAX)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_taken_h11_reads_alike(seed: int) -> None:
    """Method, target, Host and framing; h11 may take more, never something else."""
    rng, taken = random.Random(seed), 0
    for _ in range(2500):
        head = mutated(rng, rng.choice((GET, POST, SOCKET, with_line(b"Transfer-Encoding: chunked"))))
        try:
            ours = read_request(head[: end_of_head(head)])
        except HeadRefused:
            continue
        taken += 1
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(head[: end_of_head(head)])
        theirs = connection.next_event()
        assert isinstance(theirs, h11.Request), head
        assert (theirs.method, theirs.target) == (ours.method, ours.target), head
        assert [value for name, value in theirs.headers if name == b"host"] == ours.values(b"host")
        framing = {name: value for name, value in theirs.headers if name in (b"content-length", b"transfer-encoding")}
        if ours.body == CHUNKED:
            assert framing == {b"transfer-encoding": b"chunked"}, head
        else:
            assert int(framing.get(b"content-length", b"0")) == ours.body.length, head
            assert b"transfer-encoding" not in framing
    assert taken > 100, "the comparison compares something"


# ---------------------------------------------------------------------------------------- answers

REQUEST, HANDSHAKE = read_request(GET), read_request(SOCKET)
HEAD_REQUEST = read_request(GET.replace(b"GET", b"HEAD"))


@pytest.mark.parametrize(
    ("answer", "body", "keep_alive"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", Body(3), True),
        (b"HTTP/1.1 200\r\nContent-Length: 3\r\n\r\n", Body(3), True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNKED, True),
        (b"HTTP/1.1 200 OK\r\n\r\n", UNTIL_CLOSE, False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", EMPTY, True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", EMPTY, True),
        (b"HTTP/1.1 100 Continue\r\n\r\n", EMPTY, True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\n", Body(3), False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n", Body(3), False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\n", Body(3), True),
    ],
)
def test_an_answer_is_framed_by_its_status_and_fields(answer: bytes, body: Body, keep_alive: bool) -> None:
    """RFC 9112, 6.3; answers of HTTP/1.0 are taken, since small apps give them."""
    head = read_answer(answer, REQUEST)
    assert (head.body, head.keep_alive) == (body, keep_alive)


def test_an_answer_to_head_has_no_body() -> None:
    """Whatever length it states."""
    assert read_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", HEAD_REQUEST).body == EMPTY


def test_a_protocol_changes_only_when_it_was_asked_for() -> None:
    """A request must not end in a socket that is not counted."""
    answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
    assert read_answer(answer, HANDSHAKE).status == 101
    with pytest.raises(HeadRefused):
        read_answer(answer, REQUEST)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/1.1 200 OK\nX: a\r\n\r\n",
        b"HTTP/1.1 099 No\r\n\r\n",
        b"HTTP/1.1 20 No\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 O\x00K\r\n\r\n",
    ],
)
def test_an_answer_that_is_not_http_is_refused(answer: bytes) -> None:
    """As the app's failure, not as the client's."""
    with pytest.raises(HeadRefused) as refused:
        read_answer(answer, REQUEST)
    assert refused.value.status == BAD_GATEWAY
