"""Text of tokens: fixed vectors, the checksum, the pattern for scanners, and families of refresh tokens."""

import re

from hypothesis import given
from hypothesis import strategies as st

from fairlead_schemas.units.token_text import (
    LETTERS,
    PATTERN,
    RANDOM_BYTES,
    TOKEN_CHARS,
    check,
    digest,
    family_digest,
    make,
    rotated,
)

_COUNTING = bytes(range(RANDOM_BYTES))
_SECRETS = st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES)


def test_the_text_of_known_bytes_never_changes() -> None:
    """Tokens that people hold must stay valid, so the form is fixed to the letter."""
    assert [make(letter, _COUNTING) for letter in LETTERS] == [
        "flp_CTQj2uNU3MFagCXG9LRKRcwGkBIDlf0cDtUG",
        "fls_CTQj2uNU3MFagCXG9LRKRcwGkBIDlf4GDc3j",
        "flr_CTQj2uNU3MFagCXG9LRKRcwGkBIDlf0SsVFF",
        "fla_CTQj2uNU3MFagCXG9LRKRcwGkBIDlf3kwOxH",
    ]
    assert make("p", bytes(RANDOM_BYTES)) == "flp_0000000000000000000000000000003qmwRP"
    assert digest(make("p", bytes(RANDOM_BYTES))) == "00a001149a38cefc0cf2c6879b5d71e04bc2623024d9dbc85a91cb7ad786bb92"


@given(st.sampled_from(LETTERS), _SECRETS)
def test_every_token_is_found_by_the_pattern_and_by_its_checksum(letter: str, secret: bytes) -> None:
    """A token is 40 characters, is known again as its kind, and a scanner finds it inside other text."""
    text = make(letter, secret)  # type: ignore[arg-type]
    assert (len(text), check(text)) == (TOKEN_CHARS, letter)
    assert re.findall(PATTERN, f'password="{text}", {text}x') == [text]


@given(_SECRETS, st.integers(0, TOKEN_CHARS - 1), st.characters(codec="ascii"))
def test_a_token_with_one_wrong_character_is_none(secret: bytes, at: int, other: str) -> None:
    """CRC-32 finds every single wrong character, so a misspelt token costs no look-up."""
    text = make("p", secret)
    wrong = text[:at] + other + text[at + 1 :]
    assert (check(wrong) is None) == (wrong != text)


def test_other_text_is_no_token() -> None:
    """Text of other lengths, kinds, alphabets, and with a line break at its end."""
    good = make("p", _COUNTING)
    for text in ("", good[:-1], good + "0", good + "\n", "flx" + good[3:], good.replace("_", "-"), "ü" + good[1:]):
        assert check(text) is None, text


@given(_SECRETS, _SECRETS)
def test_rotation_keeps_the_family_and_nothing_else(first: bytes, second: bytes) -> None:
    """The next refresh token is another one of the same family; an unrelated one has another family."""
    token = make("r", first)
    following = rotated(token, second)
    assert check(following) == "r"
    assert family_digest(following) == family_digest(token)
    if first != second:
        assert digest(following) != digest(token)
        assert family_digest(make("r", second)) != family_digest(token)
