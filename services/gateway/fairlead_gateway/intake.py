"""The hot routes: POST /v1/jobs and POST /v1/events (CloudEvents).

Bodies are decoded strictly, turned into commands, published, and answered when the decision is in the log;
or with 202 and the command's id when the queue takes longer than the decision wait. Where a list holds
anything invalid, the whole list is refused and nothing is stored.
"""

import asyncio
from typing import NamedTuple

import msgspec

from fairlead_gateway.answers import Answer, Head, bind_key, encode, too_large
from fairlead_gateway.bodies import (
    HINT,
    ONE_BYTES_MAX,
    at,
    check_count,
    decode_error,
    inside,
    is_list,
    refuse_list,
    repeated_key_errors,
)
from fairlead_gateway.commands import CommandGate
from fairlead_gateway.deciding import Decisions
from fairlead_gateway.problems import invalid, rejected, wrong_media_type
from fairlead_gateway.submissions import Submission, Translator, image_warning, runtime_error, split_list
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, Outcome
from fairlead_gateway.why.reason import likeness, reason_of
from fairlead_schemas.http import cloudevents as ce
from fairlead_schemas.http.api import Reason, SubmitResult
from fairlead_schemas.units.ids import is_job_id
from fairlead_schemas.units.image_names import Registries
from fairlead_schemas.units.validation import FieldError, InvalidJob, field_error
from fairlead_schemas.wire.commands import CancelJob, HoldJob, ReleaseJob
from fairlead_schemas.wire.resources import Request

LIST_JOBS_MAX = 20_000
#: Elements translated before others get the loop.
BREATH = 500

CLOUDEVENT = b"application/cloudevents+json"
CLOUDEVENT_BATCH = b"application/cloudevents-batch+json"
VERBS = {ce.JOB_CANCEL: CancelJob, ce.JOB_HOLD: HoldJob, ce.JOB_RELEASE: ReleaseJob}

#: Reasons given in one answer, keyed by the likeness of the jobs.
type Told = dict[tuple[str, str, int, Request], Reason | None]

_event = msgspec.json.Decoder(ce.CloudEventIn)
_event_list = msgspec.json.Decoder(list[msgspec.Raw])
_job_named = msgspec.json.Decoder(ce.JobNamed)


class Wish(NamedTuple):
    """Command to be sent. `job` is "" for a submit."""

    id: str
    body: bytes
    job: str = ""
    #: What of the job file will not count, in a sentence.
    warning: str = ""


