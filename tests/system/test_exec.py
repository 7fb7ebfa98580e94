"""A real stack with sign-on: commands in a process run by `fairlead exec`, over a terminal and over pipes."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairlead_agent.linux.run_ports import held_inodes
from tests.cli.command_line_stack import CommandLineStack
from tests.kit.eventually import eventually

pytestmark = [pytest.mark.nats, pytest.mark.slow]


class Typist:
    """`fairlead exec` with a terminal of its own."""

    def __init__(self, stack: CommandLineStack, *words: str) -> None:
        self._master, slave = pty.openpty()
        argv = [sys.executable, "-m", "fairlead", "exec", *words]
        env = {**stack.env, "TERM": "xterm"}
        self.child = subprocess.Popen(
            argv, env=env, cwd=stack.data, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self.shown = b""

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def until(self, pattern: str, within_s: float = 20.0) -> "re.Match[str]":
        """Read the screen until something is on it."""
        until = time.monotonic() + within_s
        while (found := re.search(pattern, self.shown.decode(errors="replace"))) is None:
            assert time.monotonic() < until, self.shown
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.shown += os.read(self._master, 65536)
                except OSError:  # all of the other side is closed
                    assert re.search(pattern, self.shown.decode(errors="replace")), self.shown
        return found

    def code(self) -> int:
        """Wait for the end; return the exit code."""
        return self.child.wait(timeout=20)


def listening(pid: int) -> set[int]:
    """Return the sockets on which a process and its children listen."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    everywhere = {int(words[9]) for words in lines if words[3] == "0A"}
    return everywhere & held_inodes([pid, *map(int, children)])


def test_commands_run_inside_a_job(tmp_path: Path) -> None:
    """Exit codes, streams, a shell with Ctrl-C; the job's end, and the end of the connection; no port is opened meanwhile."""
    stack = CommandLineStack(tmp_path)
    stack.up("--nodes", "1")
    try:
        job = stack.ok("submit", "--name", "house", "--", "sh", "-c", "echo $$ > main; exec sleep 300").strip()
        eventually(lambda: '"running"' in stack.run("show", job, "-o", "json").stdout)
        ran = stack.run("exec", "house", "--", "sh", "-c", "kill -0 $(cat main) && echo out; echo err >&2; exit 7")
        assert (ran.returncode, ran.stdout, ran.stderr) == (7, "out\n", "err\n")
        by_ssh = stack.run("ssh", job, "--", "kill -0 $(cat main) && echo out; echo err >&2; exit 7")
        assert (by_ssh.returncode, by_ssh.stdout, by_ssh.stderr) == (7, "out\n", "err\n")
        data = os.urandom(3_000_000)
        argv = [sys.executable, "-m", "fairlead", "exec", "-i", job, "--", "cat"]
        echoed = subprocess.run(argv, env=stack.env, cwd=stack.data, input=data, capture_output=True, timeout=60)
        assert (echoed.returncode, echoed.stdout == data) == (0, True)
        agent = stack.process("agents").pid
        before = listening(agent)
        shell = Typist(stack, "-it", job, "--", "sh")
        shell.type("stty size; echo $((6*7)) here\n")
        shell.until("42 here")
        assert listening(agent) == before
        shell.type("sleep 100\n")
        time.sleep(0.5)
        shell.type("\x03")
        shell.type("echo again; exit 5\n")
        shell.until("again\r\n")
        assert shell.code() == 5

        left = Typist(
            stack,
            "-it",
            job,
            "--",
            "sh",
            "-c",
            "trap 'echo hup > left; exit' HUP; echo up; while :; do sleep 0.1; done",
        )
        left.until("up")
        left.child.kill()
        eventually(lambda: stack.run("exec", job, "--", "cat", "left").stdout == "hup\n")

        last = Typist(stack, job)
        last.type("echo st''ands\n")
        last.until("stands")
        assert stack.run("cancel", job).returncode == 0
        assert last.code() in (255, 129, 137)
        last.until("the run has ended|the connection has ended with the run: job")
        refused = stack.run("exec", job, "--", "true")
        assert refused.returncode == 5
        assert "a command runs only inside a job that runs" in refused.stderr
    finally:
        stack.run("down", "--jobs")
