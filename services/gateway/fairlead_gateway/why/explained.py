"""Additions of an explanation to the one dominant reason: which jobs are ahead, what would change it, the next step.
Pure.
"""

from collections.abc import Sequence

from fairlead_gateway.views.rows import JobRow
from fairlead_gateway.why.amounts import these
from fairlead_schemas.http.api import Reason
from fairlead_schemas.queries.explainer import Explanation, SuggestedChange

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
        detail["first_ahead"] = these(told.first_ahead[:NAMED_MAX], NAMED_MAX)
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
