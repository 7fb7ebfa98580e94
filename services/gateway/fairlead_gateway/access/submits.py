"""Rights of a submit: the queue, the project, and the jobs on which it depends; and of a move to another queue.

The queue service names existing queues and jobs in its refusals, so a caller who may not see all of them gets the refusal
from here, in the same words for a queue that does not exist and for one that it may not see.
"""

from collections.abc import Collection

from fairlead_gateway.access.caller import CLUSTER, Caller
from fairlead_gateway.access.targets import Sight, queue_target, submit_target
from fairlead_gateway.errors import HttpError, invalid
from fairlead_gateway.views.fold import Views
from fairlead_gateway.why.dominant_reason import row_or_array
from fairlead_rights.access_list import Target
from fairlead_rights.command_rights import FREE_PROJECTS
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.units.validation import FieldError

#: Queues that a refusal names at most.
NAMED_MAX = 20


def require_submit(views: Views, caller: Caller, queue: str, project: str, field: str) -> None:
    """Raise HttpError unless the caller may submit jobs of a project to a queue: 403, or 422 for a queue that it cannot see. A project that
    is named needs the right on itself, too: its secrets are its jobs'.
    """
    if caller.is_open:
        return
    target = submit_target(views, queue, project, caller.user)
    row = views.queues.rows.get(queue)
    if row is None or not row.exists or not caller.may("job:submit", target):  # most submits need no further question
        if caller.may("job:submit", CLUSTER) and caller.may("queue:read", CLUSTER):
            return
        _require_queue(views, caller, target, field)
    if project not in FREE_PROJECTS:
        caller.require("job:submit", Target(project=project))
    caller.note_submit(queue, project)


def queues_beside(views: Views, sight: Sight, own: str, most: int) -> tuple[str, ...]:
    """Return queues to which the caller could submit instead: leaves that it sees, those beside its own first."""
    above, paths = own.rpartition("/")[0], sorted(path for path, row in views.queues.rows.items() if row.exists)
    leaves = [each for each in paths if each != own and not any(other.startswith(f"{each}/") for other in paths)]
    caller = sight.caller
    found = [
        each
        for each in leaves
        if sight.queue(each)
        and (caller.is_open or caller.may("job:submit", submit_target(views, each, "", caller.user)))
    ]
    return tuple(sorted(found, key=lambda each: (each.rpartition("/")[0] != above, each))[:most])


def require_move(views: Views, caller: Caller, job: str, queue: str) -> None:
    """Raise HttpError unless the caller may submit a job of its project and owner to a queue, as `require_submit` does. The job is in its
    project already, whoever moves it; the right to take it from its queue, `job:cancel`, is the route's.
    """
    if caller.is_open or (caller.may("job:submit", CLUSTER) and caller.may("queue:read", CLUSTER)):
        return
    row = row_or_array(views, job)
    project, owner = (row.project, row.user) if row is not None else ("", "")
    _require_queue(views, caller, submit_target(views, queue, project, owner), "queue")


def _require_queue(views: Views, caller: Caller, target: Target, field: str) -> None:
    queue = target.queue
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
    return invalid(
        [
            FieldError(
                field=field, message=f'no queue "{queue[:80]}"; expected one of: {named}{did_you_mean(queue, known)}'
            )
        ]
    )
