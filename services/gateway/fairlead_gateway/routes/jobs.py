"""Verbs on jobs: small bodies, one command each. The answer is the job as it is then."""

from fastapi import Request, Response

from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.redaction import shown_job
from fairlead_gateway.access.submits import require_move
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.command_results import CommandPublisher, ResultWaiter
from fairlead_gateway.errors import bad_field
from fairlead_gateway.http_messages import JsonResponse, head_of, read_request
from fairlead_gateway.routes.documents import job_document
from fairlead_gateway.routes.request_bodies import CancelRequest, EmptyRequest, MoveRequest, require_job
from fairlead_gateway.routes.router import Router, on_job
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http.api import Job, SubmitResult
from fairlead_schemas.units.ids import is_queue_path
from fairlead_schemas.wire import commands

JOB_VERBS = {"cancel": commands.CancelJob, "hold": commands.HoldJob, "release": commands.ReleaseJob}


def job_or_id(views: Views, job: str, caller: Caller) -> Response:
    """Return the document of a job, or its id once it has left the views or the caller's sight."""
    row = views.jobs.rows.get(job)
    sight = Sight(views, caller)
    if row is None or not sight.job(row):
        return JsonResponse(SubmitResult(id=job, sequence=views.sequence))
    return JsonResponse(shown_job(sight, job_document(views, row, views.at_ns)))


def routes(views: Views, queue: CommandPublisher, waiter: ResultWaiter) -> Router:
    """Return all of them."""
    router = Router()

    def add_verb(verb: str) -> None:
        kind = CancelRequest if verb == "cancel" else EmptyRequest
        summary = f"{verb.capitalize()} a job"
        path = f"/v1/jobs/{{job}}:{verb}"

        @router.command(
            "POST",
            path,
            summary,
            Job,
            SubmitResult,
            right=on_job("job:cancel"),
            body=kind,
            required=False,
            operation_id=f"{verb}_job",
        )
        async def act(job: str, request: Request) -> Response:
            head, wanted = head_of(request), await read_request(request, kind)
            require_job(views, job)
            fields = {"save": True} if isinstance(wanted, CancelRequest) and wanted.save else {}
            command_id = waiter.command_id(queue, head, verb, job, *fields)
            await waiter.carry_out(
                queue, JOB_VERBS[verb](id=command_id, user=head.user, authority=head.authority, job=job, **fields)
            )
            return job_or_id(views, job, head.caller)

    for verb in JOB_VERBS:
        add_verb(verb)

    @router.command(
        "POST",
        "/v1/jobs/{job}:move",
        "Move a waiting job to another queue",
        Job,
        SubmitResult,
        right=on_job("job:cancel"),
        body=MoveRequest,
    )
    async def move_job(job: str, request: Request) -> Response:
        head, wanted = head_of(request), (await read_request(request, MoveRequest)).queue
        require_job(views, job)
        if not is_queue_path(wanted):
            message = f'expected a queue such as "research/vision", found "{wanted[:80]}"'
            raise bad_field("queue", message)
        require_move(views, head.caller, job, wanted)
        command_id = waiter.command_id(queue, head, "move", job, wanted)
        await waiter.carry_out(
            queue, commands.MoveJob(id=command_id, user=head.user, authority=head.authority, job=job, queue=wanted)
        )
        return job_or_id(views, job, head.caller)

    return router
