"""POST /v1/jobs, POST /v1/events (CloudEvents) and POST /v1/jobs:dryrun: one thing or a list of things.

Bodies are decoded strictly, turned into commands, published, and answered when the decision is in the log;
or with 202 and the command's id when the queue takes longer than the decision wait. Where a list holds
anything invalid, the whole list is refused and nothing is stored.

A dry run predicts what a submit would lead to; nothing is sent to the queue. The file is checked here; the rest the
explainer answers with the queue's own gates. Without an explainer the answer says that only the file was checked. A job
that would be refused is answered as its submit would be.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from fairlead_bus.pieces import PieceStore
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.rate_limit import RateLimit
from fairlead_gateway.access.redaction import scrub, shown_dry_run, shown_reason, shown_refusal
from fairlead_gateway.access.submits import queues_beside, require_dependencies, require_submit
from fairlead_gateway.access.targets import Sight, job_target
from fairlead_gateway.access.volumes import with_volumes
from fairlead_gateway.command_results import CommandPublisher, ResultWaiter, encode_command, verb_refusal
from fairlead_gateway.errors import JSON, HttpError, HttpResponse, bad_field, rejected, wrong_media_type
from fairlead_gateway.http_messages import (
    RequestHead,
    command_key,
    decode,
    encode,
    error_inside,
    is_list,
    read_list,
    read_one,
)
from fairlead_gateway.routes.job_translator import (
    JobTranslator,
    Submission,
    container_field,
    image_warning,
    runtime_error,
)
from fairlead_gateway.routes.pieces import tree_fault
from fairlead_gateway.routes.router import Router, in_body, json_content, one_or_list
from fairlead_gateway.sources.estimates_client import EstimatesClient
from fairlead_gateway.sources.service_queries import ExplainerClient
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, OutcomeRow
from fairlead_gateway.why import explanation
from fairlead_gateway.why.dominant_reason import reason_of, request_class, row_or_array
from fairlead_schemas.http import api
from fairlead_schemas.http import cloudevents as ce
from fairlead_schemas.http.api import Reason, SubmitResult
from fairlead_schemas.jobfile.job_spec import JobSpec
from fairlead_schemas.jobfile.resolve import decode_and_check, resolve
from fairlead_schemas.queries.estimates import QUEUES_MAX
from fairlead_schemas.queries.explainer import COMMANDS_MAX, AskDryRun, DryRunOutcome
from fairlead_schemas.units.ids import is_job_id
from fairlead_schemas.units.image_names import Registries
from fairlead_schemas.units.validation import FieldError, InvalidJob
from fairlead_schemas.wire.commands import CancelJob, HoldJob, ReleaseJob, SubmitJob
from fairlead_schemas.wire.resources import Request
from fairlead_schemas.wire.trees import parse_tree_name

LIST_JOBS_MAX = 20_000
HINT = "GET /v1/schemas/job shows the fields of a job file"

CLOUDEVENT = b"application/cloudevents+json"
CLOUDEVENT_BATCH = b"application/cloudevents-batch+json"
VERBS = {ce.JOB_CANCEL: CancelJob, ce.JOB_HOLD: HoldJob, ce.JOB_RELEASE: ReleaseJob}

#: Likeness of jobs that wait for one reason.
type Likeness = tuple[str, str, int, Request]


class ReasonCache:
    """Reasons of one sequence: as they are, by the likeness of the jobs, and in the words of a caller."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.found: dict[Likeness, Reason | None] = {}
        #: Key: identity of the reason in `found`, credential, and principal of whom the caller acts for.
        self.shown: dict[tuple[int, str, str], Reason] = {}


class PendingCommand(NamedTuple):
    """Command to be sent. `job` is "" for a submit."""

    id: str
    body: bytes
    job: str = ""
    #: What of the job file will not count, in a sentence.
    warning: str = ""
    #: The directory that goes with it, by name; "" for none.
    sync: str = ""


def job_refusal(outcome: OutcomeRow) -> HttpError:
    """Return the answer to a submit that the queue refused."""
    return rejected(outcome.code, outcome.message, outcome.field, otherwise=422)


