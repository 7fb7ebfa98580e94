"""Lines of a job's output that say which rank they are of: those of launchers that start several processes on a node. Pure."""

import re
from collections.abc import Sequence

import msgspec

from fairlead_schemas.policies.launchers import launcher_of
from fairlead_schemas.wire.events import Part

#: As Fairlead's own launcher writes them, and as mpirun does with its tags on: "[1,3]<stdout>:".
_TAG = re.compile(rb"\[(?:rank (\d+)\] |\d+,(\d+)\]<std(?:out|err)>: ?)")


class _Words(msgspec.Struct):
    """The part of a job file that says who starts the processes."""

    command: list[str] = []
    launcher: str = ""
    processesPerNode: int | None = None  # noqa: N815 -- the job file's spelling


_decoder = msgspec.json.Decoder(_Words)


def tagged_ranks(spec: bytes, parts: Sequence[Part], tasks: bool) -> int | None:
    """Return the number of ranks in the job's tagged lines; None where its lines carry no tags. `tasks`: its units are
    tasks.
    """
    try:
        words = _decoder.decode(spec)
    except msgspec.MsgspecError:
        return None
    launcher = launcher_of(words.launcher, words.command)
    if launcher not in ("mpi", "env"):
        return None
    slots = [
        words.processesPerNode or (part.tasks if tasks else len(part.instances or part.gpus) or 1) for part in parts
    ]
    return sum(slots) if launcher == "mpi" or max(slots, default=1) > 1 else None


def split(line: bytes) -> tuple[int | None, bytes]:
    """(the rank that the line is tagged with, the line without it)."""
    found = _TAG.match(line)
    return (int(found[1] or found[2]), line[found.end() :]) if found is not None else (None, line)
