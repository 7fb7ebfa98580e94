"""Changes that the queue proposes, in the gateway's sentences."""

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import NO_SPEC, JobRow
from fairlead_gateway.why.explanation import proposed_changes
from fairlead_schemas.http.api import SuggestedChange
from fairlead_schemas.queries.explainer import Explanation
from fairlead_schemas.wire.resources import Request


def sentences(request: Request, told: Explanation) -> list[SuggestedChange]:
    """Return the changes for a job with this request, as they are shown where no node is known that contradicts them."""
    row = JobRow(
        id="1",
        name="",
        queue="",
        user="",
        project="",
        kind="",
        priority=0,
        request=request,
        spec=NO_SPEC,
        state="queued",
        born=0,
        submitted_ns=0,
        changed_seq=0,
    )
    return proposed_changes(Views(), row, told)
