"""The changes that an explanation proposes, held against the nodes. Pure.

The queue counts a pool as one machine: that much is free, but perhaps on no one node. So what "could start now" is asked
of the nodes as the views show them, and what a refused job waits for is named by what the placer found short. It proposes
only; who is placed where the placer alone decides.

Additions of an explanation to the one dominant reason: which jobs are ahead, what would change it, the next step.
Pure.

Outlook of a job that is not submitted yet, for people: the explainer's outcome in the words of `why`. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence, Set

import msgspec

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, PlacementRefusal
from fairlead_gateway.why import preemption, waiting
from fairlead_gateway.why.free_resources import (
    MILLI,
    NodeFreeResources,
    eligible_nodes,
    fits,
    fitting,
    free_on_node,
    is_judged,
    pool_nodes,
    scarce_resources,
)
from fairlead_gateway.why.sentences import name_list
from fairlead_gateway.why.waiting import LASTING, dominant, no_domain
from fairlead_schemas.http import api
from fairlead_schemas.http.api import Reason
from fairlead_schemas.queries.explainer import DryRunOutcome, DryRunQuota, Estimate, Explanation, SuggestedChange
from fairlead_schemas.queuefile.amounts import amount_word, amount_words, counted, is_are, number, resource_word
from fairlead_schemas.queuefile.settings import DEFAULT_POOL
from fairlead_schemas.units.hardware import DOMAIN_LABELS
from fairlead_schemas.units.selectors import suits
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339
from fairlead_schemas.wire.commands import SubmitJob
from fairlead_schemas.wire.resource_requests import gpus, needs, places
from fairlead_schemas.wire.resources import Request

#: {what the placer found short on nodes: the resource}
_SHORT = {"free_gpus": "gpu", "free_gpu_memory": "gpu", "free_cpu": "cpu", "free_memory": "memory"}


def proposed_changes(views: Views, row: JobRow, told: Explanation) -> list[SuggestedChange]:
    """Return the explanation's changes that nodes do not contradict. Propose fewer GPUs where no node has that many free."""
    request, free = row.request, _free(views, row)
    refusal = views.waiting.refusals.get(request) if told.reason in ("place", "turn") else None
    found: list[SuggestedChange] = []
    if refusal is not None:
        found = list(_for_refused(views, row, refusal))
        if "gpu" in _short(refusal) and all(change.kind != "smaller" for change in told.changes):
            found += _smaller(request, request.gpu_milli - 1, free)
    elif told.reason == "next" and no_room(views, row):
        found = [
            _wait(request, scarce_resources(request, free), bool(free)),
            *_smaller(request, request.gpu_milli - 1, free),
        ]
    for change in told.changes:
        match change.kind:
            case "wait" if refusal is not None:
                continue
            case "smaller" if views.nodes.rows:
                found += _smaller(request, change.amount, free)
            case "other_queue" | "quota" if views.nodes.rows and not fits(request, free):
                continue
            case _:
                found.append(change)
    return found


def _for_refused(views: Views, row: JobRow, refusal: PlacementRefusal) -> Iterator[SuggestedChange]:
    """Another request, where waiting does not end what is in the way; what it waits for, where it may end."""
    domain, cause = no_domain(views, refusal), dominant(views, row, refusal)
    for told in (domain, cause):
        if told.lasting:
            yield SuggestedChange(kind="request", message=told.next)
    if not domain.lasting and (not refusal.reasons or any(each not in LASTING for each in refusal.reasons)):
        yield _wait(row.request, _short(refusal), all(each in _SHORT for each in refusal.reasons))


def _short(refusal: PlacementRefusal) -> set[str]:
    return {_SHORT[cause] for cause in refusal.reasons if cause in _SHORT}


def too_few_nodes(views: Views, request: Request) -> str:
    """Return why the nodes that have joined could not take the job even if they were empty; "" where they could, or no
    node is known.
    """
    able = [node for node in pool_nodes(views, request) if suits(node.inventory.labels, request.selector)]
    rooms = [free_on_node(node, request, {}) for node in able]
    if fits(request, rooms) or not views.nodes.rows:
        return ""
    count = fitting(request, rooms)
    if request.tasks:
        return f"needs {needs(request)}; the nodes that have joined could take {count} of them, even if nothing ran"
    verb = "have" if count > 1 else "has"
    return f"needs {needs(request)}; {_nodes(count)} that {verb} joined could take it, even if nothing ran"


