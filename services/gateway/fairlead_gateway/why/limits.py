"""The queue's reason not to offer a job (JobDeferred), in a sentence with its numbers. Pure.

`next` names the smallest change that these numbers show.
"""

from collections.abc import Callable

import msgspec

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queues import charge_of
from fairlead_gateway.views.rows import DeferralRow, JobRow, QueueRow
from fairlead_gateway.why.sentences import given_back, name_list, numbers
from fairlead_schemas.http.api import Reason
from fairlead_schemas.queries.explainer import Explanation
from fairlead_schemas.queuefile.amounts import counted, gpu_hours_word, number
from fairlead_schemas.queuefile.settings import QueueSettings
from fairlead_schemas.units.timestamps import calendar_period, rfc3339
from fairlead_schemas.wire.lifecycle import CHARGED_STATES

Detail = dict[str, int | str]
#: Queues that a sentence names as keeping what they do not lend.
KEEPERS_MAX = 3


def deferred(views: Views, row: JobRow) -> Reason | None:
    """The queue's own reason; None when it gave none, or only that others go first."""
    deferral, full = views.waiting.deferral_of(row), _full(views, row)
    if deferral is None:
        deferral = full
    elif full is not None and _is_same(deferral, full):
        # The deferral was reported once. Since then other jobs came and went, or the limit was changed.
        deferral = msgspec.structs.replace(deferral, held=full.held, ceiling=full.ceiling)
    tell = _TELL.get(deferral.reason) if deferral is not None else None
    if deferral is None or tell is None:
        return None
    reason = tell(views, row, deferral)
    if deferral.sequence:
        reason.detail.update(decided_at_sequence=deferral.sequence, decided_for=deferral.job)
    return reason


def explained(views: Views, row: JobRow, told: Explanation) -> Reason | None:
    """The limit that an explanation names, in the same words; None when no limit is in the way."""
    tell = _TELL.get(told.reason)
    if tell is None:
        return None
    text, whole = _texts(told.numbers), _wholes(told.numbers)
    return tell(
        views,
        row,
        DeferralRow(
            row.id,
            0,
            0,
            told.reason,
            text.get("queue", ""),
            text.get("resource", ""),
            whole.get("held", 0),
            whole.get("needed", 0),
            whole.get("ceiling", 0),
            text.get("holder", ""),
        ),
    )


def _texts(numbers: Detail) -> dict[str, str]:
    return {name: value for name, value in numbers.items() if isinstance(value, str)}


def _wholes(numbers: Detail) -> dict[str, int]:
    return {name: value for name, value in numbers.items() if isinstance(value, int)}


def _is_same(said: DeferralRow, now: DeferralRow) -> bool:
    return (said.reason, said.queue, said.resource) == (now.reason, now.queue, now.resource)


def _full(views: Views, row: JobRow) -> DeferralRow | None:
    """Return a maximum that the job would break by what is charged now. It is used when the queue has not reached this job
    yet, or when the log is from before the queue recorded its reasons.
    """
    asked = charge_of(row.request)
    for queue in views.queues.line(row.queue):
        for resource, needed in asked:
            ceiling = _ceiling(views, queue, resource)
            held = queue.charged.get(resource, 0)
            if ceiling is not None and held + needed > ceiling:
                return DeferralRow(row.id, 0, 0, "maximum", queue.path, resource, held, needed, ceiling)
    return None


def _ceiling(views: Views, queue: QueueRow, resource: str) -> int | None:
    settings = queue.settings or QueueSettings()
    most, borrowed = settings.maximum.get(resource), settings.borrowing.get(resource)
    if borrowed is None:
        return most
    beyond = views.queues.guaranteed(queue.path).get(resource, 0) + borrowed
    return beyond if most is None else min(most, beyond)


def _detail(deferral: DeferralRow, **more: int | str) -> Detail:
    queue: Detail = {"queue": deferral.queue} if deferral.queue else {}
    if not deferral.resource:
        return {**queue, **more}
    amounts = numbers(deferral.resource, held=deferral.held, needed=deferral.needed, ceiling=deferral.ceiling)
    return {**queue, **amounts, **more}


