"""What would change a job's wait, in sentences, and the dry run of a job that is not submitted yet. Pure.

The queue counts a pool as one machine: that much is free, but perhaps on no one node. So the queue's changes are compared
with the free resources of the nodes as the views show them, and what a refused job waits for is named by what the placer
found short. The placer alone decides which job is placed where.
"""

from collections.abc import Iterable, Iterator, Sequence, Set

import msgspec

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.jobs import row_of
from fairlead_gateway.views.rows import JobRow, PlacementRefusal
from fairlead_gateway.why import preemption
from fairlead_gateway.why.causes import dominant, no_domain
from fairlead_gateway.why.free_resources import JobPool, fitting, is_judged, scarce_resources
from fairlead_gateway.why.sentences import Detail, several
from fairlead_gateway.why.waiting import waiting_reason
from fairlead_schemas.http import api
from fairlead_schemas.http.api import Reason, SuggestedChange
from fairlead_schemas.queries.cluster_map import WHOLE_MILLI
from fairlead_schemas.queries.explainer import (
    AHEAD_MAX,
    DryRunOutcome,
    DryRunQuota,
    Estimate,
    Explanation,
    MissingAmount,
    PossibleChange,
)
from fairlead_schemas.queuefile.amounts import amount_word, amount_words, counted, is_are, number, resource_word
from fairlead_schemas.queuefile.settings import DEFAULT_POOL
from fairlead_schemas.units.hardware import DOMAIN_LABELS
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339
from fairlead_schemas.wire.commands import SubmitJob
from fairlead_schemas.wire.placement_causes import CAUSES, Cause
from fairlead_schemas.wire.resource_requests import gpus, needs, places

#: Reasons that one of the changes would end.
_LIMITS = frozenset({"maximum", "larger_than_queue", "user_limit", "reserved"})


def proposed_changes(pool: JobPool, told: Explanation) -> list[SuggestedChange]:
    """Return the explanation's changes that nodes do not contradict. Propose fewer GPUs where no node has that many free."""
    request, refusal = pool.request, pool.refusal if told.reason in ("place", "turn") else None
    found: list[SuggestedChange] = []
    if refusal is not None:
        found = list(_for_refused(pool, refusal))
        if "gpu" in _short(refusal) and all(change.kind != "smaller" for change in told.changes):
            found += _smaller(pool, request.gpu_milli - 1)
    elif told.reason == "next" and not pool.has_room():
        scarce = scarce_resources(request, pool.free.values())
        found = [_wait_for_place(pool, scarce, any_node=bool(pool.free)), *_smaller(pool, request.gpu_milli - 1)]
    elif told.reason == "place" and request.gpu_milli:
        found.append(_wait_for_place(pool))
    for change in told.changes:
        match change.kind:
            case "wait" if change.short:  # an explainer of an earlier release names a place, too
                found.append(_wait(change))
            case "smaller":
                found += _smaller(pool, change.gpu_milli)
            case "other_queue" if pool.has_room():
                message = f"could start now in queue {change.queue}"
                found.append(SuggestedChange(kind="other_queue", message=message, queue=change.queue))
            case "quota" if pool.has_room():
                found.append(_quota_change(change))
            case _:
                pass
    return found


def _for_refused(pool: JobPool, refusal: PlacementRefusal) -> Iterator[SuggestedChange]:
    """Yield another request, where waiting does not end what is in the way; what it waits for, where it may end."""
    domain = no_domain(pool, refusal)
    for cause in (domain, dominant(pool, refusal)):
        if cause.lasting:
            yield SuggestedChange(kind="request", message=cause.next)
    causes = [CAUSES.get(name, Cause("", "")) for name in refusal.reasons]
    if not domain.lasting and (not causes or any(not cause.lasting for cause in causes)):
        yield _wait_for_place(pool, _short(refusal), any_node=all(cause.short for cause in causes))


def _short(refusal: PlacementRefusal) -> set[str]:
    return {CAUSES[name].short for name in refusal.reasons if name in CAUSES} - {""}


