"""Inputs that a core cannot decide upon: found one by one and recorded as rejected, so that none stops a service.

If `decide` raises, that is a bug. If it raises again after every restart, for as long as the input is in its stream,
that would be an outage. Pure: the shell supplies the trial. Start at `without_poison`.
"""

from collections.abc import Callable
from typing import Any

from fairlead_bus.core import Core, Decision, Input
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import Undecodable, digest_of, encode_commands

#: Characters kept of what was raised.
ERROR_CHARS_MAX = 200

#: Decides upon inputs without committing anything; raises what is wrong with them.
type Trial[T] = Callable[[list[Input]], T]


def describe(error: Exception) -> str:
    """Return a description of an error in one bounded line."""
    return f"cannot be decided: {type(error).__name__}: {error}"[:ERROR_CHARS_MAX]


def without_poison[T](item: Input, error: Exception, attempt: Trial[T]) -> T:
    """Return the trial of a message of commands after replacing the commands that make it fail. Raises where even that fails.

    Each command is tried alone; its neighbours in the message were acknowledged and keep their meaning. Where all commands
    pass alone, the culprit is unknown, and all are rejected.
    """
    body = [command if _passes(item, command, attempt) else _replaced(command, error) for command in item.body]
    try:
        return attempt([item._replace(body=body)])
    except Exception:  # noqa: BLE001 -- whatever a core raises; the second trial below is the last
        return attempt([item._replace(body=[_replaced(command, error) for command in item.body])])


def rejected(core: Core, item: Input, error: Exception, now_ns: int) -> Decision:
    """Return the decision to commit for an undecidable input of the core's own kind."""
    return core.reject(item, describe(error), now_ns)


def is_commands(item: Input) -> bool:
    """True for a message of commands."""
    return item.source == subjects.CMD


def _passes(item: Input, command: Any, attempt: Trial[Any]) -> bool:
    try:
        attempt([item._replace(body=[command])])
    except Exception:  # noqa: BLE001 -- the question is whether it raises
        return False
    return True


def _replaced(command: Any, error: Exception) -> Any:
    if isinstance(command, Undecodable):
        return command
    return Undecodable(digest=digest_of(encode_commands([command])), message=describe(error), id=command.id)
