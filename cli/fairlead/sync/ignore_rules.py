"""Rules of a `.gitignore` file, as gitignore(5) states them. Pure.

Each rule is asked about a path itself, never about what is above it: the walk asks about each directory before it enters it. The
package pathspec answers about whole paths instead, and differs from Git where a directory is taken back ("a/**" with "!a/b/**").
Start at `IgnoreRules.verdict`.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple


class _Rule(NamedTuple):
    expression: re.Pattern[str]
    ignores: bool
    directories_only: bool


class IgnoreRules:
    """Rules of one file, for paths relative to its directory. A line that is no rule is left out, as by Git."""

    def __init__(self, text: str) -> None:
        self._rules = [rule for line in text.splitlines() if (rule := _rule(line)) is not None]

    def verdict(self, path: str, *, is_directory: bool) -> bool | None:
        """Return True if the path is left out, False if it is kept, None if no rule is about it. The last rule that fits decides."""
        for rule in reversed(self._rules):
            if (is_directory or not rule.directories_only) and rule.expression.fullmatch(path):
                return rule.ignores
        return None


def _rule(line: str) -> _Rule | None:
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if not line or line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    pattern = line if ignores else line[1:]
    directories_only = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    is_anchored = "/" in pattern
    try:
        expression = re.compile(_translated(pattern.removeprefix("/").split("/"), is_anchored), re.DOTALL)
    except (ValueError, re.error):
        return None
    return _Rule(expression, ignores, directories_only) if pattern else None


def _translated(parts: Sequence[str], is_anchored: bool) -> str:
    """Return the expression of a pattern's parts. Without a slash before its end, a pattern fits at any depth."""
    found = "" if is_anchored else "(?:.*/)?"
    for at, part in enumerate(parts):
        is_last = at == len(parts) - 1
        if part == "**" and len(parts) > 1:
            found += ".+" if is_last else "(?:.*/)?"
        else:
            found += _name(part) + ("" if is_last else "/")
    return found


def _name(pattern: str) -> str:
    """Return the expression of one name."""
    found, at = "", 0
    while at < len(pattern):
        sign = pattern[at]
        at += 1
        if sign == "*":
            found += "[^/]*" if not found.endswith("[^/]*") else ""
        elif sign == "?":
            found += "[^/]"
        elif sign == "[":
            end = _class_end(pattern, at)
            inside = pattern[at:end].replace("\\", "\\\\").replace("[", "\\[")
            found += f"(?!/)[{'^' + inside[1:] if inside[0] in '!^' else inside}]"
            at = end + 1
        elif sign == "\\" and at < len(pattern):
            found += re.escape(pattern[at])
            at += 1
        else:
            found += re.escape(sign)
    return found


def _class_end(pattern: str, at: int) -> int:
    """Return where the class ends that began before `at`; a bracket may be its first sign. Raises ValueError for one without an end,
    which fits nothing.
    """
    return pattern.index("]", at + (2 if pattern[at : at + 1] in ("!", "^") else 1))
