"""Rights of a submit: the queue, and the jobs on which it depends.

The queue service names existing queues and jobs in its refusals, so a caller who may not see all of them gets the refusal
from here, in the same words for a queue that does not exist and for one that it may not see.
"""

from collections.abc import Collection

from fairlead_gateway.access.caller import CLUSTER, Caller
from fairlead_gateway.access.targets import Sight, queue_target, submit_target
from fairlead_gateway.errors import HttpError, invalid
from fairlead_gateway.views.fold import Views
from fairlead_schemas.units.validation import FieldError

#: Queues that a refusal names at most.
NAMED_MAX = 20


def require_submit(views: Views, caller: Caller, queue: str, project: str, field: str) -> None:
    """Raise HttpError unless the caller may submit jobs of a project to a queue: 403, or 422 for a queue that it cannot see."""
    if caller.is_open or (caller.may("job:submit", CLUSTER) and caller.may("queue:read", CLUSTER)):
        return
    target = submit_target(views, queue, project, caller.user)
    row = views.queues.rows.get(queue)
    if caller.may("job:submit", target):
        if row is not None and row.exists:
            return
    elif row is not None and row.exists and caller.may("queue:read", queue_target(views, queue)):
        raise caller.denial("job:submit", target)
    raise _unknown_queue(views, caller, queue, field)


def require_dependencies(views: Views, caller: Caller, jobs: Collection[str]) -> None:
    """Raise HttpError (422) unless the caller may read every job on which a submit depends."""
    if not jobs or caller.is_open or caller.may("job:read", CLUSTER):
        return
    sight = Sight(views, caller)
    for job in jobs:
        if not sight.job_id(job):
            raise invalid([FieldError(field="dependsOn", message=f"there is no job {job[:40]}")])


def _unknown_queue(views: Views, caller: Caller, queue: str, field: str) -> HttpError:
    sight = Sight(views, caller)
    known = [row.path for row in views.queues.existing() if sight.queue(row.path)]
    named = ", ".join(known[:NAMED_MAX]) or "none"
    return invalid([FieldError(field=field, message=f'no queue "{queue[:80]}"; expected one of: {named}')])
