"""Tokens of pages: the place behind which the next page begins, and for a page of the past the sequence that it is of.

Opaque to clients; "b" and a place, or "a", a sequence, a point and a place, in base64. Pure.
"""

import base64

from fairlead_gateway.errors import HttpError, bad_field


def page_token(place: str, sequence: int = 0) -> str:
    """Return the token of the page behind a place. `sequence`: of a page of the past; 0: of the present."""
    kind = f"a{sequence}." if sequence else "b"
    return base64.urlsafe_b64encode(f"{kind}{place}".encode()).decode().rstrip("=")


def place_of(token: str) -> tuple[str, str]:
    """Return a token's sequence ("" for the present) and its place. Raise HttpError."""
    if not token:
        return "", ""
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    except ValueError:
        text = ""
    if text[:1] == "b":
        return "", text[1:]
    sequence, point, place = text[1:].partition(".")
    if text[:1] != "a" or not point or not (sequence.isascii() and sequence.isdecimal()):
        raise bad_token()
    return sequence, place


def bad_token() -> HttpError:
    """Return the 422 for a token that no page had."""
    return bad_field("continue", "expected the unchanged `next` of the previous page")
