"""docs/reference/python-client.md: its programs run as they stand there, against a real stack."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.cluster import StackCluster

pytestmark = [pytest.mark.nats, pytest.mark.slow]

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "python-client.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StackCluster]:
    """A stack with one node."""
    cluster = StackCluster(tmp_path / "data", nodes=1, environment={"PATH": "/usr/bin:/bin"})
    cluster.start()
    yield cluster
    cluster.stop()


def printed(program: str, cluster: StackCluster) -> list[str]:
    """Lines that a program of the page prints."""
    environment = {**os.environ, "FAIRLEAD_URL": f"http://127.0.0.1:{cluster.port}", "FAIRLEAD_USER": "ada"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_programs_of_the_page_run(cluster: StackCluster) -> None:
    """A job's end and output, a refusal as an error, and the same by coroutines."""
    assert len(PROGRAMS) == 2
    first, second = (printed(program, cluster) for program in PROGRAMS)
    assert first[:2] == ["succeeded 0", "hello"]
    assert first[2].startswith("refused: ")
    assert second[0] == "['succeeded', 'succeeded']"
    assert second[1] == "fairlead.job.submitted.v1"
