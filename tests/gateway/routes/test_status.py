"""GET /v1/status and POST /v1/status:raise: who runs, in which versions; a level is not raised while an older process runs."""

import asyncio
from typing import Any

import pytest

from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import StreamCopies, StreamCopy
from fairlead_gateway.monitoring import processes
from fairlead_gateway.monitoring.processes import ProcessTable, server_rows, stream_rows
from fairlead_schemas.wire import levels, subjects
from fairlead_schemas.wire.conditions import PRESENCE_LOST_S, Alive, ProcessPresence, encode_presence
from tests.gateway.access.accounts_world import AccountsWorld
from tests.kit.eventually import eventually_async

LEADERS = {writer: Alive(sequence=7, word=f"{writer}-1") for writer in subjects.WRITERS}


class Table:
    """A table of processes on a bus, with a clock of its own."""

    def __init__(self, leaders: dict[str, Alive] | None = None) -> None:
        self.now = 100.0
        self.bus = MemoryHub().connect()
        self.processes = ProcessTable(lambda: LEADERS if leaders is None else leaders)
        self.processes.monotonic = lambda: self.now

    async def listen(self) -> "Table":
        """Listen, long enough to have received every presence."""
        await self.processes.listen(self.bus)
        self.now += processes.SETTLED_S
        return self

    async def state(self, service: str, name: str, level: int = levels.LEVEL, *, on: str = "", **more: Any) -> None:
        """A process states that it runs (on the subject of the service `on`)."""
        presence = ProcessPresence(
            service=service, instance=name, word=more.pop("word", name), version="1.0", level=level, **more
        )
        await self.bus.publish(subjects.presence(on or service), encode_presence(presence))
        await asyncio.sleep(0)

    async def state_all(self, level: int = levels.LEVEL) -> None:
        """Each writer's leader states that it runs."""
        for writer in subjects.WRITERS:
            await self.state(writer, f"{writer}-1", level)


async def test_leaders_and_standbys_are_told_apart() -> None:
    """By the name that the leader's sign of life states; of other services every process serves. The leader is first."""
    table = await Table().listen()
    await table.state("queue", "queue-0")
    await table.state("queue", "queue-1")
    await table.state("gateway", "g1")
    found = [(row.service, row.name, row.role) for row in table.processes.rows() if row.service in ("queue", "gateway")]
    assert found == [("gateway", "g1", "serves"), ("queue", "queue-1", "leads"), ("queue", "queue-0", "stands_by")]


async def test_two_of_one_name_are_two() -> None:
    """By their random words: an older process cannot hide behind a newer one of its name."""
    table = await Table().listen()
    await table.state_all()
    await table.state("queue", "queue-1", level=1, word="other")
    assert [row.role for row in table.processes.rows() if row.service == "queue"] == ["leads", "stands_by"]
    assert table.processes.hindrances(levels.LEVEL) == ["queue queue-1 (version 1.0) knows levels up to 1"]


async def test_a_process_is_gone_when_it_leaves_or_falls_silent() -> None:
    """And a presence on another service's subject, or of no shape, is of no process."""
    table = await Table({}).listen()
    for name in ("a", "b"):
        await table.state("gateway", name)
    await table.state("gateway", "forged", on="explainer")
    await table.bus.publish(subjects.presence("gateway"), b"\xff")
    await asyncio.sleep(0)
    assert [row.name for row in table.processes.rows()] == ["a", "b"]
    await table.state("gateway", "a", leaves=True)
    table.now += PRESENCE_LOST_S
    assert table.processes.rows() == []


async def test_the_number_of_remembered_processes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service's key could state any number of names. Those that are silent make room."""
    monkeypatch.setattr(processes, "PROCESSES_MAX", 3)
    table = await Table({}).listen()
    for number in range(9):
        await table.state("gateway", f"g{number}")
    assert [row.name for row in table.processes.rows()] == ["g0", "g1", "g2"]
    table.now += PRESENCE_LOST_S
    await table.state("gateway", "new")
    assert [row.name for row in table.processes.rows()] == ["new"]


