"""A few rounds of `make partitions`, in a process of their own: it enters another network."""

import subprocess
import sys

import pytest

from tests.kit import hosts

pytestmark = [
    pytest.mark.nats,
    pytest.mark.slow,
    pytest.mark.skipif(bool(hosts.unfit()), reason=f"hosts: {hosts.unfit()}"),
]


@pytest.mark.parametrize(
    ("runtime", "faults"),
    [("process", "cut,killed,stopped"), pytest.param("docker", "cut,killed", marks=pytest.mark.docker)],
)
def test_no_job_ever_runs_twice(runtime: str, faults: str) -> None:
    """Its node is cut off, with a living agent, a dead one and one that hangs: it ends there before it starts elsewhere."""
    words = ["--rounds", str(faults.count(",") + 1), "--runtime", runtime, "--faults", faults]
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.partitions", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{faults.count(',') + 1} rounds, 0 with an overlap" in done.stdout
