"""Answers with bodies that no message holds: the first piece goes with the answer, the others are kept until they are asked for."""

import zlib
from collections import OrderedDict
from uuid import uuid4

from fairlead_schemas.queries import past

#: Answers whose further pieces are kept.
ANSWERS_KEPT = 8
#: Bodies from this size on are compressed.
COMPRESS_BYTES = 64 * 1024


class AnswerPieces:
    """Bodies of the newest answers in several pieces, by the names of the answers."""

    def __init__(self) -> None:
        #: {name: body}, newest last.
        self._bodies: OrderedDict[str, bytes] = OrderedDict()

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> bytes:
        """Return the message with the head of an answer and the first piece of its body."""
        compressed = len(body) >= COMPRESS_BYTES
        sent = zlib.compress(body, 1) if compressed else body
        pieces = max(1, -(-len(sent) // past.PIECE_BYTES))
        name = ""
        if pieces > 1:
            name = uuid4().hex
            self._bodies[name] = sent
            while len(self._bodies) > ANSWERS_KEPT:
                self._bodies.popitem(last=False)
        head = past.PastAnswer(status=status, headers=tuple(headers), answer=name, pieces=pieces, compressed=compressed)
        return past.encode_answer(head, sent[: past.PIECE_BYTES])

    def piece(self, name: str, number: int) -> bytes:
        """Return the message with a further piece."""
        body = self._bodies.get(name)
        begin = number * past.PIECE_BYTES
        if body is None or not 0 < begin < len(body):
            return no_answer("unknown", "this answer has no such piece, or it was given too long ago; ask again")
        return past.encode_answer(past.PastAnswer(), body[begin : begin + past.PIECE_BYTES])


def no_answer(error: str, message: str) -> bytes:
    """Return the message that there is no answer. `error`: as of `PastAnswer`."""
    return past.encode_answer(past.PastAnswer(error=error, message=message))