async def test_what_hinders_a_raise_is_named() -> None:
    """Who listens for a moment only; a process of an older version; a writer without a sign of presence; a leader that states no presence."""
    table = Table()
    await table.processes.listen(table.bus)
    (why,) = table.processes.hindrances(levels.LEVEL)
    assert "ask again" in why
    table.now += processes.SETTLED_S
    await table.state_all()
    assert table.processes.hindrances(levels.LEVEL) == [] and table.processes.raisable() == levels.LEVEL
    await table.state("placer", "old-standby", level=1)
    assert table.processes.hindrances(levels.LEVEL) == ["placer old-standby (version 1.0) knows levels up to 1"]
    assert table.processes.raisable() == 1


async def test_leaders_of_versions_before_levels_count_as_the_first_level() -> None:
    """They answer for their service, and state no name and no presence; a writer without a sign of life is named, too."""
    table = await Table({"queue": Alive(sequence=3)}).listen()
    found = table.processes.hindrances(levels.LEVEL)
    assert found[0] == f"queue {processes.UNSTATED} knows levels up to 1"
    assert found[1:] == [
        f"no {name} is heard: it may be of an older version" for name in subjects.WRITERS if name != "queue"
    ]


def test_servers_are_as_bad_as_their_worst_copy() -> None:
    """By what the leaders of streams know of them; a stream without an answer has no copies."""
    copies: dict[str, StreamCopies | None] = {
        "LOG": StreamCopies(3, (StreamCopy("a"), StreamCopy("b"), StreamCopy("c", is_current=False, lag=9))),
        "CMD": StreamCopies(
            3, (StreamCopy("b"), StreamCopy("a", is_current=False, is_offline=True), StreamCopy("c", is_current=True))
        ),
        "KV_LEASE": None,
    }
    assert [(row.name, row.state, row.lag, row.leads) for row in server_rows(copies)] == [
        ("a", "offline", 0, ["LOG"]),
        ("b", "current", 0, ["CMD"]),
        ("c", "behind", 9, []),
    ]
    assert [(row.name, row.current, row.copies, row.leader) for row in stream_rows(copies)] == [
        ("LOG", 2, 3, "a"),
        ("CMD", 2, 3, "b"),
        ("KV_LEASE", 0, 0, ""),
    ]
    alone: dict[str, StreamCopies | None] = {"LOG": StreamCopies(1, (StreamCopy(""),))}
    assert server_rows(alone) == [] and stream_rows(alone)[0].current == 1


async def test_an_admin_raises_the_level_once_every_process_knows_it() -> None:
    """Refused with the names before; afterwards the log and the status have the level, and a second raise changes nothing."""
    async with AccountsWorld() as world:
        bus, table = world.hub.connect(), world.gateway.processes

        async def state(name: str, level: int, **more: Any) -> None:
            presence = ProcessPresence(service=name, instance=f"{name}-1", version="0.9", level=level, **more)
            await bus.publish(subjects.presence(name), encode_presence(presence))

        await world.gateway.processes.listen(bus)
        table.monotonic = lambda: 1e9
        for writer in subjects.WRITERS:
            await state(writer, 1 if writer == "placer" else levels.LEVEL)
        await eventually_async(lambda: len(table.rows()) >= len(subjects.WRITERS))
        refused = await world.ask("POST", "/v1/status:raise", {"level": levels.LEVEL}, status=409)
        assert (
            refused["type"].endswith("older_process")
            and "placer placer-1 (version 0.9) knows levels up to 1" in refused["detail"]
        )
        assert world.gateway.views.access.level == levels.FIRST
        await state("placer", 1, leaves=True)
        await state("placer", levels.LEVEL)
        await eventually_async(lambda: table.raisable() == levels.LEVEL)
        raised = await world.ask("POST", "/v1/status:raise", {"level": levels.LEVEL})
        assert raised["level"] == levels.LEVEL and raised["hindrances"] == []
        assert (await world.ask("GET", "/v1/status"))["level"] == levels.LEVEL
        again = await world.send("POST", "/v1/status:raise", {"level": levels.LEVEL})
        assert again.status_code in (200, 409) and world.gateway.views.access.level == levels.LEVEL
        await world.ask("POST", "/v1/status:raise", {"level": 0}, status=422)
        await world.ask("POST", "/v1/status:raise", {"level": "2"}, status=422)
        await world.ask("POST", "/v1/status:raise", {"level": levels.LEVEL + 1}, status=409)
