"""Ends of bodies in any cut of the stream, and bodies that are not framed as stated."""

import random
from itertools import pairwise

import h11
import pytest

from fairlead_appproxy.body_end import BadFraming, framing_of
from fairlead_appproxy.head import CHUNKED, UNTIL_CLOSE, Body


def chunked(rng: random.Random, count: int) -> bytes:
    """Return a body of some chunks."""
    parts = [rng.randbytes(rng.choice((1, 2, 15, 16, 300, 5000))) for _ in range(count)]
    return b"".join(f"{len(part):x}".encode() + b"\r\n" + part + b"\r\n" for part in parts) + b"0\r\n\r\n"


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    """Cut bytes at random places."""
    cuts = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(rng.randrange(12)))})
    return [data[start:end] for start, end in pairwise(cuts)]


@pytest.mark.parametrize("seed", range(20))
def test_a_chunked_body_ends_where_it_ends_however_it_is_cut(seed: int) -> None:
    """Bytes of the next message are not taken; h11 finds the same end."""
    rng = random.Random(seed)
    body, behind = chunked(rng, rng.randrange(6)), b"GET / HTTP/1.1\r\n"
    for cut in ([body + behind], pieces(rng, body + behind), [bytes([each]) for each in body + behind]):
        framing, taken = framing_of(CHUNKED), 0
        for piece in cut:
            taken += framing.take(piece)
        assert framing.done and taken == len(body)
    server = h11.Connection(h11.SERVER)
    server.receive_data(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body + behind)
    while not isinstance(event := server.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Request | h11.Data)
    assert server.trailing_data[0] == behind


@pytest.mark.parametrize(
    "body",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5;a=b\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"\r\n0\r\n\r\n",
        b"ffffffffffffffffff\r\n",
        b"0\r\nTrailer: a\r\n\r\n",
        b"0\r\nGET / HTTP/1.1\r\n",
        b"g\r\n",
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_body_in_wrong_chunks_is_refused(body: bytes, whole: bool) -> None:
    """In one piece or byte by byte; nothing behind the fault is taken for a body."""
    framing = framing_of(CHUNKED)
    cut = [body] if whole else [bytes([each]) for each in body]
    with pytest.raises(BadFraming):
        _ = [framing.take(piece) for piece in cut]


def test_a_body_of_a_known_length_takes_no_more() -> None:
    """And one without an end takes all."""
    framing = framing_of(Body(5))
    assert (framing.take(b"abc"), framing.done, framing.take(b"defg"), framing.done) == (3, False, 2, True)
    assert framing_of(Body(0)).done
    assert (framing_of(UNTIL_CLOSE).take(b"abc"), framing_of(UNTIL_CLOSE).done) == (3, False)
