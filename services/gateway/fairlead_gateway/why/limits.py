"""The queue's reason not to offer a job (JobDeferred, or the explainer's answer), in a sentence with its numbers. Pure.

`next` names the smallest change that these numbers show. A new reason is one function and one entry in `_REASONS`.
"""

from collections.abc import Callable

import msgspec

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queues import charge_of
from fairlead_gateway.views.rows import ClosureRow, DeferralRow, JobRow
from fairlead_gateway.why.sentences import given_back, name_list, numbers, reason, several
from fairlead_schemas.http.api import Reason
from fairlead_schemas.queries.explainer import Explanation, Limit
from fairlead_schemas.queuefile.amounts import counted, gpu_hours_word, number
from fairlead_schemas.units.timestamps import calendar_period, rfc3339
from fairlead_schemas.wire.lifecycle import CHARGED_STATES

#: Queues that a sentence names as keeping what they do not lend.
KEEPERS_MAX = 3


def limit_reason(views: Views, row: JobRow, told: Explanation | None) -> Reason | None:
    """Return the queue's own reason: that of an explanation, or else the one in the log. None when it gave none, or only that
    others go first.
    """
    if told is not None:
        limit = msgspec.structs.asdict(told.limit or Limit())
        deferral = DeferralRow(row.id, 0, 0, told.reason, **limit)
    else:
        deferral, full = views.waiting.deferral_of(row), _full(views, row)
        if deferral is None:
            deferral = full
        elif full is not None and _key(deferral) == _key(full):
            # The deferral was reported once. Since then other jobs came and went, or the limit was changed.
            deferral = msgspec.structs.replace(deferral, held=full.held, ceiling=full.ceiling)
    held = views.queues.holding(row.queue)
    if held is not None or (
        deferral is not None and deferral.reason == "queue_held"
    ):  # released since, where none is held
        deferral = held and DeferralRow(row.id, 0, 0, "queue_held", held.path)
    if deferral is None or deferral.reason not in _REASONS:
        return None
    found = _REASONS[deferral.reason](views, row, deferral)
    if deferral.sequence:
        found.detail.update(decided_at_sequence=deferral.sequence, decided_for=deferral.job)
    return found


def _key(deferral: DeferralRow) -> tuple[str, str, str]:
    return deferral.reason, deferral.queue, deferral.resource


def _full(views: Views, row: JobRow) -> DeferralRow | None:
    """Return a maximum that the job would break by what is charged now: for when the queue has given no reason yet."""
    asked = charge_of(row.request)
    for queue in views.queues.line(row.queue):
        for resource, needed in asked:
            ceiling = views.queues.ceiling(queue.path, resource)
            held = queue.charged.get(resource, 0)
            if ceiling is not None and held + needed > ceiling:
                return DeferralRow(row.id, 0, 0, "maximum", queue.path, resource, held, needed, ceiling)
    return None


def _whose(views: Views, row: JobRow, d: DeferralRow) -> str:
    return f"queue {d.queue}" if d.queue else f"pool {views.queues.pool_of(row.queue)}"


def _reason(code: str, message: str, d: DeferralRow, then: str, **more: str) -> Reason:
    amounts = numbers(d.resource, held=d.held, needed=d.needed, ceiling=d.ceiling) if d.resource else {}
    return reason(code, message, then, queue=d.queue, **amounts, **more)


def _too_large(d: DeferralRow, holder: str, where: str, limit: str, **more: str) -> Reason:
    most = f"{holder} may hold {number(d.resource, d.ceiling)} at most{where}"
    then = f"ask for less, use another queue, or raise the {limit}"
    return _reason("larger_than_queue", f"asks for {counted(d.resource, d.needed)}; {most}", d, then, **more)


def _once_given_back(row: JobRow, d: DeferralRow, whose: str) -> str:
    """Return what must be given back, or the smaller request that would fit by these numbers."""
    resource, nodes, over = d.resource, row.request.nodes, d.held + d.needed - d.ceiling
    then = f"starts when {given_back(resource, over, whose)}" if over > 0 else "starts when it is lent"
    if d.reason == "reserved" and over > 0:
        then += " or lent"
    asked = dict(charge_of(row.request)).get(resource, 0)
    left = asked - over
    if not 0 < left < asked or row.request.also:
        return then
    if nodes == 1:
        return f"{then}, or ask for {number(resource, left)} instead of {number(resource, asked)}"
    fitting = left * nodes // asked
    units = several(fitting, "task" if row.request.tasks else "node")
    return f"{then}, or ask for {units} instead of {nodes}" if fitting else then


# --------------------------------------------------------------------------------- one of each


def _maximum(views: Views, row: JobRow, d: DeferralRow) -> Reason:
    whose = _whose(views, row, d)
    if d.needed > d.ceiling:
        return _too_large(d, whose, "", f"maximum of {d.queue or whose}")
    held = f"{number(d.resource, d.held)} of {counted(d.resource, d.ceiling)}{_borrowed(views, d)}"
    message = f"{whose} is at {held}; this needs {number(d.resource, d.needed)}"
    return _reason("maximum", message, d, _once_given_back(row, d, d.queue or whose))


