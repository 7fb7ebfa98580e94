"""Changes that the queue proposes, in the gateway's sentences."""

from fairlead_gateway.views.fold import Views
from fairlead_gateway.why import explanation
from fairlead_gateway.why.free_resources import JobPool
from fairlead_schemas.http.api import StartEstimate, SuggestedChange
from fairlead_schemas.queries.explainer import DryRunOutcome, Explanation
from fairlead_schemas.wire.resources import Request


def sentences(request: Request, told: Explanation) -> list[SuggestedChange]:
    """Return the changes for a job with this request, as they are shown where no node is known that contradicts them."""
    return explanation.proposed_changes(JobPool(Views(), request), told)


def start_estimate(outcome: DryRunOutcome) -> StartEstimate:
    """Return the estimate of the start in words, where no node is known that contradicts it."""
    found = explanation.start_estimate(outcome, 0, JobPool(Views(), Request()), no_place=False)
    assert found is not None
    return found
