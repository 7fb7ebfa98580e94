"""Watcher of applications: looks at those that do not serve yet until each answers for the first time; and where the job file wants it, further
on, until one answers no more.

Start at `AppWatcher.run`.
"""

import asyncio

import structlog

from fairlead_agent.core.ledger import RunEntry
from fairlead_agent.core.runs import Emit, RunKey, RunNotAlive, RunServes
from fairlead_agent.linux.run_apps import serves
from fairlead_agent.linux.run_ports import NoListener
from fairlead_agent.shell.run_connections import NotRunning, RunConnections, RunPresences
from fairlead_schemas.policies.apps import AliveCheck, parse_alive

#: Between two looks at the apps that do not serve yet; a start takes seconds, and a look some milliseconds.
LOOK_S = 0.25
#: A run is looked at so often before it counts as one without an application: ten seconds.
LOOKS_WITHOUT = 40
#: Seconds that stand for one of a job file's.
ALIVE_SECOND_S = 1.0

_log = structlog.get_logger()


class AppWatcher:
    """Watcher of one node's applications."""

    def __init__(self, connections: RunConnections, presences: RunPresences, emit: Emit) -> None:
        self._connections, self._presences, self._emit = connections, presences, emit
        #: {run: looks that have found no application}
        self._waiting: dict[RunKey, int] = {}
        #: Those of them whose application has served before.
        self._ready: set[RunKey] = set()
        #: Looks at those that have served and must go on answering.
        self._alive: dict[RunKey, asyncio.Task[None]] = {}
        self._added = asyncio.Event()

    def hold(self, run: RunEntry) -> None:
        """Look at a run that has started: whether it has an application, and then until that serves. Only rank 0 has one."""
        if not run.key.rank:
            self._waiting[run.key] = 0
            if run.app_ready:
                self._ready.add(run.key)
            self._added.set()

    def let_go(self, key: RunKey) -> None:
        """Stop looking at a run that has ended."""
        self._served(key)
        if (task := self._alive.pop(key, None)) is not None:
            task.cancel()

    def _served(self, key: RunKey) -> None:
        self._waiting.pop(key, None)
        self._ready.discard(key)

    async def run(self) -> None:
        """Look at those that do not serve yet, without end."""
        while True:
            self._added.clear()
            await asyncio.gather(*(self._look(key) for key in [*self._waiting]))
            if self._waiting:
                await asyncio.sleep(LOOK_S)
            else:
                await self._added.wait()

    async def _look(self, key: RunKey) -> None:
        if key not in self._waiting:  # it ended after the round of looks had begun
            return
        if not self._has_app(key):
            # Until its program has been executed, the process has the environment of the one that starts it.
            self._waiting[key] += 1
            if self._waiting[key] >= LOOKS_WITHOUT:
                self.let_go(key)
            return
        self._presences.begin(key)
        if key in self._ready:
            self._served(key)
            self._begin_alive(key)
            return
        try:
            connection, app = await self._connections.to_app(key)
            ready = await asyncio.to_thread(serves, connection, app)
        except (NotRunning, NoListener, OSError):
            return
        if ready and key in self._waiting:
            self._served(key)
            _log.info("application serves", job=key.job, attempt=key.attempt, app=app.profile)
            self._emit(RunServes(key))
            self._begin_alive(key)

    def _has_app(self, key: RunKey) -> bool:
        try:
            self._connections.app(key)
        except (NotRunning, OSError):
            return False
        return True

    # ------------------------------------------------------------------ checks of those that have served

    def _begin_alive(self, key: RunKey) -> None:
        try:
            check = parse_alive(self._connections.app(key).alive)
        except (NotRunning, OSError):
            return
        if check is not None and key not in self._alive:
            self._alive[key] = asyncio.create_task(self._keep_looking(key, check))

    async def _keep_looking(self, key: RunKey, check: AliveCheck) -> None:
        """Look at an application until it has not answered for as many looks in a row as are allowed."""
        failures = 0
        while failures < check.failures:
            await asyncio.sleep(check.every_s * ALIVE_SECOND_S)
            failures = 0 if await self._answers(key, check.path) else failures + 1
        message = f"its application has not answered {check.failures} times in a row, once every {check.every_s} s"
        _log.warning("application is dead", job=key.job, attempt=key.attempt, looks=check.failures)
        self._alive.pop(key, None)
        self._emit(RunNotAlive(key, message))

    async def _answers(self, key: RunKey, path: str) -> bool:
        try:
            connection, app = await self._connections.to_app(key)
            return await asyncio.to_thread(serves, connection, app._replace(ready=path))
        except (NotRunning, NoListener, OSError):
            return False
