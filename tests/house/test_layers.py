"""Layers of tests: the pure ones are most of them and are held to it, and the quarantine is short and names what exists."""

import ast
import datetime
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import plain_only, pure, quarantine
from tests.quarantine import Entry

TESTS = pure.ROOT / "tests"
#: Parts whose rules are pure cores: their files, and the share of these that must be pure.
CORES = ("queue", "placer", "schemas")
PURE_FILES_MIN = 0.85
QUARANTINED_MAX = 5


def functions(path: Path) -> set[str]:
    """Return the names of the test functions of a file."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("part", CORES)
def test_rules_of_cores_are_tested_by_pure_files(part: str) -> None:
    """A file that imports subprocess, socket or threading leaves `make test-pure`: few do, so that it covers the cores."""
    files = sorted((TESTS / part).rglob("test_*.py"))
    impure = [str(path.relative_to(TESTS)) for path in files if not pure.is_pure_file(path)]
    assert files, "the part has tests"
    assert 1 - len(impure) / len(files) >= PURE_FILES_MIN, impure


def test_a_file_that_starts_something_is_not_pure(tmp_path: Path) -> None:
    """In each form of the import, and also through a helper."""
    for number, line in enumerate(
        ("import subprocess", "from multiprocessing import pool", "from tests.system import over_hosts")
    ):
        path = tmp_path / f"test_{number}.py"
        path.write_text(line)
        assert not pure.is_pure_file(path), line
    path = tmp_path / "test_pure.py"
    path.write_text("import os, asyncio\nfrom fairlead_queue.core import QueueCore")
    assert pure.is_pure_file(path)


def test_the_guard_refuses_processes_connections_and_waits() -> None:
    """Each raises where it happens, and what the tested code swallows fails at the end of the test."""
    for start in (
        lambda: subprocess.run(["true"]),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        lambda: time.sleep(0.05),
    ):
        with (
            pytest.raises(pytest.fail.Exception, match="expected a pure test, found"),
            pure.guarded(),
            pytest.raises(RuntimeError, match="a pure test caused"),
        ):
            start()
    with pure.guarded():
        time.sleep(0.001)
    assert subprocess.run([sys.executable, "-c", ""]).returncode == 0


def test_the_quarantine_is_short_and_names_existing_tests() -> None:
    """Each entry has a reason and a date, and its test exists."""
    listed = quarantine.entries()
    assert len(listed) <= QUARANTINED_MAX, "fix the cause of one before another is listed"
    assert len({one.test for one in listed}) == len(listed)
    for one in listed:
        path, _, name = one.test.partition("::")
        assert name in functions(pure.ROOT / path), f"{one.test} does not exist"
        assert one.reason
        assert datetime.date.fromisoformat(one.since) <= datetime.datetime.now(datetime.UTC).date()


def test_each_test_of_plain_python_only_exists_and_has_a_reason() -> None:
    """A name that no test has any more would hide nothing, and a test is named once."""
    listed = plain_only.entries()
    assert len({one.test for one in listed}) == len(listed)
    for one in listed:
        path, _, name = one.test.partition("::")
        assert name in functions(pure.ROOT / path), f"{one.test} does not exist"
        assert one.reason


def test_only_failures_of_listed_tests_are_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listed test is excused with its reason, whatever its parameters; others, and other outcomes, are unchanged."""
    listed = (Entry("tests/a/test_b.py::test_c", "times out on a loaded machine", "2026-01-31"),)
    monkeypatch.setattr(quarantine, "entries", lambda: listed)

    def report(name: str, outcome: str) -> pytest.TestReport:
        made = pytest.TestReport(name, ("", 0, ""), {}, outcome, "traceback", "call")  # type: ignore[arg-type] -- one of three words
        return quarantine.excused(made)

    excused = report("tests/a/test_b.py::test_c[nats-1]", "failed")
    assert (excused.outcome, excused.wasxfail) == ("skipped", "quarantined: times out on a loaded machine")
    assert excused.longreprtext == "traceback"
    assert report("tests/a/test_b.py::test_c", "passed").outcome == "passed"
    for other in ("tests/a/test_b.py::test_cc", "tests/a/test_c.py::test_c"):
        assert report(other, "failed").outcome == "failed"
