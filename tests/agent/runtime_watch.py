"""A watcher that remembers, and builders of launches, for the tests of runtimes."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlead_agent.core.runs import Exit, ProgramStarted, RunEvent, RunExited, RunKey, RunPreparing, RunStartFailed
from fairlead_agent.launch.plan import Launch, NodePlace, Program, plan
from fairlead_schemas.wire.desired import RunOrder
from fairlead_schemas.wire.events import StartFault
from tests.kit.eventually import eventually_async

PLACE = NodePlace("n1", "127.0.0.1", {"PATH": "/usr/local/bin:/usr/bin:/bin"}, gpus_simulated=True)


def launch(job: str, *command: str, image: str = "", env: dict[str, str] | None = None, **order: Any) -> Launch:
    """A launch of one command."""
    fields: dict[str, Any] = {"attempt": 1, "rank": 0, "epoch": 1, "memory_mib": 64, "cpu_milli": 500, **order}
    return plan(RunOrder(job=job, **fields), Program(command=list(command), image=image, env=env or {}), PLACE)


def incarnation() -> str:
    """Of a journal that no other test has made up. Tags begin with it, and whatever of the machine has such a tag is its runtime's
    to kill: two tests with one incarnation, which may run at the same time, end each other's runs."""
    return secrets.token_hex(6)


class Watch:
    """Events that a runtime has emitted."""

    def __init__(self) -> None:
        self.starts: list[RunKey] = []
        self.images: dict[RunKey, str] = {}
        self.failures: dict[RunKey, str] = {}
        self.faults: dict[RunKey, StartFault] = {}
        self.prepared: list[RunKey] = []
        self.exits: dict[RunKey, Exit] = {}

    def handle(self, event: RunEvent) -> None:
        match event:
            case RunPreparing(key):
                self.prepared.append(key)
            case ProgramStarted(key, image):
                self.starts.append(key)
                self.images[key] = image
            case RunStartFailed(key, message, fault):
                self.failures[key], self.faults[key] = message, fault
            case RunExited(key, exit):
                assert key not in self.exits, f"{key} ended twice"
                self.exits[key] = exit
            case _:
                raise AssertionError(f"no runtime emits {event}")

    async def until(self, met: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Wait until something holds; the runtime emits events meanwhile."""
        await eventually_async(met, within_s=timeout_s)

    async def exit_of(self, key: RunKey) -> Exit:
        """Wait for one run's end."""
        await self.until(lambda: key in self.exits)
        return self.exits[key]


async def until_file(path: Path, content: bytes) -> None:
    """Wait until a file begins with some bytes."""
    await eventually_async(
        lambda: path.exists() and path.read_bytes().startswith(content), f"{path} begins with {content!r}"
    )