def _borrowed(views: Views, d: DeferralRow) -> str:
    """Return the parts of a ceiling that is a limit on borrowing; "" for other ceilings."""
    borrowing = views.queues.settings(d.queue).borrowing.get(d.resource)
    guaranteed = views.queues.guaranteed(d.queue).get(d.resource, 0)
    if borrowing is None or guaranteed + borrowing != d.ceiling:
        return ""
    return f" ({number(d.resource, guaranteed)} guaranteed, {number(d.resource, borrowing)} borrowed at most)"


def _user_limit(views: Views, row: JobRow, d: DeferralRow) -> Reason:
    user = views.name_of(row.user)
    whom = user if row.user in views.queues.settings(d.queue).users else "one user"
    if d.needed > d.ceiling:
        return _too_large(d, whom, f" in {d.queue}", f"limit of {whom} in {d.queue}", user=user)
    held = f"{number(d.resource, d.held)} of the {counted(d.resource, d.ceiling)} that {whom} may hold in {d.queue}"
    message = f"{user} holds {held}; this needs {number(d.resource, d.needed)}"
    return _reason("user_limit", message, d, _once_given_back(row, d, f"{user} in {d.queue}"), user=user)


def _reserved(views: Views, row: JobRow, d: DeferralRow) -> Reason:
    """Return the reason that unused capacity is kept for queues (below `d.queue`, or anywhere) that do not lend it."""
    whose = _whose(views, row, d)
    if not d.resource:
        message = f"what {whose} has left is kept for queues that do not lend it"
        return _reason("reserved", message, d, "wait, or let them lend more of it")
    used = f"{number(d.resource, d.held)} of {counted(d.resource, d.ceiling)} are used"
    message = f"needs {counted(d.resource, d.needed)}; of {whose}, {used}, or kept for queues that do not lend them"
    message += _keepers(views, row, d)
    return _reason("reserved", message, d, _once_given_back(row, d, d.queue or whose))


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
    message = f"what is free is kept for {f'job {d.holder}' if d.holder else 'a job'}, which has waited longer"
    then = "starts after it" + (f": fairlead why {d.holder}" if d.holder else "")
    return _reason("claimed", message, d, then, holder=d.holder)


def _budget(views: Views, _row: JobRow, d: DeferralRow) -> Reason:
    queue, budget = views.queues.rows.get(d.queue), views.queues.settings(d.queue).budget
    reached = queue.reached if queue is not None else None
    spent, whole = (reached.spent, reached.budget) if reached is not None else (d.held, d.ceiling)
    period = budget.period if budget is not None else "period"
    message, then, ends = f"the budget of {d.queue} is spent", f"with the next {period}", None
    if whole:
        message += f": {gpu_hours_word(spent)} of {gpu_hours_word(whole)} GPU-hours this {period}"
    if reached is not None and budget is not None:
        ends = rfc3339(calendar_period(budget.period, reached.period_ns)[1])
        then = f"{then} at {ends}"
    amounts = {"spent_gpu_milli_s": spent, "budget_gpu_milli_s": whole} if whole else {}
    then = f"starts {then}, or when the budget of {d.queue} is raised"
    return reason("budget", message, then, queue=d.queue, **amounts, period_ends=ends)


def _queue_held(views: Views, _row: JobRow, d: DeferralRow) -> Reason:
    held = views.queues.line(d.queue)[0].held or ClosureRow("", "", 0)
    by, why = views.name_of(held.by), f" ({held.reason})" if held.reason else ""
    message = f"queue {d.queue} is held{f' by {by}' if by else ''}: nothing new of it starts{why}"
    then = f"starts when it is released: fairlead queues release {d.queue}"
    return reason("queue_held", message, then, queue=d.queue, by=by, since=rfc3339(held.at_ns))


def _array_limit(views: Views, row: JobRow, d: DeferralRow) -> Reason:
    array = views.jobs.rows.get(row.array_id, row)
    limit = d.ceiling or array.array_limit
    at_work = sum(count for state, count in (array.elements or {}).items() if state in CHARGED_STATES)
    work = f"of array {array.id} {'are' if at_work > 1 else 'is'} at work"
    then = "starts when one of them has ended; submitted without %, all may run at once"
    message = f"{at_work} of at most {several(limit, 'element')} {work}"
    return reason("array_limit", message, then, array=array.id, at_work=at_work, limit=limit)


_REASONS: dict[str, Callable[[Views, JobRow, DeferralRow], Reason]] = {
    "maximum": _maximum,
    "user_limit": _user_limit,
    "reserved": _reserved,
    "claimed": _claimed,
    "budget": _budget,
    "array_limit": _array_limit,
    "queue_held": _queue_held,
}
