"""Tests in quarantine: they run, and their failure is printed but fails no run.

`quarantine.toml` names each with a reason and a date. A test of the house keeps the list short and its names true
(tests/house/test_layers.py). A test leaves the list when its cause is fixed.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

LIST = Path(__file__).with_name("quarantine.toml")


class Entry(NamedTuple):
    """One quarantined test: its id without parameters (`tests/part/test_file.py::test_name`), why, and since when (ISO date)."""

    test: str
    reason: str
    since: str


@cache
def entries() -> tuple[Entry, ...]:
    """Return the list; a row that lacks a field or has another one is a TypeError."""
    return tuple(Entry(**row) for row in tomllib.loads(LIST.read_text()).get("quarantined", []))


def reason_for(nodeid: str) -> str:
    """Return the reason for the quarantine of a test, whatever its parameters; "" if it is not in the list."""
    test = nodeid.partition("[")[0]
    return next((one.reason for one in entries() if one.test == test), "")


def excused(report: pytest.TestReport) -> pytest.TestReport:
    """Turn the failure of a quarantined test into an expected one. The report keeps its traceback."""
    if report.failed and (reason := reason_for(report.nodeid)):
        report.outcome = "skipped"
        report.wasxfail = f"quarantined: {reason}"
    return report


def summary(terminal: pytest.TerminalReporter) -> None:
    """Print the failures that were excused."""
    found = [report for report in terminal.stats.get("xfailed", []) if reason_for(report.nodeid)]
    if found:
        terminal.section("failed in quarantine")
    for report in found:
        terminal.write_line(f"{report.nodeid}: {report.wasxfail}\n{report.longreprtext[-4000:]}\n")