def no_room(views: Views, row: JobRow) -> str:
    """Return why nodes could not take the job now, whatever its queue allows; "" where they could, or no node is known."""
    request, free = row.request, _free(views, row)
    if fits(request, free) or not views.nodes.rows:
        return ""
    count = fitting(request, free)
    if request.tasks:
        left = f"the nodes that may take it have as much left for {count} of them"
    else:
        left = f"{_nodes(count)} that may take it {'have' if count > 1 else 'has'} as much left"
    return too_few_nodes(views, request) or f"needs {needs(request)}; {left}"


def _nodes(count: int) -> str:
    return f"only {count} node{'s' if count > 1 else ''}" if count else "no node"


def _free(views: Views, row: JobRow) -> list[NodeFreeResources]:
    """Return the room left on each node that may take the job now."""
    return [free_on_node(node, row.request, node.held) for node in eligible_nodes(views, row.request, row.id)]


def _smaller(request: Request, most: int, free: Sequence[NodeFreeResources]) -> Iterator[SuggestedChange]:
    """The most GPUs of a unit, or the largest share, with which nodes could take it: `most` milli-GPU at most."""
    for milli in _less(request, most, free) if is_judged(request) else ():
        if fits(msgspec.structs.replace(request, gpu_milli=milli), free):
            each = f" {'for each task' if request.tasks else 'on each node'}" if request.nodes > 1 else ""
            message = (
                f"could start now with {counted('gpu', milli)} instead of {number('gpu', request.gpu_milli)}{each}"
            )
            yield SuggestedChange(kind="smaller", message=message, resource="gpu", amount=milli)
            return


