"""Outlook of a job that is not submitted yet, for people: the explainer's outcome in the words of `why`. Pure."""

from collections.abc import Sequence

import msgspec

from fairlead_gateway.moments import SECOND_NS, rfc3339
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow
from fairlead_gateway.why import waiting, yielding
from fairlead_gateway.why.explained import with_explanation
from fairlead_gateway.why.proposals import no_room, proposals, too_few_nodes
from fairlead_schemas.http import api
from fairlead_schemas.queries.explainer import DryRunOutcome, DryRunQuota, Estimate, Explanation, SuggestedChange
from fairlead_schemas.queuefile.amounts import amount_word, amount_words, resource_word
from fairlead_schemas.queuefile.settings import DEFAULT_POOL
from fairlead_schemas.wire.commands import SubmitJob


def file_only(command: msgspec.Raw, why_not: str, sequence: int) -> api.DryRun:
    """Return the answer that is possible without the queue."""
    told = f"checked: file only; the queue could not be asked ({why_not})"
    return api.DryRun(checked="file", message=told, command=command, sequence=sequence)


def refused(command: msgspec.Raw, outcome: DryRunOutcome, sequence: int) -> api.DryRun:
    """Return the answer for a job that would be refused."""
    return api.DryRun(
        valid=False, message=f"would be refused: {outcome.message}", command=command, code=outcome.code,
        errors=[{"field": outcome.field, "message": outcome.message}], sequence=sequence,
    )  # fmt: skip


def accepted(
    views: Views, submit: SubmitJob, command: msgspec.Raw, outcome: DryRunOutcome, sequence: int, now_ns: int
) -> api.DryRun:
    """Return the answer for a job that would be accepted. `now_ns` (Unix) is the time from which its start is counted."""
    told = outcome.waits or Explanation(reason="next")
    row = _row(submit, outcome.pool, now_ns)
    changes = proposals(views, row, told)
    reason = _held_back(views, row, told, changes, now_ns)
    first = "its first element " if submit.array else ""
    return api.DryRun(
        message=f"would be accepted, but {reason.message}" if reason else f"would be accepted, and {first}offered at once",
        command=command, pool=outcome.pool, quota=[_quota(one) for one in outcome.quota], borrows=outcome.borrows,
        borrows_words=amount_words(outcome.borrows), reason=reason, changes=changes, ahead=told.ahead,
        first_ahead=list(told.first_ahead), displaces=[
            api.Displaced(
                job=one.job, rule=one.rule, gpu_seconds=one.gpu_s,
                message=yielding.might_yield(views, one, submit.queue, submit.priority),
            ) for one in outcome.displaces
        ],
        estimate=_estimate(
            outcome.estimate, now_ns, _unknown(views, row, reason), may_be_sooner=bool(outcome.displaces)
        ), sequence=sequence,
    )  # fmt: skip


def _row(submit: SubmitJob, pool: str, now_ns: int) -> JobRow:
    """The job as it would be, were it there: its request is of the pool that its queue is in."""
    request = msgspec.structs.replace(submit.request, pool="" if pool == DEFAULT_POOL else pool)
    return JobRow(
        "", submit.name, submit.queue, submit.user, submit.project, submit.kind, submit.priority, request, submit.spec,
        "queued", 0, now_ns, 0, submit.start_at_ns, after=submit.after,
    )  # fmt: skip


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
        "used": one.used, "after": one.after, "guaranteed": one.guaranteed, "maximum": one.maximum,
    }  # fmt: skip
    words: dict[str, str | int | None] = {"resource": resource_word(one.resource)}
    for name, amount in amounts.items():
        words[name] = None if amount is None else amount_word(one.resource, amount)
    return api.QuotaAfter(
        queue=one.queue, resource=one.resource, used=one.used, after=one.after, guaranteed=one.guaranteed,
        maximum=one.maximum, user=one.user, words=words,
    )  # fmt: skip


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
