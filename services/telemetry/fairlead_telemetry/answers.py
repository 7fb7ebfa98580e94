"""Requests that other services may make of the telemetry service, verb by verb: JSON in, JSON out, every fault an answer.

    sql       SqlRequest         -> {"columns", "rows", "sequence", "truncated", "elapsed_ms"}, or as requested
                                    (schemas' sqlwords.py)
    sql_cancel  SqlCancel        -> {"cancelled"}
    job       {"id"}             -> the job's document, from events alone
    tables    -                  -> {"text"}: every table, view and column
    warehouse -                  -> {"sequence", "events", "samples_lost", "samples_refused", "sample_delay_ms",
                                    "damage"}: progress of the warehouse
    usage     {"month"?, "by"?}  -> a month's statement of GPU time (usage/queries.py)
    metrics   JobMetricsRequest  -> a job's GPUs over time (job_metrics.py)
    use       JobUseRequest      -> present activity of running jobs' GPUs (current_use.py)

`state` is answered by the service shell, as every writer's is (fairlead_bus/service.py).

An answer that could not be given is {"error": {"code", "message", "hint"}}.
"""

from collections.abc import Awaitable, Callable

import msgspec
import structlog

from fairlead_bus.port import Bus, Message, Subscription
from fairlead_schemas.wire import subjects
from fairlead_telemetry import schema
from fairlead_telemetry.current_use import Using
from fairlead_telemetry.ingest import Ingest
from fairlead_telemetry.job_metrics import Pictures
from fairlead_telemetry.lookup import find_job
from fairlead_telemetry.newest import Newest
from fairlead_telemetry.sql.query_pool import Desk
from fairlead_telemetry.usage import relations
from fairlead_telemetry.usage.queries import UsageDesk
from fairlead_telemetry.warehouse import Warehouse

#: Under a bus message's 1 MiB.
ANSWER_BYTES_MAX = 1_000_000

#: Of several telemetry services, each with a warehouse of its own, one gets each request.
GROUP = "telemetry"
#: Only the service that runs a query can end it.
TO_ALL = ("sql_cancel",)

log = structlog.get_logger("telemetry")


class JobRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Request of rpc("telemetry", "job")."""

    id: str


class Answers:
    """Serves the verbs while the parts are open."""

    def __init__(self, warehouse: Warehouse, ingest: Ingest, sql: Desk, usage: UsageDesk, newest: Newest) -> None:
        self._warehouse = warehouse
        self._ingest = ingest
        self._sql = sql
        self._usage = usage
        self._pictures = Pictures(warehouse, ingest)
        self._using = Using(warehouse, ingest, newest)

    async def serve(self, bus: Bus) -> list[Subscription]:
        """Answer on `fairlead.rpc.telemetry.<verb>` until the subscriptions are closed."""
        verbs = {
            "sql": self._sql.ask,
            "sql_cancel": self._sql.cancel,
            "job": self._job,
            "tables": self._tables,
            "warehouse": self._stored,
            "usage": self._usage.ask,
            "metrics": self._pictures.ask,
            "use": self._using.ask,
        }
        return [
            await bus.serve(subjects.rpc("telemetry", verb), _guarded(answer), group="" if verb in TO_ALL else GROUP)
            for verb, answer in verbs.items()
        ]

    async def _job(self, request: bytes) -> bytes:
        try:
            job = msgspec.json.decode(request, type=JobRequest).id
        except msgspec.MsgspecError as error:
            return _error("bad_request", str(error), 'send {"id": "812"}')
        document = await self._ingest.on_thread(find_job, self._warehouse, job)
        if document is None:
            where = f"up to log sequence {self._ingest.cursor.sequence}"
            return _error("not_found", f"no job {job[:80]!r} {where}", "fairlead jobs lists jobs")
        answer = msgspec.json.encode(document)
        if len(answer) > ANSWER_BYTES_MAX:
            document.spec = msgspec.Raw(b"null")
            answer = msgspec.json.encode(document)
        return answer

    async def _tables(self, request: bytes) -> bytes:
        return msgspec.json.encode({"text": schema.help_text() + "\n" + relations.help_text()})

    async def _stored(self, request: bytes) -> bytes:
        cursor = self._ingest.cursor
        return msgspec.json.encode(
            {
                "sequence": cursor.sequence,
                "events": cursor.events,
                "samples_lost": cursor.samples_lost,
                "samples_refused": self._ingest.samples_refused,
                "sample_delay_ms": {f"p{percent}": self._ingest.delays.within_ms(percent) for percent in (50, 99)},
                "damage": self._warehouse.damage,
                "files_missing": self._warehouse.files_missing,
            }
        )


def _guarded(answer: Callable[[bytes], Awaitable[bytes]]) -> Callable[[Message], Awaitable[bytes]]:
    """A request that meets a fault gets an answer, too, and the fault is logged."""

    async def handle(message: Message) -> bytes:
        try:
            return await answer(message.payload)
        except Exception as error:
            log.exception("request_failed", subject=message.subject)
            return _error("internal", f"{type(error).__name__}: the telemetry service's log has more", "try again")

    return handle


def _error(code: str, message: str, hint: str) -> bytes:
    return msgspec.json.encode({"error": {"code": code, "message": message, "hint": hint}})
