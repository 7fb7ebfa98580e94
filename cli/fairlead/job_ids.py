"""Job ids as people write them: `812`, `812_3`, `812[0-3]`, `1-3`, `7,9,12-14`, `last`, `all`.

Pure: the meanings of `last` and `all` are passed in. Start at `expand`.
"""

import re
from collections.abc import Callable, Iterable

from fairlead.errors import NotFound, Refused
from fairlead_schemas.units.ids import is_job_id

#: One command names at most this many jobs; `all` may stand for more.
RANGE_MAX = 10_000

_RANGE = re.compile(r"([1-9]\d{0,17})-([1-9]\d{0,17})\Z")
_ELEMENTS = re.compile(r"([1-9]\d{0,17})(?:_|)\[([\d,\-]+)\]\Z")
_EXPECTED = 'expected a job such as "812", "812_3", "812[0-3]", "1-3", "7,9", "last" or "all"'


def expand(words: Iterable[str], *, last: Callable[[], str | None], everything: Callable[[], list[str]]) -> list[str]:
    """Job ids in the order named, each once.

    `last()` gives the caller's newest job (None: there is none), `everything()` all that `all` means
    for the verb. Raises Refused for a word that names nothing, NotFound when `last` has no job.
    """
    found: dict[str, None] = {}
    for word in words:
        for part in _split(word):
            found.update(dict.fromkeys(_expand_one(part, last, everything)))
    return list(found)


def _split(word: str) -> list[str]:
    """Split at commas outside brackets: `7,8[1,2]` is two parts."""
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])", word)]
    found = [part for part in parts if part]
    if not found:  # usually an empty variable of a script, which would continue as if this had worked
        raise Refused(f'{_EXPECTED}, found "{word}"')
    return found


def _expand_one(part: str, last: Callable[[], str | None], everything: Callable[[], list[str]]) -> list[str]:
    if part == "last":
        newest = last()
        if newest is None:
            raise NotFound("you have no job yet", hint="fairlead submit -- echo hello")
        return [newest]
    if part == "all":
        return everything()
    if is_job_id(part):
        return [part]
    if match := _RANGE.match(part):
        return [str(n) for n in _numbers(part, int(match[1]), int(match[2]))]
    if match := _ELEMENTS.match(part):
        return [f"{match[1]}_{index}" for piece in match[2].split(",") for index in _indexes(part, piece)]
    raise Refused(f'{_EXPECTED}, found "{part}"')


def _indexes(part: str, piece: str) -> list[int]:
    first, dash, final = piece.partition("-")
    if not first.isdecimal() or (dash and not final.isdecimal()):
        raise Refused(f'{_EXPECTED}, found "{part}"')
    return _numbers(part, int(first), int(final if dash else first))


def _numbers(part: str, first: int, final: int) -> list[int]:
    if not 0 <= final - first < RANGE_MAX:
        raise Refused(f'expected a rising range of at most {RANGE_MAX} jobs, found "{part}"')
    return list(range(first, final + 1))
