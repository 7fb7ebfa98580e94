"""File in a node's directory that says why its agent cannot work there, until an agent works.

Agents that share a process write it, because their process lives on and has no exit code that shows the refusal. `fairlead up` and
`fairlead doctor` read it. It is only a note for people: a disk that takes no file loses it, and the log has the line.
"""

import contextlib
from pathlib import Path

import msgspec

from fairlead_schemas.wire.conditions import Condition

NAME = "refusal.json"
DIRECTORY = "agent-"

_kept = msgspec.json.Decoder(Condition)


def keep(directory: Path, reason: str) -> None:
    """Write it, in one step."""
    draft = directory / f".{NAME}"
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(Condition(code="agent_refuses", message=reason)))
        draft.replace(directory / NAME)


def forget(directory: Path) -> None:
    """Remove it, where there is one."""
    with contextlib.suppress(OSError):
        (directory / NAME).unlink(missing_ok=True)


def read(data: Path) -> dict[str, Condition]:
    """Return {node: why its agent refuses} of the nodes with a directory in `data`, in order of their names."""
    found: dict[str, Condition] = {}
    for path in sorted(data.glob(f"{DIRECTORY}*/{NAME}")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            found[path.parent.name.removeprefix(DIRECTORY)] = _kept.decode(path.read_bytes())
    return found
