"""Questions about starts, asked of the process that estimates them; and its answers in the words of the API.

A job's document never fails for want of an estimate: it says why there is none. Start at `EstimatesClient`.
"""

from typing import Any

import msgspec
import structlog

from fairlead_bus.port import Bus, Unavailable
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.errors import HttpError
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http import api
from fairlead_schemas.queries import estimates as q
from fairlead_schemas.queuefile.amounts import counted
from fairlead_schemas.units.quantities import format_duration
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import SubmitJob

log = structlog.get_logger()

#: A little longer than the process takes at most.
WAIT_S = q.ANSWER_S + 1
#: Rows of the SQL table; a message of the bus holds so many.
ROWS_MAX = 1_500
AWAY = "the process that estimates starts does not answer"
#: {why no interval can be given: in words}
UNKNOWN = {
    "refused": "it would be refused",
    "held": "it waits until a person releases it",
    "after": "it waits for other jobs to end",
    "array": "as many of its elements run as may at once",
    "queue_held": "its queue is held",
    "no_node": "no node of its pool has joined yet",
    "never": "what runs now does not leave enough for it, however long it lasts",
    "not_waiting": "it does not wait for a start",
}
_BASES = {"played": "played on by the scheduler itself", "laid_out": "its long line laid out in time"}


class EstimatesClient:
    """Asks the process."""

    def __init__(self, bus: Bus, views: Views, *, wait_s: float = WAIT_S) -> None:
        self._bus, self._views, self._wait_s = bus, views, wait_s

    async def start(
        self,
        sight: Sight,
        now_ns: int,
        *,
        submit: SubmitJob | None = None,
        job: str = "",
        queues: tuple[str, ...] = (),
    ) -> api.StartForecast:
        """Return what can be said of a start, as the caller may see it. `queues`: those that may be proposed instead."""
        question = q.AskStart(submit=submit, job=job, queues=queues, sequence=self._views.sequence, now_ns=now_ns)
        answer = await self._ask(question)
        if answer.start is None:
            return api.StartForecast(note=answer.message or AWAY, sequence=answer.sequence)
        return _forecast(sight, answer.start, answer.sequence)

    async def ledger(self, entries_max: int = 0) -> q.EstimatesAnswer:
        """Return the ledger. Raise HttpError (503)."""
        answer = await self._ask(q.AskLedger(entries_max=entries_max))
        if answer.ledger is None:
            raise HttpError(503, f"estimates_{answer.error or 'away'}", answer.message or AWAY, retry_after_s=5)
        return answer

    async def rows(self, sight: Sight) -> list[list[Any]]:
        """Return the newest rows of the SQL table `start_estimates` of jobs that the caller may see. Raise HttpError (503)."""
        answer = await self.ledger(ROWS_MAX)
        entries = answer.ledger.entries if answer.ledger is not None else ()
        return [_row(each) for each in entries if sight.job_id(each.job)]

    async def _ask(self, question: q.AskEstimates) -> q.EstimatesAnswer:
        try:
            payload = await self._bus.request(subjects.ESTIMATES, q.encode(question), timeout_s=self._wait_s)
            return q.decode_answer(payload)
        except Unavailable:
            return q.EstimatesAnswer(error="away", message=AWAY)
        except msgspec.MsgspecError as error:
            log.warning("estimate not understood", reason=str(error))
            return q.EstimatesAnswer(error="away", message=f"{AWAY} in a form that can be read")


def _row(each: q.LedgerEntry) -> list[Any]:
    """Return an entry in the order of START_ESTIMATES; a time that there is not is NULL."""
    return [
        each.job,
        each.user,
        each.queue,
        each.pool,
        each.sequence,
        each.at_ns,
        each.basis,
        each.futures,
        each.at_once,
        each.unknown or None,
        each.low_ns or None,
        each.middle_ns or None,
        each.high_ns or None,
        each.outcome,
        each.over_ns or None,
        each.held,
        list(each.nodes),
        list(each.got),
        each.loss,
    ]


def _forecast(sight: Sight, start: q.StartAnswer, sequence: int) -> api.StartForecast:
    if start.unknown:
        note = f"no start can be estimated: {UNKNOWN.get(start.unknown, start.unknown)}"
        return api.StartForecast(note=note, sequence=sequence)
    seen = [each for each in start.displaced if sight.job_id(each.job)]
    return api.StartForecast(
        from_at=rfc3339(start.low_ns),
        middle_at=rfc3339(start.middle_ns),
        to_at=rfc3339(start.high_ns),
        at_once=start.at_once,
        nodes=[node for node in start.nodes if sight.node_id(node)],
        nodes_hidden=sum(not sight.node_id(node) for node in start.nodes),
        displaces=[api.Yielding(job=each.job, rule=each.rule, futures=each.futures) for each in seen],
        displaces_hidden=len(start.displaced) - len(seen),
        futures=start.futures,
        basis=_BASES.get(start.basis, start.basis),
        like_it=start.like_it,
        held=start.held,
        wide=start.wide,
        sooner=[
            api.Sooner(kind=each.kind, message=_sooner(each), start_at=rfc3339(each.start_ns)) for each in start.sooner
        ],
        sequence=sequence,
    )


def _sooner(each: q.SoonerStart) -> str:
    match each.kind:
        case "other_queue":
            return f"in queue {each.queue}"
        case "time_limit":
            return f"with a time limit of {format_duration(each.total_ns // SECOND_NS * SECOND_NS)}"
        case "smaller":
            nodes = f" on each of {each.nodes} nodes" if each.nodes > 1 else ""
            return f"with {counted('gpu', each.gpu_milli)}{nodes}" if each.gpu_milli else f"with {each.nodes} nodes"
