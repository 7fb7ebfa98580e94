"""POST /v1/jobs:dryrun: what would become of one job, or of each of a list. Nothing is sent to the queue.

The file is checked here; the rest the explainer says, which asks the queue's own gates. Without one the file is checked all
the same, and the answer says so. One that would be refused is answered as a submit would be.
"""

import time
from collections.abc import Callable

import msgspec

from fairlead_gateway.answers import Answer, Head, encode, too_large
from fairlead_gateway.bodies import HINT, ONE_BYTES_MAX, at, check_count, is_list, refuse_list
from fairlead_gateway.deciding import Decisions
from fairlead_gateway.explaining import Explaining
from fairlead_gateway.problems import invalid, rejected, wrong_media_type
from fairlead_gateway.submissions import container_field, runtime_error, split_list
from fairlead_gateway.views.fold import Views
from fairlead_gateway.why import outlook
from fairlead_schemas.http import api
from fairlead_schemas.jobfile.job_spec import decode_job
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.queries.explainer import COMMANDS_MAX, AskDryRun, DryRunOutcome
from fairlead_schemas.units.image_names import Registries
from fairlead_schemas.units.validation import FieldError, InvalidJob
from fairlead_schemas.wire.commands import SubmitJob

_NO_SPEC = msgspec.Raw(b"null")


class DryRuns:
    """Answers the route. `clock` is wall time in ns."""

    def __init__(
        self, views: Views, decisions: Decisions, explaining: Explaining, clock: Callable[[], int] = time.time_ns,
        registries: Registries | None = None,
    ) -> None:  # fmt: skip
        self._views = views
        self._decisions = decisions
        self._explaining = explaining
        self._clock = clock
        self._registries = registries

    async def answer(self, head: Head, body: bytes) -> Answer:
        """Answer a dry run of one job or a list of jobs. Raise Refused."""
        if head.content_type != b"application/json":
            raise wrong_media_type(head.content_type.decode("latin-1"), "application/json")
        several = is_list(body)
        if not several and len(body) > ONE_BYTES_MAX:
            raise too_large(ONE_BYTES_MAX)
        commands = self._list(head.user, body) if several else [self._one(head.user, body)]
        self._decisions.require_room()
        found = await self._try(commands, several)
        return Answer(200, encode(found if several else found[0]))

    async def _try(self, commands: list[SubmitJob], several: bool) -> list[api.DryRun]:
        """Return what would become of each command. Raise Refused for a single one that would be refused."""
        raws = [msgspec.Raw(encode(command)) for command in commands]
        # The answer needs no specs, and all of them would not fit one message.
        asked = tuple(msgspec.structs.replace(command, spec=_NO_SPEC) for command in commands)
        answer = await self._explaining.ask(AskDryRun(commands=asked))
        if answer.error:
            return [outlook.file_only(raw, answer.message, self._views.sequence) for raw in raws]
        found: list[api.DryRun] = []
        for command, raw, outcome in zip(commands, raws, answer.outcomes, strict=True):
            if outcome.code and not several:
                raise rejected(outcome.code, outcome.message, outcome.field, submit=True)
            found.append(self._told(command, raw, outcome, answer.sequence))
        return found

    def _told(self, command: SubmitJob, raw: msgspec.Raw, outcome: DryRunOutcome, sequence: int) -> api.DryRun:
        if outcome.code:
            return outlook.refused(raw, outcome, sequence)
        now_ns = max(self._clock(), self._views.at_ns)
        return outlook.accepted(self._views, command, raw, outcome, sequence, now_ns)

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
                errors.extend(at(index, error.errors))
        refuse_list(errors, len(bodies))
        return commands

    def _resolve(self, body: bytes, user: str) -> SubmitJob:
        spec = decode_job(body)
        error = runtime_error(bool(spec.image), container_field(spec), self._views.nodes.runtimes())
        if error is not None:
            raise InvalidJob([error])
        return resolve(spec, command_id="", user=user, registries=self._registries)
