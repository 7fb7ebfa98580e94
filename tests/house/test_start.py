"""Start time of a command: users wait for its imports each time they type one."""

import subprocess
import sys

import pytest

#: What only some verbs need, and what it costs the others is a third of their start.
HEAVY = {"asyncio", "structlog", "nats", "numpy", "duckdb", "docker", "pynvml", "fastapi", "cryptography"}


@pytest.mark.parametrize("module", ["fairlead.main", "fairlead_agent.guard.__main__"])
def test_the_command_and_the_guard_start_without_what_they_seldom_need(module: str) -> None:
    """Import these where they are needed, in the function."""
    said = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout
    assert HEAVY & set(said.split()) == set()
