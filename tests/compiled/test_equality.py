"""Compiled cores decide and fold exactly as plain Python, which is the reference."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead_replay.compiled import cores_build
from tests.compiled import seeds

ROOT = Path(__file__).parents[2]
#: Seeds compared, so many by each test.
SEEDS, EACH = 50, 5

pytestmark = [
    pytest.mark.connected,
    pytest.mark.skipif(cores_build() != "compiled", reason="compiled: the cores are plain Python (make test-compiled)"),
]


@pytest.mark.parametrize("first", range(1, SEEDS, EACH))
def test_the_same_seed_gives_the_same_log(first: int) -> None:
    """Byte for byte: the world of a seed, with its faults, commands and clock, on compiled cores and on plain ones."""
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [sys.executable, "-m", "tests.compiled.seeds", str(first), str(first + EACH - 1)]
    child = subprocess.Popen(words, cwd=ROOT, env=plain, stdout=subprocess.PIPE, text=True)
    compiled = seeds.lines(first, first + EACH - 1)
    printed = child.communicate()[0].splitlines()
    assert printed[0] == "plain Python"
    assert len(printed) == EACH + 1
    assert compiled[1:] == printed[1:]
