"""Watcher of applications that do not serve yet: asks each again and again, until it answers for the first time.

Start at `AppWatcher.run`.
"""

import asyncio

import structlog

from fairlead_agent.core.ledger import RunEntry
from fairlead_agent.core.runs import Emit, RunKey, RunServes
from fairlead_agent.linux.run_apps import serves
from fairlead_agent.linux.run_ports import NoListener
from fairlead_agent.shell.run_connections import NotRunning, RunConnections

#: Between two looks at the apps that do not serve yet; a start takes seconds, and a look some milliseconds.
LOOK_S = 0.25

_log = structlog.get_logger()


class AppWatcher:
    """Watcher of one node's applications."""

    def __init__(self, connections: RunConnections, emit: Emit) -> None:
        self._connections, self._emit = connections, emit
        self._waiting: set[RunKey] = set()
        self._added = asyncio.Event()

    def hold(self, run: RunEntry) -> None:
        """Look at a run that has started until its application serves, if it has one. Only rank 0 has."""
        if not run.app_ready and not run.key.rank and self._has_app(run.key):
            self._waiting.add(run.key)
            self._added.set()

    def let_go(self, key: RunKey) -> None:
        """Stop looking at a run that has ended."""
        self._waiting.discard(key)

    async def run(self) -> None:
        """Look at those that do not serve yet, without end."""
        while True:
            self._added.clear()
            await asyncio.gather(*(self._look(key) for key in [*self._waiting]))
            if self._waiting:
                await asyncio.sleep(LOOK_S)
            else:
                await self._added.wait()

    def _has_app(self, key: RunKey) -> bool:
        try:
            self._connections.app(key)
        except (NotRunning, OSError):
            return False
        return True

    async def _look(self, key: RunKey) -> None:
        try:
            connection, app = await self._connections.to_app(key)
            ready = await asyncio.to_thread(serves, connection, app)
        except (NotRunning, NoListener, OSError):
            return
        if ready and key in self._waiting:
            self._waiting.discard(key)
            _log.info("application serves", job=key.job, attempt=key.attempt, app=app.profile)
            self._emit(RunServes(key))
