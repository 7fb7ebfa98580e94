"""Hostlists: names of many nodes in their order as one short text, as Slurm writes them: "gpu-[1-8,12],login".

Each order of a gang lists the addresses and nodes of all its ranks. Written in full, a gang of n ranks takes n² names,
and a thousand ranks are a hundred megabytes. Numbered names fold into ranges, and a name that comes several times in a row is
counted ("10.0.0.1*4"). The order is kept, because a rank is a place in the list. Start at `fold`.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

from fairlead_schemas.units.ids import is_token

#: Names that a hostlist may hold.
NAMES_MAX = 1 << 17

_NUMBERED = re.compile(r"(.*?)([0-9]{0,9})\Z", re.DOTALL)
_SPECIAL = frozenset("[],*")
_WORD = re.compile(r"([^\[\],*]*)(?:\[([0-9,-]+)\])?(?:\*([0-9]{1,9}))?(,|\Z)")


def is_foldable(names: Sequence[str]) -> bool:
    """Return True if there are several names and none holds a character with a meaning in hostlists."""
    return 1 < len(names) <= NAMES_MAX and _SPECIAL.isdisjoint("".join(names))


def fold(names: Sequence[str]) -> str:
    """`fold(("n1", "n2", "n3", "n7", "x", "x")) == "n[1-3,7],x*2"`. The names must be foldable."""
    words: list[str] = []
    prefix, ranges = "", list[list[str]]()
    for name, alike in groupby(names):
        count = sum(1 for _ in alike)
        found = _NUMBERED.match(name)
        assert found is not None, "the pattern matches any text"
        head, number = found.groups()
        if ranges and (count > 1 or not number or head != prefix):
            words.append(_word(prefix, ranges))
            ranges = []
        if count > 1 or not number:
            words.append(f"{name}*{count}" if count > 1 else name)
        elif ranges and number == str(int(ranges[-1][1]) + 1).zfill(len(ranges[-1][1])):
            ranges[-1][1] = number
        else:
            prefix = head
            ranges.append([number, number])
    if ranges:
        words.append(_word(prefix, ranges))
    return ",".join(words)


def _word(prefix: str, ranges: list[list[str]]) -> str:
    texts = [first if first == last else f"{first}-{last}" for first, last in ranges]
    return prefix + (texts[0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else f"[{','.join(texts)}]")


@lru_cache(64)  # each new value for a node repeats the lists of its gangs
def expand(text: str) -> tuple[str, ...]:
    """The names that were folded. Raises ValueError for a text that is no hostlist, or one of too many names."""
    names: list[str] = []
    at, more = 0, ","
    while more:
        found = _WORD.match(text, at)
        if found is None:
            raise ValueError(f'expected a hostlist such as "n[1-8],login", found "{text[at : at + 80]}"')
        at, (prefix, ranges, count, more) = found.end(), found.groups()
        for each in ranges.split(",") if ranges is not None else ():
            names += _range(prefix, each)
        if ranges is None:
            names += [prefix] * min(int(count or 1), NAMES_MAX + 1)
        if len(names) > NAMES_MAX:
            raise ValueError(f"expected a hostlist of at most {NAMES_MAX} names")
    return tuple(names)


def node_names(text: str) -> list[str]:
    """Return the different nodes of a person's hostlist such as "n[1-3,7],x". Raises ValueError."""
    try:
        found = list(dict.fromkeys(expand(text.replace(" ", ""))))
    except ValueError:
        found = []
    if not found or not all(map(is_token, found)):
        raise ValueError('expected names of nodes such as "n1,n[3-5,7]"')
    return found


def _range(prefix: str, text: str) -> list[str]:
    """The names of one range: "098-101" has four of them."""
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal() or len(text) > 20:
        raise ValueError(f'expected a range of numbers, found "{text[:80]}"')
    if int(last or first) - int(first) > NAMES_MAX:
        raise ValueError(f"expected a hostlist of at most {NAMES_MAX} names")
    return [f"{prefix}{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1)]
