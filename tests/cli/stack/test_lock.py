"""The lock of a data directory: one holder, ended by the kernel, never inherited."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.errors import Conflict
from fairlead.stack import lock, state
from fairlead.stack.local import Stack, StackOptions
from tests.cli.conftest import Run
from tests.kit.eventually import eventually

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_the_second_is_refused_by_the_name_of_the_first(tmp_path: Path) -> None:
    """The holder by command and process id; free again once released, also when released twice."""
    first = lock.take(tmp_path, "fairlead audit")
    with pytest.raises(Conflict, match=rf"in use by `fairlead audit` \(process {os.getpid()}\)") as refused:
        lock.take(tmp_path, "fairlead up")
    assert "try again" in refused.value.hint
    first.release()
    first.release()
    lock.take(tmp_path, "fairlead up").release()


def test_a_killed_holder_holds_nothing_and_neither_do_its_children(tmp_path: Path) -> None:
    """Agents and jobs outlive a killed supervisor; the directory is free all the same."""
    code = f"""
import os, sys, time
from pathlib import Path
from fairlead.stack import lock
from fairlead.stack.processes import Spec, Supervisor
data = Path({str(tmp_path)!r})
taken = lock.take(data, "fairlead up")
kept = Supervisor(data)
kept.add(Spec("child", {SLEEPER!r}, dict(os.environ), 0))
print(kept.pids()["child"], flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = state.identify("child", int(holder.stdout.readline()))
        with pytest.raises(Conflict):
            lock.take(tmp_path, "fairlead up")
        holder.kill()
    try:
        assert state.lives(child)
        lock.take(tmp_path, "fairlead up").release()
    finally:
        os.kill(child.pid, signal.SIGKILL)


def test_the_server_of_a_killed_reader_is_ended_by_the_next_holder(tmp_path: Path) -> None:
    """No other process knows of it, and it has the store open."""
    with subprocess.Popen(SLEEPER) as server:
        left = lock.take(tmp_path, "fairlead audit")
        left.name(state.identify("nats", server.pid))
        left.release()
        lock.take(tmp_path, "fairlead up").release()
        eventually(lambda: server.poll() is not None)


def test_up_leaves_a_directory_in_use_alone(tmp_path: Path) -> None:
    """Nothing is started, and its content stays."""
    (tmp_path / state.FILE).write_text("somebody else's")
    stack = Stack(StackOptions(tmp_path, port=0))
    with lock.held(tmp_path, "fairlead audit"):
        with pytest.raises(Conflict, match="fairlead audit"):
            stack.up()
        stack.down()
    assert (tmp_path / state.FILE).read_text() == "somebody else's"
    assert not (tmp_path / "nats").exists()


@pytest.mark.parametrize("words", [("audit", "verify"), ("replay",), ("audit", "export", "there")])
def test_a_stopped_stack_is_not_read_while_another_holds_it(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Reading starts a server on the store, so it is refused like a second `up`."""
    (tmp_path / "nats" / "store").mkdir(parents=True)
    with lock.held(tmp_path, "fairlead up"):
        ran = run(*words, "--data", str(tmp_path))
    assert ran.code == 5
    assert f"in use by `fairlead up` (process {os.getpid()})" in ran.err
    assert not (tmp_path / "nats" / "nats.conf").exists()


def test_the_bus_that_a_killed_supervisor_left_is_read_where_it_is(tmp_path: Path) -> None:
    """A second server on its store would damage it."""
    from fairlead.commands.audit_options import bus_url

    (tmp_path / "nats" / "store").mkdir(parents=True)
    with subprocess.Popen(SLEEPER) as server:
        gone = state.Running(name="supervisor", pid=server.pid, started="never")
        left = state.StackState(
            url="u",
            nats_url="nats://left",
            supervisor=gone,
            processes=[state.identify("nats", server.pid)],
            ready=True,
            runtime="process",
            nodes=[],
        )
        state.save(tmp_path, left)
        with bus_url(tmp_path, "") as url:
            assert url == "nats://left"
        server.kill()
