"""Questions to the process that answers about the past, and its answers: a request of HTTP, and what answers it. Never stored.

An answer is a line of JSON and the bytes of a body behind it. A body that no message holds comes in pieces, which are asked for
one by one.
"""

from typing import Annotated

import msgspec

#: A question is answered within this time, or with an error.
ANSWER_S = 10.0
#: Bytes of a body in one message; the bus takes 1 MiB.
PIECE_BYTES = 900 * 1024
#: Pieces of one body.
PIECES_MAX = 256
#: Bytes of a request's path and query.
TARGET_CHARS_MAX = 8192


class PastCaller(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sender of a request, as the gateway knows it. The answering process judges what it may see by the rights of now."""

    #: False with sign-on.
    is_open: bool = True
    principal: str = ""
    credential: str = ""
    is_token: bool = False
    act_as: str = ""
    expires_ns: int = 0


class PastQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A GET with a moment, or a further piece of its answer."""

    #: Path (unquoted) and query (as it was sent).
    path: Annotated[str, msgspec.Meta(max_length=TARGET_CHARS_MAX)] = ""
    query: Annotated[str, msgspec.Meta(max_length=TARGET_CHARS_MAX)] = ""
    #: If-None-Match; "": not sent.
    seen: Annotated[str, msgspec.Meta(max_length=TARGET_CHARS_MAX)] = ""
    request_id: str = ""
    caller: PastCaller = PastCaller()
    #: The views of the gateway have folded up to here: rights that have changed until then count.
    sequence: int = 0
    #: A piece of an answer that was given: its name, and the piece's number from 1.
    answer: str = ""
    piece: int = 0


class PastAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Head of an answer; the first piece of the body follows it. With an `error` there is no answer."""

    #: "", "behind" (the process has not folded the log so far), "busy", "unknown" (no such piece), "invalid", "failed".
    error: str = ""
    message: str = ""
    status: int = 200
    #: (name, value), lower case.
    headers: tuple[tuple[str, str], ...] = ()
    #: Name of the answer, for its further pieces, and how many pieces there are in all.
    answer: str = ""
    pieces: int = 1
    #: The body is compressed (zlib), as a whole.
    compressed: bool = False


_question = msgspec.json.Decoder(PastQuestion)
_answer = msgspec.json.Decoder(PastAnswer)
_encode = msgspec.json.Encoder().encode


def encode_question(question: PastQuestion) -> bytes:
    """Return the bytes of a question."""
    return _encode(question)


def decode_question(payload: bytes) -> PastQuestion:
    """Return the question that was encoded. Raises msgspec.MsgspecError."""
    return _question.decode(payload)


def encode_answer(answer: PastAnswer, piece: bytes = b"") -> bytes:
    """Return the bytes of an answer with a piece of its body."""
    return _encode(answer) + b"\n" + piece


def decode_answer(payload: bytes) -> tuple[PastAnswer, bytes]:
    """Return an answer and the piece of its body. Raises msgspec.MsgspecError."""
    head, _, piece = payload.partition(b"\n")
    return _answer.decode(head), piece
