"""One floor plan for all cores: the same paths, the same tables of handlers, the same answers to bytes that are no command."""

import inspect
from importlib import import_module
from typing import Any, get_args

import pytest

from fairlead_bus.core import (
    DIGEST_CHARS,
    UNDECODABLE_CHARS_MAX,
    CommitDraft,
    EventPosition,
    Input,
    apply_events,
    merged,
)
from fairlead_replay import fold
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import COMMIT_BYTES_MAX, COMMIT_EVENTS_MAX, GENESIS, VERSION, Commit

PACKAGES = {
    "queue": "fairlead_queue",
    "placer": "fairlead_placer",
    "telemetry": "fairlead_telemetry.idle",
    "access": "fairlead_access",
    "storage": "fairlead_storage",
}
CORES: dict[str, type[Any]] = dict(fold.CORES)
COMMANDS: dict[str, tuple[type, ...]] = {
    "queue": get_args(cmd.QueueCommand),
    "placer": get_args(cmd.PlacerCommand),
    "telemetry": get_args(cmd.TelemetryCommand),
    "access": get_args(cmd.AccessCommand),
    "storage": get_args(cmd.StorageCommand),
}
WRITERS = sorted(PACKAGES)


def commit(*events: Any, at_ns: int = 50) -> Commit:
    """A commit of these events."""
    return Commit(v=VERSION, writer="queue", n=1, basis=0, at_ns=at_ns, cursors={}, prev=GENESIS, events=list(events))


def test_every_core_is_held_to_the_plan() -> None:
    """A new writer of the log has the same plan."""
    assert sorted(CORES) == WRITERS == sorted(ev.EVENTS_OF)


@pytest.mark.parametrize("writer", WRITERS)
def test_an_event_is_applied_by_the_handler_that_the_table_names(writer: str) -> None:
    """`apply/handlers.py` has the table, and every handler has the one signature."""
    handlers = import_module(f"{PACKAGES[writer]}.apply.handlers")
    assert writer == handlers.WRITER
    known = {kind for kinds in ev.EVENTS_OF.values() for kind in kinds}
    assert set(handlers.HANDLERS) <= known
    assert len(handlers.HANDLERS) >= 9
    for handler in handlers.HANDLERS.values():
        assert list(inspect.signature(handler).parameters) == ["state", "event", "at"], handler


@pytest.mark.parametrize("writer", WRITERS)
def test_a_command_is_decided_by_the_handler_that_the_table_names(writer: str) -> None:
    """`decide/commands.py` has the table, with every command of the writer and no other."""
    commands = import_module(f"{PACKAGES[writer]}.decide.commands")
    assert set(commands.HANDLERS) == set(COMMANDS[writer])
    for handler in commands.HANDLERS.values():
        assert len(inspect.signature(handler).parameters) == 3, handler
    assert callable(commands.decide_command)
    assert callable(import_module(f"{PACKAGES[writer]}.decide.decision").decide)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("id_", ["", "c1"])
def test_bytes_that_are_no_command_get_the_same_answer_from_all(writer: str, id_: str) -> None:
    """Named by the id that could be read, else by the digest; with the whole digest and a bounded reason."""
    poison = cmd.Undecodable(digest="ab" * 32, message="x" * 9000, id=id_)
    decision = CORES[writer]().decide([Input("CMD", 7, [poison])], 1_000)
    (answer,) = [event for event in decision.events if event.cause.startswith("cmd:")]
    assert (answer.cause, answer.command) == (f"cmd:{id_ or ('ab' * 32)[:DIGEST_CHARS]}", id_)  # type: ignore[union-attr]
    assert (answer.code, answer.digest) == ("undecodable", "ab" * 32)  # type: ignore[union-attr]
    assert answer.message == "x" * UNDECODABLE_CHARS_MAX  # type: ignore[union-attr]
    assert decision.cursors == {"CMD": 7}


def test_events_are_applied_in_order_with_their_positions() -> None:
    """A type without a handler has no effect and keeps its index."""

    def note(state: list[Any], event: Any, at: EventPosition) -> None:
        state.append((event.job, at.id, at.sequence, at.index, at.time_ns))

    found: list[Any] = []
    held = [ev.JobHeld(cause="c", job=job, by="") for job in ("1", "2")]
    apply_events({ev.JobHeld: note}, found, 9, commit(held[0], ev.JobsRetired(cause="c", jobs=("0",)), held[1]))
    assert found == [("1", "9.0", 9, 0, 50), ("2", "9.2", 9, 2, 50)]


def test_an_event_with_two_handlers_is_a_defect() -> None:
    """Merged tables do not hide one another's entries."""

    def ignore(state: Any, event: Any, at: EventPosition) -> None:
        """Do nothing."""

    assert merged({ev.JobHeld: ignore}, {ev.JobMoved: ignore}) == {ev.JobHeld: ignore, ev.JobMoved: ignore}
    with pytest.raises(AssertionError, match="two handlers"):
        merged({ev.JobHeld: ignore}, {ev.JobHeld: ignore})


def test_a_draft_knows_what_fits_its_commit() -> None:
    """By the number of events, and by their size."""
    event = ev.JobReleased(cause="c", job="1", by="")
    draft: CommitDraft[None, ev.Event] = CommitDraft(None, 0)
    assert draft.fits(events=COMMIT_EVENTS_MAX) and not draft.fits(events=COMMIT_EVENTS_MAX + 1)
    draft.emit(event, extra_bytes=100)
    assert (draft.events, draft.size) == ([event], draft.EVENT_BYTES + 100)
    left = COMMIT_BYTES_MAX - draft.size - draft.EVENT_BYTES
    assert draft.fits(left) and not draft.fits(left + 1)
