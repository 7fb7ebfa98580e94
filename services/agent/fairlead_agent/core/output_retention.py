"""Retention of ended runs' output on a node: the bounds, and the runs beyond them. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fairlead_schemas.jobfile.agent_fields import OutputBounds

KEEP_ENDED = 200


class Keep(NamedTuple):
    """Retention bounds for ended runs on a node. The newest run stays, however large it is."""

    runs: int = KEEP_ENDED
    #: Of all their files together; 0: no bound.
    bytes_max: int = 0
    #: Since their end; 0: no bound.
    age_s: float = 0.0
    #: Of the own directories of all ended runs together, without kept outputs.
    work_bytes_max: int = 20 * 2**30
    #: Of the outputs of one run together.
    outputs_bytes_max: int = 10 * 2**30

    def words(self) -> str:
        """Describe the bounds to a person who looks for output that has been removed."""
        bounds = [f"of the newest {self.runs} runs"]
        if self.bytes_max:
            bounds.append(f"{self.bytes_max >> 20} MiB in all")
        if self.age_s:
            bounds.append(f"for {self.age_s / 86400:g} days")
        return f"this node keeps output {', '.join(bounds)}, or less where a job's output.keep is lower"


def expired(found: Sequence[tuple[str, int, float]], own: Mapping[str, OutputBounds], now: float) -> set[str]:
    """Return the runs whose job file's own time is over. `found`: as in `too_much`, in any order."""
    return {name for name, _, ended in found if name in own and 0 < own[name].age_s < now - ended}


def too_much(found: Sequence[tuple[str, int, float]], keep: Keep, now: float) -> int:
    """Return how many of the oldest must go. `found`: (name, bytes, time of the end), oldest first."""
    left = sum(size for _, size, _ in found)
    for index, (_, size, ended) in enumerate(found):
        old = keep.age_s and ended < now - keep.age_s
        large = keep.bytes_max and left > keep.bytes_max and index < len(found) - 1
        if not old and not large:
            return index
        left -= size
    return len(found)
