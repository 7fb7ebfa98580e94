"""Watcher of applications: a program that is not executed yet, one that serves later, and one that has no application."""

import asyncio
import socket
from typing import cast

import pytest

from fairlead_agent.core.ledger import Accepted, RunEntry
from fairlead_agent.core.runs import RunEvent, RunKey, RunNotAlive, RunServes
from fairlead_agent.linux.run_apps import RunApp
from fairlead_agent.shell import app_watcher
from fairlead_agent.shell.app_watcher import AppWatcher
from fairlead_agent.shell.run_connections import NotRunning, RunConnections, RunPresences
from tests.kit.eventually import eventually_async

KEY = RunKey("7", 1, 0)


class Programs:
    """As much of connections as the watcher needs."""

    def __init__(self, without: int) -> None:
        #: Looks that still find another environment; and whether the app takes connections.
        self.without, self.looks, self.listens = without, 0, True
        #: Looks that the job file wants once it has served.
        self.alive = ""

    def app(self, key: RunKey) -> RunApp:
        """Return the app of the run, once its program is executed."""
        self.looks += 1
        if self.looks <= self.without:
            raise NotRunning("the run has no application")
        return RunApp("http", 80, "", "", "", self.alive)

    async def to_app(self, key: RunKey) -> tuple[socket.socket, RunApp]:
        """Return a connection to it."""
        if not self.listens:
            raise ConnectionRefusedError
        return socket.socketpair()[0], self.app(key)


class Watched:
    """A watcher of one run. Use `async with Watched(programs) as watched`."""

    def __init__(self, programs: Programs, *, ready: bool = False) -> None:
        self.events: list[RunEvent] = []
        self.presences = RunPresences()
        self.watcher = AppWatcher(cast(RunConnections, programs), self.presences, self.events.append)
        self.run = RunEntry(KEY, Accepted(job="7", attempt=1, rank=0, epoch=1, app_ready=ready))

    async def __aenter__(self) -> "Watched":
        self._task = asyncio.create_task(self.watcher.run())
        self.watcher.hold(self.run)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look without pauses."""
    monkeypatch.setattr(app_watcher, "LOOK_S", 0.001)
    monkeypatch.setattr(app_watcher, "ALIVE_SECOND_S", 0.001)


async def test_a_program_that_is_executed_late_is_found() -> None:
    """Its process has the environment of the one that starts it until then: that is no proof that it has no application."""
    async with Watched(Programs(without=5)) as watched:
        await eventually_async(lambda: watched.events == [RunServes(KEY)])
        assert watched.presences.of({KEY}) == {KEY: 0}


async def test_an_app_that_serves_later_is_reported_once() -> None:
    """When it takes a connection for the first time."""
    programs = Programs(without=0)
    programs.listens = False
    async with Watched(programs) as watched:
        await eventually_async(lambda: programs.looks > 3)
        assert watched.events == []
        programs.listens = True
        await eventually_async(lambda: watched.events == [RunServes(KEY)])
        looks = programs.looks
        await asyncio.sleep(0.02)
        assert programs.looks == looks


async def test_a_run_without_an_app_is_let_go() -> None:
    """After a bounded number of looks; there is no presence of it."""
    programs = Programs(without=1_000_000)
    async with Watched(programs) as watched:
        await eventually_async(lambda: programs.looks == app_watcher.LOOKS_WITHOUT)
        await asyncio.sleep(0.02)
        assert programs.looks == app_watcher.LOOKS_WITHOUT and watched.events == []
        assert watched.presences.of({KEY}) == {}


async def test_an_adopted_app_that_has_served_is_not_asked() -> None:
    """A new agent process knows it by its journal; presence of people is looked at again."""
    async with Watched(Programs(without=0), ready=True) as watched:
        await eventually_async(lambda: watched.presences.of({KEY}) == {KEY: 0})
        assert watched.events == []


async def test_a_run_may_end_while_others_are_looked_at() -> None:
    """It is not looked at any more, and the agent continues."""
    other = RunKey("8", 1, 0)

    class Ends(Programs):
        def app(self, key: RunKey) -> RunApp:
            watched.watcher.let_go(other)
            assert key == KEY
            return super().app(key)

    watched = Watched(Ends(without=5))
    watched.watcher.hold(watched.run)
    watched.watcher.hold(RunEntry(other, Accepted(job="8", attempt=1, rank=0, epoch=1)))
    async with watched:
        await eventually_async(lambda: watched.events == [RunServes(KEY)])
        assert watched.presences.of({KEY, other}) == {KEY: 0}


async def test_an_app_that_answers_no_more_is_reported_after_as_many_looks_as_its_file_says() -> None:
    """Looks in a row: one that it answers begins them again. An app without a check may be silent indefinitely."""
    programs = Programs(without=0)
    programs.alive = "1 3 "
    async with Watched(programs) as watched:
        await eventually_async(lambda: watched.events == [RunServes(KEY)])
        seen = programs.looks
        await eventually_async(lambda: programs.looks > seen + 5)
        assert watched.events == [RunServes(KEY)]
        programs.listens = False
        await eventually_async(lambda: len(watched.events) == 2)
        (dead,) = watched.events[1:]
        assert isinstance(dead, RunNotAlive) and dead.key == KEY and "3 times in a row" in dead.message


async def test_a_run_that_has_ended_is_not_looked_at_any_more() -> None:
    """Its app answers nothing, and is not dead."""
    programs = Programs(without=0)
    programs.alive = "1 1 "
    async with Watched(programs, ready=True) as watched:
        await eventually_async(lambda: watched.watcher._alive)
        watched.watcher.let_go(KEY)
        programs.listens = False
        assert watched.watcher._alive == {} and watched.events == []
