"""Conditions of a local stack: read from the logs of services that ended upon one, kept in the data directory.

`conditions.json` outlives the stack, so that `fairlead doctor` names the reason after a failed `fairlead up`. The next
`up` removes it, and writes it again where the reason still holds.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from fairlead.errors import FairleadError
from fairlead_schemas.wire.conditions import Condition, ConditionCode

FILE = "conditions.json"
#: A log line with a condition is looked for in so many bytes at the end of a process's log.
TAIL_BYTES = 64 * 1024


class _Line(msgspec.Struct):
    """The fields of a service's last log line that name a condition."""

    condition: ConditionCode
    reason: str


_line = msgspec.json.Decoder(_Line)
_kept = msgspec.json.Decoder(list[Condition])


def logged(logs: Path, names: Iterable[str]) -> list[Condition]:
    """Return the newest condition in the log of each of these processes, without repetitions."""
    found = (_newest(logs / f"{name}.log") for name in names)
    return list(dict.fromkeys(condition for condition in found if condition is not None))


def _newest(path: Path) -> Condition | None:
    try:
        lines = path.read_bytes()[-TAIL_BYTES:].splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            named = _line.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        return Condition(code=named.condition, message=named.reason)
    return None


def save(data: Path, conditions: list[Condition]) -> None:
    """Keep these conditions in the data directory; an empty list removes the file."""
    path = data / FILE
    if not conditions:
        path.unlink(missing_ok=True)
        return
    draft = path.with_name(f".{FILE}")
    draft.write_bytes(msgspec.json.encode(conditions))
    draft.replace(path)


def forget(data: Path, code: ConditionCode) -> None:
    """Remove a condition that a person has dealt with."""
    save(data, [condition for condition in load(data) if condition.code != code])


def load(data: Path) -> list[Condition]:
    """Return the conditions that were kept; none where there is no file that can be read."""
    try:
        return _kept.decode((data / FILE).read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return []


def error_of(conditions: list[Condition], data: str = "") -> FairleadError:
    """Return the error that ends a command because of these conditions, with the commands to type as its hint."""
    message = "; ".join(condition.message for condition in conditions)
    hints = dict.fromkeys(condition.hint(data) for condition in conditions)
    return FairleadError(message, hint="; ".join(hints))
