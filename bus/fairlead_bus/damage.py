"""Ends of services upon damaged streams: exit codes that supervisors know, and one form of log line.

A service that finds its log damaged must not be started again: it would find the same. One that cannot trust the
stream of commands is started again with a pause, because the stream can be mended while the cluster runs.
"""

from typing import cast

import structlog

from fairlead_bus.port import CommandsLost, LogDamaged
from fairlead_schemas.wire.conditions import EXIT_COMMANDS_LOST, EXIT_DAMAGED, Condition

#: Errors that end a service by `end`.
DAMAGES = (LogDamaged, CommandsLost)

log = structlog.get_logger()


def condition_of(error: BaseException | None) -> Condition | None:
    """Return the condition that corresponds to an error, None for every other error."""
    if isinstance(error, LogDamaged):
        return Condition(code="log_damaged", message=str(error))
    if isinstance(error, CommandsLost):
        return Condition(code="commands_lost", message=str(error))
    return None


def leaf(error: BaseException) -> BaseException:
    """Return the first error within nested groups that is no group itself."""
    while isinstance(error, BaseExceptionGroup):
        error = cast(BaseExceptionGroup[BaseException], error).exceptions[0]
    return error


def end(service: str, error: BaseException) -> int:
    """Log why a service ends, in the form that `fairlead up` reads, and return its exit code. Raises the error where
    it is no damage."""
    condition = condition_of(error)
    if condition is None:
        raise error
    words = {"log_damaged": "log damaged, stopped", "commands_lost": "commands lost, stopped"}[condition.code]
    log.critical(words, service=service, condition=condition.code, reason=condition.message, hint=condition.hint())
    return EXIT_DAMAGED if condition.code == "log_damaged" else EXIT_COMMANDS_LOST
