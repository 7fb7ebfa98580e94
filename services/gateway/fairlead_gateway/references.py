"""Checks that the objects named by a command exist, before it is sent.

A command that cannot mean anything needs no decision: refused here, it costs no message, no commit and no place in
a log that is kept permanently. The views may be a moment behind, never wrong about what they show: a job or node
that was reported to a client is in them. Anything that takes a decision (does the state allow it?) stays with the
service. Pure.
"""

from fairlead_gateway.problems import Refused, not_found
from fairlead_gateway.views.fold import Views
from fairlead_schemas.units import taints
from fairlead_schemas.units.ids import is_job_id, is_token
from fairlead_schemas.units.validation import FieldError


def require_job(views: Views, job: str) -> None:
    """Raise Refused (404) unless the job, or the array of an element that was not offered yet, is in the views."""
    if not is_job_id(job):
        raise not_found("job", job[:80])
    if job not in views.jobs.rows and job.partition("_")[0] not in views.jobs.rows:
        raise not_found("job", job, hint="GET /v1/jobs lists them; one that ended long ago cannot be changed")


def require_node(views: Views, node: str) -> None:
    """Raise Refused (404) unless the node is in the views."""
    if not is_token(node) or node not in views.nodes.rows:
        raise not_found("node", node[:80], hint="GET /v1/nodes lists them")


def require_taint(text: str) -> None:
    """Raise Refused (422) unless the text is a taint."""
    try:
        taints.parse_full_taint(text)
    except taints.TaintError as error:
        errors = [FieldError(field="taint", message=str(error))]
        raise Refused(422, "bad_taint", f"taint: {error}", errors=errors) from None
