"""The hot routes: POST /v1/jobs and POST /v1/events (CloudEvents).

Bodies are decoded strictly, turned into commands, published, and answered when the decision is in the log;
or with 202 and the command's id when the queue takes longer than the decision wait. Where a list holds
anything invalid, the whole list is refused and nothing is stored.

POST /v1/jobs:dryrun: what would become of one job, or of each of a list. Nothing is sent to the queue.

The file is checked here; the rest the explainer says, which asks the queue's own gates. Without one the file is checked all
the same, and the answer says so. One that would be refused is answered as a submit would be.
"""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from fairlead_gateway.command_results import CommandPublisher, ResultWaiter
from fairlead_gateway.errors import invalid, rejected, wrong_media_type
from fairlead_gateway.http_messages import (
    HINT,
    ONE_BYTES_MAX,
    HttpResponse,
    RequestHead,
    bind_key,
    check_count,
    decode_error,
    encode,
    error_inside,
    errors_at,
    is_list,
    refuse_list,
    repeated_key_errors,
    too_large,
)
from fairlead_gateway.routes.job_translator import (
    JobTranslator,
    Submission,
    container_field,
    image_warning,
    runtime_error,
    split_list,
)
from fairlead_gateway.sources.service_queries import ExplainerClient
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, OutcomeRow
from fairlead_gateway.why import explanation
from fairlead_gateway.why.reason import reason_of, request_class
from fairlead_schemas.http import api
from fairlead_schemas.http import cloudevents as ce
from fairlead_schemas.http.api import Reason, SubmitResult
from fairlead_schemas.jobfile.job_spec import decode_job
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.queries.explainer import COMMANDS_MAX, AskDryRun, DryRunOutcome
from fairlead_schemas.units.ids import is_job_id
from fairlead_schemas.units.image_names import Registries
from fairlead_schemas.units.validation import FieldError, InvalidJob, field_error
from fairlead_schemas.wire.commands import CancelJob, HoldJob, ReleaseJob, SubmitJob
from fairlead_schemas.wire.resources import Request

LIST_JOBS_MAX = 20_000
#: Elements translated before others get the loop.
BREATH = 500

CLOUDEVENT = b"application/cloudevents+json"
CLOUDEVENT_BATCH = b"application/cloudevents-batch+json"
VERBS = {ce.JOB_CANCEL: CancelJob, ce.JOB_HOLD: HoldJob, ce.JOB_RELEASE: ReleaseJob}

#: Reasons given in one answer, keyed by the likeness of the jobs.
type ReasonCache = dict[tuple[str, str, int, Request], Reason | None]

_event = msgspec.json.Decoder(ce.CloudEventIn)
_event_list = msgspec.json.Decoder(list[msgspec.Raw])
_job_named = msgspec.json.Decoder(ce.JobNamed)


class PendingCommand(NamedTuple):
    """Command to be sent. `job` is "" for a submit."""

    id: str
    body: bytes
    job: str = ""
    #: What of the job file will not count, in a sentence.
    warning: str = ""