class SubmitRoutes:
    """Answers submits and CloudEvents."""

    def __init__(
        self,
        views: Views,
        gate: CommandPublisher,
        waiter: ResultWaiter,
        registries: Registries | None = None,
        rate: RateLimit | None = None,
        pieces: PieceStore | None = None,
    ) -> None:
        """`rate`: of the jobs that one caller submits; None: no bound. `pieces`: of directories that go with jobs; None: no job has one."""
        self._rate, self._pieces = rate, pieces
        self._views = views
        self._gate = gate
        self._waiter = waiter
        self._translator = JobTranslator(registries)
        self._reasons = ReasonCache(-1)

    async def jobs(self, head: RequestHead, body: bytes) -> HttpResponse:
        """Answer a submit of one job or a list of jobs. Raise HttpError or UndecidedCommand."""
        self._waiter.require_ready()
        caller, user = head.caller, head.user
        if is_list(body):
            keyed = head.key is not None
            commands = await read_list(
                body,
                LIST_JOBS_MAX,
                lambda index, one: self._submit(
                    caller, user, one, command_key(user, "list", head.key, index) if keyed else ""
                ),
            )
            return await self._many(head, commands)
        key = command_key(user, "job", head.key)
        return await self._one(head, read_one(body, lambda one: self._submit(caller, user, one, key), HINT))

    async def events(self, head: RequestHead, body: bytes) -> HttpResponse:
        """Answer one CloudEvent or a batch in structured JSON, or one in binary mode: its attributes are headers, and the body is its
        data. Raise HttpError or UndecidedCommand.
        """
        self._waiter.require_ready()
        if head.content_type == JSON:
            return await self._one(head, read_one(body, lambda one: self._event(head, binary_event(head, one))))
        if head.content_type == CLOUDEVENT_BATCH:
            commands = await read_list(
                body, LIST_JOBS_MAX, lambda _, one: self._event(head, decode(ce.CloudEventIn, one))
            )
            return await self._many(head, commands)
        return await self._one(head, read_one(body, lambda one: self._event(head, decode(ce.CloudEventIn, one))))

    async def _require_trees(self, commands: Sequence[PendingCommand]) -> None:
        """Raise HttpError (422) for a job whose directory the cluster does not have."""
        for name in dict.fromkeys(each.sync for each in commands if each.sync):
            digest = parse_tree_name(name)
            if digest is None or self._pieces is None or not await self._pieces.has(digest):
                raise bad_field("sync", tree_fault(name))

    def _submit(self, caller: Caller, user: str, body: bytes, key: str) -> PendingCommand:
        """Make the command of a job file. Raise InvalidJob, also where no node that has joined could begin it; HttpError (403,
        422) where the caller may not submit it."""
        submission: Submission = self._translator.translate(user, body)
        needs_container = submission.needs_container
        if submission.has_volumes:  # not remembered: what the names mean depends on the views, and on the caller
            spec = with_volumes(self._views, caller, self._translator.spec(body))
            needs_container = container_field(spec, several_users=not caller.is_open)
            submission = self._translator.submission(user, spec)
        runtimes = self._views.nodes.runtimes()
        error = runtime_error(submission.has_image, needs_container, runtimes)
        if error is not None:
            raise InvalidJob([error])
        if not caller.is_open:
            if not caller.has_submitted(submission.queue, submission.project):
                require_submit(self._views, caller, submission.queue, submission.project, "queue")
            if submission.depends_on:
                require_dependencies(self._views, caller, submission.depends_on)
        command_id = self._gate.new_id(caller.principal)
        warning = image_warning(submission.has_image, runtimes) if submission.has_image else ""
        return PendingCommand(
            command_id, submission.command(command_id, key, caller.authority_field()), "", warning, submission.sync
        )

    def _event(self, head: RequestHead, event: ce.CloudEventIn) -> PendingCommand:
        """Make the command of a CloudEvent. Raise InvalidJob naming the attribute, HttpError (409) for an id that was used
        for something else."""
        user = head.user
        _check_envelope(event)
        key = command_key(user, "event", event.source, event.id)
        try:
            if event.type == ce.JOB_SUBMIT:
                return self._submit(head.caller, user, bytes(event.data), key)
            job = decode(ce.JobNamed, bytes(event.data)).job
        except InvalidJob as error:
            raise InvalidJob([error_inside("data", one) for one in error.errors]) from None
        if not is_job_id(job):
            message = f'expected a job id such as "812", found "{job[:40]}"'
            raise InvalidJob([FieldError(field="data.job", message=message)])
        row = row_or_array(self._views, job) or self._views.jobs.rows.get(job.partition("_")[0])
        if row is None or not head.caller.may("job:read", job_target(self._views, row, job)):
            raise InvalidJob([FieldError(field="data.job", message=f"there is no job {job}")])
        head.caller.require("job:cancel", job_target(self._views, row, job))
        command_id = self._waiter.keyed_id(key, event.type, job, principal=head.caller.principal)
        command = VERBS[event.type](id=command_id, user=user, authority=head.authority, job=job)
        return PendingCommand(command.id, encode_command(command), job)

    def _require_room(self, head: RequestHead, pending: list[PendingCommand]) -> None:
        """Raise HttpError where new jobs are not accepted now: 503 for a log near its limit, 429 for a caller beyond its rate."""
        submits = sum(not each.job for each in pending)
        if not submits:
            return
        self._waiter.require_room()
        if self._rate:
            refused = self._rate.take(head.caller.principal or head.user, submits, time.monotonic())
            if refused is not None:
                raise refused

    async def _one(self, head: RequestHead, pending: PendingCommand) -> HttpResponse:
        caller = head.caller
        if pending.sync:
            await self._require_trees([pending])
        self._require_room(head, [pending])
        try:
            outcome = await self._waiter.outcome(
                self._gate, pending.id, pending.body, verb_refusal if pending.job else job_refusal
            )
        except HttpError as refused:
            raise refused if caller.is_open else shown_refusal(Sight(self._views, caller), refused) from None
        result = self._result(caller, pending, outcome, self._shared_reasons())
        status = 200 if outcome.repeated or pending.job else 201
        return HttpResponse(status, encode(result), ((b"location", b"/v1/jobs/" + result.id.encode()),))

    def _shared_reasons(self) -> ReasonCache:
        """Return the reasons that answers share for as long as the views stay at their sequence: reasons depend on the views
        alone, and one commit of the queue decides the submits of many requests."""
        if self._reasons.sequence != self._views.sequence:
            self._reasons = ReasonCache(self._views.sequence)
        return self._reasons

    async def _many(self, head: RequestHead, pending: list[PendingCommand]) -> HttpResponse:
        caller = head.caller
        await self._require_trees(pending)
        self._require_room(head, pending)
        waiter = await self._waiter.outcomes(self._gate, [(each.id, each.body) for each in pending])
        reasons = ReasonCache(self._views.sequence)
        results = [
            self._result(caller, each, outcome, reasons) for each, outcome in zip(pending, waiter.outcomes, strict=True)
        ]
        refusals = sum(outcome is not None and bool(outcome.code) for outcome in waiter.outcomes)
        return HttpResponse(200 if not waiter.left else 202, encode(results), refusals=refusals)

    def _result(
        self, caller: Caller, pending: PendingCommand, outcome: OutcomeRow | None, reasons: ReasonCache
    ) -> SubmitResult:
        if outcome is None:
            return self._waiter.undecided(pending.id).result
        if outcome.code:
            message = outcome.message
            if not caller.is_open and not (sight := Sight(self._views, caller)).is_whole:
                message = scrub(sight, message)
            errors = [{"field": outcome.field, "message": message}] if outcome.field else []
            reason = Reason(code=outcome.code, message=message)
            return SubmitResult(state="rejected", sequence=outcome.sequence, reason=reason, errors=errors)
        job, warnings = outcome.job or pending.job, [pending.warning] if pending.warning else []
        row = self._views.jobs.rows.get(job)
        if row is None:
            return SubmitResult(id=job, sequence=outcome.sequence, warnings=warnings)
        reason = self._reason(caller, row, reasons) if row.state in ("queued", "scheduled", "held") else None
        return SubmitResult(id=job, state=row.state, sequence=self._views.sequence, reason=reason, warnings=warnings)

    def _reason(self, caller: Caller, row: JobRow, reasons: ReasonCache) -> Reason | None:
        """Return the reason that the job waits, in the caller's words; None where it only waits for its turn. Jobs of one likeness
        share one reason."""
        like = request_class(row)
        if like is None:
            return self._shown(caller, self._waiting(row))
        if like not in reasons.found:
            reasons.found[like] = self._waiting(row)
        reason = reasons.found[like]
        if reason is None or caller.is_open:
            return reason
        key = id(reason), caller.via, caller.act_as
        shown = reasons.shown.get(key)
        if shown is None:
            shown = reasons.shown[key] = shown_reason(Sight(self._views, caller), reason)
        return shown

    def _waiting(self, row: JobRow) -> Reason | None:
        found = reason_of(self._views, row, self._views.at_ns, count_ahead=False)
        return found if found.code != "waiting_turn" else None

    def _shown(self, caller: Caller, reason: Reason | None) -> Reason | None:
        return reason if reason is None or caller.is_open else shown_reason(Sight(self._views, caller), reason)


