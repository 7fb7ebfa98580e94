"""Text of tokens: a prefix that names the kind, 30 random characters, and a checksum. Pure.

Secret scanners find them by `PATTERN`, and the checksum tells them from other text without asking anybody. Nothing else is in the
text: rights and expiry are looked up by its digest. Random bytes are an argument.

A refresh token keeps its first half over all rotations. So the family of one that was used before is still found, with one row
for the whole family.
"""

import hashlib
import re
import zlib
from typing import Literal, get_args

#: Kinds by their letter: of a person, of a service account, for refreshing a sign-in, of one app.
TokenLetter = Literal["p", "s", "r", "a"]
LETTERS: tuple[TokenLetter, ...] = get_args(TokenLetter)

SECRET_CHARS = 30
CHECK_CHARS = 6
#: Random bytes of a secret: more than its characters hold, so that each of them is equally likely to within 2**-77.
RANDOM_BYTES = 32
TOKEN_CHARS = 4 + SECRET_CHARS + CHECK_CHARS
#: Characters of a refresh token's secret that a rotation keeps.
FAMILY_CHARS = 15

#: Regular expression of every token, for secret scanners (docs/reference/tokens.md).
PATTERN = r"\bfl[psra]_[0-9A-Za-z]{36}\b"

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SHAPE = re.compile(r"fl([psra])_[0-9A-Za-z]{36}\Z", re.ASCII)


def make(letter: TokenLetter, random_bytes: bytes) -> str:
    """Return a token. `random_bytes`: RANDOM_BYTES of them, unpredictable."""
    assert len(random_bytes) == RANDOM_BYTES, f"expected {RANDOM_BYTES} random bytes, found {len(random_bytes)}"
    return _checked(f"fl{letter}_{_base62(int.from_bytes(random_bytes), SECRET_CHARS)}")


def rotated(refresh: str, random_bytes: bytes) -> str:
    """Return the next refresh token of the family of `refresh`."""
    fresh = make("r", random_bytes)
    return _checked(refresh[: 4 + FAMILY_CHARS] + fresh[4 + FAMILY_CHARS : 4 + SECRET_CHARS])


def check(text: str) -> TokenLetter | None:
    """Return the kind of a token whose form and checksum are right; None for any other text."""
    found = _SHAPE.match(text)
    if found is None or _checked(text[:-CHECK_CHARS]) != text:
        return None
    return found[1]  # type: ignore[return-value]  # one of the pattern's letters


def digest(text: str) -> str:
    """Return the digest (hex SHA-256) under which a token or a cookie's value is stored."""
    return hashlib.sha256(text.encode()).hexdigest()


def family_digest(refresh: str) -> str:
    """Return the digest (hex SHA-256) of the half of a refresh token that its whole family has."""
    return digest(refresh[: 4 + FAMILY_CHARS])


def _checked(body: str) -> str:
    return body + _base62(zlib.crc32(body.encode()), CHECK_CHARS)


def _base62(number: int, length: int) -> str:
    digits = [""] * length
    for at in reversed(range(length)):
        number, digit = divmod(number, 62)
        digits[at] = _DIGITS[digit]
    return "".join(digits)