def _wait_for_place(pool: JobPool, short: Set[str] = frozenset(), *, any_node: bool = True) -> SuggestedChange:
    """Return the change that must come free on nodes: its GPUs, and other scarce resources. `any_node`: nothing else keeps
    nodes from the job.
    """
    request = pool.request
    amounts = {"gpu": request.gpu_milli, "cpu": request.cpu_milli, "memory": request.memory_mib}
    named = [r for r, amount in amounts.items() if amount and (r in short or r == "gpu")] or ["cpu"]
    first, total = named[0], amounts[named[0]] * request.nodes
    counts = " and ".join((gpus(request) if r == "gpu" else "") or counted(r, amounts[r]) for r in named)
    parts = first == "gpu" and (request.profile or request.replicas)
    verb = is_are(first, request.gpu_parts * WHOLE_MILLI if parts else amounts[first]) if len(named) == 1 else "are"
    domain = next((level for level in DOMAIN_LABELS if level in request.require), "")
    where = places(request, tasks=request.tasks) + (f" of one {domain}" if domain and request.nodes > 1 else "")
    message = f"starts when {counts} {verb} free {where}{'' if any_node else ' that may take it'}"
    return SuggestedChange(kind="wait", message=message, resource=first, amount=total)


def _wait(change: PossibleChange) -> SuggestedChange:
    """Return the change that limits wait for: "starts when 4 GPUs and 6 CPUs of research are given back"."""
    first, owners = change.short[0], dict[tuple[str, bool], list[MissingAmount]]()
    for each in change.short:
        owner = f"{each.user} in {each.queue}" if each.user else each.queue or "the pool"
        owners.setdefault((owner, each.lent), []).append(each)
    clauses: list[str] = []
    for (owner, lent), shorts in owners.items():
        amounts = " and ".join(counted(each.resource, each.amount) for each in shorts)
        verb = "are" if len(shorts) > 1 else is_are(shorts[0].resource, shorts[0].amount)
        lacking = (
            f"{amounts} more of {owner} {verb} left to lend" if lent else f"{amounts} of {owner} {verb} given back"
        )
        clauses.append(f"{amounts} of {owner}" if change.before else lacking)
    then = ""
    if change.before:
        verb = is_are(first.resource, first.amount) if len(change.short) == 1 else "are"
        then = f" {verb} left by {_before(change.before)}"
    message = f"starts when {' and '.join(clauses)}{then}"
    return SuggestedChange(
        kind="wait", message=message, queue=first.queue, resource=first.resource, amount=first.amount
    )


def _quota_change(change: PossibleChange) -> SuggestedChange:
    """Return each limit raised by as little as would do, for the jobs before the job, too."""
    queues: list[str] = []
    for each in change.raised:
        words = [f"hold {counted(each.resource, each.maximum)}"] if each.maximum else []
        words += [f"borrow {counted(each.resource, each.borrowing)}"] if each.borrowing else []
        queues.append(f"{each.queue} might {' and '.join(words)}")
    first, also = change.raised[0], f", with {_before(change.before)}" if change.before else ""
    message = f"could start now if {' and '.join(queues)}{also}"
    return SuggestedChange(kind="quota", message=message, queue=first.queue, resource=first.resource, amount=first.use)


def _before(count: int) -> str:
    if count >= AHEAD_MAX:
        return f"the {AHEAD_MAX} jobs or more before it"
    return "the job before it" if count == 1 else f"the {count} jobs before it"


def _smaller(pool: JobPool, most: int) -> Iterator[SuggestedChange]:
    """Yield the most GPUs of a unit, or the largest share, with which nodes could take it: `most` milli-GPU at most."""
    request = pool.request
    for milli in _less(pool, most) if is_judged(request) or not pool.is_known else ():
        if pool.has_room(milli):
            each = f" {'for each task' if request.tasks else 'on each node'}" if request.nodes > 1 else ""
            less = f"{counted('gpu', milli)} instead of {number('gpu', request.gpu_milli)}{each}"
            message = f"could start now with {less}"
            yield SuggestedChange(kind="smaller", message=message, resource="gpu", amount=milli)
            return