def binary_event(head: RequestHead, body: bytes) -> ce.CloudEventIn:
    """Return the event of a request in binary mode. Raise InvalidJob naming the header, HttpError (415) for a request without any."""
    if not head.event:
        raise wrong_media_type(head.content_type, (CLOUDEVENT, CLOUDEVENT_BATCH), "or the attributes as ce-* headers")
    missing = [name for name in ("specversion", "type", "source", "id") if name not in head.event]
    if missing:
        raise InvalidJob([FieldError(field=f"ce-{name}", message="expected this header") for name in missing])
    named = {name: head.event[name] for name in ("specversion", "type", "source", "id")}
    return ce.CloudEventIn(**named, data=msgspec.Raw(body), time=head.event.get("time", ""))


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
        message = f'expected "application/json", found "{event.datacontenttype[:80]}"'
        raise InvalidJob([FieldError(field="datacontenttype", message=message)])


_NO_SPEC = msgspec.Raw(b"null")


class DryRunRoutes:
    """Answers dry runs. `clock` is wall time in ns."""

    def __init__(
        self,
        views: Views,
        waiter: ResultWaiter,
        explaining: ExplainerClient,
        clock: Callable[[], int] = time.time_ns,
        registries: Registries | None = None,
        estimates: EstimatesClient | None = None,
    ) -> None:
        self._views = views
        self._waiter = waiter
        self._explaining = explaining
        self._estimates = estimates
        self._clock = clock
        self._registries = registries

    async def answer(self, head: RequestHead, body: bytes) -> HttpResponse:
        """Answer a dry run of one job or a list of jobs. Raise HttpError."""
        if is_list(body):
            commands = await read_list(body, COMMANDS_MAX, lambda _, one: self._resolve(head, one))
            return HttpResponse(200, encode(await self._seen(head.caller, commands, several=True)))
        command = read_one(body, lambda one: self._resolve(head, one), HINT)
        return HttpResponse(200, encode((await self._seen(head.caller, [command], several=False))[0]))

    async def _seen(self, caller: Caller, commands: list[SubmitJob], *, several: bool) -> list[api.DryRun]:
        sight = Sight(self._views, caller)
        try:
            found = await self._try(commands, several=several)
        except HttpError as refused:
            raise refused if caller.is_open else shown_refusal(sight, refused) from None
        if self._estimates is not None and found and found[0].valid and found[0].checked == "queue":
            now_ns = max(self._clock(), self._views.at_ns)
            submit = msgspec.structs.replace(commands[0], spec=_NO_SPEC)
            queues = queues_beside(self._views, sight, submit.queue, QUEUES_MAX)
            found[0].forecast = await self._estimates.start(sight, now_ns, submit=submit, queues=queues)
        return [shown_dry_run(sight, each) for each in found]

    async def _try(self, commands: list[SubmitJob], *, several: bool) -> list[api.DryRun]:
        """Return what would become of each command. Raise HttpError for a single one that would be refused."""
        self._waiter.require_room()
        raws = [msgspec.Raw(encode(command)) for command in commands]
        # The answer needs no specs, and all of them would not fit one message.
        question = tuple(msgspec.structs.replace(command, spec=_NO_SPEC) for command in commands)
        answer = await self._explaining.ask(AskDryRun(commands=question))
        if answer.error:
            return [explanation.dry_run_of_file(raw, answer.message, self._views.sequence) for raw in raws]
        found: list[api.DryRun] = []
        for command, raw, outcome in zip(commands, raws, answer.outcomes, strict=True):
            if outcome.code and not several:
                raise rejected(outcome.code, outcome.message, outcome.field, otherwise=422)
            found.append(self._prediction(command, raw, outcome, answer.sequence))
        return found

    def _prediction(self, command: SubmitJob, raw: msgspec.Raw, outcome: DryRunOutcome, sequence: int) -> api.DryRun:
        if outcome.code:
            return explanation.refused_dry_run(raw, outcome, sequence)
        now_ns = max(self._clock(), self._views.at_ns)
        return explanation.accepted_dry_run(self._views, command, raw, outcome, sequence, now_ns)

    def _resolve(self, head: RequestHead, body: bytes) -> SubmitJob:
        spec = with_volumes(self._views, head.caller, decode_and_check(body, self._registries))
        needs_container = container_field(spec, several_users=not head.caller.is_open)
        error = runtime_error(bool(spec.image), needs_container, self._views.nodes.runtimes())
        if error is not None:
            raise InvalidJob([error])
        command = resolve(spec, command_id="", user=head.user, registries=self._registries)
        require_submit(self._views, head.caller, command.queue, command.project, "queue")
        require_dependencies(self._views, head.caller, [one.job for one in command.after])
        return command


