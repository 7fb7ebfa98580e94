"""Changes that the queue proposes, in the gateway's sentences."""

from fairlead_gateway.views.fold import Views
from fairlead_gateway.why.explanation import proposed_changes
from fairlead_gateway.why.free_resources import JobPool
from fairlead_schemas.http.api import SuggestedChange
from fairlead_schemas.queries.explainer import Explanation
from fairlead_schemas.wire.resources import Request


def sentences(request: Request, told: Explanation) -> list[SuggestedChange]:
    """Return the changes for a job with this request, as they are shown where no node is known that contradicts them."""
    return proposed_changes(JobPool(Views(), request), told)
