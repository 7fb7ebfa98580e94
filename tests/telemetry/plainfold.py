"""Resources held by runs, by a plain Python fold of a log: the oracle for the SQL that sums them in batches."""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit


class Held(NamedTuple):
    """One row of `runs` and what `gpu_hours_by_user` needs of it; GPU time in thousandths of a GPU times nanoseconds."""

    user: str
    queue: str
    placed_ns: int
    started_ns: int | None
    ended_ns: int | None
    outcome: str | None
    gpu_milli_ns: int


class _Part(NamedTuple):
    rank: int
    node: str
    gpu_milli: int
    placed_ns: int


class Oracle:
    """Feed it commits; ask `runs`."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._born: dict[str, tuple[str, str]] = {}
        self._ended: set[str] = set()
        self._runs: dict[tuple[str, int], dict] = {}
        self._open: dict[tuple[str, int], list[_Part]] = {}
        self._held: dict[tuple[str, int], int] = {}

    def fold(self, commits: Sequence[Commit]) -> None:
        for commit in commits:
            self.now_ns = max(self.now_ns, commit.at_ns)
            for event in commit.events:
                self._one(event, commit.at_ns)

    def runs(self) -> dict[tuple[str, int], Held]:
        """{(job, attempt): what it held up to now}."""
        still = {
            key: sum(part.gpu_milli * (self.now_ns - part.placed_ns) for part in parts)
            for key, parts in self._open.items()
        }
        return {key: Held(**run, gpu_milli_ns=self._held[key] + still.get(key, 0)) for key, run in self._runs.items()}

    def _one(self, event: ev.Event, at_ns: int) -> None:
        match event:
            case ev.JobSubmitted():
                self._born[event.job] = (event.user, event.queue)
            case ev.JobMoved():
                self._born[event.job] = (self._born[event.job][0], event.queue)
            case ev.QueueRemoved() if event.move_to:
                for job, (user, queue) in self._born.items():
                    if queue == event.path and job not in self._ended:
                        self._born[job] = (user, event.move_to)
            case ev.JobSucceeded() | ev.JobFailed() | ev.JobCancelled():
                self._ended.add(event.job)
            case ev.JobPlaced():
                self._placed(event, at_ns)
            case ev.RunStarted():
                self._runs[event.job, event.attempt]["started_ns"] = at_ns
            case ev.RankEnded() if event.released:
                self._back(event.job, event.attempt, at_ns, rank=event.rank)
            case ev.RunEnded():
                self._runs[event.job, event.attempt] |= {"ended_ns": at_ns, "outcome": event.outcome}
                for node in event.released:
                    self._back(event.job, event.attempt, at_ns, node=node)
            case ev.AllocationReleased():
                self._back(event.job, event.attempt, at_ns, node=event.node)
            case _:
                pass

    def _placed(self, event: ev.JobPlaced, at_ns: int) -> None:
        key = (event.job, event.attempt)
        user, queue = self._born[event.job.split("_")[0]]
        self._runs[key] = {
            "user": user,
            "queue": queue,
            "placed_ns": at_ns,
            "started_ns": None,
            "ended_ns": None,
            "outcome": None,
        }
        self._held[key] = 0
        self._open[key] = [
            _Part(rank, part.node, len(part.gpus) * (part.gpu_milli or 1000), at_ns)
            for rank, part in enumerate(event.parts)
        ]

    def _back(self, job: str, attempt: int, at_ns: int, *, node: str = "", rank: int = -1) -> None:
        key = (job, attempt)
        back = [part for part in self._open[key] if part.node == node or part.rank == rank]
        self._held[key] += sum(part.gpu_milli * (at_ns - part.placed_ns) for part in back)
        self._open[key] = [part for part in self._open[key] if part not in back]
