"""Permitted preemptions, judged by the events alone.

A run may be asked to yield after its protection has ended, and never below a guarantee above it. A run may be
asked to yield for idleness only while telemetry requests it on demand, and then regardless of its protection.

Only requests decided upon everything before them (`basis`) are judged: the queue cannot know events that cross
them.
"""

from collections.abc import Callable, Iterable

from fairlead_schemas.queuefile.settings import QueueSettings
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.resources import Request

#: What a job holds: (queue, user, request).
type Asked = Callable[[str], tuple[str, str, Request]]


class YieldBooks:
    """Runs with their start times, the jobs that each was asked to make room for, and the times for which jobs are
    protected.
    """

    def __init__(self, settings: dict[str, QueueSettings], asked: Asked, guaranteed: Callable[[str, str], int]) -> None:
        self.settings, self.asked, self.guaranteed = settings, asked, guaranteed
        self.slices: dict[str, int] = {}
        #: {job: when its run began, 0 while it only has its place}
        self.runs: dict[str, int] = {}
        #: {job: what its placement has of what it asks for}
        self.holds: dict[str, Request] = {}
        self.leaving: set[str] = set()
        self.attempts: dict[str, int] = {}
        #: {job: rules that request its run's GPUs back on demand because it is idle}
        self.idle: dict[str, set[str]] = {}
        #: The log's time: the latest of all commits.
        self.now_ns = 0

    def take(self, sequence: int, commit: Commit) -> str:
        """Book a commit; returns what is wrong with it, "" if nothing is."""
        self.now_ns = max(self.now_ns, commit.at_ns)
        wrong = ""
        for event in commit.events:
            if isinstance(event, ev.PreemptionRequested) and commit.basis == sequence - 1:
                wrong = wrong or self._request(event)
            if isinstance(event, ev.PreemptionStarted) and event.rule == "idle" and commit.basis == sequence - 1:
                wrong = wrong or self._lies_idle(event.job, event.beneficiary)
            self._book(event)
        return wrong

    def _book(self, event: ev.Event) -> None:
        match event:
            case ev.JobSubmitted():
                self.slices[event.job] = event.slice_ns
            case ev.JobPlaced():
                self.runs[event.job] = 0
                self.holds[event.job] = held(self.asked(event.job)[2], event)
                self.attempts[event.job] = event.attempt
            case ev.RunStarted() if event.job in self.runs:
                self.runs[event.job] = self.now_ns
            case ev.JobStopRequested() | ev.PreemptionStarted() if event.job in self.runs:
                self.leaving.add(event.job)
            case ev.RunEnded():
                self.runs.pop(event.job, None)
                self.holds.pop(event.job, None)
                self.leaving.discard(event.job)
                self.idle.pop(event.job, None)
            case ev.ReclaimRequested() | ev.JobActive() | ev.JobExtended():
                self._book_idle(event)
            case _:
                pass

    def _book_idle(self, event: ev.ReclaimRequested | ev.JobActive | ev.JobExtended) -> None:
        if event.job not in self.runs or self.attempts[event.job] != event.attempt:
            return
        match event:
            case ev.ReclaimRequested() if event.on_demand:
                self.idle.setdefault(event.job, set()).add(event.rule)
            case ev.JobExtended():
                self.idle.pop(event.job, None)
            case _:
                self.idle.get(event.job, set()).discard(event.rule)

    def _lies_idle(self, job: str, beneficiary: str) -> str:
        return (
            "" if self.idle.get(job) else f"{job} is asked to yield to {beneficiary} as idle, and nobody says so of it"
        )

    def _request(self, event: ev.PreemptionRequested) -> str:
        mine, _, request = self.asked(event.job)
        needs = amounts(request)
        gone = set(self.leaving)
        for victim in event.victims:
            theirs, _, _ = self.asked(victim.job)
            if victim.rule == "idle":
                if wrong := self._lies_idle(victim.job, event.job):
                    return wrong
                gone.add(victim.job)
                continue
            began = self.runs.get(victim.job, 0)
            safe_ns = max(self.settings[theirs].preemption.protect_ns, self.slices[array_of(victim.job) or victim.job])
            if not began or began + safe_ns > self.now_ns:
                return f"{victim.job} is asked to yield to {event.job} {self.now_ns - began} ns after its start"
            gone.add(victim.job)
            for path in _up(theirs) if theirs != mine else ():
                if mine == path or mine.startswith(f"{path}/"):
                    break
                for name, needed in needs.items():
                    least = self.guaranteed(path, name)
                    left = self._held(path, name, gone)
                    if needed and least and left < least and amounts(self.holds[victim.job])[name]:
                        return f"{victim.job} is asked to yield to {event.job}, {path} keeps {left} of {least} {name}"
        return ""

    def _held(self, path: str, name: str, gone: set[str]) -> int:
        queues = {job: self.asked(job)[0] for job in self.runs if job not in gone}
        return sum(
            amounts(self.holds[job])[name]
            for job, queue in queues.items()
            if queue == path or queue.startswith(f"{path}/")
        )


def amounts(request: Request) -> dict[str, int]:
    """By resource, over all units."""
    return {"gpu": request.gpu_milli_total, "cpu": request.cpu_milli_total, "memory": request.memory_mib_total}


def held(request: Request, placed: ev.JobPlaced) -> Request:
    """Return the part of a request that a placement has: all of it, unless the placement states a smaller number of
    units.
    """
    return request.without(request.units - placed.units) if request.nodes_min else request


def _up(path: str) -> Iterable[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]
