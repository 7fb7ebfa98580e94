"""The slow look, a few times a second: does the placer hold the right offers, in the right order?

A job that comes late but deserves to go first takes the place it deserves among the open offers: others get a rank
behind it, or are asked back where the placer has as many as it looks ahead over. What the placer has refused gives its
quota to those who could use it.

Withdrawal cannot go round in circles: a job withdrawn for quota is offered again only after capacity has changed, and one
withdrawn for the order only where the order lets it.
"""

from bisect import bisect_left
from collections.abc import Collection
from itertools import chain
from operator import lt

from fairlead_queue.decide.candidates import OfferCandidate, is_offered
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.decide.gates import ClosedGate
from fairlead_queue.decide.turns import Turns
from fairlead_queue.fairness.tree import QueueNode
from fairlead_queue.fairness.waiting_line import RANK_STEP
from fairlead_queue.limits import REVIEW_NS, STUCK_NS
from fairlead_queue.waiting.pending import Lane, LiveJob, PoolState, pool_of
from fairlead_queue.waiting.settled_order import SettledOrder
from fairlead_schemas.wire.events import JobOffered, OfferWithdrawn, WithdrawReason


def stuck_offers(draft: QueueDraft, pool: PoolState) -> list[LiveJob]:
    """Open offers that the order is to be held against; none while the oldest is fresh."""
    moved = draft.states
    offers = [
        job for job in pool.offers.values() if not (job.withdrawal or job.stop or is_served(job) or job.id in moved)
    ]
    return offers if offers and min(job.offered_ns for job in offers) + REVIEW_NS <= draft.now_ns else []


# ---------------------------------------------------------------------------------------- the order


def is_settled(draft: QueueDraft, pool: PoolState) -> bool:
    """Return True if nothing that turns depend on has changed since a review found every offer in its place, and this
    decision has changed nothing of it."""
    if pool.settled is None or not pool.settled.is_folded:
        return False
    jobs = draft.state.jobs
    moved = [jobs[job] for job in draft.states if job in jobs]
    return not draft.fresh and not any(job.open or job.wait == "line" for job in moved)


def reorder(draft: QueueDraft, turns: Turns, stuck: list[LiveJob]) -> None:
    """Run the turns again as if the jobs of the stuck offers were still waiting, then emit the differences:
    withdrawals and new offers."""
    leaving = [job for job in turns.pool.offers.values() if job.withdrawal or job.stop]
    limit = draft.room() + len(stuck)
    picks = None if leaving else turns.take_all(stuck, limit)
    if picks is not None:
        _rank(draft, turns, picks, is_settled=True)
        return
    turns.set_aside(leaving)
    turns.reopen(stuck)
    picks = turns.take(limit)
    is_whole = len(picks) < limit
    picked = {candidate.id for _, candidate in picks}
    back = sorted((job for job in stuck if job.id not in picked), key=lambda job: -job.rank)
    for job in back:
        if not draft.has_room():
            return
        closed = turns.gates.closed(job.lane)
        withdraw(draft, job, _withdraw_reason(closed))
    leaving += back
    if leaving:
        picks = _within_limits(turns, picks, leaving)
    _rank(draft, turns, picks, is_settled=is_whole and not leaving)


def _withdraw_reason(closed: ClosedGate | None) -> WithdrawReason:
    if closed is None or closed.reason == "turn":
        return "order"
    return "queue_held" if closed.reason == "queue_held" else "quota"


def _rank(draft: QueueDraft, turns: Turns, picks: list[tuple[Lane, OfferCandidate]], *, is_settled: bool) -> None:
    """Offer the picks in their order. `is_settled`: these are all that may be offered, so the order holds then."""
    ranked = _ranked(draft, [candidate for _, candidate in picks])
    for candidate, rank in ranked:
        if not draft.has_room():
            return
        draft.emit(JobOffered(cause=candidate.job.cause, job=candidate.id, attempt=candidate.attempt, rank=rank))
    if is_settled:
        _settle(draft, turns, picks, ranked)


def _settle(
    draft: QueueDraft, turns: Turns, picks: list[tuple[Lane, OfferCandidate]], ranked: list[tuple[OfferCandidate, int]]
) -> None:
    """Note that the order holds once the offers of this decision are folded, unless a closed gate may be about a job that
    this decision accepts: the lanes of such jobs exist only within it.
    """
    gates, pool = turns.gates, turns.pool
    fresh = {job.id for job in draft.fresh if job.id in draft.tried and pool_of(job.request) == pool.name}
    if fresh and (gates.refused or gates.shut):
        return
    pool.settled = SettledOrder(
        [candidate.id for _, candidate in picks],
        {candidate.id: rank for candidate, rank in ranked},
        fresh,
        dict(gates.refused),
        dict(gates.owed),
        set(gates.shut),
    )


def _within_limits(
    turns: Turns, picks: list[tuple[Lane, OfferCandidate]], back: list[LiveJob]
) -> list[tuple[Lane, OfferCandidate]]:
    """Return the picks that fit while the jobs being withdrawn are still charged. The others get their turn when those charges
    are released, and so do all later picks of the same lane: otherwise an array element before the created ones would be
    offered twice.
    """
    new = [lane for lane, candidate in picks if not is_offered(candidate)]
    turns.recharge([job.lane for job in back], new)
    within: list[tuple[Lane, OfferCandidate]] = []
    later: set[Lane] = set()
    for lane, candidate in picks:
        if is_offered(candidate) or (lane not in later and turns.regive(lane)):
            within.append((lane, candidate))
        else:
            later.add(lane)
    return within


