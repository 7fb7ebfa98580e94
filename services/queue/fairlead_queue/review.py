"""The slow look, a few times a second: does the placer hold the right offers in the right order, and who starves?

A job that comes late but deserves to go first takes the place it deserves among the open offers: others get a rank
behind it, or are asked back where the placer has as many as it looks ahead over. What the placer has refused gives its
quota to those who could use it. Somebody who starves by right gets others asked to yield; and the first in the whole
order, when he has waited for as long as the pool is patient, gets what comes free kept for him.

Recall cannot go round in circles: a job recalled for quota is offered again only after capacity has changed, and one
recalled for the order only where the order lets it.
"""

from bisect import bisect_left
from itertools import islice

from fairlead_queue.jobs import Array, Job
from fairlead_queue.lanes import Lane
from fairlead_queue.limits import ASK_AFTER_NS, ASK_AGAIN_NS, NEWS_MAX, NEWS_NS, REVIEW_NS, STARVING_MAX
from fairlead_queue.order import RANK_STEP
from fairlead_queue.plan import Plan
from fairlead_queue.pools import Pool
from fairlead_queue.tree import Node
from fairlead_queue.turns import Candidate, Closed, Turns
from fairlead_queue.yields import Search, Starving
from fairlead_schemas.events import (
    JobOffered,
    JobRecalled,
    PreemptionRequested,
    RecallReason,
    ReservationRequested,
    Victim,
)


def stuck_offers(plan: Plan, pool: Pool) -> list[Job]:
    """Open offers that the order is to be held against; none while the oldest is fresh."""
    offers = [job for job in pool.offers.values() if not (job.recall or job.stop) and job.id not in plan.states]
    return offers if offers and min(job.offered_ns for job in offers) + REVIEW_NS <= plan.now_ns else []


# ---------------------------------------------------------------------------------------- the order


def reorder(plan: Plan, turns: Turns, stuck: list[Job]) -> None:
    """Give every turn that there is, with the stuck offers waiting like the others, and say what that changes."""
    leaving = [job for job in turns.pool.offers.values() if job.recall or job.stop]
    turns.set_aside(leaving)
    turns.reopen(stuck)
    room = plan.room()
    picks: list[tuple[Lane, Candidate]] = []
    while len(picks) < room + len(stuck):
        turn = turns.next()
        if turn is None:
            break
        picks.append(turn)
    picked = {candidate.id for _, candidate in picks}
    back = sorted((job for job in stuck if job.id not in picked), key=lambda job: -job.rank)
    for job in back:
        if plan.room() <= 0:
            plan.full = True
            return
        closed = turns.gate(job.lane)
        recall(plan, job, "quota" if closed is not None and closed.reason != "turn" else "order")
    leaving += back
    if leaving:
        picks = _within_limits(turns, picks, leaving)
    for candidate, rank in _ranked(plan, [candidate for _, candidate in picks]):
        if plan.room() <= 0:
            plan.full = True
            return
        plan.emit(JobOffered(cause=candidate.job.cause, job=candidate.id, attempt=candidate.attempt, rank=rank))


def _within_limits(turns: Turns, picks: list[tuple[Lane, Candidate]], back: list[Job]) -> list[tuple[Lane, Candidate]]:
    """Those that fit while what is asked back is still charged; the others get their turn when it has come back."""
    new = [lane for lane, candidate in picks if not is_open(candidate)]
    turns.recharge([job.lane for job in back], new)
    return [(lane, candidate) for lane, candidate in picks if is_open(candidate) or turns.regive(lane)]


def is_open(candidate: Candidate) -> bool:
    """Whether the placer has an offer of it."""
    return candidate.job.open and candidate.job.id == candidate.id


def _ranked(plan: Plan, picks: list[Candidate]) -> list[tuple[Candidate, int]]:
    """Those that get another rank (or their first), so that all are in order; as many as can keep theirs."""
    ranks = [candidate.job.rank if is_open(candidate) else 0 for candidate in picks]
    kept = _longest_rising(ranks)
    given: list[tuple[Candidate, int]] = []
    run: list[Candidate] = []
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
        given.append((each, plan.next_rank))
        plan.next_rank += RANK_STEP
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


def recall(plan: Plan, job: Job, reason: RecallReason) -> None:
    """Ask an open offer back."""
    plan.emit(JobRecalled(cause=job.cause, job=job.id, attempt=job.attempt, reason=reason))
    plan.states[job.id] = job.state


# ---------------------------------------------------------------------------------------- quota that refused offers hold


def give_quota(plan: Plan, turns: Turns) -> None:
    """Ask back refused offers of other classes, so that the first who lacks only their quota comes within it."""
    if not turns.pool.parked_open:
        return
    for node, (lane, closed) in turns.refused.items():
        refusal = closed.refusal
        if refusal is None or lane.klass.parked or refusal.needed > refusal.ceiling or refusal.kind == "claimed":
            continue
        at = turns.pool.resources.index(refusal.resource)
        over = refusal.held + refusal.needed - refusal.ceiling
        _recall_under(plan, turns.pool, node, lane, at, over)


