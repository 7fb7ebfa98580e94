"""Whose turn it is: the merge of all lanes in rank order, through four gates.

    parked    a refused class keeps a few offers open; one of higher priority than those still goes
    window    what the placer may look ahead over
    quota     the queue's hard quota over everything offered, placed, running and stopping
    passes    a queue whose first job has been passed too often waits for that job to fit

A closed gate closes a lane, not the line: jobs of other queues and classes go on past it. At the
end, quota that refused offers hold and a waiting job could use is asked back (`recalls`).

Recall cannot go round in circles: a recalled job is offered again only after capacity has changed,
and only for a job whose class was not refused since. So between two changes of capacity each class
is refused at most once per queue, and each job recalled at most once.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from fairlead_queue.jobs import Array, Job
from fairlead_queue.lanes import Klass, Lane, Queue
from fairlead_queue.limits import PARKED_OFFERS_MAX, PASSES_MAX, WINDOW_OFFERS_MAX
from fairlead_queue.plan import Plan
from fairlead_queue.ranks import offset_of, priority_of
from fairlead_schemas.events import JobOffered, JobRecalled
from fairlead_schemas.ids import element_id
from fairlead_schemas.resources import Request


class Candidate(NamedTuple):
    """An attempt that could be offered."""

    rank: int
    id: str
    attempt: int
    cause: str


class Stream(NamedTuple):
    """A source of candidates in rank order, all through the same gates. Ranks never tie."""

    rank: int
    candidate: Candidate
    rest: Iterator[Candidate]
    queue: Queue
    klass: Klass | None
    need: int


class Wanted(NamedTuple):
    """The first job of a queue that only its quota keeps from being offered."""

    queue: Queue
    klass: Klass | None
    need: int


def make_offers(plan: Plan) -> None:
    """Offer what may be offered now, in order; recall what stands in the way."""
    if plan.state.in_line or plan.fresh:
        gates = Gates(plan)
        _merge(plan, gates)
        for wanted in gates.wanted.values():
            _recall_for(plan, wanted, gates.charged.get(wanted.queue.path, wanted.queue.charged))
    for queue in plan.state.queues.values():
        if queue.quota is not None and queue.charged > queue.quota:
            _recall(plan, queue, queue.charged - queue.quota, _open_offers(queue))


def _merge(plan: Plan, gates: "Gates") -> None:
    """Take candidates in rank order from the lanes' fronts and from streams that are begun, gate by gate."""
    fronts = plan.state.fronts
    begun = _fresh_streams(plan)
    heapify(begun)
    at, room = 0, plan.room()
    while at < len(fronts) or begun:
        if gates.all_closed():
            return
        if at < len(fronts) and not (begun and begun[0].rank < fronts[at][0]):
            rank, job = fronts[at]
            at += 1
            klass = job.lane.klass
            if job.id in plan.states or gates.is_open(rank, job.lane.queue, klass, klass.need):
                _begin(plan, begun, job.lane)
            continue
        stream = begun[0]
        if not gates.is_open(stream.rank, stream.queue, stream.klass, stream.need):
            heappop(begun)
            continue
        if room <= 0:
            plan.full = True
            return
        room -= 1
        gates.count(stream)
        candidate = stream.candidate
        plan.emit(JobOffered(cause=candidate.cause, job=candidate.id, attempt=candidate.attempt, rank=candidate.rank))
        following = next(stream.rest, None)
        if following is None:
            heappop(begun)
        else:
            heapreplace(begun, stream._replace(rank=following.rank, candidate=following))


def _begin(plan: Plan, begun: list[Stream], lane: Lane) -> None:
    candidates = _waiting(plan, lane)
    first = next(candidates, None)
    if first is not None:
        heappush(begun, Stream(first.rank, first, candidates, lane.queue, lane.klass, lane.klass.need))


def _fresh_streams(plan: Plan) -> list[Stream]:
    streams: list[Stream] = []
    state = plan.state
    for job in plan.fresh:
        queue = state.queues.get(job.queue)
        if queue is not None:  # else it is configured by this very decision: the next one offers
            candidate = Candidate(job.rank, job.id, 1, job.cause)
            need = job.request.gpu_milli_total
            streams.append(Stream(job.rank, candidate, iter(()), queue, state.classes.get(job.request), need))
    return streams


def _waiting(plan: Plan, lane: Lane) -> Iterator[Candidate]:
    """A lane's jobs in rank order; an array as the elements that it stands for."""
    states = plan.states
    for job in lane.waiting():
        if job.id in states:  # moved by this very decision
            continue
        if isinstance(job, Array):
            yield from _elements(job)
        else:
            yield Candidate(job.rank, job.id, job.attempt, job.cause)