def routes(submits: SubmitRoutes, dry_runs: DryRunRoutes) -> Router:
    """Return all of them, which are fast."""
    router = Router()
    job, event, dry_run = router.ref(JobSpec), router.ref(ce.CloudEventIn), router.ref(api.DryRun)
    router.fast(
        "/v1/jobs",
        "Submit one job or a list of jobs",
        submits.jobs,
        right=in_body("job:submit"),
        operation_id="submit_jobs",
        bodies={JSON: one_or_list(job, minItems=1, maxItems=LIST_JOBS_MAX)},
        responses=router.submit_results(),
        keyed=True,
    )
    router.fast(
        "/v1/events",
        "Send CloudEvents: " + ", ".join(ce.TYPES_IN),
        submits.events,
        right=in_body("job:submit"),
        operation_id="send_events",
        bodies={
            CLOUDEVENT: event,
            CLOUDEVENT_BATCH: {"type": "array", "items": event, "minItems": 1, "maxItems": LIST_JOBS_MAX},
        },
        responses=router.submit_results(),
        also=(JSON,),
        description="Structured JSON, one event or a batch; or binary mode: the event's data as application/json, and its attributes "
        "specversion, type, source, id and time as headers ce-specversion, ce-type, ce-source, ce-id and ce-time.",
    )
    predicted = "What would become of them; one that would be refused is a problem (of a list: its entry is not valid)"
    router.fast(
        "/v1/jobs:dryrun",
        "Say what would become of one job or a list of jobs; nothing is sent",
        dry_runs.answer,
        right=in_body("job:submit"),
        operation_id="dryrun_job",
        bodies={JSON: one_or_list(job, minItems=1, maxItems=COMMANDS_MAX)},
        responses={200: {"description": predicted, "content": json_content(one_or_list(dry_run))}},
    )
    return router
