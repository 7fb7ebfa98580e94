"""Levels of the log's format: what is not raised is not written, and a reader that meets more than it knows says so."""

import asyncio
from functools import reduce
from operator import or_
from typing import Any

import msgspec
import pytest
import structlog

from fairlead_bus import bus_faults
from fairlead_bus.core import Decision
from fairlead_bus.input_source import CommandSource
from fairlead_bus.log import LogReader
from fairlead_bus.port import Bus, LogDamaged
from fairlead_bus.service import EXIT_OK, Service
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import levels, subjects
from fairlead_schemas.wire.commands import CancelJob
from fairlead_schemas.wire.commit import (
    Commit,
    CommitUndecodable,
    NewerLevel,
    commit_hash,
    decode_commit,
    decode_envelope,
    decode_known,
    encode_commit,
)
from fairlead_schemas.wire.conditions import EXIT_NEWER
from tests.bus.commits import commit
from tests.bus.counting import CountingCore, command
from tests.bus.worlds import BusWorld
from tests.kit.commits import commit_of
from tests.kit.eventually import eventually_async
from tests.schemas.examples import EVENTS

NEXT = levels.LEVEL + 1
HELD = ev.JobHeld(cause="cmd:c1", job="1", by="ada")


def of_level(level: int, *, n: int = 1, prev: bytes | None = None, events: list[ev.Event] | None = None) -> bytes:
    """Bytes of a commit of the access service at a level."""
    made = commit_of(events or [HELD], writer="access", n=n, basis=0, at_ns=n)
    return encode_commit(msgspec.structs.replace(made, level=level, prev=commit_hash(prev) if prev else made.prev))


def test_the_first_level_is_not_in_the_bytes() -> None:
    """Logs whose level was never raised have the bytes that they always had."""
    assert b"level" not in of_level(levels.FIRST)
    assert decode_commit(of_level(levels.FIRST)).level == levels.FIRST
    assert decode_commit(of_level(levels.LEVEL)).level == levels.LEVEL


def test_tables_of_levels_name_what_there_is() -> None:
    """Types and fields of the tables exist, and no level is above the one that this version knows."""
    types: dict[str, type] = {kind.__name__: kind for kinds in ev.EVENTS_OF.values() for kind in kinds}
    assert set(levels.SINCE) <= types.keys()
    assert all(field in types[kind].__struct_fields__ for kind, field in levels.FIELDS_SINCE)
    found = {*levels.SINCE.values(), *levels.FIELDS_SINCE.values()}
    assert max(found) == levels.LEVEL and min(found) > levels.FIRST


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_older_version_refuses_an_event_of_a_newer_level(event: ev.Event) -> None:
    """Each type, read by a version that lacks it: newer at a level above its own, damage at a level that it knows. The version
    that has the type reads it."""
    kinds: list[Any] = [kind for made in ev.EVENTS_OF.values() for kind in made if kind is not type(event)]
    fields = msgspec.structs.fields(Commit)
    older = msgspec.defstruct(
        "Commit",
        [
            (field.name, list[reduce(or_, kinds)])
            if field.name == "events"
            else (field.name, field.type, *([field.default] if field.name == "level" else []))
            for field in fields
        ],
        kw_only=True,
        forbid_unknown_fields=True,
    )
    decoder: Any = msgspec.json.Decoder(older)
    newer = of_level(levels.LEVEL, events=[event])
    assert decode_commit(newer).events == [event]
    with pytest.raises(NewerLevel, match=rf"newer than I know, level {levels.LEVEL}: upgrade me .* up to 1\)"):
        decode_known(decoder, newer, levels.FIRST)
    with pytest.raises(CommitUndecodable) as raised:
        decode_known(decoder, of_level(levels.FIRST, events=[event]), levels.FIRST)
    assert not isinstance(raised.value, NewerLevel)


def test_a_field_counts_where_it_has_another_value_than_its_default() -> None:
    """A version that writes the default writes nothing that an older one would not know."""
    fields = {("JobHeld", "by"): 4, ("JobSubmitted", "name"): 9}
    plain = ev.JobHeld(cause="cmd:c1", job="1")
    assert levels.required([plain], {}, fields) == (levels.FIRST, "")
    assert levels.required([plain, HELD], {}, fields) == (4, "JobHeld.by")
    assert levels.required([HELD], {"JobHeld": 5}, fields) == (5, "JobHeld")


