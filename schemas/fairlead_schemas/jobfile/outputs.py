"""The job file's `outputs: {model: checkpoints/*.pt}`: files of a run's directory that its node keeps by name. Pure.

Only the agent acts on them; a submit checks them. A pattern is a path relative to the run's directory, in which "*", "?" and "[…]"
stand for parts of a name and "**" for any number of directories. A directory that fits stands for all that is in it.
"""

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire.trees import path_fault

OUTPUTS_MAX = 32
PATTERNS_MAX = 32

#: (name, patterns) of each.
type Outputs = tuple[tuple[str, tuple[str, ...]], ...]


def outputs_of(words: Mapping[str, str | Sequence[str]]) -> Outputs:
    """Return the outputs of a job file, in the order of their names."""
    return tuple((name, (found,) if isinstance(found, str) else tuple(found)) for name, found in sorted(words.items()))


def output_faults(words: Mapping[str, str | Sequence[str]]) -> Iterator[FieldError]:
    """Everything wrong with them, by field."""
    if len(words) > OUTPUTS_MAX:
        yield FieldError(field="outputs", message=f"expected at most {OUTPUTS_MAX}, found {len(words)}")
    for name, patterns in outputs_of(words)[:OUTPUTS_MAX]:
        if not is_token(name):
            message = f"expected a name of 1 to 63 of a-z 0-9 _ -, found {name[:80]!r}"
            yield FieldError(field="outputs", message=message)
            continue
        if not 0 < len(patterns) <= PATTERNS_MAX:
            message = f"expected 1 to {PATTERNS_MAX} paths, found {len(patterns)}"
            yield FieldError(field=f"outputs.{name}", message=message)
        for pattern in patterns[:PATTERNS_MAX]:
            if fault := path_fault(pattern.removesuffix("/")):
                message = f'{fault} such as "checkpoints/*.pt", found {pattern[:80]!r}'
                yield FieldError(field=f"outputs.{name}", message=message)


def is_output(path: str, patterns: Sequence[str]) -> bool:
    """Return True if one of the patterns fits a path, or a directory above it."""
    parts = path.split("/")
    return any(_fits(parts, pattern.removesuffix("/").split("/")) for pattern in patterns)


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return True if the pattern fits the first of these parts. All places of the pattern that fit so far are kept, so the time is
    bounded by the product of both lengths.
    """
    places = _with_skipped(pattern, {0})
    for part in parts:
        if len(pattern) in places:
            return True
        stay = {at for at in places if pattern[at] == "**"}
        further = {at + 1 for at in places - stay if _expression(pattern[at]).match(part)}
        places = _with_skipped(pattern, stay | further)
    return len(pattern) in places


def _with_skipped(pattern: Sequence[str], places: set[int]) -> set[int]:
    """Return the places, and those behind each "**", which may stand for nothing."""
    found = set(places)
    for at in range(len(pattern)):  # in order, as one may follow another
        if at in found and pattern[at] == "**":
            found.add(at + 1)
    return found


@lru_cache(1024)
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))
