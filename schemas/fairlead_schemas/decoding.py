"""Decode bytes of strangers: whatever is wrong with them is one kind of error.

msgspec raises UnicodeDecodeError for broken text and RecursionError for deep nesting, which a
caller who expects MsgspecError would not catch: one such message would then stop a service for good.
"""

from typing import Protocol

import msgspec


class Decoder[T](Protocol):
    """Interface of msgspec.json.Decoder that is used here."""

    def decode(self, buf: bytes, /) -> T: ...


def decode[T](decoder: Decoder[T], payload: bytes) -> T:
    """`decoder.decode(payload)`. Raises msgspec.MsgspecError and nothing else, whatever the bytes are."""
    try:
        return decoder.decode(payload)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(f"expected JSON in UTF-8 of ordinary depth: {type(error).__name__}") from error
