"""Outcomes of commands, by command id: bounded, the newest kept."""

from collections.abc import Callable
from typing import Any

from fairlead_gateway.views.rows import OutcomeRow
from fairlead_schemas.wire import events as ev

#: Outcomes of this many commands make a generation; two generations are kept.
GENERATION = 20_000

#: First letter of command ids that are made from an idempotency key (others are hexadecimal): "k<key>-<digest>".
KEYED = "k"

_REFUSED = (
    ev.CommandRejected,
    ev.NodeCommandRejected,
    ev.TelemetryCommandRejected,
    ev.AccessCommandRejected,
    ev.StorageCommandRejected,
)


def key_in(command: str) -> str:
    """The key that a keyed command's id was made from."""
    return command[len(KEYED) :].partition("-")[0]


#: Effects of an applied change, which its own commit states before or after the answer.
_PARTS = frozenset({ev.QueueConfigured, ev.QueueRemoved, ev.PoolConfigured, ev.PoolRemoved})


class OutcomesView:
    """The first event that a command caused decides its outcome; parts of an applied change are none."""

    def __init__(self) -> None:
        self._young: dict[str, OutcomeRow] = {}
        self._old: dict[str, OutcomeRow] = {}
        #: {key of a keyed command: its id}, for those that are remembered (derived).
        self._keyed: dict[str, str] = {}
        #: Called with (command id, outcome) as outcomes come in.
        self.on_outcome: Callable[[str, OutcomeRow], None] | None = None

    def get(self, command: str) -> OutcomeRow | None:
        """Return the outcome of a command. None: it is not decided yet, unknown, or too old."""
        return self._young.get(command) or self._old.get(command)

    def keyed(self, key: str) -> str:
        """The id of the command that was decided under a key; "" for none that is remembered."""
        return self._keyed.get(key, "")

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def caused(self, event: Any, seq: int) -> None:
        """Fold an event whose cause is a command."""
        command: str = event.cause[4:]
        young = self._young
        if command in young or type(event) in _PARTS:
            return
        outcome = young[command] = _outcome(event, seq)
        if command[:1] == KEYED:
            self._keyed[key_in(command)] = command
        if len(young) >= GENERATION:
            self.fill(young, {})
        if self.on_outcome is not None:
            self.on_outcome(command, outcome)

    def rows(self) -> tuple[dict[str, OutcomeRow], dict[str, OutcomeRow]]:
        """Both generations, older first, for a snapshot."""
        return self._old, self._young

    def fill(self, old: dict[str, OutcomeRow], young: dict[str, OutcomeRow]) -> None:
        """The inverse of `rows`."""
        self._old, self._young = old, young
        self._keyed = {key_in(command): command for command in (*old, *young) if command.startswith(KEYED)}


def _outcome(event: Any, seq: int) -> OutcomeRow:
    if type(event) is ev.JobSubmitted:
        return OutcomeRow(seq, event.job)
    if type(event) is ev.JobRejected:
        return OutcomeRow(seq, "", event.code, event.message, event.field)
    if type(event) is ev.CommandRepeated:
        return OutcomeRow(seq, event.job, repeated=True)
    if type(event) is ev.QueuesApplied:
        return OutcomeRow(seq, applied=(event.configured, event.removed, event.unchanged))
    if isinstance(event, _REFUSED):
        return OutcomeRow(seq, "", event.code, event.message)
    return OutcomeRow(seq, getattr(event, "job", ""))
