"""Verbs on jobs, and changes of them: small bodies, one command each. The answer is the job as it is then."""

from functools import partial
from typing import Any

import msgspec
from fastapi import Request, Response

from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.redaction import shown_job, shown_to
from fairlead_gateway.access.submits import require_move
from fairlead_gateway.access.targets import Sight, job_target
from fairlead_gateway.command_results import CommandPublisher, ResultWaiter, verb_refusal
from fairlead_gateway.errors import HttpError, bad_field, rejected
from fairlead_gateway.http_messages import JsonResponse, encode, head_of, read_request
from fairlead_gateway.routes import entity_tags
from fairlead_gateway.routes.documents import job_document
from fairlead_gateway.routes.entity_tags import key_part, unchanged_since
from fairlead_gateway.routes.request_bodies import (
    CancelRequest,
    EmptyRequest,
    JobChange,
    MoveRequest,
    SignalRequest,
    require_job,
)
from fairlead_gateway.routes.router import Router, on_job
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, OutcomeRow
from fairlead_schemas.http.api import Job, SubmitResult
from fairlead_schemas.jobfile.update import change_fault
from fairlead_schemas.policies.checkpoints import signal_fault, signal_name
from fairlead_schemas.units.ids import array_of, is_queue_path
from fairlead_schemas.units.quantities import QuantityError, parse_duration
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire import commands

#: A change of labels is merged so often with what others change at the same moment.
LABEL_TRIES = 10
JOB_VERBS = {
    "cancel": commands.CancelJob,
    "requeue": commands.RequeueJob,
    "hold": commands.HoldJob,
    "release": commands.ReleaseJob,
}


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
    for verb in JOB_VERBS:
        _add_verb(router, views, queue, waiter, verb)
    _add_signal(router, views, queue, waiter)
    _add_move(router, views, queue, waiter)
    _add_update(router, views, queue, waiter)
    return router


def _add_verb(router: Router, views: Views, queue: CommandPublisher, waiter: ResultWaiter, verb: str) -> None:
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
            queue,
            JOB_VERBS[verb](id=command_id, user=head.user, authority=head.authority, job=job, **fields),
            shown_to(views, head.caller, verb_refusal),
        )
        return job_or_id(views, job, head.caller)


def _add_signal(router: Router, views: Views, queue: CommandPublisher, waiter: ResultWaiter) -> None:
    @router.command(
        "POST",
        "/v1/jobs/{job}:signal",
        "Send a signal to the programs of a running job, once",
        Job,
        SubmitResult,
        right=on_job("job:cancel"),
        body=SignalRequest,
    )
    async def signal_job(job: str, request: Request) -> Response:
        head, name = head_of(request), signal_name((await read_request(request, SignalRequest)).signal)
        require_job(views, job)
        if fault := signal_fault(name):
            raise bad_field("signal", fault)
        command_id = waiter.command_id(queue, head, "signal", job, name)
        await waiter.carry_out(
            queue,
            commands.SignalJob(id=command_id, user=head.user, authority=head.authority, job=job, signal=name),
            shown_to(views, head.caller, verb_refusal),
        )
        return job_or_id(views, job, head.caller)


def _add_move(router: Router, views: Views, queue: CommandPublisher, waiter: ResultWaiter) -> None:
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
            queue,
            commands.MoveJob(id=command_id, user=head.user, authority=head.authority, job=job, queue=wanted),
            shown_to(views, head.caller, verb_refusal),
        )
        return job_or_id(views, job, head.caller)


def _add_update(router: Router, views: Views, queue: CommandPublisher, waiter: ResultWaiter) -> None:
    @router.command(
        "PATCH",
        "/v1/jobs/{job}",
        "Change a job's name, labels, priority or time limit; with If-Match only if it has not changed since",
        Job,
        SubmitResult,
        right=on_job("job:cancel"),
        body=JobChange,
        matched=True,
    )
    async def update_job(job: str, request: Request) -> Response:
        head, wanted = head_of(request), await read_request(request, JobChange)
        seen = unchanged_since(request)
        # Labels are merged here, so others may not change them before the command is decided: then they are merged again.
        tries = LABEL_TRIES if seen is None and wanted.labels is not msgspec.UNSET else 1
        for number in range(tries):
            row = _row_of(views, job)
            changes = changes_of(views, row, wanted)
            if changes.get("total_ns") is not None and not 0 < changes["total_ns"] <= row.total_ns:
                changes["extends"] = head.caller.may("queue:set", job_target(views, row))
            changes["unchanged_since"] = views.sequence if tries > 1 else seen
            own = head._replace(key=f"{head.key}\0{number}") if number and head.key is not None else head
            command_id = waiter.command_id(queue, own, "update", job, encode(wanted).decode(), *key_part(seen))
            command = commands.UpdateJob(id=command_id, user=head.user, authority=head.authority, job=job, **changes)
            try:
                refusal = shown_to(views, head.caller, partial(_update_refusal, job))
                await waiter.carry_out(queue, command, refusal)
            except HttpError as refused:
                if refused.code != entity_tags.REFUSED or number == tries - 1:
                    raise
            else:
                break
        return job_or_id(views, job, head.caller)


def _update_refusal(job: str, outcome: OutcomeRow) -> HttpError:
    if outcome.code == entity_tags.REFUSED:
        return entity_tags.stale_refusal(outcome, f"/v1/jobs/{job}")
    if outcome.code == "limit_promised":
        hint = "a queue-admin of its queue may extend it; or submit it again with a longer limit"
        errors = [FieldError(field="time.total", message=outcome.message)]
        return HttpError(409, outcome.code, outcome.message, errors=errors, hint=hint)
    return rejected(outcome.code, outcome.message)


def _row_of(views: Views, job: str) -> JobRow:
    """Return the row of a job or array. Raise HttpError: 404, or 409 for an element of an array."""
    require_job(views, job)
    array = array_of(job)
    if array is not None:
        raise HttpError(
            409, "conflict", f"job {job} is an element of an array; change array {array}, with all its elements"
        )
    return views.jobs.rows[job]


def changes_of(views: Views, row: JobRow, wanted: JobChange) -> dict[str, Any]:
    """Return the fields of an UpdateJob. Raise HttpError naming the field that cannot be."""
    changes: dict[str, Any] = {}
    if wanted.name is not msgspec.UNSET:
        changes["name"] = wanted.name
    if wanted.priority is not msgspec.UNSET:
        changes["priority"] = wanted.priority
    if wanted.time is not msgspec.UNSET:
        changes["total_ns"] = 0 if wanted.time.total is None else _limit_ns(wanted.time.total)
    if wanted.labels is not msgspec.UNSET:
        labels: dict[str, str | None] = msgspec.json.decode(views.jobs.spec_of(row)).get("labels", {})
        changes["labels"] = {key: value for key, value in (labels | wanted.labels).items() if value is not None}
    fault = change_fault(changes.get("name"), changes.get("priority"), changes.get("labels"))
    if fault is not None:
        raise bad_field(fault.field, fault.message)
    if not changes:
        raise bad_field("", "expected at least one of name, priority, time and labels, found none")
    return changes


def _limit_ns(total: str | int) -> int:
    try:
        found = parse_duration(total)
    except QuantityError as error:
        raise bad_field("time.total", str(error)) from error
    if found <= 0:
        raise bad_field("time.total", f'expected more than 0, such as "4h", or null for no limit, found "{total}"')
    return found