class Intake:
    """Answers the hot routes."""

    def __init__(
        self, views: Views, gate: CommandGate, decisions: Decisions, registries: Registries | None = None
    ) -> None:
        self._views = views
        self._gate = gate
        self._decisions = decisions
        self._translator = Translator(registries)

    # ------------------------------------------------------------------ POST /v1/jobs

    async def jobs(self, head: Head, body: bytes) -> Answer:
        """Answer a submit of one job or a list of jobs. Raise Refused."""
        if head.content_type != b"application/json":
            raise wrong_media_type(head.content_type.decode("latin-1"), "application/json")
        self._decisions.require_ready()
        if is_list(body):
            return await self._many(await self._list_wishes(head, body))
        if len(body) > ONE_BYTES_MAX:
            raise too_large(ONE_BYTES_MAX)
        return await self._one(self._wish(head.user, body, bind_key(head.user, "job", head.key) if head.key else ""))

    def _wish(self, user: str, body: bytes, key: str) -> Wish:
        try:
            return self._submit(self._translator.translate(user, body), key)
        except InvalidJob as error:
            raise invalid(error.errors, hint=HINT) from None

    def _submit(self, submission: Submission, key: str) -> Wish:
        """Make the command of a submission. Raises InvalidJob where no node that has joined could begin it."""
        runtimes = self._views.nodes.runtimes()
        error = runtime_error(submission.has_image, submission.needs_container, runtimes)
        if error is not None:
            raise InvalidJob([error])
        command_id = self._gate.new_id()
        warning = image_warning(submission.has_image, runtimes)
        return Wish(command_id, submission.command(command_id, key), warning=warning)

    async def _list_wishes(self, head: Head, body: bytes) -> list[Wish]:
        try:
            bodies = split_list(body)
        except InvalidJob as error:
            raise invalid(error.errors) from None
        check_count(len(bodies), LIST_JOBS_MAX)
        errors: list[FieldError] = []
        wishes: list[Wish] = []
        for index, one in enumerate(bodies):
            if index % BREATH == BREATH - 1:
                await asyncio.sleep(0)
            key = bind_key(head.user, "list", head.key, str(index)) if head.key else ""
            try:
                wishes.append(self._submit(self._translator.translate(head.user, one), key))
            except InvalidJob as error:
                errors.extend(at(index, error.errors))
        refuse_list(errors, len(bodies))
        return wishes

    # ------------------------------------------------------------------ POST /v1/events

    async def events(self, head: Head, body: bytes) -> Answer:
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

    async def _event_wishes(self, head: Head, body: bytes) -> list[Wish]:
        try:
            bodies = _event_list.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise invalid([decode_error(error)]) from None
        check_count(len(bodies), LIST_JOBS_MAX)
        errors: list[FieldError] = []
        wishes: list[Wish] = []
        for index, one in enumerate(bodies):
            if index % BREATH == BREATH - 1:
                await asyncio.sleep(0)
            try:
                wishes.append(self._event_wish(head.user, _decode_event(bytes(one))))
            except InvalidJob as error:
                errors.extend(at(index, error.errors))
        refuse_list(errors, len(bodies))
        return wishes

    def _event_wish(self, user: str, event: ce.CloudEventIn) -> Wish:
        """Raises InvalidJob naming the attribute, Refused (409) for an id that was used for something else."""
        _check_envelope(event)
        key = bind_key(user, "event", event.source, event.id)
        if event.type == ce.JOB_SUBMIT:
            try:
                return self._submit(self._translator.translate(user, bytes(event.data)), key)
            except InvalidJob as error:
                raise InvalidJob([inside("data", one) for one in error.errors]) from None
        try:
            job = _job_named.decode(event.data).job
        except msgspec.MsgspecError as error:
            raise InvalidJob([inside("data", field_error(error, known=ce.JobNamed.__struct_fields__))]) from None
        if not is_job_id(job):
            raise InvalidJob(
                [FieldError(field="data.job", message=f'expected a job id such as "812", found "{job[:40]}"')]
            )
        if job not in self._views.jobs.rows and job.partition("_")[0] not in self._views.jobs.rows:
            raise InvalidJob([FieldError(field="data.job", message=f"there is no job {job}")])
        command = VERBS[event.type](id=self._decisions.keyed_id(key, event.type, job), user=user, job=job)
        return Wish(command.id, encode(command), job)

    # ------------------------------------------------------------------ answers

    async def _one(self, wish: Wish) -> Answer:
        if not wish.job:
            self._decisions.require_room()
        outcome = await self._decisions.outcome(self._gate, wish.id, wish.body)
        if outcome is None:
            return self._undecided(wish)
        if outcome.code:
            raise rejected(outcome.code, outcome.message, outcome.field, submit=not wish.job)
        result = self._result(wish, outcome, {})
        status = 200 if outcome.repeated or wish.job else 201
        return Answer(status, encode(result), ((b"location", b"/v1/jobs/" + result.id.encode()),))

    async def _many(self, wishes: list[Wish]) -> Answer:
        if not all(wish.job for wish in wishes):
            self._decisions.require_room()
        waiter = await self._decisions.outcomes(self._gate, [(wish.id, wish.body) for wish in wishes])
        told: Told = {}
        results = [self._result(wish, outcome, told) for wish, outcome in zip(wishes, waiter.outcomes, strict=True)]
        refusals = sum(outcome is not None and bool(outcome.code) for outcome in waiter.outcomes)
        return Answer(200 if not waiter.left else 202, encode(results), refusals=refusals)

    def _undecided(self, wish: Wish) -> Answer:
        result = SubmitResult(command=wish.id, sequence=self._views.sequence)
        return Answer(202, encode(result), ((b"location", b"/v1/commands/" + wish.id.encode()),))

    def _result(self, wish: Wish, outcome: Outcome | None, told: Told) -> SubmitResult:
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

    def _reason(self, row: JobRow, told: Told) -> Reason | None:
        """Return the reason that the job waits; None where it only waits for its turn. Jobs of one likeness share one reason."""
        like = likeness(row)
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
