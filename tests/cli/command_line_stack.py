"""A stack of this machine that tests use by its command line alone."""

import os
import subprocess
import sys
from pathlib import Path

from fairlead.stack import state

COMMAND_S = 120


class CommandLineStack:
    """The command line used on one data directory."""

    def __init__(self, data: Path) -> None:
        self.data = data
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FAIRLEAD_") and k != "NATS_URL"}
        self.env = {**clean, "FAIRLEAD_DATA": str(data), "FAIRLEAD_USER": "ada"}

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """One command line."""
        argv = [sys.executable, "-m", "fairlead", *words]
        return subprocess.run(argv, env=self.env, cwd=self.data, capture_output=True, text=True, timeout=COMMAND_S)

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """One command line that continues."""
        argv = [sys.executable, "-m", "fairlead", *words]
        return subprocess.Popen(argv, env=self.env, cwd=self.data, stdout=subprocess.DEVNULL, text=True)

    def ok(self, *words: str) -> str:
        """One command line that must succeed; what it printed."""
        ran = self.run(*words)
        assert ran.returncode == 0, f"{words}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def up(self, *more: str) -> None:
        """Start it without sign-on: tests send requests of their own."""
        self.ok("up", "--detach", "--port", "0", "--nodes", "2", *(more or ("--open",)))

    @property
    def url(self) -> str:
        """Address of the gateway."""
        there = state.load(self.data)
        assert there is not None
        return there.url

    def process(self, name: str) -> state.Running:
        there = state.load(self.data)
        assert there is not None
        return next(process for process in there.processes if process.name == name)