def _ranked(draft: QueueDraft, picks: list[OfferCandidate]) -> list[tuple[OfferCandidate, int]]:
    """Return the candidates that get a new rank (or their first), so that all picks are in order. As many as possible keep
    their rank.
    """
    ranks = [job.rank if job.open and job.id == id else 0 for _, id, _, job in picks]
    if all(map(lt, chain((0,), ranks), ranks)):
        return []
    kept = _longest_rising(ranks)
    given: list[tuple[OfferCandidate, int]] = []
    run: list[OfferCandidate] = []
    before = 0
    for at, candidate in enumerate(picks):
        rank = ranks[at]
        if at in kept and rank - before > len(run):
            step = (rank - before) // (len(run) + 1)
            given.extend((each, before + step * place) for place, each in enumerate(run, start=1))
            run, before = [], rank
        else:
            run.append(candidate)
    for each in run:
        given.append((each, draft.next_rank))
        draft.next_rank += RANK_STEP
    return given


def _longest_rising(ranks: list[int]) -> set[int]:
    """Places of a longest rising subsequence; 0 is no rank."""
    ends: list[int] = []
    places: list[int] = []
    before: dict[int, int] = {}
    for at, rank in enumerate(ranks):
        if not rank:
            continue
        length = bisect_left(ends, rank)
        if length:
            before[at] = places[length - 1]
        if length == len(ends):
            ends.append(rank)
            places.append(at)
        else:
            ends[length], places[length] = rank, at
    found: set[int] = set()
    at = places[-1] if places else None
    while at is not None:
        found.add(at)
        at = before.get(at)
    return found


def withdraw(draft: QueueDraft, job: LiveJob, reason: WithdrawReason) -> None:
    """Ask an open offer back."""
    draft.emit(OfferWithdrawn(cause=job.cause, job=job.id, attempt=job.attempt, reason=reason))
    draft.states[job.id] = job.state


# ---------------------------------------------------------------------------------------- quota that refused offers hold


def recall_for_quota(draft: QueueDraft, turns: Turns, helped: Collection[str] = ()) -> int | None:
    """Ask back refused offers of other classes, so that the first who lacks only their quota comes within it; not those
    of jobs that are helped to a place. Returns when more offers may count as refused (None: none will)."""
    again_ns: int | None = None
    for node, (lane, closed) in turns.gates.refused.items():
        refusal = closed.refusal
        if (
            refusal is None
            or lane.request_class.parked
            or refusal.needed > refusal.ceiling
            or refusal.kind == "claimed"
        ):
            continue
        at = turns.pool.resources.index(refusal.resource)
        over = refusal.held + refusal.needed - refusal.ceiling
        at_ns = _recall_under(draft, turns, node, lane, at, over, helped)
        if at_ns is not None:
            again_ns = at_ns if again_ns is None else min(again_ns, at_ns)
    return again_ns


def _recall_under(
    draft: QueueDraft, turns: Turns, node: QueueNode, wanted: Lane, at: int, over: int, helped: Collection[str]
) -> int | None:
    """From the last in rank on, until `over` is on its way back; nothing if it cannot be."""
    under = [
        job
        for job in turns.pool.offers.values()
        if job.lane.leaf.node.is_within(node) and job.lane.request_class.need[at]
    ]
    chosen: list[LiveJob] = []
    later: list[int] = []
    for job in sorted(under, key=lambda job: job.rank, reverse=True):
        request_class = job.lane.request_class
        if job.withdrawal or job.stop:
            over -= 0 if job.id in turns.aside else request_class.need[at]
        elif request_class is wanted.request_class or job.id in draft.states or job.id in helped or is_served(job):
            continue
        elif job.offered_ns + REVIEW_NS > draft.now_ns:
            later.append(job.offered_ns + REVIEW_NS)  # the next look says whether it can be helped to a place
        elif _is_refused(draft, job):
            chosen.append(job)
        else:
            later.append(job.offered_ns + STUCK_NS)
    enough: list[LiveJob] = []
    for job in chosen:
        if over <= 0:
            break
        enough.append(job)
        over -= job.lane.request_class.need[at]
    if over > 0:
        return min(later, default=None)
    for job in enough:
        if not draft.has_room():
            break
        withdraw(draft, job, "quota")
    return None


def _is_refused(draft: QueueDraft, job: LiveJob) -> bool:
    """Return True if the placer has refused an open offer: it reported a refusal, it has answered others since, or it has been
    silent for long.
    """
    heard = draft.state.heard_ns >= job.offered_ns + REVIEW_NS
    return job.lane.request_class.parked or heard or job.offered_ns + STUCK_NS <= draft.now_ns


def is_served(job: LiveJob) -> bool:
    """Return True if other runs are asked to yield to an open offer, or if capacity is kept for it as it comes free. Such an
    offer is not withdrawn.
    """
    return bool(job.yielders) or job.asked == "asked" or job.lane.request_class.pool.claimant == job.id
