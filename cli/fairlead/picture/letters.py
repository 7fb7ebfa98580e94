"""Groups of GPUs in a picture, by job, user, queue or state, each with a letter and a colour. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable
from enum import StrEnum
from string import ascii_lowercase, ascii_uppercase
from typing import NamedTuple

from fairlead.render import STATE_COLOURS
from fairlead_schemas.queries.cluster_map import ClusterMap, GpuHolder, MapJob
from fairlead_schemas.units.ids import array_of


class By(StrEnum):
    """Criterion by which GPUs are grouped."""

    job = "job"
    user = "user"
    queue = "queue"
    state = "state"


#: Held by jobs beyond those that have a letter; by several groups.
OTHERS, SEVERAL = "+", "%"
#: A user, queue or state of jobs that are not known any more.
UNKNOWN = "?"

_LETTERS = ascii_uppercase + ascii_lowercase
_COLOURS = (
    "cyan", "green", "magenta", "yellow", "blue", "bright_red", "bright_cyan", "bright_green", "bright_magenta",
    "bright_yellow", "bright_blue",
)  # fmt: skip


class Group(NamedTuple):
    """Group of GPUs: `key` names it (an array's id for its elements), `letter` is OTHERS where there were too many groups."""

    key: str
    letter: str
    colour: str
    gpu_milli: int
    jobs: tuple[MapJob, ...]


class Groups:
    """Groups, the one with the most GPUs first, and whose a GPU is."""

    def __init__(self, facts: ClusterMap, by: By) -> None:
        self._key_of: dict[str, str] = {}
        key = _KEYS[by]
        jobs: defaultdict[str, list[MapJob]] = defaultdict(list)
        for job in facts.jobs:
            self._key_of[job.id] = key(job)
            jobs[key(job)].append(job)
        amounts = Counter({name: sum(job.gpu_milli for job in found) for name, found in jobs.items()})
        ordered = sorted(jobs, key=lambda name: (-amounts[name], _natural(name)))
        letters = _letters(ordered)
        self.all = [
            Group(name, letters.get(name, OTHERS), _colour(by, name, index), amounts[name], tuple(jobs[name]))
            for index, name in enumerate(ordered)
        ]
        self._groups = {group.key: group for group in self.all}

    def of(self, holders: list[GpuHolder]) -> Group | None:
        """The one group that holds a GPU; None where several do."""
        keys = {self._key_of[holder.job] for holder in holders}
        return self._groups[keys.pop()] if len(keys) == 1 else None


def _job(job: MapJob) -> str:
    return array_of(job.id) or job.id


_KEYS: dict[By, Callable[[MapJob], str]] = {
    By.job: _job,
    By.user: lambda job: job.user or UNKNOWN,
    By.queue: lambda job: job.queue or UNKNOWN,
    By.state: lambda job: job.state or UNKNOWN,
}


def _natural(name: str) -> tuple[int, str]:
    """Numbers by their size, before words."""
    return (len(name), name) if name.isdecimal() else (1000, name)


def _letters(names: list[str]) -> dict[str, str]:
    """{name: its letter}: its own initial if that is left, else the first one that is; the first 52 have one."""
    free = list(_LETTERS)
    found: dict[str, str] = {}
    for name in names[: len(_LETTERS)]:
        wanted = (name[:1].upper(), name[:1].lower(), free[0])
        found[name] = next(letter for letter in wanted if letter in free)
        free.remove(found[name])
    return found


def _colour(by: By, name: str, index: int) -> str:
    if by is By.state and name in STATE_COLOURS:
        return STATE_COLOURS[name]
    return _COLOURS[index % len(_COLOURS)]