class SubmitRoutes:
    """Answers the hot routes."""

    def __init__(
        self, views: Views, gate: CommandPublisher, decisions: ResultWaiter, registries: Registries | None = None
    ) -> None:
        self._views = views
        self._gate = gate
        self._decisions = decisions
        self._translator = JobTranslator(registries)

    # ------------------------------------------------------------------ POST /v1/jobs

    async def jobs(self, head: RequestHead, body: bytes) -> HttpResponse:
        """Answer a submit of one job or a list of jobs. Raise Refused."""
        if head.content_type != b"application/json":
            raise wrong_media_type(head.content_type.decode("latin-1"), "application/json")
        self._decisions.require_ready()
        if is_list(body):
            return await self._many(await self._list_wishes(head, body))
        if len(body) > ONE_BYTES_MAX:
            raise too_large(ONE_BYTES_MAX)
        return await self._one(self._wish(head.user, body, bind_key(head.user, "job", head.key) if head.key else ""))

    def _wish(self, user: str, body: bytes, key: str) -> PendingCommand:
        try:
            return self._submit(self._translator.translate(user, body), key)
        except InvalidJob as error:
            raise invalid(error.errors, hint=HINT) from None

    def _submit(self, submission: Submission, key: str) -> PendingCommand:
        """Make the command of a submission. Raises InvalidJob where no node that has joined could begin it."""
        runtimes = self._views.nodes.runtimes()
        error = runtime_error(submission.has_image, submission.needs_container, runtimes)
        if error is not None:
            raise InvalidJob([error])
        command_id = self._gate.new_id()
        warning = image_warning(submission.has_image, runtimes)
        return PendingCommand(command_id, submission.command(command_id, key), warning=warning)

    async def _list_wishes(self, head: RequestHead, body: bytes) -> list[PendingCommand]:
        try:
            bodies = split_list(body)
        except InvalidJob as error:
            raise invalid(error.errors) from None
        check_count(len(bodies), LIST_JOBS_MAX)
        errors: list[FieldError] = []
        wishes: list[PendingCommand] = []
        for index, one in enumerate(bodies):
            if index % BREATH == BREATH - 1:
                await asyncio.sleep(0)
            key = bind_key(head.user, "list", head.key, str(index)) if head.key else ""
            try:
                wishes.append(self._submit(self._translator.translate(head.user, one), key))
            except InvalidJob as error:
                errors.extend(errors_at(index, error.errors))
        refuse_list(errors, len(bodies))
        return wishes

    # ------------------------------------------------------------------ POST /v1/events

    async def events(self, head: RequestHead, body: bytes) -> HttpResponse:
        """Answer one CloudEvent or a batch, in structured JSON. Raise Refused."""
        if head.content_type not in (CLOUDEVENT, CLOUDEVENT_BATCH):
            raise wrong_media_type(head.content_type.decode("latin-1"), CLOUDEVENT.decode(), CLOUDEVENT_BATCH.decode())
        self._decisions.require_ready()
        if head.content_type == CLOUDEVENT_BATCH:
            return await self._many(await self._event_wishes(head, body))
        if len(body) > ONE_BYTES_MAX:
            raise too_large(ONE_BYTES_MAX)
        try:
            wish = self._event_wish(head.user, _decode_event(body))
        except InvalidJob as error:
            raise invalid(error.errors) from None
        return await self._one(wish)

    async def _event_wishes(self, head: RequestHead, body: bytes) -> list[PendingCommand]:
        try:
            bodies = _event_list.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise invalid([decode_error(error)]) from None
        check_count(len(bodies), LIST_JOBS_MAX)
        errors: list[FieldError] = []
        wishes: list[PendingCommand] = []
        for index, one in enumerate(bodies):
            if index % BREATH == BREATH - 1:
                await asyncio.sleep(0)
            try:
                wishes.append(self._event_wish(head.user, _decode_event(bytes(one))))
            except InvalidJob as error:
                errors.extend(errors_at(index, error.errors))
        refuse_list(errors, len(bodies))
        return wishes

    def _event_wish(self, user: str, event: ce.CloudEventIn) -> PendingCommand:
        """Raises InvalidJob naming the attribute, Refused (409) for an id that was used for something else."""
        _check_envelope(event)
        key = bind_key(user, "event", event.source, event.id)
        if event.type == ce.JOB_SUBMIT:
            try:
                return self._submit(self._translator.translate(user, bytes(event.data)), key)
            except InvalidJob as error:
                raise InvalidJob([error_inside("data", one) for one in error.errors]) from None
        try:
            job = _job_named.decode(event.data).job
        except msgspec.MsgspecError as error:
            raise InvalidJob([error_inside("data", field_error(error, known=ce.JobNamed.__struct_fields__))]) from None
        if not is_job_id(job):
            raise InvalidJob(
                [FieldError(field="data.job", message=f'expected a job id such as "812", found "{job[:40]}"')]
            )
        if job not in self._views.jobs.rows and job.partition("_")[0] not in self._views.jobs.rows:
            raise InvalidJob([FieldError(field="data.job", message=f"there is no job {job}")])
        command = VERBS[event.type](id=self._decisions.keyed_id(key, event.type, job), user=user, job=job)
        return PendingCommand(command.id, encode(command), job)

    # ------------------------------------------------------------------ answers

    async def _one(self, wish: PendingCommand) -> HttpResponse:
        if not wish.job:
            self._decisions.require_room()
        outcome = await self._decisions.outcome(self._gate, wish.id, wish.body)
        if outcome is None:
            return self._undecided(wish)
        if outcome.code:
            raise rejected(outcome.code, outcome.message, outcome.field, submit=not wish.job)
        result = self._result(wish, outcome, {})
        status = 200 if outcome.repeated or wish.job else 201
        return HttpResponse(status, encode(result), ((b"location", b"/v1/jobs/" + result.id.encode()),))

    async def _many(self, wishes: list[PendingCommand]) -> HttpResponse:
        if not all(wish.job for wish in wishes):
            self._decisions.require_room()
        waiter = await self._decisions.outcomes(self._gate, [(wish.id, wish.body) for wish in wishes])
        told: ReasonCache = {}
        results = [self._result(wish, outcome, told) for wish, outcome in zip(wishes, waiter.outcomes, strict=True)]
        refusals = sum(outcome is not None and bool(outcome.code) for outcome in waiter.outcomes)
        return HttpResponse(200 if not waiter.left else 202, encode(results), refusals=refusals)

    def _undecided(self, wish: PendingCommand) -> HttpResponse:
        result = SubmitResult(command=wish.id, sequence=self._views.sequence)
        return HttpResponse(202, encode(result), ((b"location", b"/v1/commands/" + wish.id.encode()),))

    def _result(self, wish: PendingCommand, outcome: OutcomeRow | None, told: ReasonCache) -> SubmitResult:
        if outcome is None:
            return SubmitResult(command=wish.id, sequence=self._views.sequence)
        if outcome.code:
            errors = [{"field": outcome.field, "message": outcome.message}] if outcome.field else []
            reason = Reason(code=outcome.code, message=outcome.message)
            return SubmitResult(state="rejected", sequence=outcome.sequence, reason=reason, errors=errors)
        job, warnings = outcome.job or wish.job, [wish.warning] if wish.warning else []
        row = self._views.jobs.rows.get(job)
        if row is None:
            return SubmitResult(id=job, sequence=outcome.sequence, warnings=warnings)
        reason = self._reason(row, told) if row.state in ("queued", "scheduled", "held") else None
        return SubmitResult(id=job, state=row.state, sequence=self._views.sequence, reason=reason, warnings=warnings)

    def _reason(self, row: JobRow, told: ReasonCache) -> Reason | None:
        """Return the reason that the job waits; None where it only waits for its turn. Jobs of one likeness share one reason."""
        like = request_class(row)
        if like is not None and like in told:
            return told[like]
        found = reason_of(self._views, row, self._views.at_ns, count_ahead=False)
        reason = found if found.code != "waiting_turn" else None
        if like is not None:
            told[like] = reason
        return reason


