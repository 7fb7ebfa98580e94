"""What a runtime can do. Adapters: `process.ProcessRuntime` and `docker.DockerRuntime`; one contract suite.

A runtime never decides: it starts what it is told, once, and says what happened through `RunWatcher`,
in the event loop. No method blocks the loop; slow work goes to threads and is answered later.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from fairlead_agent.launch import Launch
from fairlead_agent.run import Exit, Found, RunKey


class RunWatcher(Protocol):
    """Who is told; each method at most once per run and process (after `adopt`, again for what still runs)."""

    def started(self, key: RunKey) -> None: ...

    def start_failed(self, key: RunKey, message: str) -> None: ...

    def exited(self, key: RunKey, exit: Exit) -> None: ...


class Runtime(Protocol):
    """One way to run programs."""

    #: "process" or "docker", as the inventory states it.
    name: str

    async def open(self, watcher: RunWatcher) -> None:
        """Get ready. Raises RuntimeUnfit with a sentence that says how to mend it."""
        ...

    async def adopt(self, keys: Collection[RunKey]) -> dict[RunKey, Found]:
        """Look for runs that an earlier agent process left, and watch those that still run. What is found of
        this node's runs beyond `keys` is killed: no journal knows it. What ran under another journal of the same
        directory is gone when this returns; raises RuntimeUnfit where it does not go."""
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

    def release(self, key: RunKey) -> None:
        """Its end is journalled: the runtime need not remember it; of its files the newest few are kept."""
        ...

    def output(self, key: RunKey) -> tuple[Path, Path]:
        """Files of its stdout and stderr, whether they exist or not."""
        ...

    async def close(self) -> None:
        """Let go of everything; runs go on."""
        ...


class RuntimeUnfit(Exception):
    """The runtime cannot work on this machine; the message says what is missing."""
