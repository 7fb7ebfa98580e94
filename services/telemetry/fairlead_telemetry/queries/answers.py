"""Requests that other services may make of the telemetry service, verb by verb: JSON in, JSON out, every fault an answer;
and lookup of one job's document in the warehouse: its events are read and folded by `job_document.py`.

    sql       SqlRequest         -> {"columns", "rows", "sequence", "truncated", "elapsed_ms"}, or as requested
                                    (schemas' queries/telemetry.py)
    sql_cancel  SqlCancel        -> {"cancelled"}
    job       {"id"}             -> the job's document, from events alone
    tables    -                  -> {"text"}: every table, view and column
    warehouse -                  -> {"sequence", "events", "samples_lost", "samples_refused", "sample_delay_ms",
                                    "damage"}: progress of the warehouse
    usage     {"month"?, "by"?}  -> a month's statement of GPU time (usage.py)
    metrics   JobMetricsRequest  -> a job's GPUs over time (job_metrics.py)
    use       JobUseRequest      -> present activity of running jobs' GPUs (current_use.py)

`state` is answered by the service shell, as every writer's is (fairlead_bus/service.py).

An answer that could not be given is {"error": {"code", "message", "hint"}}.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from fairlead_bus.port import Bus, Message, Subscription
from fairlead_schemas.http import api
from fairlead_schemas.units.ids import array_of, is_job_id
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_telemetry import schema
from fairlead_telemetry.ingest import Ingest
from fairlead_telemetry.queries.current_use import CurrentUseQueries, NewestBatches
from fairlead_telemetry.queries.job_document import LoggedEvent, fold_job
from fairlead_telemetry.queries.job_metrics import JobMetricsQueries
from fairlead_telemetry.queries.usage import UsageQueries
from fairlead_telemetry.sql.query_pool import QueryPool
from fairlead_telemetry.warehouse.warehouse import Warehouse

# For a single job DuckDB's planning is nearly all of the cost, and it grows with what a question mentions: so these are narrow, sorting
# is Python's, and the view `jobs` is asked only where nothing else knows.
#: Events of a job lie between its first and its newest; DuckDB skips all others by their sequence.
_ROW = "SELECT first_sequence, sequence, queue FROM fold.jobs WHERE job = ?"
_EVENTS = "SELECT sequence, idx, at_ns, body FROM events WHERE sequence BETWEEN ? AND ? AND job = ?"
_SUBMISSION = f"{_EVENTS} AND type = 'JobSubmitted'"
_STATE = "SELECT state FROM jobs WHERE id = ?"
_ELEMENTS = "SELECT state, count(*) FROM jobs WHERE starts_with(id, ?) GROUP BY state"
_FIRST_START = "SELECT min(at_ns) FROM events WHERE sequence >= ? AND type = 'RunStarted' AND starts_with(job, ?)"
_decoder = msgspec.json.Decoder(ev.Event)


def find_job(warehouse: Warehouse, job: str) -> api.Job | None:
    """The job (or array element) as of the warehouse's cursor, or None where the log never offered or took it."""
    if not is_job_id(job) or not (row := warehouse.rows(_ROW, [job])):
        return None
    first, newest, queue = row[0]
    happened = _happened(warehouse, _EVENTS, [first, newest, job])
    born = _submission(warehouse, job, happened)
    if not happened or born is None:
        return None
    submission = born.event
    assert isinstance(submission, ev.JobSubmitted)
    is_array = submission.array is not None and array_of(job) is None
    elements = _elements(warehouse, job, submission) if is_array else None
    document = fold_job(job, born, happened, elements, now_ns=warehouse.cursor.at_ns)
    document.sequence = warehouse.cursor.sequence
    document.queue = queue  # what became of it, other events say
    if document.state == "scheduled":
        [(document.state,)] = warehouse.rows(_STATE, [job])  # and of the jobs that it waits for
    if document.array is not None:
        started_ns = warehouse.rows(_FIRST_START, [born.sequence, f"{job}_"])[0][0]
        document.started_at = rfc3339(started_ns) if started_ns is not None else None  # with its first element
    if document.array is not None and document.state == "cancelled":
        unborn = document.array.pop("waiting", 0)  # elements never offered end with their array
        document.array["cancelled"] = document.array.get("cancelled", 0) + unborn
    return document


def _submission(warehouse: Warehouse, job: str, happened: Sequence[LoggedEvent]) -> LoggedEvent | None:
    """The JobSubmitted of a job, of an element its array's."""
    if (array := array_of(job)) is not None:
        row = warehouse.rows(_ROW, [array])
        happened = _happened(warehouse, _SUBMISSION, [*row[0][:2], array]) if row else ()
    return next((one for one in happened if isinstance(one.event, ev.JobSubmitted)), None)


def _happened(warehouse: Warehouse, query: str, parameters: Sequence[object]) -> list[LoggedEvent]:
    """In the order of the log. A repeated command says nothing of the job."""
    rows = sorted(warehouse.rows(query, parameters))
    found = [LoggedEvent(sequence, at_ns, _decoder.decode(body)) for sequence, _, at_ns, body in rows]
    return [one for one in found if not isinstance(one.event, ev.CommandRepeated)]


def _elements(warehouse: Warehouse, job: str, submission: ev.JobSubmitted) -> dict[str, int]:
    assert submission.array is not None
    counts = dict(warehouse.rows(_ELEMENTS, [f"{job}_"]))
    waiting = submission.array[1] - submission.array[0] + 1 - sum(counts.values())
    return {"waiting": waiting} | counts if waiting else counts


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


class TelemetryQueries:
    """Serves the verbs while the parts are open."""

    def __init__(
        self, warehouse: Warehouse, ingest: Ingest, sql: QueryPool, usage: UsageQueries, newest: NewestBatches
    ) -> None:
        self._warehouse = warehouse
        self._ingest = ingest
        self._sql = sql
        self._usage = usage
        self._pictures = JobMetricsQueries(warehouse, ingest)
        self._using = CurrentUseQueries(warehouse, ingest, newest)

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
        document = await self._ingest.ask(find_job, self._warehouse, job)
        if document is None:
            where = f"up to log sequence {self._ingest.sequence}"
            return _error("not_found", f"no job {job[:80]!r} {where}", "fairlead jobs lists jobs")
        answer = msgspec.json.encode(document)
        if len(answer) > ANSWER_BYTES_MAX:
            document.spec = msgspec.Raw(b"null")
            answer = msgspec.json.encode(document)
        return answer

    async def _tables(self, request: bytes) -> bytes:
        return msgspec.json.encode({"text": schema.help_text()})

    async def _stored(self, request: bytes) -> bytes:
        cursor = self._ingest.cursor
        return msgspec.json.encode(
            {
                "sequence": self._ingest.sequence,
                "events": self._ingest.events,
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
