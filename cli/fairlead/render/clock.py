"""The time up to which spans of a table count: now, or the moment of the past that the answers are about.

Set by the command that got the answers (`stand_at`), since tables are made of documents alone.
"""

import time

_then_ns = 0


def stand_at(at_ns: int) -> None:
    """Let spans count up to a Unix time in ns; 0: up to now."""
    global _then_ns  # noqa: PLW0603 -- one process shows the tables of one moment
    _then_ns = at_ns


def now_ns() -> int:
    """Return the time up to which spans count (Unix ns)."""
    return _then_ns or time.time_ns()