def _less(pool: JobPool, most: int) -> Iterable[int]:
    """Return milli-GPU of a unit, the most first: whole GPUs, or shares as large as what is left of some GPU."""
    if not pool.request.gpu_parts:
        return range(most // WHOLE_MILLI * WHOLE_MILLI, 0, -WHOLE_MILLI)
    shares = {gpu.milli * pool.request.gpu_parts for each in pool.free.values() for gpu in each.gpus.values()}
    return sorted((milli for milli in shares if 0 < milli <= most), reverse=True)


def _too_little(pool: JobPool, *, if_empty: bool = False) -> str:
    """Return why nodes could not take the job now (`if_empty`: even if nothing ran), whatever its queue allows; "" where they
    could, or no node is known.
    """
    if pool.has_room(if_empty=if_empty):
        return ""
    count = fitting(pool.request, pool.empty if if_empty else pool.free.values())
    nodes, have = f"only {several(count, 'node')}" if count else "no node", "have" if count > 1 else "has"
    if if_empty:
        joined = f"the nodes that have joined could take {count} of them"
        able = joined if pool.request.tasks else f"{nodes} that {have} joined could take it"
        able += ", even if nothing ran"
    else:
        left = f"the nodes that may take it have as much left for {count} of them"
        able = left if pool.request.tasks else f"{nodes} that may take it {have} as much left"
    return f"needs {needs(pool.request)}; {able}"


def explained(views: Views, row: JobRow, now_ns: int, told: Explanation) -> tuple[Reason, list[SuggestedChange]]:
    """Return the reason of a queued or offered job by the explainer's answer, and what would change it. Nodes are looked at
    once.
    """
    pool = JobPool(views, row.request, row.id)
    changes = proposed_changes(pool, told)
    return _with_explanation(waiting_reason(views, row, pool, now_ns, told=told), row, told, changes), changes


def _with_explanation(reason: Reason, row: JobRow, told: Explanation, changes: Sequence[SuggestedChange]) -> Reason:
    """Return the reason with the jobs ahead in its evidence, and as next step what can be typed."""
    detail: Detail = dict(reason.detail)
    following = detail.pop("next", "")
    detail["ahead"] = told.ahead
    if told.first_ahead:
        detail["first_ahead"] = ", ".join(told.first_ahead)
    if detail.get("now", reason.code) in _LIMITS:
        following = _next(row, changes) or following
    if any(change.kind == "request" and change.message == following for change in changes):
        following = f"fairlead cancel {row.id}, and submit it again so"
    if following:
        detail["next"] = following
    return Reason(code=reason.code, message=reason.message, detail=detail)


def _next(row: JobRow, changes: Sequence[SuggestedChange]) -> str:
    other = next((change.queue for change in changes if change.kind == "other_queue"), "")
    if other and row.state == "queued" and not row.array_id:
        return f"fairlead move {row.id} --queue {other}"
    return "wait for one of these, and see who holds what: fairlead queues" if changes else ""


# ---------------------------------------------------------------------------------------- dry runs


def dry_run_of_file(command: msgspec.Raw, why_not: str, sequence: int) -> api.DryRun:
    """Return the answer that is possible without the queue."""
    message = f"checked: file only; the queue could not be asked ({why_not})"
    return api.DryRun(checked="file", message=message, command=command, sequence=sequence)


def refused_dry_run(command: msgspec.Raw, outcome: DryRunOutcome, sequence: int) -> api.DryRun:
    """Return the answer for a job that would be refused."""
    return api.DryRun(
        valid=False,
        message=f"would be refused: {outcome.message}",
        command=command,
        code=outcome.code,
        errors=[{"field": outcome.field, "message": outcome.message}],
        sequence=sequence,
    )


def accepted_dry_run(
    views: Views, submit: SubmitJob, command: msgspec.Raw, outcome: DryRunOutcome, sequence: int, now_ns: int
) -> api.DryRun:
    """Return the answer for a job that would be accepted. `now_ns` (Unix) is the time from which its start is counted."""
    told = outcome.waits or Explanation(reason="next")
    row = row_of(submit, "", "queued", 0, now_ns, 0)
    # Its request is of the pool that its queue is in.
    row.request = msgspec.structs.replace(row.request, pool="" if outcome.pool == DEFAULT_POOL else outcome.pool)
    pool = JobPool(views, row.request)
    changes = proposed_changes(pool, told)
    reason = _held_back(views, pool, row, told, changes)
    offered = f"and {'its first element ' if submit.array else ''}offered at once"
    return api.DryRun(
        message=f"would be accepted, {f'but {reason.message}' if reason else offered}",
        command=command,
        pool=outcome.pool,
        quota=[_quota(one) for one in outcome.quota],
        borrows=outcome.borrows,
        borrows_words=amount_words(outcome.borrows),
        reason=reason,
        changes=changes,
        ahead=told.ahead,
        first_ahead=list(told.first_ahead),
        displaces=[
            api.Displaced(
                job=one.job,
                rule=one.rule,
                gpu_seconds=one.gpu_s,
                message=preemption.might_yield(views, one, submit.queue, submit.priority),
            )
            for one in outcome.displaces
        ],
        estimate=start_estimate(outcome, now_ns, pool, no_place=reason is not None and reason.code == "no_place"),
        sequence=sequence,
    )


def _held_back(
    views: Views, pool: JobPool, row: JobRow, told: Explanation, changes: Sequence[SuggestedChange]
) -> Reason | None:
    """Return the reason that `why` would give for the job; None where nothing holds it back."""
    reason = waiting_reason(views, row, pool, row.submitted_ns, told=told)
    if reason.code == "waiting_turn":
        if told.reason == "next":
            lacks = _too_little(pool, if_empty=True) or _too_little(pool)
            return Reason(code="no_place", message=lacks) if lacks else None
        if told.reason == "place":
            message = f"pool {row.request.pool or DEFAULT_POOL} has less left than it needs"
            if told.no_place == "class_refused":
                message = "others that ask for the same found no place, and nothing has come free since"
            reason = Reason(code="no_place", message=message, detail=reason.detail)
    reason = _with_explanation(reason, row, told, changes)
    reason.detail.pop("next", None)  # next steps are for a job that is there
    return reason


def _quota(one: DryRunQuota) -> api.QuotaAfter:
    amounts = {"used": one.used, "after": one.after, "guaranteed": one.guaranteed, "maximum": one.maximum}
    words: dict[str, str | int | None] = {"resource": resource_word(one.resource)}
    for name, amount in amounts.items():
        words[name] = None if amount is None else amount_word(one.resource, amount)
    return api.QuotaAfter(**msgspec.structs.asdict(one), words=words)


def start_estimate(outcome: DryRunOutcome, now_ns: int, pool: JobPool, *, no_place: bool) -> api.StartEstimate | None:
    """Return the estimate of the start, or why there is none: too few nodes, or (`no_place`) no room for an immediate start."""
    estimate = outcome.estimate
    if estimate is None:
        return None
    few = _too_little(pool, if_empty=True)
    basis = _basis(estimate) + ("; sooner where others yield" if outcome.displaces else "")
    wait_s = max(0, estimate.start_ns - now_ns) // SECOND_NS
    if few or not estimate.start_ns or (no_place and not wait_s):
        not_now = "the pool has as much left, but not on nodes that could take it" if no_place else ""
        unknown = f"it {few}" if few else not_now if estimate.start_ns else basis
        return api.StartEstimate(start_at=None, wait_seconds=None, basis=unknown)
    return api.StartEstimate(start_at=rfc3339(estimate.start_ns), wait_seconds=wait_s, basis=basis)


#: {`Estimate.unknown`: in words}
_UNKNOWN = {
    "after": "it waits for other jobs, whose end is unknown",
    "no_node": "no node of the pool is known yet",
    "reserved": "what it needs is kept for queues that do not lend it, and it is unknown when they will use less",
    "claimed": "what it needs is kept for a job that has waited longer",
    "queue_held": "its queue is held, and it is unknown for how long",
}


def _basis(estimate: Estimate) -> str:
    if estimate.unknown:
        return _UNKNOWN[estimate.unknown]
    before = several(estimate.ahead, "job") if estimate.ahead else "no jobs"
    at_least = "at least " if estimate.more and estimate.ahead else ""
    runs_on = f"{several(estimate.unlimited, 'job')} without a limit {'is' if estimate.unlimited == 1 else 'are'}"
    without = f"; {runs_on} taken to run on" if estimate.unlimited else ""
    order = f"with {at_least}{before} before it, in the order of now; the pool as one machine"
    return f"time limits of all that runs, {order}{without}"