def _recall_under(plan: Plan, pool: Pool, node: Node, wanted: Lane, at: int, over: int) -> None:
    """From the last in rank on, until `over` is on its way back; nothing if it cannot be."""
    under = [job for job in pool.offers.values() if node in job.lane.leaf.node.up() and job.lane.klass.need[at]]
    over -= sum(job.lane.klass.need[at] for job in under if job.recall or job.stop)
    chosen: list[Job] = []
    for job in sorted(under, key=lambda job: job.rank, reverse=True):
        if over <= 0:
            break
        klass = job.lane.klass
        if klass.parked and klass is not wanted.klass and not job.recall and not job.stop and job.id not in plan.states:
            chosen.append(job)
            over -= klass.need[at]
    for job in chosen if over <= 0 else ():
        if plan.room() <= 0:
            plan.full = True
            return
        recall(plan, job, "quota")


# ---------------------------------------------------------------------------------------- those who starve


def help_starving(plan: Plan, turns: Turns) -> int | None:
    """Ask others to yield to those who are entitled to it, or keep what comes free for the first; when to look again."""
    times = [job.offered_ns + REVIEW_NS for job in islice(turns.pool.offers.values(), 1)]  # the oldest may be fresh yet
    for place, starving in enumerate(_starving(plan, turns)):
        if plan.room() <= 0:
            plan.full = True
            break
        at_ns = _help(plan, turns.pool, starving, is_first=place == 0)
        if at_ns is not None:
            times.append(at_ns)
    return min((at_ns for at_ns in times if at_ns > plan.now_ns), default=None)


def _starving(plan: Plan, turns: Turns) -> list[Starving]:
    """Those who wait for a place, by rank, and the first under each limit that is in the way."""
    pool, root = turns.pool, turns.pool.tree.root
    stuck = sorted(stuck_offers(plan, pool), key=lambda job: job.rank)[:STARVING_MAX]
    found = [Starving(job, job.lane, root, {}, True) for job in stuck]
    for node, (lane, closed) in list(turns.refused.items())[:STARVING_MAX]:
        refusal, job = closed.refusal, lane.first()
        if refusal is None or job is None or job.id in plan.states or refusal.needed > refusal.ceiling:
            continue
        missing = {refusal.resource: refusal.held + refusal.needed - refusal.ceiling}
        found.append(Starving(job, lane, node, missing, False))
    return found


def _help(plan: Plan, pool: Pool, starving: Starving, *, is_first: bool) -> int | None:
    job = starving.job
    claim = starving.under.claim
    if job.asked == "asked" or job.yielders or (claim is not None and claim.holder != job.id):
        return None
    again_ns = job.since_ns + ASK_AFTER_NS
    if job.asked == "declined":
        again_ns = max(again_ns, job.asked_ns + ASK_AGAIN_NS)
    next_ns: int | None = again_ns
    if again_ns <= plan.now_ns:
        found = Search(pool, starving, plan.now_ns).find()
        next_ns = found.next_ns
        if found.victims:
            _ask(plan, starving, found.victims)
            return None
    patient_ns = job.since_ns + pool.settings.patience_ns
    if not is_first or not _may_claim(pool, starving):
        return next_ns
    if patient_ns > plan.now_ns:
        return patient_ns if next_ns is None else min(patient_ns, next_ns)
    _keep(plan, pool, starving)
    return next_ns


def _ask(plan: Plan, starving: Starving, victims: tuple[Victim, ...]) -> None:
    plan.emit(
        PreemptionRequested(
            cause=starving.job.cause, job=starving.job.id, attempt=max(1, starving.job.attempt), victims=victims,
            queue=starving.under.path, amounts=starving.missing,
        ),
        extra_bytes=80 * len(victims),
    )  # fmt: skip


def _may_claim(pool: Pool, starving: Starving) -> bool:
    """One claim at a time in a pool; a job that claimed under a limit goes on to claim a place."""
    if not pool.claimant:
        return True
    return pool.claimant == starving.job.id and bool(pool.claims_under) and starving.charged


def _keep(plan: Plan, pool: Pool, starving: Starving) -> None:
    job = starving.job
    under = "" if starving.charged else starving.under.path
    if isinstance(job, Array) and starving.charged:
        return
    plan.emit(
        ReservationRequested(
            cause=job.cause, job=job.id, attempt=max(1, job.attempt), waited_ns=plan.now_ns - job.since_ns, queue=under
        )
    )


# ---------------------------------------------------------------------------------------- news


def renew_news(plan: Plan, turns: Turns) -> list[tuple[Lane, Closed]]:
    """Lanes of which something else holds now than was said last, a while ago."""
    found: list[tuple[int, Lane, Closed]] = []
    for node in turns.pool.tree.nodes.values():
        if node.leaf is None:
            continue
        for _, job in node.leaf.fronts:
            lane = job.lane
            if lane.deferral is None or lane.deferral.at_ns + NEWS_NS > plan.now_ns or lane in turns.exhausted:
                continue
            closed = turns.gate(lane)
            if closed is None:
                continue
            resource = closed.refusal.resource if closed.refusal is not None else ""
            if (closed.reason, closed.queue, resource) != (
                lane.deferral.reason,
                lane.deferral.queue,
                lane.deferral.resource,
            ):
                found.append((lane.front, lane, closed))
    found.sort(key=lambda each: each[0])
    return [(lane, closed) for _, lane, closed in found[:NEWS_MAX]]
