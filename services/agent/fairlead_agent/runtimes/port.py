"""What a runtime can do. Adapters: `process.ProcessRuntime` and `docker.DockerRuntime`; one contract suite.

A runtime never decides: it starts what it is told, once, and says what happened through `RunWatcher`,
in the event loop. No method blocks the loop; slow work goes to threads and is answered later.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from fairlead_agent.launch import Launch
from fairlead_agent.run import Exit, Found, RunKey
from fairlead_schemas.events import StartFault

#: Of what a command has printed, the end.
SAID_BYTES_MAX = 1000


class Executed(NamedTuple):
    """A command that was run beside a run."""

    #: None: it could not be run, took too long, or was killed.
    code: int | None
    said: str = ""


class RunWatcher(Protocol):
    """Who is told; each method at most once per run and process (after `adopt`, again for what still runs)."""

    def preparing(self, key: RunKey) -> None:
        """It is not started yet, and its stderr says what it waits for."""
        ...

    def started(self, key: RunKey, image: str = "") -> None:
        """`image`: what runs, by its digest; "" for a process."""
        ...

    def start_failed(self, key: RunKey, message: str, fault: StartFault = "") -> None: ...

    def exited(self, key: RunKey, exit: Exit) -> None: ...


class Runtime(Protocol):
    """One way to run programs."""

    #: "process" or "docker", as the inventory states it.
    name: str

    async def open(self, watcher: RunWatcher) -> None:
        """Get ready. Raises RuntimeUnfit with a sentence that says how to mend it."""
        ...

    async def adopt(self, keys: Collection[RunKey], epochs: Mapping[RunKey, int] | None = None) -> dict[RunKey, Found]:
        """Look for runs that an earlier agent process left, and watch those that still run. What is found of
        this node's runs beyond `keys`, or under another epoch than the journal's, is killed: no journal knows it. What ran under another journal of the same
        directory is gone when this returns; raises RuntimeUnfit where it does not go."""
        ...

    async def prepare(self, launch: Launch) -> None:
        """Get what the start would wait for (an image), for a run whose ranks are to start together. Raises Unlaunchable."""
        ...

    def start(self, launch: Launch) -> None:
        """Start a run; the watcher hears `started` or `start_failed`, now or later."""
        ...

    def terminate(self, key: RunKey) -> None:
        """Ask it to end (TERM to all of it). Nothing happens when it has ended or has not started."""
        ...

    def kill(self, key: RunKey) -> None:
        """End it (KILL to all of it)."""
        ...

    def signal(self, key: RunKey, name: str) -> None:
        """A signal by its name ("SIGUSR1") to the run's program itself, not to its children. As with `terminate`."""
        ...

    async def exec(self, key: RunKey, argv: Sequence[str], timeout_s: float, env: Mapping[str, str]) -> Executed:
        """Run a command beside the run's program: where and as what that runs, with its environment and `env`. One that
        takes longer is not waited for; it ends with the run at the latest. Never raises for what the command does."""
        ...

    def checkpoint_file(self, key: RunKey) -> Path:
        """Where the run's word that it has saved is to be found on this machine (of time 0, or not there: none yet)."""
        ...

    def release(self, key: RunKey) -> None:
        """Its end is journalled: the runtime need not remember it; of its files the newest few are kept."""
        ...

    async def look_at_directories(self) -> None:
        """Remove files of ended runs that are too old or too many (run_directory.Keep)."""
        ...

    def output(self, key: RunKey) -> tuple[Path, Path]:
        """Files of its stdout and stderr, whether they exist or not."""
        ...

    async def owners(self, pids: Collection[int]) -> dict[int, RunKey]:
        """Which of these processes of the machine are of which of this node's runs, children and all; others are left out."""
        ...

    def programs(self) -> dict[RunKey, int]:
        """The pid on this machine of each running run's first process, where it is known."""
        ...

    def injection(self, gpus: Sequence[str]) -> str:
        """How these GPUs of the node get into what it runs: "environment", "cdi", "device-request", "simulated"; "" where there
        are none, or before `open`."""
        ...

    async def close(self) -> None:
        """Let go of everything; runs go on."""
        ...


class RuntimeUnfit(Exception):
    """The runtime cannot work on this machine; the message says what is missing."""
