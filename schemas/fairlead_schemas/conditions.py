"""Conditions: the closed list of reasons why a cluster cannot work until a person has done something.

Each has a code, a sentence with numbers, and the commands to type. A service that ends upon one logs it, the gateway
lists those that it sees in `/readyz`, and `fairlead up` and `fairlead doctor` print them: the same words everywhere.
A new kind of condition is a new code and a row in `REMEDIES`.
"""

from typing import Literal, NamedTuple

import msgspec

#: Exit code of a service whose log is damaged: only a person can help, so a supervisor does not start it again.
EXIT_DAMAGED = 70
#: Exit code of a service whose commands are lost: start it again after a pause, the loss may have been accepted.
EXIT_COMMANDS_LOST = 74

type ConditionCode = Literal["log_damaged", "commands_lost"]


class Remedy(NamedTuple):
    """One command that helps, and its purpose."""

    command: str
    purpose: str


REMEDIES: dict[ConditionCode, tuple[Remedy, ...]] = {
    "log_damaged": (
        Remedy("fairlead audit verify", "names the first bad commit"),
        Remedy("fairlead audit restore SOURCE --data NEW", "makes a new log from an archive or an export"),
    ),
    "commands_lost": (
        Remedy("fairlead audit commands", "lists the sequences that are gone"),
        Remedy("fairlead audit commands --accept-loss", "lets the cluster go on without them"),
    ),
}


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition that holds now."""

    code: ConditionCode
    #: A sentence: what was expected, what was found, which sequences.
    message: str

    def hint(self, data: str = "") -> str:
        """Return the commands to type, in order. `data` is named as `--data` where a command needs one."""
        return "; ".join(f"`{_on(remedy.command, data)}` {remedy.purpose}" for remedy in REMEDIES[self.code])


class Readiness(msgspec.Struct, kw_only=True):
    """The body of `/readyz`."""

    ready: bool
    #: True while the bus answers.
    bus: bool = False
    #: The sequence that the gateway's views stand at, and the log's last one when it was last asked for.
    sequence: int = 0
    log_end: int = 0
    #: Reasons why the cluster cannot work until a person has done something.
    conditions: list[Condition] = []


def _on(command: str, data: str) -> str:
    return command if not data or "--data" in command else f"{command} --data {data}"
