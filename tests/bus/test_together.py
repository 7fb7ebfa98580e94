"""Several services in one process: each has its own connection and name in the log; they stop together, with the code of the one
that failed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.eventually import eventually
from tests.kit.nats_server import NatsServer

pytestmark = pytest.mark.nats

SERVICE = """
import asyncio, os, pathlib, structlog
HERE = pathlib.Path(__file__).parent
class Part:
    def __init__(self, bus):
        self.bus, self.end = bus, asyncio.Event()
    async def run(self):
        structlog.get_logger().info("runs")
        (HERE / "runs").touch()
        while not self.end.is_set():
            if (HERE / "fail").exists():
                return 70
            if (HERE / "raise").exists():
                raise AssertionError("a broken invariant")
            await asyncio.sleep(0.02)
        (HERE / "stopped").touch()
        return 0
    async def stop(self):
        self.end.set()
async def build(bus):
    if (HERE / "raise-in-build").exists():
        raise AssertionError("a broken invariant")
    if (HERE / "no-build").exists():
        await asyncio.sleep(3600)
    return Part(bus)
"""


@pytest.fixture
def packages(tmp_path: Path) -> list[Path]:
    """Two packages with a service that marks in its folder what it does."""
    made = [tmp_path / name for name in ("part_one", "part_two")]
    for folder in made:
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "service.py").write_text(SERVICE)
    return made


@contextmanager
def started(packages: list[Path], server: NatsServer) -> Iterator[subprocess.Popen[str]]:
    """Both in one process."""
    environment = {
        **os.environ,
        "FAIRLEAD_NATS": server.url,
        "FAIRLEAD_NATS_MONITOR": server.monitor,
        "PYTHONPATH": str(packages[0].parent),
    }
    argv = [sys.executable, "-m", "fairlead_bus.together", "one=part_one", "two=part_two"]
    with subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def both_run(packages: list[Path]) -> bool:
    """Both have begun their work."""
    return all((folder / "runs").exists() for folder in packages)


def test_a_signal_stops_both(packages: list[Path], fresh_nats: NatsServer) -> None:
    """Each ends by itself, and logs under its own name."""
    with started(packages, fresh_nats) as process:
        eventually(lambda: both_run(packages))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr is not None
        lines = process.stderr.read().replace(" ", "")
    assert all((folder / "stopped").exists() for folder in packages)
    assert '"service":"one"' in lines and '"service":"two"' in lines


def test_the_failure_of_one_ends_both_with_its_code(packages: list[Path], fresh_nats: NatsServer) -> None:
    """The other stops in order."""
    with started(packages, fresh_nats) as process:
        eventually(lambda: both_run(packages))
        (packages[1] / "fail").touch()
        assert process.wait(30) == 70
    assert (packages[0] / "stopped").exists()


@pytest.mark.parametrize("mark", ["raise", "raise-in-build"])
def test_an_error_in_one_ends_both_in_order(packages: list[Path], fresh_nats: NatsServer, mark: str) -> None:
    """The other gives its lease back; the log has the error under the name of the service that raised it."""
    if mark == "raise-in-build":
        (packages[0] / "no-build").touch()  # it is built later: the other one ends while it starts
        (packages[1] / mark).touch()
    with started(packages, fresh_nats) as process:
        if mark == "raise":
            eventually(lambda: both_run(packages))
            (packages[1] / mark).touch()
        assert process.wait(30) == 1
        assert process.stderr is not None
        (line,) = [line for line in process.stderr.read().splitlines() if "a broken invariant" in line]
    assert '"service":"two"' in line.replace(" ", "")
    assert (packages[0] / "stopped").exists() == (mark == "raise")


def test_a_signal_during_a_start_ends_it(packages: list[Path], fresh_nats: NatsServer) -> None:
    """A service that is not built yet does not delay the stop of the others."""
    (packages[0] / "no-build").touch()
    with started(packages, fresh_nats) as process:
        eventually(lambda: (packages[1] / "runs").exists())
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert (packages[1] / "stopped").exists()
