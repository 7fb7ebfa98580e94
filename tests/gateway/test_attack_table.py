"""Each attack on the front door: its test fails on a gateway without the guard that stops it (`attack_table.py`)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.attack_table import ATTACKS

#: Attacks of the front door that this table has. Others are those of apps, terminals and files.
NUMBERS = {"A1", "A2", *(f"A{number}" for number in range(9, 18)), "A19", *(f"A{number}" for number in range(21, 25))}
#: Exceptions by which a test says that something is not as it must be.
JUDGED = {"AssertionError", "Failed"}


def test_every_attack_has_a_row() -> None:
    """By number, and each test is named once for each of its guards."""
    assert {row.attack for row in ATTACKS.values()} == NUMBERS
    assert len({(row.test, *sorted(row.guards)) for row in ATTACKS.values()}) == len(ATTACKS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_succeeds_without_its_guard(name: str, tmp_path: Path) -> None:
    """In a process of its own, whose only difference is the switch."""
    row, failures = ATTACKS[name], tmp_path / "failures.json"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.kit.guard_switch",
    ]
    options = ["--without", name, "--failures", str(failures), row.test]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run([*command, *options], capture_output=True, text=True, env=environment, check=False)
    found = json.loads(failures.read_text()) if failures.exists() else []
    judged = [test for test, when, kind in found if when == "call" and kind in JUDGED | {row.harm}]
    assert done.returncode == 1 and judged, f"{row.attack} {row.says}: {found}\n{done.stdout[-3000:]}"
