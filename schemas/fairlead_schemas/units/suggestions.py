"""Known names that an unknown one was probably meant to be, for messages. Pure; deterministic, as refusals are in the log.

Start at `closest`.
"""

from collections.abc import Collection
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice

#: Names that are compared at most; the comparison of two names costs some ten microseconds.
COMPARED_MAX = 1000
#: Characters of the unknown name that are compared: a longer one is no typing error.
NAME_CHARS_MAX = 64
#: Likeness below which two names have nothing to do with each other: 0 to 1, as difflib has it.
LIKENESS_MIN = 0.6


def closest(name: str, known: Collection[str]) -> str:
    """Return the known name that is most like `name`; "" if none is.

    Upper case, "-" and "_" do not count (`node_selector` is `nodeSelector`). Of paths the last part is enough, if it is one queue's
    only: `vision` is `research/vision`.
    """
    return _closest(name, tuple(islice(known, COMPARED_MAX))) if 0 < len(name) <= NAME_CHARS_MAX else ""


@lru_cache(512)
def _closest(name: str, known: tuple[str, ...]) -> str:
    plain = {_plain(each): each for each in known if each != name}
    last: dict[str, list[str]] = {}
    for each in plain.values():
        last.setdefault(_plain(each.rpartition("/")[2]), []).append(each)
    wanted = _plain(name)
    if wanted in plain:
        return plain[wanted]
    if len(ends := last.get(wanted, ())) == 1:
        return ends[0]
    if found := get_close_matches(wanted, plain, 1, LIKENESS_MIN):
        return plain[found[0]]
    ends = get_close_matches(wanted.rpartition("/")[2], last, 1, LIKENESS_MIN) if "/" not in wanted else ()
    return last[ends[0]][0] if ends and len(last[ends[0]]) == 1 else ""


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return "; did you mean X?" for a message, "" if no known name is like it."""
    meant = closest(name, known)
    return f"; did you mean {meant}?" if meant else ""