# ---------------------------------------------------------------------------------------- checks


def _decode_event(body: bytes) -> ce.CloudEventIn:
    """Decode one CloudEvent. Raises InvalidJob naming the attribute."""
    try:
        event = _event.decode(body)
        errors = repeated_key_errors(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJob([decode_error(error)]) from None
    if errors:
        raise InvalidJob(errors)
    return event


def _check_envelope(event: ce.CloudEventIn) -> None:
    if event.specversion != ce.SPECVERSION:
        raise InvalidJob(
            [FieldError(field="specversion", message=f'expected "{ce.SPECVERSION}", found "{event.specversion[:20]}"')]
        )
    if event.type not in ce.TYPES_IN:
        raise InvalidJob(
            [FieldError(field="type", message=f'expected one of {", ".join(ce.TYPES_IN)}, found "{event.type[:80]}"')]
        )
    for field in ("source", "id"):
        if not getattr(event, field):
            raise InvalidJob([FieldError(field=field, message="expected at least one character")])
    if event.datacontenttype.partition(";")[0].strip().lower() != "application/json":
        raise InvalidJob(
            [
                FieldError(
                    field="datacontenttype",
                    message=f'expected "application/json", found "{event.datacontenttype[:80]}"',
                )
            ]
        )


_NO_SPEC = msgspec.Raw(b"null")


class DryRunRoutes:
    """Answers the route. `clock` is wall time in ns."""

    def __init__(
        self,
        views: Views,
        decisions: ResultWaiter,
        explaining: ExplainerClient,
        clock: Callable[[], int] = time.time_ns,
        registries: Registries | None = None,
    ) -> None:
        self._views = views
        self._decisions = decisions
        self._explaining = explaining
        self._clock = clock
        self._registries = registries

    async def answer(self, head: RequestHead, body: bytes) -> HttpResponse:
        """Answer a dry run of one job or a list of jobs. Raise Refused."""
        if head.content_type != b"application/json":
            raise wrong_media_type(head.content_type.decode("latin-1"), "application/json")
        several = is_list(body)
        if not several and len(body) > ONE_BYTES_MAX:
            raise too_large(ONE_BYTES_MAX)
        commands = self._list(head.user, body) if several else [self._one(head.user, body)]
        self._decisions.require_room()
        found = await self._try(commands, several)
        return HttpResponse(200, encode(found if several else found[0]))

    async def _try(self, commands: list[SubmitJob], several: bool) -> list[api.DryRun]:
        """Return what would become of each command. Raise Refused for a single one that would be refused."""
        raws = [msgspec.Raw(encode(command)) for command in commands]
        # The answer needs no specs, and all of them would not fit one message.
        asked = tuple(msgspec.structs.replace(command, spec=_NO_SPEC) for command in commands)
        answer = await self._explaining.ask(AskDryRun(commands=asked))
        if answer.error:
            return [explanation.dry_run_of_file(raw, answer.message, self._views.sequence) for raw in raws]
        found: list[api.DryRun] = []
        for command, raw, outcome in zip(commands, raws, answer.outcomes, strict=True):
            if outcome.code and not several:
                raise rejected(outcome.code, outcome.message, outcome.field, submit=True)
            found.append(self._told(command, raw, outcome, answer.sequence))
        return found

    def _told(self, command: SubmitJob, raw: msgspec.Raw, outcome: DryRunOutcome, sequence: int) -> api.DryRun:
        if outcome.code:
            return explanation.refused_dry_run(raw, outcome, sequence)
        now_ns = max(self._clock(), self._views.at_ns)
        return explanation.accepted_dry_run(self._views, command, raw, outcome, sequence, now_ns)

    def _one(self, user: str, body: bytes) -> SubmitJob:
        try:
            return self._resolve(body, user)
        except InvalidJob as error:
            raise invalid(error.errors, hint=HINT) from None

    def _list(self, user: str, body: bytes) -> list[SubmitJob]:
        try:
            bodies = split_list(body)
        except InvalidJob as error:
            raise invalid(error.errors) from None
        check_count(len(bodies), COMMANDS_MAX)
        errors: list[FieldError] = []
        commands: list[SubmitJob] = []
        for index, one in enumerate(bodies):
            try:
                commands.append(self._resolve(one, user))
            except InvalidJob as error:
                errors.extend(errors_at(index, error.errors))
        refuse_list(errors, len(bodies))
        return commands

    def _resolve(self, body: bytes, user: str) -> SubmitJob:
        spec = decode_job(body)
        error = runtime_error(bool(spec.image), container_field(spec), self._views.nodes.runtimes())
        if error is not None:
            raise InvalidJob([error])
        return resolve(spec, command_id="", user=user, registries=self._registries)