def _less(request: Request, most: int, free: Sequence[NodeFreeResources]) -> Iterable[int]:
    """milli-GPU of a unit, the most first: whole GPUs, or shares as large as what is left of some GPU."""
    if not request.gpu_parts:
        return range(most // MILLI * MILLI, 0, -MILLI)
    shares = {gpu.milli * request.gpu_parts for each in free for gpu in each.gpus}
    return sorted((milli for milli in shares if 0 < milli <= most), reverse=True)


def _wait(request: Request, short: Set[str], any_node: bool) -> SuggestedChange:
    """Return the change that must come free on nodes: its GPUs, and other scarce resources. `any_node`: nothing else keeps
    nodes from the job.
    """
    amounts = {"gpu": request.gpu_milli, "cpu": request.cpu_milli, "memory": request.memory_mib}
    named = [r for r, amount in amounts.items() if amount and (r in short or r == "gpu")] or ["cpu"]
    told = " and ".join((gpus(request) if r == "gpu" else "") or counted(r, amounts[r]) for r in named)
    verb = is_are(named[0], amounts[named[0]]) if len(named) == 1 else "are"
    domain = next((level for level in DOMAIN_LABELS if level in request.require), "")
    where = places(request, tasks=request.tasks) + (f" of one {domain}" if domain and request.nodes > 1 else "")
    return SuggestedChange(
        kind="wait",
        message=f"starts when {told} {verb} free {where}{'' if any_node else ' that may take it'}",
        resource=named[0],
        amount=amounts[named[0]] * request.nodes,
    )


#: Jobs ahead that the evidence names.
NAMED_MAX = 10
#: Reasons that one of the changes would end.
_LIMITS = frozenset({"maximum", "larger_than_queue", "user_limit", "reserved"})


def with_explanation(reason: Reason, row: JobRow, told: Explanation, changes: Sequence[SuggestedChange]) -> Reason:
    """The reason with the jobs ahead in its evidence, and as next step what can be typed."""
    detail = dict(reason.detail)
    following = detail.pop("next", "")
    detail["ahead"] = told.ahead
    if told.first_ahead:
        detail["first_ahead"] = name_list(told.first_ahead[:NAMED_MAX], NAMED_MAX)
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


def dry_run_of_file(command: msgspec.Raw, why_not: str, sequence: int) -> api.DryRun:
    """Return the answer that is possible without the queue."""
    told = f"checked: file only; the queue could not be asked ({why_not})"
    return api.DryRun(checked="file", message=told, command=command, sequence=sequence)


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
    row = _row(submit, outcome.pool, now_ns)
    changes = proposed_changes(views, row, told)
    reason = _held_back(views, row, told, changes, now_ns)
    first = "its first element " if submit.array else ""
    return api.DryRun(
        message=f"would be accepted, but {reason.message}"
        if reason
        else f"would be accepted, and {first}offered at once",
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
        estimate=_estimate(
            outcome.estimate, now_ns, _unknown(views, row, reason), may_be_sooner=bool(outcome.displaces)
        ),
        sequence=sequence,
    )


def _row(submit: SubmitJob, pool: str, now_ns: int) -> JobRow:
    """The job as it would be, were it there: its request is of the pool that its queue is in."""
    request = msgspec.structs.replace(submit.request, pool="" if pool == DEFAULT_POOL else pool)
    return JobRow(
        "",
        submit.name,
        submit.queue,
        submit.user,
        submit.project,
        submit.kind,
        submit.priority,
        request,
        submit.spec,
        "queued",
        0,
        now_ns,
        0,
        submit.start_at_ns,
        after=submit.after,
    )


def _held_back(
    views: Views, row: JobRow, told: Explanation, changes: Sequence[SuggestedChange], now_ns: int
) -> api.Reason | None:
    """Return the reason that `why` would give for the job; None where nothing holds it back."""
    reason = waiting.queued(views, row, now_ns, told=told)
    if reason.code == "waiting_turn":
        if told.reason == "next":
            lacks = no_room(views, row)
            return api.Reason(code="no_place", message=lacks) if lacks else None
        if told.reason == "place":
            reason = api.Reason(code="no_place", message=told.message, detail=reason.detail)
    return _without_next(with_explanation(reason, row, told, changes))


def _without_next(reason: api.Reason) -> api.Reason:
    """Next steps speak of a job that is there."""
    detail = {name: value for name, value in reason.detail.items() if name != "next"}
    return api.Reason(code=reason.code, message=reason.message, detail=detail)


def _quota(one: DryRunQuota) -> api.QuotaAfter:
    amounts: dict[str, int | None] = {
        "used": one.used,
        "after": one.after,
        "guaranteed": one.guaranteed,
        "maximum": one.maximum,
    }
    words: dict[str, str | int | None] = {"resource": resource_word(one.resource)}
    for name, amount in amounts.items():
        words[name] = None if amount is None else amount_word(one.resource, amount)
    return api.QuotaAfter(
        queue=one.queue,
        resource=one.resource,
        used=one.used,
        after=one.after,
        guaranteed=one.guaranteed,
        maximum=one.maximum,
        user=one.user,
        words=words,
    )


def _unknown(views: Views, row: JobRow, reason: api.Reason | None) -> tuple[str, str]:
    """Return (why no start can be estimated at all, why no immediate start can); each is "" where it can."""
    few = too_few_nodes(views, row.request)
    held = reason is not None and reason.code == "no_place"
    return f"it {few}" if few else "", "the pool has as much left, but not on nodes that could take it" if held else ""


def _estimate(
    estimate: Estimate | None, now_ns: int, unknown: tuple[str, str], *, may_be_sooner: bool
) -> api.StartEstimate | None:
    if estimate is None:
        return None
    basis = f"{estimate.basis}; sooner where others yield" if may_be_sooner else estimate.basis
    wait_s = max(0, estimate.start_ns - now_ns) // SECOND_NS
    never, not_now = unknown
    if never or not estimate.start_ns or (not_now and not wait_s):
        told = never or (not_now if estimate.start_ns else basis)
        return api.StartEstimate(start_at=None, wait_seconds=None, basis=told)
    return api.StartEstimate(start_at=rfc3339(estimate.start_ns), wait_seconds=wait_s, basis=basis)
