"""The supervisor on a machine without some resource: it continues, logs this once, and recovers afterwards."""

import errno
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.stack import state
from fairlead.stack.processes import Spec, Supervisor
from tests.kit.eventually import eventually


class Said:
    """Lines on stderr since the test began (reading takes away what was captured)."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self._text = ""

    def count(self, text: str) -> int:
        self._text += self._capfd.readouterr().err
        return self._text.count(text)


class Disk:
    """Takes what is saved, unless it is full."""

    def __init__(self) -> None:
        self.full = False
        self.refused = 0
        self.saved = 0

    def save(self) -> None:
        if self.full:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.saved += 1


@pytest.fixture
def disk() -> Disk:
    """One that has room."""
    return Disk()


@pytest.fixture
def supervisor(tmp_path: Path, disk: Disk) -> Iterator[Supervisor]:
    """Watches two processes."""
    logs = tmp_path / "logs"
    logs.mkdir()
    kept = Supervisor(logs, disk.save)
    for name in ("a", "b"):
        kept.add(Spec(name, [sys.executable, "-c", "import time; time.sleep(600)"], dict(os.environ), 0))
    kept.watch()
    yield kept
    kept.stop(1.0)


def kill(supervisor: Supervisor, name: str) -> int:
    pid = supervisor.pids()[name]
    os.kill(pid, signal.SIGKILL)
    return pid


def test_a_full_disk_ends_no_supervision(supervisor: Supervisor, disk: Disk, capfd: pytest.CaptureFixture[str]) -> None:
    """The state cannot be saved: crashed processes come back all the same, and it is saved once there is room."""
    disk.full = True
    for name in ("a", "b"):
        old = kill(supervisor, name)
        eventually(lambda n=name, o=old: supervisor.pids().get(n, o) != o, f"{name} comes back")
    eventually(lambda: disk.refused > 2)
    disk.full = False
    eventually(lambda: disk.saved == 1)
    assert supervisor.crashed() == {"a": 1, "b": 1}
    assert Said(capfd).count("cannot write down what runs: [Errno 28]") == 1


def test_a_process_that_cannot_be_started_is_retried(
    supervisor: Supervisor, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One with an unwritable log does not prevent the start of others, and starts once it can; each failure is logged
    once."""
    said = Said(capfd)
    for spell in (1, 2):
        log = tmp_path / "logs" / "a.log"
        log.unlink()
        log.mkdir()
        old = kill(supervisor, "a")
        eventually(lambda n=spell: said.count("cannot start a again") == n)
        other = kill(supervisor, "b")
        eventually(lambda o=other: supervisor.pids().get("b", o) != o, "b is started again although a cannot be")
        assert "a" not in supervisor.pids()
        log.rmdir()
        eventually(lambda o=old: supervisor.pids().get("a", o) != o)
    assert said.count("cannot start a again") == 2
    assert supervisor.crashed() == {"a": 2, "b": 2}


def test_a_private_file_that_cannot_be_written_leaves_no_draft(tmp_path: Path) -> None:
    """A draft holds secrets, and on a full disk one would stay behind at every try."""
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        state.write_private(tmp_path / "taken", b"secret")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
