"""Decisions of the storage core: answers to commands, in their order. Nothing happens by time alone."""

from collections.abc import Sequence

from fairlead_bus.core import Decision, Input
from fairlead_storage.decide.commands import StorageDraft, decide_command
from fairlead_storage.state import StorageState


def decide(state: StorageState, inputs: Sequence[Input], now_ns: int) -> Decision:
    """Return the events to commit now."""
    commands = [command for each in inputs for command in each.body]
    cursors = {each.source: each.position for each in inputs}
    if not commands:
        return Decision([], cursors)
    draft = StorageDraft(state, now_ns)
    for command in commands:
        decide_command(draft, command)
    return Decision([*draft.events], cursors)
