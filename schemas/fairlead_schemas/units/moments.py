"""Moments of the log as people name them: a sequence, a time, or how long ago. Pure.

The gateway reads the parameter `at` with `parse_at`. Times without a zone are read by the command line, which knows the zone
(`timestamps.parse_moment`), so that a gateway in another zone does not answer about another hour.
"""

import re
from datetime import tzinfo
from typing import NamedTuple

from fairlead_schemas.units.quantities import QuantityError, parse_duration
from fairlead_schemas.units.timestamps import parse_moment, parse_rfc3339, rfc3339
from fairlead_schemas.units.validation import printable

#: Digits of a sequence: the server counts with 64 bits.
SEQUENCE_DIGITS_MAX = 18
#: Years from 1970 to 2262, the times that 64 bits of nanoseconds have.
AT_NS_MAX = (1 << 63) - 1
#: Characters of a refused text that an error repeats.
SHOWN_CHARS = 40

_AGO = re.compile(r"(.{1,60}?)\s+ago", re.ASCII)
_UNIT = re.compile(r"\s*(w(?:eeks?)?|d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)\b", re.ASCII)
_EXPECTED = 'expected a log sequence, a time such as "2026-11-27T03:00:00Z" with its zone, or how long ago, such as "2 hours ago"'


class At(NamedTuple):
    """A moment of the log: by its sequence, or by its time (Unix ns) where the sequence is 0."""

    sequence: int
    at_ns: int = 0


def parse_at(text: str, now_ns: int) -> At:
    """Return the moment that a text names. Raise ValueError with words: what was expected, and what was found.

    A moment that has not come is refused by those who know where the log ends.
    """
    if text.isascii() and text.lstrip("+-").isdecimal():
        return _sequence(text)
    if (ago := _AGO.fullmatch(text.strip())) is not None:
        return At(0, _before(now_ns, ago[1], text))
    try:
        # The "+" of a zone arrives as a blank if the client did not escape it.
        at_ns = parse_rfc3339(text.strip().replace(" ", "+") if "T" in text else text.strip())
    except (ValueError, OverflowError):
        raise ValueError(f"{_EXPECTED}; found {_found(text)}{_zone_hint(text)}") from None
    if not 0 < at_ns <= AT_NS_MAX:
        raise ValueError(f"expected a time from 1970 to 2262, found {_found(text)}")
    return At(0, at_ns)


def local_moment(text: str, now_ns: int, zone: tzinfo | None = None) -> str:
    """Return the moment that a person types as the gateway reads it: what names no zone is in `zone` (None: the machine's), and
    "today 03:12" and "yesterday 03:12" are times of these days. Raise ValueError with words.
    """
    words = text.strip()
    try:
        parse_at(words, now_ns)
    except ValueError:
        if words.lstrip("+-").isdecimal() or (found := _of_a_zone(words, now_ns, zone)) is None:
            raise
        return found
    return words


def _of_a_zone(words: str, now_ns: int, zone: tzinfo | None) -> str | None:
    try:
        return rfc3339(parse_moment(words, now_ns, zone))
    except (ValueError, OverflowError):
        return None


def _sequence(text: str) -> At:
    if len(text) > SEQUENCE_DIGITS_MAX or int(text) > AT_NS_MAX:
        raise ValueError(f"expected a log sequence of at most {SEQUENCE_DIGITS_MAX} digits, found {_found(text)}")
    if text[0] in "+-" or not int(text):
        raise ValueError(f"sequences of the log start at 1, found {_found(text)}")
    return At(int(text))


def _before(now_ns: int, amount: str, text: str) -> int:
    try:
        passed_ns = parse_duration(_UNIT.sub(lambda unit: unit[1][0], amount).strip())
    except QuantityError as error:
        raise ValueError(f"{_EXPECTED}; found {_found(text)}: {error}") from None
    if passed_ns >= now_ns:
        raise ValueError(f"expected a time from 1970 to 2262, found {_found(text)}")
    return now_ns - passed_ns


def _zone_hint(text: str) -> str:
    try:
        parse_rfc3339(f"{text.strip()}Z")
    except (ValueError, OverflowError):
        return ""
    return f": it names no zone, write {text.strip()[:SHOWN_CHARS]}Z for UTC"


def _found(text: str) -> str:
    return f'"{printable(text[:SHOWN_CHARS])}"'
