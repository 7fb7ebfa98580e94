"""Help for starving jobs: other runs are asked to yield to a job that is entitled to their resources, and capacity is kept
free for a patient job.

A job starves when its offer has been open for a while without a place, or when it is the first that a limit refuses.
Once it has waited as long as its pool's patience, the resources that it lacks are kept for it as they come free. The
first job of the whole order gets a place (one job of a pool at a time). The first job under a limit gets the capacity
that comes free there (one under each).
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter

from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.decide.offer_review import withdraw
from fairlead_queue.decide.preemption_candidates import CandidateFinder, StarvingJob
from fairlead_queue.decide.preemption_estimates import LaneSurvey, UnplacedCharges, priority_as_submitted
from fairlead_queue.decide.turns import Turns
from fairlead_queue.fairness.tree import Amounts, QueueNode, is_owed, is_owed_before, sides
from fairlead_queue.limits import (
    ASK_AFTER_NS,
    ASK_AGAIN_NS,
    DOUBLINGS_MAX,
    REVIEW_NS,
    STARVING_MAX,
    VICTIM_BYTES,
    VICTIMS_LARGE_MAX,
)
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.attempts import decisive
from fairlead_queue.waiting.pending import Lane, LiveJob, PoolState, RequestClass
from fairlead_schemas.wire.events import PreemptionRequested, ReservationRequested, Victim

#: What a request for room takes at most.
VICTIMS_BYTES_MAX = VICTIM_BYTES * VICTIMS_LARGE_MAX

_rank = attrgetter("rank")


class StarvationPolicy:
    """Help of one review for the starving jobs of one pool, in two parts: before refused offers give up their quota, and after.
    An offer for which other runs are asked to yield keeps its quota.
    """

    def __init__(self, draft: QueueDraft, turns: Turns) -> None:
        self._draft, self._turns = draft, turns
        self._helper = _StarvationReview(draft, turns)

    def offers(self) -> set[str]:
        """Help those who have their turn and no place; the jobs for which others are asked to yield now."""
        draft, pool = self._draft, self._turns.pool
        waiting = [
            job for job in pool.offers.values() if not (job.withdrawal or job.stop) and job.id not in draft.states
        ]
        is_hopeless = self._helper.is_hopeless
        fresh_ns = draft.now_ns - REVIEW_NS
        stuck = [job for job in waiting if job.offered_ns <= fresh_ns or is_hopeless(job.lane)]
        stuck.sort(key=_rank)
        left = STARVING_MAX
        for job in self._helper.in_line(stuck):
            self._helper.help(StarvingJob(job, job.lane, pool.tree.root, {}, True))
            left -= not is_helped(job)
            if not left:
                break
        self._helper.times += [job.offered_ns + REVIEW_NS for job in waiting if job.offered_ns > fresh_ns]
        return self._helper.asked

    def limits(self) -> int | None:
        """Help the first under each limit; returns when to look again (None: time alone changes nothing)."""
        first = _under_limits(self._draft, self._turns)
        self._helper.await_answers(starving.job for starving in first)
        for starving in first:
            self._helper.help(starving)
        return min((at_ns for at_ns in self._helper.times if at_ns > self._draft.now_ns), default=None)


def is_helped(job: LiveJob) -> bool:
    """Return True if other runs are asked to yield to the job, or have been."""
    return job.asked == "asked" or bool(job.yielders)


def _under_limits(draft: QueueDraft, turns: Turns) -> list[StarvingJob]:
    """The first under each limit that is in the way, and the first there that a guarantee entitles."""
    found: list[StarvingJob] = []
    refused = list(turns.gates.refused.items())[:STARVING_MAX]
    for node, (lane, closed) in [*refused, *list(turns.gates.owed.items())[:STARVING_MAX]]:
        refusal, job = closed.refusal, lane.first()
        if refusal is None or refusal.kind == "claimed" or job is None or job.id in draft.states:
            continue
        if turns.pool.tree.can_ever_fit(lane.leaf.node, lane.request_class.need):
            missing = {refusal.resource: refusal.held + refusal.needed - refusal.ceiling}
            found.append(StarvingJob(job, lane, node, missing, False))
    return found


class _StarvationReview:
    """State of one review for the starving jobs of one pool."""

    def __init__(self, draft: QueueDraft, turns: Turns) -> None:
        self.draft, self.turns, self.pool = draft, turns, turns.pool
        self.times: list[int] = []
        self._unplaced: UnplacedCharges | None = None
        self._survey = LaneSurvey()
        #: Jobs for which this review asks others to yield, and the runs that it has named.
        self.asked: set[str] = set()
        self._named: set[str] = set()
        #: The placer has not answered yet who of those named before goes.
        self._awaits_answers = False
        self.await_answers(self.pool.offers.values())
        #: Idle runs of the pool: waiting jobs may have what they hold.
        self._idle = idle_on_demand(draft.state, self.pool)
        #: {what is alike in several jobs: the first of them to which no run at all may yield}
        self._barren: dict[tuple[Lane, int, QueueNode], LiveJob] = {}
        #: {jobs that are alike: whether no run yields to them, as far as it is known without a search}
        self._vain: dict[tuple[Lane, int], bool] = {}
        #: The job whose place may be kept free, if any waits for a place.
        self._first: LiveJob | None = None
        #: The job for which places are kept, or the first without one, and {lane: whether its jobs are owed theirs before}.
        self._holder: LiveJob | None = None
        self._owed: dict[Lane, bool] = {}
        #: {node: what is used there without the open offers}; the charges stay as they are for the whole review.
        self._placed: dict[QueueNode, list[int]] = {}
        #: {class: whether it is hopeless}
        self._hopeless: dict[RequestClass, bool] = {}

    def await_answers(self, jobs: Iterable[LiveJob]) -> None:
        """Nominate no further runs before the placer has answered for any of these jobs that waits for an answer. The same runs
        might end for the earlier job, and a refusal would keep the later one waiting for long.
        """
        self._awaits_answers |= any(job.asked == "asked" for job in jobs)

    def in_line(self, stuck: list[LiveJob]) -> Iterator[LiveJob]:
        """Return the jobs without a place, which come by rank, in the order in which they are helped: one that a guarantee
        entitles to the place before its holder, or before the first, goes before all others.
        """
        if not stuck:
            return iter(())
        self._holder = self.pool.offers.get(self.pool.claimant, stuck[0])
        first, known = stuck[0], self._owed
        for job in stuck:
            owed = known.get(job.lane)
            if self._is_owed_first(job) if owed is None else owed:
                first = job
                break
        self._first = first
        return chain((first,), (job for job in stuck if job is not first))

    def _is_owed_first(self, job: LiveJob) -> bool:
        """Return `_is_owed_before` of the job and the holder; jobs of one lane are alike."""
        assert self._holder is not None
        owed = self._owed.get(job.lane)
        if owed is None:
            owed = self._owed[job.lane] = self._is_owed_before(job, self._holder)
        return owed

    def _is_owed_before(self, job: LiveJob, holder: LiveJob) -> bool:
        """Return True if the job's place is within the guarantee of its side, and the holder's is not. Open offers have no
        place."""
        mine, theirs = sides(job.lane.leaf.node, holder.lane.leaf.node)
        return mine is not theirs and self._is_owed(mine, job) and not self._is_owed(theirs, holder)

    def _is_owed(self, node: QueueNode, job: LiveJob) -> bool:
        if not node.promised:
            return False
        placed = self._placed.get(node)
        if placed is None:
            unplaced = self.unplaced.under(node)
            placed = self._placed[node] = [used - open_ for used, open_ in zip(node.usage, unplaced, strict=True)]
        return is_owed(node, job.lane.request_class.need, placed)

    def help(self, starving: StarvingJob) -> None:
        """Ask others to yield to it; or else, when it has waited long enough, keep for it what comes free."""
        draft, job = self.draft, starving.job
        is_first = not starving.charged or job is self._first
        if not draft.has_room(1 + VICTIMS_BYTES_MAX // draft.EVENT_BYTES):
            return
        if is_helped(job) or self._is_claimed(starving):
            return
        again_ns = self._first_asked_ns(starving)
        if job.asked:
            again_ns = max(again_ns, self._asked_again_ns(job))
        self.times.append(again_ns)
        asks = again_ns <= draft.now_ns and not self._awaits_answers
        if asks and self._find(starving):
            return
        if (asks or job.asked == "declined") and self._take_place(starving):
            return
        if not is_first or not _may_claim(self.pool, starving):
            return
        patient_ns = job.since_ns + self.pool.settings.patience_ns
        if job.asked == "unkept":
            patient_ns = max(patient_ns, again_ns)
        self.times.append(patient_ns)
        if patient_ns <= draft.now_ns:
            _keep(draft, starving)

    @staticmethod
    def _is_claimed(starving: StarvingJob) -> bool:
        """Return True if the capacity that comes free there is kept for another job, against this one."""
        claim = starving.under.claim
        if claim is None or claim.holder == starving.job.id:
            return False
        return not is_owed_before(starving.lane.leaf.node, starving.lane.request_class.need, claim)

    def _take_place(self, starving: StarvingJob) -> bool:
        """Withdraw the offer for which places are kept, if the starving job is owed a place before its holder; the next
        review keeps it for that job. Return True if so.
        """
        holder = self.pool.offers.get(self.pool.claimant)
        if not starving.charged or starving.job.asked == "unkept":  # none can be kept for it
            return False
        if holder is None or holder is starving.job or is_helped(holder):
            return False
        if holder.withdrawal or holder.stop or holder.id in self.draft.states:
            return False
        if holder is not self._holder or not self._is_owed_first(starving.job):
            return False
        withdraw(self.draft, holder, "order")
        return True

    def _asked_again_ns(self, job: LiveJob) -> int:
        """Return when the job may request again after a refusal: after a while, or when more runs are idle than it requested."""
        if any(reclaim.at_ns > job.asked_ns for other in self._idle for reclaim in other.idle):
            return job.asked_ns + REVIEW_NS
        return job.asked_ns + (ASK_AGAIN_NS << min(job.asks - 1, DOUBLINGS_MAX))

    def _first_asked_ns(self, starving: StarvingJob) -> int:
        """Return when the job's first request to make room is due; never in the very decision that accepts the job. An offer that
        the placer may not have reached yet waits.
        """
        since_ns = starving.job.since_ns
        if starving.charged and not self.is_hopeless(starving.lane):
            return since_ns + ASK_AFTER_NS
        return min(since_ns + ASK_AFTER_NS, max(since_ns + 1, self.pool.freed_ns + ASK_AFTER_NS))

    def is_hopeless(self, lane: Lane) -> bool:
        """Return True if an offer has no place in the present state: the placer reported so, or the whole pool has too little left."""
        request_class = lane.request_class
        hopeless = self._hopeless.get(request_class)
        if hopeless is None:
            hopeless = self._hopeless[request_class] = request_class.parked or self._is_beyond(request_class.need)
        return hopeless

    def _is_beyond(self, needed: Amounts) -> bool:
        root = self.pool.tree.root
        left = zip(self.pool.tree.capacity, root.usage, self.unplaced.under(root), strict=True)
        return any(need > all_ - used + open_ for need, (all_, used, open_) in zip(needed, left, strict=True))

    @property
    def unplaced(self) -> UnplacedCharges:
        """Made when it is first asked for."""
        if self._unplaced is None:
            self._unplaced = UnplacedCharges(self.pool, self.turns.changed())
            for job in self._stopped_now():
                self._unplaced.leaves(job)
        return self._unplaced

    def _find(self, starving: StarvingJob) -> bool:
        """Return True if there is a run to ask."""
        job = starving.job
        if self._is_vain(starving):
            return False
        key = (starving.lane, priority_as_submitted(job), starving.under)
        before = self._barren.get(key)
        if before is not None and before.rank <= job.rank and before.order <= job.order:
            return False
        found = CandidateFinder(
            self.pool, starving, self.draft.now_ns, self.unplaced, self._named, self._idle, self._survey
        ).find()
        if found.next_ns is not None:
            self.times.append(found.next_ns)
        if not found.found_any:
            self._barren[key] = job
        if not found.victims:
            return False
        for victim in found.victims:
            self._named.add(victim.job)
            self.unplaced.leaves(self.draft.state.jobs[victim.job])
        self.asked.add(starving.job.id)
        _ask(self.draft, starving, found.victims)
        return True

    def _is_vain(self, starving: StarvingJob) -> bool:
        """Return True if a search is known to find no run: only a guarantee could entitle the job, and its queues have theirs
        without its offer.
        """
        lane, job = starving.lane, starving.job
        if not starving.charged or self._idle:
            return False
        key = lane, priority_as_submitted(job)
        vain = self._vain.get(key)
        if vain is None:
            queue = lane.leaf.queue
            vain = self._vain[key] = self._survey.is_guarantee_needed(self.pool, queue, key[1]) and not (
                queue.settings.preemption.reclaim != "never"
                and any(self._is_owed(node, job) for node in lane.leaf.node.up() if node.parent is not None)
            )
        return vain

    def _stopped_now(self) -> list[LiveJob]:
        """Runs of the pool that this very decision tells to stop."""
        jobs = (self.draft.state.jobs[job] for job, state in self.draft.states.items() if state == "stopping")
        return [
            job
            for job in jobs
            if job.lane.request_class.pool is self.pool and job.id in job.lane.running and not job.stop
        ]


def idle_on_demand(state: QueueState, pool: PoolState) -> list[LiveJob]:
    """Runs of a pool that are asked back on demand: those of this very decision that are stopped anyhow are not among them."""
    return [job for job in state.idle.values() if job.lane.request_class.pool is pool and decisive(job.idle).on_demand]


def _ask(draft: QueueDraft, starving: StarvingJob, victims: tuple[Victim, ...]) -> None:
    draft.emit(
        PreemptionRequested(
            cause=starving.job.cause,
            job=starving.job.id,
            attempt=max(1, starving.job.attempt),
            victims=victims,
            queue=starving.under.path,
            amounts=starving.missing,
        ),
        extra_bytes=VICTIM_BYTES * len(victims),
    )


def _may_claim(pool: PoolState, starving: StarvingJob) -> bool:
    """A place for one job of the pool at a time, and what comes free under a limit, where no other job claims it or where
    the job is owed it before the holder of that claim."""
    claim = starving.under.claim
    return not pool.claimant if starving.charged else claim is None or claim.holder != starving.job.id


def _keep(draft: QueueDraft, starving: StarvingJob) -> None:
    job: LiveJob = starving.job
    draft.emit(
        ReservationRequested(
            cause=job.cause,
            job=job.id,
            attempt=max(1, job.attempt),
            waited_ns=draft.now_ns - job.since_ns,
            queue="" if starving.charged else starving.under.path,
        )
    )