def _or_less(row: JobRow, deferral: DeferralRow) -> str:
    """Return a smaller request that would fit by these numbers; "" where they show none."""
    resource, nodes = deferral.resource, row.request.nodes
    asked = dict(charge_of(row.request)).get(resource, 0)
    left = asked - (deferral.held + deferral.needed - deferral.ceiling)
    if left <= 0 or left >= asked:
        return ""
    if row.request.also:
        return ""
    if nodes == 1:
        return f", or ask for {number(resource, left)} instead of {number(resource, asked)}"
    fitting = left * nodes // asked
    unit = "task" if row.request.tasks else "node"
    return f", or ask for {fitting} {unit}{'' if fitting == 1 else 's'} instead of {nodes}" if fitting else ""


# --------------------------------------------------------------------------------- one of each


def _maximum(views: Views, row: JobRow, d: DeferralRow) -> Reason:
    whose = f"queue {d.queue}" if d.queue else f"pool {views.queues.pool_of(row.queue)}"
    if d.needed > d.ceiling:
        return Reason(
            code="larger_than_queue",
            message=f"asks for {counted(d.resource, d.needed)}; {whose} may hold {number(d.resource, d.ceiling)} at most",
            detail=_detail(d, next=f"ask for less, use another queue, or raise the maximum of {d.queue or whose}"),
        )
    then = given_back(d.resource, d.held + d.needed - d.ceiling, d.queue or whose)
    return Reason(
        code="maximum",
        message=f"{whose} is at {number(d.resource, d.held)} of {counted(d.resource, d.ceiling)}{_borrowed(views, d)}; "
        f"this needs {number(d.resource, d.needed)}",
        detail=_detail(d, next=f"{then}{_or_less(row, d)}"),
    )


def _borrowed(views: Views, d: DeferralRow) -> str:
    """Return the parts of a ceiling that is a limit on borrowing; "" for other ceilings."""
    row = views.queues.rows.get(d.queue)
    settings = row.settings if row is not None and row.settings else QueueSettings()
    borrowing = settings.borrowing.get(d.resource)
    guaranteed = views.queues.guaranteed(d.queue).get(d.resource, 0)
    if borrowing is None or guaranteed + borrowing != d.ceiling:
        return ""
    return f" ({number(d.resource, guaranteed)} guaranteed, {number(d.resource, borrowing)} borrowed at most)"


def _user_limit(views: Views, row: JobRow, d: DeferralRow) -> Reason:
    queue = views.queues.rows.get(d.queue)
    users = queue.settings.users if queue is not None and queue.settings else {}
    whom = row.user if row.user in users else "one user"
    if d.needed > d.ceiling:
        return Reason(
            code="larger_than_queue",
            message=f"asks for {counted(d.resource, d.needed)}; {whom} may hold {number(d.resource, d.ceiling)} at most in {d.queue}",
            detail=_detail(
                d, user=row.user, next=f"ask for less, use another queue, or raise the limit of {whom} in {d.queue}"
            ),
        )
    then = given_back(d.resource, d.held + d.needed - d.ceiling, f"{row.user} in {d.queue}")
    return Reason(
        code="user_limit",
        message=f"{row.user} holds {number(d.resource, d.held)} of the {counted(d.resource, d.ceiling)} that {whom} may hold "
        f"in {d.queue}; this needs {number(d.resource, d.needed)}",
        detail=_detail(d, user=row.user, next=f"{then}{_or_less(row, d)}"),
    )


def _reserved(views: Views, row: JobRow, d: DeferralRow) -> Reason:
    """Return the reason that unused capacity is kept for queues (below `d.queue`, or anywhere) that do not lend it."""
    whose = f"queue {d.queue}" if d.queue else f"pool {views.queues.pool_of(row.queue)}"
    if not d.resource:
        return Reason(
            code="reserved",
            message=f"what {whose} has left is kept for queues that do not lend it",
            detail=_detail(d, next="wait, or let them lend more of it"),
        )
    over = d.held + d.needed - d.ceiling
    then = f"{given_back(d.resource, over, d.queue or whose)} or lent" if over > 0 else "starts when it is lent"
    return Reason(
        code="reserved",
        message=f"needs {counted(d.resource, d.needed)}; of {whose}, {number(d.resource, d.held)} of "
        f"{counted(d.resource, d.ceiling)} are used, or kept for queues that do not lend them{_keepers(views, row, d)}",
        detail=_detail(d, next=f"{then}{_or_less(row, d)}"),
    )


