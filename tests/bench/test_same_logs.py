"""Logs of small worlds stay the same, byte for byte, while code is only made faster; `bench.same_logs` compares larger ones."""

from pathlib import Path

import pytest

from bench import same_logs

GOLDEN = Path(__file__).parent / "same_logs.txt"


def test_a_crowded_cluster_decides_as_recorded() -> None:
    """A digest changes with every decision: record it again (`python -m bench.same_logs HERE --philly 16 --jobs 60 >
    tests/bench/same_logs.txt`) in the commit that means to decide otherwise."""
    options = same_logs.options_of(["HERE", "--philly", "16", "--jobs", "60"])
    played = [f"{name}\t{digest}" for name, digest in same_logs.worlds(options)]
    assert GOLDEN.read_text().splitlines() == played


def test_worlds_that_differ_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each, and an exit code."""
    there, here = [("seed 1", "a" * 64), ("seed 2", "b" * 64)], [("seed 1", "a" * 64), ("seed 2", "c" * 64)]
    assert same_logs.compare("main", iter(there), iter(here)) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"seed 2: {'b' * 16} at main, {'c' * 16} here",
        "2 logs, 1 differ",
    ]
    assert same_logs.compare("main", iter(there), iter(there)) == 0