def _elements(array: Array) -> Iterator[Candidate]:
    offset = offset_of(array.rank)
    base = array.rank - offset
    for at in range(offset, array.last - array.first + 1):
        yield Candidate(base + at, element_id(array.id, array.first + at), 1, array.cause)


class Gates:
    """What is open, charged and offered, counting the offers of this decision."""

    def __init__(self, plan: Plan) -> None:
        state = plan.state
        self.state = state
        self.window = WINDOW_OFFERS_MAX - (state.open - state.parked_open)
        #: {queue: milli-GPU charged}
        self.charged: dict[str, int] = {}
        #: {parked class: (open offers, highest priority among them)}
        self.parked: dict[Request, tuple[int, int]] = {}
        #: {queue: its first job that only quota keeps waiting}
        self.wanted: dict[str, Wanted] = {}
        #: Queues that wait for their first job.
        self.waiting_for_first: set[str] = set()

    def all_closed(self) -> bool:
        """Nothing can be offered to anybody any more, so the rest need not be looked at."""
        return self.window <= 0 and not self.state.parked_classes

    def is_open(self, rank: int, queue: Queue, klass: Klass | None, need: int) -> bool:
        """Whether a job of this rank may be offered; where only quota forbids it, that is noted."""
        parked = klass is not None and self.state.parked(klass)
        if klass is not None and parked:
            count, highest = self._parked(klass)
            if count >= PARKED_OFFERS_MAX and priority_of(rank) <= highest:
                return False
        elif self.window <= 0:
            return False
        return queue.quota is None or not need or self._within_quota(rank, queue, klass, need, parked)

    def count(self, stream: Stream) -> None:
        """The stream's candidate is offered."""
        klass, path = stream.klass, stream.queue.path
        if klass is not None and self.state.parked(klass):
            count, highest = self._parked(klass)
            self.parked[klass.request] = (count + 1, max(highest, priority_of(stream.rank)))
        else:
            self.window -= 1
        self.charged[path] = self.charged.get(path, stream.queue.charged) + stream.need

    def _parked(self, klass: Klass) -> tuple[int, int]:
        known = self.parked.get(klass.request)
        if known is None:
            known = self.parked[klass.request] = (klass.open, max(klass.priorities, default=-1))
        return known

    def _within_quota(self, rank: int, queue: Queue, klass: Klass | None, need: int, parked: bool) -> bool:
        path = queue.path
        quota = queue.quota
        assert quota is not None
        if self.charged.get(path, queue.charged) + need > quota:
            if not parked and need <= quota:
                self.wanted.setdefault(path, Wanted(queue, klass, need))
                if rank == queue.first_rank and queue.passed >= PASSES_MAX:
                    self.waiting_for_first.add(path)
            return False
        return path not in self.waiting_for_first


def _recall_for(plan: Plan, wanted: Wanted, charged: int) -> None:
    """Ask back refused offers of other classes, so that the wanted job comes within the quota."""
    if not plan.state.parked_open:
        return
    queue = wanted.queue
    assert queue.quota is not None
    refused = [
        job
        for lane in queue.lanes.values()
        if lane.offers and lane.klass is not wanted.klass and plan.state.parked(lane.klass)
        for job in lane.offers.values()
    ]
    _recall(plan, queue, charged + wanted.need - queue.quota, refused)


def _open_offers(queue: Queue) -> list[Job]:
    return [job for lane in queue.lanes.values() for job in lane.offers.values()]


def _recall(plan: Plan, queue: Queue, over: int, offers: list[Job]) -> None:
    """Recall from the last in rank on, until `over` milli-GPU are on their way back; nothing if it cannot be."""
    over -= sum(job.lane.klass.need for job in _open_offers(queue) if job.recall or job.stop)
    chosen: list[Job] = []
    for job in sorted(offers, key=lambda job: job.rank, reverse=True):
        if over <= 0:
            break
        need = job.lane.klass.need
        if need and not job.recall and not job.stop and job.id not in plan.states:
            chosen.append(job)
            over -= need
    if over > 0 and not chosen:
        return
    for job in chosen if over <= 0 else ():
        if plan.room() <= 0:
            plan.full = True
            return
        plan.emit(JobRecalled(cause=job.cause, job=job.id, attempt=job.attempt, reason="quota"))
        plan.states[job.id] = job.state
