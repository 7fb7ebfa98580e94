"""A stack as a person has it: started by `fairlead up --detach`, kept by the product's own supervisor, ended by `fairlead down`.

Nothing here knows about faults. Start at `Stack`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from fairlead.client import Client
from fairlead.errors import FairleadError
from fairlead.stack import state
from fairlead.stack.local import AGENTS
from tests.kit.eventually import eventually

READY_S = 90.0
COMMAND_S = 240.0
#: Processes of a stack that may be killed or held, besides its agents.
SERVICES = ("gateway", "queue", "placer", "telemetry", "nats")


class Stack:
    """One stack in a directory of its own, with real agents over simulated GPUs."""

    def __init__(self, data: Path, *, nodes: int = 3, environment: Mapping[str, str] | None = None) -> None:
        self.data, self.nodes = data, nodes
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
        usual = {
            "FAIRLEAD_DATA": str(data),
            "FAIRLEAD_USER": "ada",
            "FAIRLEAD_METRICS": "off",
            "FAIRLEAD_DECISION_WAIT_S": "2",
        }
        self.environment = {**clean, **usual, **(environment or {})}

    # -- life

    def up(self, *words: str, check: bool = True, within_s: float = COMMAND_S) -> "subprocess.CompletedProcess[str]":
        """Run `fairlead up --detach` on a free port."""
        return self.fairlead(
            "up",
            "--open",
            "--detach",
            "--port",
            "0",
            "--nodes",
            str(self.nodes),
            *words,
            check=check,
            within_s=within_s,
        )

    def down(self, *, check: bool = True) -> None:
        """End the stack and every job's processes."""
        self.fairlead("down", "--jobs", check=check)

    def end(self) -> None:
        """End whatever of the stack still runs, after a failure, too."""
        self.fairlead("down", check=False)
        for pid in self.everything():
            send(pid, signal.SIGCONT)
            send(pid, signal.SIGKILL)

    def fairlead(
        self, *words: str, check: bool = True, within_s: float = COMMAND_S
    ) -> "subprocess.CompletedProcess[str]":
        """Run the command as a person would. Raises AssertionError with its words where it fails and `check` is set."""
        done = subprocess.run(
            [sys.executable, "-m", "fairlead", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"fairlead {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    # -- what runs

    @property
    def url(self) -> str:
        """The gateway's address."""
        found = state.load(self.data)
        return found.url if found is not None else ""

    @property
    def nats_url(self) -> str:
        """The bus's address, with its token."""
        found = state.load(self.data)
        return found.nats_url if found is not None else ""

    def client(self, user: str = "ada") -> Client:
        """Return a client of the stack's gateway. Close it."""
        return Client(self.url, user=user)

    def pids(self) -> dict[str, int]:
        """{part: process id} of the parts that live now."""
        found = state.load(self.data)
        parts = [] if found is None else found.processes
        return {part.name: part.pid for part in parts if _lives(part.pid)}

    def agents(self) -> list[str]:
        """Names of the parts that are agents, of one node or of several."""
        return [name for name in self.pids() if name == AGENTS or name.startswith("agent-")]

    def everything(self) -> dict[int, str]:
        """{process id: command line} of all processes that name the stack's directory, jobs' among them."""
        found: dict[int, str] = {}
        wanted = os.fsencode(self.data)
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes()
                if int(entry.name) != os.getpid() and wanted in words + (entry / "environ").read_bytes():
                    found[int(entry.name)] = words.replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
        return found

    def spawners(self) -> list[int]:
        """Process ids of the programs that start jobs for the agents."""
        return [pid for pid, words in self.everything().items() if "spawner.py" in words]

    def signal(self, part: str, number: signal.Signals) -> bool:
        """Send a signal to a part; False where it does not live."""
        pid = self.pids().get(part)
        return pid is not None and send(pid, number)

    # -- what it answers

    def until(self, condition: Callable[[], object], what: str, within_s: float = READY_S, look_s: float = 0.2) -> None:
        """Wait for a condition. Raises AssertionError with the ends of all logs."""
        not_yet = (FairleadError, httpx.HTTPError, OSError)
        eventually(condition, what, within_s=within_s, not_yet=not_yet, look_s=look_s, logs=self.logs)

    def readyz(self) -> tuple[int, dict[str, Any]]:
        """Status and document of /readyz; (0, {}) where no person answers."""
        try:
            answer = httpx.get(f"{self.url}/readyz", timeout=5)
            return answer.status_code, answer.json()
        except (httpx.HTTPError, ValueError, httpx.InvalidURL):
            return 0, {}

    def wait_ready(self, within_s: float = READY_S) -> float:
        """Wait until the stack says that it is ready; return the seconds that took."""
        began = time.monotonic()
        self.until(lambda: self.readyz()[0] == 200, "the stack is ready", within_s)
        return time.monotonic() - began

    def wait_whole(self) -> None:
        """Wait until no condition holds: services without which jobs run are back as well."""
        self.until(lambda: (found := self.readyz())[0] == 200 and not found[1]["conditions"], "no condition holds")

    def doctor(self) -> dict[str, str]:
        """{look or condition: what to type} of everything that `fairlead doctor` finds bad."""
        found = json.loads(self.fairlead("doctor", "-o", "json", check=False).stdout)
        return {each["what"]: each["fix"] for each in found if each["verdict"] == "bad"}

    def logs(self, chars: int = 600) -> str:
        """Return the end of every log file."""
        files = sorted((self.data / "logs").glob("*.log"))
        return "\n".join(f"--- {path.stem}\n{path.read_text(errors='replace')[-chars:]}" for path in files)


def _lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal to a process; False where it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