def test_levels_never_fall() -> None:
    """A commit with the event counts as of its level already."""
    raised = ev.LevelRaised(cause="cmd:c1", level=2)
    assert levels.level_after(1, [HELD]) == 1
    assert levels.level_after(1, [HELD, raised]) == 2
    assert levels.level_after(3, [raised]) == 3
    with pytest.raises(
        levels.LevelTooLow, match=r"LevelRaised needs level 2 .* has level 1: .*fairlead upgrade raise 2"
    ):
        levels.check_writable(1, [raised])
    levels.check_writable(2, [raised])


async def test_a_reader_of_a_newer_level_ends_with_its_own_words_and_code(world: BusWorld) -> None:
    """Readers that decode events, and those that do not; neither calls the log damaged. An archive takes the commit."""
    bus = await world.connect()
    payload = of_level(NEXT)
    await bus.append(subjects.LOG, subjects.log("access"), payload, expected=0)
    for read in (lambda reader: reader.next(), lambda reader: reader.next_checked()):  # type: ignore[misc]
        reader = LogReader(bus)
        with pytest.raises(LogDamaged, match=f"newer than I know, level {NEXT}: upgrade me") as raised:
            list(await read(reader))
        await reader.close()
        with structlog.testing.capture_logs() as lines:
            assert bus_faults.end_service("queue", raised.value) == EXIT_NEWER
        assert lines[0]["condition"] == "log_newer" and "damaged" not in lines[0]["event"]
        assert "`fairlead upgrade plan`" in lines[0]["hint"]
    assert decode_envelope(payload).level == NEXT


class RaisingCore(CountingCore):
    """A core of a version to come: its answer to a command has an event that needs level 2."""

    def decide(self, inputs: Any, now_ns: int) -> Decision:
        made = super().decide(inputs, now_ns)
        if not any(isinstance(each, CancelJob) for item in inputs for each in item.body):
            return made
        return Decision([*made.events, ev.LevelRaised(cause="cmd:x", level=1)], made.cursors)


def _service(bus: Bus, core: type[CountingCore], instance: str = "a") -> Service[Any]:
    return Service(bus, core, writer="queue", sources=[CommandSource("queue")], instance=instance)


async def test_what_is_above_the_level_is_not_written_until_it_is_raised(world: BusWorld) -> None:
    """The command is answered as rejected, with the level in its words, and the service continues. Once another writer has raised the
    level, the same is committed, and every commit states the level; also after a restart from a snapshot."""
    bus = await world.connect()
    running = _service(await world.connect(), RaisingCore)
    task = asyncio.create_task(running.run())
    await bus.append(subjects.CMD, subjects.cmd("queue"), command(1))
    await eventually_async(lambda: running.commits == 1)
    assert [type(event) for event in decode_commit((await _newest(bus)).payload).events] == [ev.CommandRejected]
    await bus.append(
        subjects.LOG, subjects.log("access"), of_level(2, events=[ev.LevelRaised(cause="cmd:c9", level=2)]), expected=0
    )
    await eventually_async(lambda: running.level == 2)
    await bus.append(subjects.CMD, subjects.cmd("queue"), command(2))
    await eventually_async(lambda: running.commits == 2)
    assert decode_commit((await _newest(bus)).payload).level == 2
    await running.stop()
    assert await asyncio.wait_for(task, 60) == EXIT_OK
    again = _service(await world.connect(), CountingCore)
    task = asyncio.create_task(again.run())
    await eventually_async(lambda: again.leading)
    assert (again.level, again.folded) == (2, running.folded)
    await again.stop()
    assert await asyncio.wait_for(task, 60) == EXIT_OK


async def _newest(bus: Bus) -> Any:
    found = await bus.last(subjects.LOG, subjects.log("queue"))
    assert found is not None
    return found


async def test_a_service_that_meets_a_newer_level_ends_and_leaves_the_log(world: BusWorld) -> None:
    """As a process of the old version that waits for its lease while the level is raised."""
    bus = await world.connect()
    running = _service(await world.connect(), CountingCore)
    task = asyncio.create_task(running.run())
    await eventually_async(lambda: running.leading)
    await bus.append(subjects.LOG, subjects.log("access"), of_level(NEXT), expected=0)
    assert await asyncio.wait_for(task, 60) == EXIT_NEWER
    assert await bus.last(subjects.LOG, subjects.log("queue")) is None
    assert b"level" not in commit(1, None)
