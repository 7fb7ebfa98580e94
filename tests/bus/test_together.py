"""Several services in one process: each has its own connection and name in the log; they stop together, with the code of the one
that failed."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from threading import Thread, Timer

import msgspec
import pytest
from structlog.testing import capture_logs

from fairlead.stack.nats_server import free_port
from fairlead_bus.main import CannotRestart, keep
from fairlead_bus.port import Bus
from tests.kit.eventually import eventually, eventually_async
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
            if (HERE / "step-down").exists():
                (HERE / "step-down").rename(HERE / "stepped-down")
                (HERE / "runs").unlink()
                return 75
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
def started(packages: list[Path], server: NatsServer, others: str = "") -> Iterator[subprocess.Popen[str]]:
    """Both in one process, which knows the other addresses, too."""
    environment = {
        **os.environ,
        "FAIRLEAD_NATS": others + server.url,
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


def test_a_service_that_steps_down_is_built_again_in_the_same_process(
    packages: list[Path], fresh_nats: NatsServer
) -> None:
    """It is then a standby: nothing need start it again, and what shares its process works on."""
    with started(packages, fresh_nats) as process:
        eventually(lambda: both_run(packages))
        (packages[1] / "step-down").touch()
        eventually(lambda: (packages[1] / "stepped-down").exists() and both_run(packages))
        assert process.poll() is None and not (packages[0] / "stopped").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_process_waits_for_its_bus_and_says_why(packages: list[Path], fresh_nats: NatsServer) -> None:
    """Of several addresses one is dead, one is no nats-server, and one, given twice, is not up yet: a line for each, once for each
    service. Once that one is up, it is used."""
    fresh_nats.stop()
    dead = free_port()
    with socket.create_server(("127.0.0.1", 0)) as other:
        Thread(target=_answer_in_http, args=(other,), daemon=True).start()
        wrong = other.getsockname()[1]
        others = f"nats://127.0.0.1:{dead},nats://127.0.0.1:{wrong},{fresh_nats.url},"
        with started(packages, fresh_nats, others) as process:
            assert process.stderr is not None
            limit = Timer(60, process.kill)  # a cause that is not said must not hold the test
            limit.start()
            waits = (line for line in process.stderr if "waiting for the bus" in line)
            lines = list(islice(waits, 6))
            limit.cancel()
            assert len(lines) == 6, lines
            fresh_nats.start()
            eventually(lambda: both_run(packages))
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            lines.extend(line for line in process.stderr if "waiting for the bus" in line)
    named = Counter(port for line in lines for port in (dead, wrong, fresh_nats.port) if f"127.0.0.1:{port}" in line)
    assert set(named) == {dead, wrong, fresh_nats.port}
    causes = [msgspec.json.decode(line) for line in lines]
    told = Counter((each["service"], each["server"], each["reason"]) for each in causes)
    assert set(told.values()) == {1}


def _answer_in_http(other: socket.socket) -> None:
    """What a web server says to whoever connects to it."""
    with suppress(OSError):
        while True:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


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


class Agent:
    """Agent of a node that runs until it is stopped, or until `error` is set, which it then raises once."""

    def __init__(self, ends: list[BaseException | None]) -> None:
        self._ends, self.stopped = ends, asyncio.Event()

    async def run(self) -> int:
        if self._ends and (error := self._ends.pop(0)) is not None:
            raise error
        await self.stopped.wait()
        return 0

    async def stop(self) -> None:
        self.stopped.set()


async def test_an_agent_that_fails_is_started_again_alone(
    fresh_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is in the log under its name; the other one is the same as before, and a signal ends both."""
    monkeypatch.setenv("FAIRLEAD_NATS", fresh_nats.url)
    built: dict[str, list[Agent]] = {"well": [], "ill": []}
    ends: dict[str, list[BaseException | None]] = {"well": [], "ill": [ValueError("broken"), ValueError("broken")]}
    stop = asyncio.Event()

    def building(name: str) -> asyncio.Task[int]:
        async def build(bus: Bus) -> Agent:
            built[name].append(Agent(ends[name]))
            return built[name][-1]

        return asyncio.ensure_future(keep(name, build, stop))

    with capture_logs() as lines:
        kept = [building(name) for name in built]
        await eventually_async(lambda: len(built["ill"]) == 3)
        await eventually_async(lambda: len(built["well"]) == 1)
        assert not any(task.done() for task in kept)
        stop.set()
        assert await asyncio.gather(*kept) == [0, 0]
    assert [line["event"] for line in lines].count("ended by an error") == 2
    assert len(built["well"]) == 1


async def test_what_cannot_be_replaced_ends_the_process(
    fresh_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that is stuck keeps its files: only a new process can start it, and the others stop in order for that."""
    monkeypatch.setenv("FAIRLEAD_NATS", fresh_nats.url)
    stop = asyncio.Event()
    stuck = Agent([CannotRestart("stuck")])

    async def build(bus: Bus) -> Agent:
        return stuck

    assert await keep("stuck", build, stop) == 1
    assert stop.is_set()
