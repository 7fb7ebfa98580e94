"""Tests that run on plain Python only, because the cores are compiled in the others' run (`make test-compiled`).

`plain_only.toml` names each with its reason, which is printed where it is skipped. A test of the house keeps the names true
(tests/house/test_layers.py).
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fairlead_replay.compiled import cores_build

LIST = Path(__file__).with_name("plain_only.toml")


class Entry(NamedTuple):
    """One test: its id without parameters (`tests/part/test_file.py::test_name`), and what it does that compiled code does not allow."""

    test: str
    reason: str


@cache
def entries() -> tuple[Entry, ...]:
    """Return the list; a row that lacks a field or has another one is a TypeError."""
    return tuple(
        Entry(test, reason["reason"])
        for reason in tomllib.loads(LIST.read_text()).get("reason", [])
        for test in reason["tests"]
    )


@cache
def _is_compiled() -> bool:
    return cores_build() != "plain Python"


def reason_to_skip(nodeid: str) -> str:
    """Return the reason why a test cannot run on the cores of this process; "" if it can."""
    if not _is_compiled():
        return ""
    test = nodeid.partition("[")[0]
    return next((f"plain Python only: {one.reason}" for one in entries() if one.test == test), "")