def _keepers(views: Views, row: JobRow, d: DeferralRow) -> str:
    """Return the queues (below `d.queue`, or of the pool) that keep idle amounts of the resource, and the limits by which they do,
    the largest amount first; "" where none does now.
    """
    found: list[tuple[int, str, str]] = []
    pool = views.queues.pool_of(row.queue)
    for queue in views.queues.existing():
        lent = queue.settings.lending.get(d.resource) if queue.settings is not None else None
        below = queue.path.startswith(f"{d.queue}/") if d.queue else views.queues.pool_of(queue.path) == pool
        if lent is None or not below:
            continue
        guaranteed = views.queues.guaranteed(queue.path).get(d.resource, 0)
        idle = guaranteed - lent - queue.charged.get(d.resource, 0)
        limits = f"guaranteed {number(d.resource, guaranteed)}, lending {number(d.resource, lent)}"
        if idle > 0:
            found.append((-idle, queue.path, f"{queue.path} keeps {number(d.resource, idle)} ({limits})"))
    return f": {name_list([words for *_, words in sorted(found)], KEEPERS_MAX)}" if found else ""


def _claimed(_views: Views, _row: JobRow, d: DeferralRow) -> Reason:
    holder = f"job {d.holder}" if d.holder else "a job"
    detail = _detail(d, next=f"starts after it: fairlead why {d.holder}" if d.holder else "starts after it")
    if d.holder:
        detail["holder"] = d.holder
    return Reason(code="claimed", message=f"what is free is kept for {holder}, which has waited longer", detail=detail)


def _budget(views: Views, _row: JobRow, d: DeferralRow) -> Reason:
    queue = views.queues.rows.get(d.queue)
    settings = queue.settings if queue is not None else None
    reached = queue.reached if queue is not None else None
    budget = settings.budget if settings is not None else None
    spent, whole = (reached.spent, reached.budget) if reached is not None else (d.held, d.ceiling)
    period = budget.period if budget is not None else "period"
    told = f": {gpu_hours_word(spent)} of {gpu_hours_word(whole)} GPU-hours this {period}" if whole else ""
    detail: Detail = {"queue": d.queue}
    if whole:
        detail.update(spent_gpu_milli_s=spent, budget_gpu_milli_s=whole)
    then = f"with the next {period}"
    if reached is not None and budget is not None:
        detail["period_ends"] = rfc3339(calendar_period(budget.period, reached.period_ns)[1])
        then = f"{then} at {detail['period_ends']}"
    detail["next"] = f"starts {then}, or when the budget of {d.queue} is raised"
    return Reason(code="budget", message=f"the budget of {d.queue} is spent{told}", detail=detail)


def _array_limit(views: Views, row: JobRow, d: DeferralRow) -> Reason:
    array = views.jobs.rows.get(row.array_id, row)
    limit = d.ceiling or array.array_limit
    at_work = sum(count for state, count in (array.elements or {}).items() if state in CHARGED_STATES)
    return Reason(
        code="array_limit",
        message=f"{at_work} of at most {limit} element{'s' if limit > 1 else ''} of array {array.id} {'are' if at_work > 1 else 'is'} at work",
        detail={
            "array": array.id,
            "at_work": at_work,
            "limit": limit,
            "next": "starts when one of them has ended; submitted without %, all may run at once",
        },
    )


_TELL: dict[str, Callable[[Views, JobRow, DeferralRow], Reason]] = {
    "maximum": _maximum,
    "user_limit": _user_limit,
    "reserved": _reserved,
    "claimed": _claimed,
    "budget": _budget,
    "array_limit": _array_limit,
}
