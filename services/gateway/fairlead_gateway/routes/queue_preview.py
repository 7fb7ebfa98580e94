"""POST /v1/queues:dryrun: what a queue file would do if it were applied now. Nothing is sent to the queue service.

The explainer decides upon a copy of the queue's state, so a file is refused here exactly as it would be when it is applied.
"""

from collections.abc import Iterable
from typing import Annotated

from fastapi import Query, Request, Response

from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.redaction import shown_to
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.errors import HttpError
from fairlead_gateway.http_messages import JsonResponse, head_of, read_file, read_json
from fairlead_gateway.routes.queues import FILE_BYTES_MAX, HINT, queue_refusal, require_queue_changes
from fairlead_gateway.routes.router import Router, in_body
from fairlead_gateway.sources.service_queries import ExplainerClient
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import OutcomeRow
from fairlead_schemas.http.api import ConcernedJob, QueueFilePreview
from fairlead_schemas.queries import explainer
from fairlead_schemas.queuefile.parse import QueueFileWords, read_queue_file
from fairlead_schemas.wire.commands import ApplyQueues

#: Id of the command that is tried: it is in no stream.
TRIED = "dry-run"


def routes(views: Views, explaining: ExplainerClient) -> Router:
    """Return the one route."""
    router = Router()

    @router.command(
        "POST",
        "/v1/queues:dryrun",
        "What a queue file would do if it were applied now; nothing is changed",
        QueueFilePreview,
        right=in_body("queue:set"),
        body=QueueFileWords,
        keyed=False,
        operation_id="dry_run_queues",
    )
    async def preview_queues(
        request: Request,
        prune: Annotated[bool, Query(description="As for `POST /v1/queues:apply`.")] = False,
        reclaim: Annotated[
            bool,
            Query(
                description="With the runs that would be asked to yield where a queue then holds more than its maximum."
            ),
        ] = False,
    ) -> Response:
        head, caller = head_of(request), caller_of(request)
        file = read_file(await read_json(request, FILE_BYTES_MAX), read_queue_file, HINT)
        require_queue_changes(views, caller, file.pools, file.queues, prune=prune)
        command = ApplyQueues(
            id=TRIED, user=head.user, pools=file.pools, queues=file.queues, prune=prune, reclaim=reclaim
        )
        answer = await explaining.ask(explainer.AskQueueChange(command=command))
        if answer.error or answer.change is None:
            code = answer.error or "away"
            raise HttpError(503, code, answer.message, hint="the explainer answers this", retry_after_s=1)
        if answer.change.code:
            outcome = OutcomeRow(sequence=answer.sequence, code=answer.change.code, message=answer.change.message)
            raise shown_to(views, caller, queue_refusal)(outcome)
        return JsonResponse(_document(Sight(views, caller), answer.change, answer.sequence))

    return router


def _document(sight: Sight, found: explainer.QueueChangeOutcome, sequence: int) -> QueueFilePreview:
    """Return the outcome with the jobs that the caller may see."""
    kinds = [_shown(sight, each) for each in (found.yields, found.withdrawn, found.offered)]
    total = len(found.yields) + len(found.withdrawn) + len(found.offered)
    yields, withdrawn, offered = kinds
    return QueueFilePreview(
        configured=found.configured,
        removed=found.removed,
        unchanged=found.unchanged,
        yields=yields,
        withdrawn=withdrawn,
        offered=offered,
        hidden=total - sum(map(len, kinds)),
        sequence=sequence,
    )


def _shown(sight: Sight, jobs: Iterable[explainer.JobOfChange]) -> list[ConcernedJob]:
    rows, name_of = sight.views.jobs.rows, sight.views.name_of
    seen = [(each, rows[each.job]) for each in jobs if each.job in rows and sight.job(rows[each.job])]
    return [
        ConcernedJob(id=row.id, name=row.name, user=name_of(row.user), queue=row.queue, gpu_milli=each.gpu_milli)
        for each, row in seen
    ]
