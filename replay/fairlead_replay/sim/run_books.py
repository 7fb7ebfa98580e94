"""Check of gangs (I6), by the events alone: a placement has all requested units, or at least the stated minimum, and each
unit has all that it needs.

Further parts:
- time limits against the truth: no run is ended for a limit that it has not reached, whatever the clocks were set to;
- saved work of runs, judged by the events alone: permitted reporters, times, and the statements of the runs' ends;
- permitted preemptions, judged by the events alone.

The truth is the virtual time for which processes ran on their machines (`machine.Starts`). For an attempt
without this measure (its node was lost, its agent died at the start), the log's own measure is used, as in the
queue.

A run may be asked to yield after its protection has ended, and never below a guarantee above it. A run may be
asked to yield for idleness only while telemetry requests it on demand, and then regardless of its protection.

Only requests decided upon everything before them (`basis`) are judged: the queue cannot know events that cross
them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, QueueSettings
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.events import JobPlaced, Part
from fairlead_schemas.wire.lifecycle import GOES_ON
from fairlead_schemas.wire.resources import Inventory, Request


def whole(event: JobPlaced, request: Request, pools: Mapping[str, str]) -> str:
    """Return the fault of a placement; "" without one. `pools`: {node: its pool}."""
    others = sum(kind.nodes for kind in request.also)
    got, least = event.units - others, request.nodes_min or request.nodes
    if not least <= got <= request.nodes:
        expected = f"{request.nodes_min} to {request.nodes}" if request.nodes_min else str(request.nodes)
        return f"I6: job {event.job} asks for {expected} units, placed with {got}"
    if not request.tasks and len(event.parts) != event.units:
        return f"I6: job {event.job} asks for nodes, got parts that share one: {event.parts}"
    for part, kind in zip(event.parts, kinds_of(request, event), strict=True):
        if not _suffices(part, kind, exclusive=request.exclusive):
            return f"I6: job {event.job} asks for {kind}, got {part} on {part.node}"
        if pools[part.node] != (request.pool or DEFAULT_POOL):
            return f"job {event.job} is of pool {request.pool!r}, placed on {part.node} of {pools[part.node]}"
    return ""


def kinds_of(request: Request, event: JobPlaced) -> Iterator[Request]:
    """Yield the kind of each part: parts of a kind follow those of the kinds before it."""
    kinds = list(request.without(request.units - event.units if request.nodes_min else 0).kinds)
    left = kinds[0].nodes
    for part in event.parts:
        while not left and len(kinds) > 1:
            kinds.pop(0)
            left = kinds[0].nodes
        yield kinds[0]
        left -= part.tasks


def _suffices(part: Part, kind: Request, *, exclusive: bool) -> bool:
    """A part has what its units ask for, and no more unless the node is theirs alone."""
    cpu_milli, memory_mib = kind.cpu_milli * part.tasks, kind.memory_mib * part.tasks
    if exclusive:
        enough = part.cpu_milli >= cpu_milli and part.memory_mib >= memory_mib
    else:
        enough = (part.cpu_milli, part.memory_mib) == (cpu_milli, memory_mib)
    if kind.gpu_parts:  # parts of different units may lie on one GPU
        return enough and 0 < len(part.gpus) <= kind.gpu_parts * part.tasks
    return enough and len(part.gpus) * 1000 == kind.gpu_milli * part.tasks


def could_ever(request: Request, nodes: Sequence[Inventory]) -> bool:
    """Return True if empty nodes would have enough GPUs for the request; several kinds are checked separately."""
    return all(
        sum(_room(kind, node, tasks=request.tasks) for node in nodes) >= (kind.nodes_min or kind.nodes)
        for kind in request.kinds
    )


def _room(kind: Request, node: Inventory, *, tasks: bool) -> int:
    milli = len(node.gpus) * 1000
    if not tasks:
        return int(milli >= kind.gpu_milli)
    return milli // kind.gpu_milli if kind.gpu_milli else kind.nodes


#: Rounding between seconds of the loop and nanoseconds of the log.
ROUNDING_NS = 1_000_000

#: (job, attempt) -> nanoseconds for which its longest process has run.
type Truly = Callable[[str, int], int]


class LimitBooks:
    """{job: its limit}, and how long each job has really run since it last began from nothing."""

    def __init__(self, truly: Truly | None = None) -> None:
        self._truly = truly
        self.limits: dict[str, tuple[int, int]] = {}  # {job or array: (limit, notice)}
        self.ran: dict[str, int] = {}
        self.started: dict[str, int] = {}
        self.outcomes: dict[str, ev.RunOutcome] = {}
        #: Runs that were stopped for their limit, and rightly so.
        self.judged = 0

    def take(self, commit: Commit) -> str:
        """Book a commit; returns what is wrong with it, "" if nothing is."""
        for event in commit.events:
            match event:
                case ev.JobSubmitted():
                    notice_ns = event.checkpoint.notice_ns if event.checkpoint is not None else 0
                    self.limits[event.job] = event.total_ns, notice_ns
                case ev.JobUpdated() if event.total_ns is not None:
                    self.limits[event.job] = event.total_ns, self.limits[event.job][1]
                case ev.RunStarted():
                    self.started[event.job] = commit.at_ns
                case ev.RunEnded():
                    self._ended(event, commit.at_ns)
                case ev.JobRequeued() if event.reason not in GOES_ON:
                    self.ran.pop(event.job, None)
                case ev.JobFailed() if event.reason == "time_limit" and self.outcomes.get(event.job) == "stopped":
                    wrong = self._early(event.job)
                    if wrong:
                        return wrong
                case _:
                    pass
        return ""

    def _ended(self, event: ev.RunEnded, at_ns: int) -> None:
        ran_ns = at_ns - self.started.pop(event.job, at_ns)
        if event.ran_ns and self._truly is not None:
            ran_ns = self._truly(event.job, event.attempt)
        self.ran[event.job] = self.ran.get(event.job, 0) + ran_ns
        self.outcomes[event.job] = event.outcome

    def _early(self, job: str) -> str:
        limit_ns, notice_ns = self.limits[array_of(job) or job]
        self.judged += 1
        ran_ns = self.ran.get(job, 0)
        if ran_ns + ROUNDING_NS < limit_ns - notice_ns:
            return f"{job} was ended early: its limit is {limit_ns} ns, and it has run for {ran_ns} ns"
        return ""


#: Words that answer no notice come no faster.
APART_NS = 5 * SECOND_NS


class SavingBooks:
    """Checkpoint settings by job and, for each attempt that has a place, its save reports and whether it was notified."""

    def __init__(self) -> None:
        self.settings: dict[str, Checkpoint | None] = {}
        #: {(job, attempt): commit times of its words}
        self.words: dict[tuple[str, int], list[int]] = {}
        #: Attempts whose end the queue has not answered, and that were asked to yield or leave.
        self.yielded: set[str] = set()

    def take(self, commit: Commit) -> str:
        """Book a commit; returns what is wrong with it, "" if nothing is."""
        for event in commit.events:
            wrong = self._take(event, commit.at_ns)
            if wrong:
                return wrong
        return ""

    def _take(self, event: ev.Event, at_ns: int) -> str:
        match event:
            case ev.JobSubmitted():
                self.settings[event.job] = event.checkpoint
            case ev.JobPlaced():
                self.words[event.job, event.attempt] = []
            case ev.CheckpointSaved():
                return self._word(event, at_ns)
            case ev.RunEnded():
                return self._end(event)
            case ev.JobRequeued() | ev.JobSucceeded() | ev.JobFailed() | ev.JobCancelled():
                if isinstance(event, ev.JobSucceeded) and event.job in self.yielded:
                    return f"{event.job} has succeeded though its run was ended for others"
                self.yielded.discard(event.job)
            case _:
                pass
        return ""

    def _how(self, job: str) -> Checkpoint | None:
        return self.settings.get(array_of(job) or job)

    def _word(self, event: ev.CheckpointSaved, at_ns: int) -> str:
        words = self.words.get((event.job, event.attempt))
        if self._how(event.job) is None or words is None:
            return f"{event.job}.{event.attempt} reports a save, but cannot save"
        if words and not event.noticed and at_ns - words[-1] < APART_NS:
            return f"{event.job}.{event.attempt} reports two saves within {at_ns - words[-1]} ns"
        words.append(at_ns)
        return ""

    def _end(self, event: ev.RunEnded) -> str:
        words, how = self.words.pop((event.job, event.attempt), []), self._how(event.job)
        if event.saved_ns != (words[-1] if words else 0):
            return (
                f"the end of {event.job}.{event.attempt} gives {event.saved_ns} as its save, its reports were {words}"
            )
        if event.noticed_ns and (how is None or not how.is_told):
            return f"{event.job}.{event.attempt} was notified of its end without requesting a notice"
        if event.preempted or event.drained or event.gpu_fault:
            self.yielded.add(event.job)
        return ""


#: What a job holds: (queue, user, request).
type JobRequests = Callable[[str], tuple[str, str, Request]]


class YieldBooks:
    """Runs with their start times, the jobs that each was asked to make room for, and the times for which jobs are
    protected.
    """

    def __init__(
        self, settings: dict[str, QueueSettings], job_request: JobRequests, guaranteed: Callable[[str, str], int]
    ) -> None:
        self.settings, self.job_request, self.guaranteed = settings, job_request, guaranteed
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
                self.holds[event.job] = held(self.job_request(event.job)[2], event)
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
            ""
            if self.idle.get(job)
            else f"{job} is asked to yield to {beneficiary} as idle without a report that it is idle"
        )

    def _request(self, event: ev.PreemptionRequested) -> str:
        mine, _, request = self.job_request(event.job)
        needs = amounts(request)
        gone = set(self.leaving)
        for victim in event.victims:
            theirs, _, _ = self.job_request(victim.job)
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
        queues = {job: self.job_request(job)[0] for job in self.runs if job not in gone}
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
