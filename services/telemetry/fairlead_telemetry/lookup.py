"""One job's document, looked up in the warehouse: its events out, folded by `jobdoc.py`."""

import msgspec

from fairlead_schemas import api
from fairlead_schemas import events as ev
from fairlead_schemas.ids import array_of, is_job_id
from fairlead_telemetry.jobdoc import Happened, fold_job, timestamp
from fairlead_telemetry.warehouse import Warehouse

#: Events of a job lie between its first and its newest; DuckDB skips all others by their sequence.
_WITHIN = "SELECT first_sequence, sequence FROM fold.jobs WHERE job = ?"
_EVENTS = """SELECT sequence, at_ns, body FROM events
WHERE sequence BETWEEN ? AND ? AND job = ? AND type <> 'CommandRepeated' ORDER BY sequence, idx"""
_BIRTH = "SELECT sequence, at_ns, body FROM events WHERE sequence BETWEEN ? AND ? AND job = ? AND type = 'JobSubmitted'"
_NOW = "SELECT state, queue FROM jobs WHERE id = ?"
_ELEMENTS = "SELECT state, count(*) FROM jobs WHERE starts_with(id, ?) GROUP BY state"
_FIRST_START = "SELECT min(at_ns) FROM events WHERE sequence >= ? AND type = 'RunStarted' AND starts_with(job, ?)"
_decoder = msgspec.json.Decoder(ev.Event)


def find_job(warehouse: Warehouse, job: str) -> api.Job | None:
    """The job (or array element) as of the warehouse's cursor, or None where the log never offered or took it."""
    if not is_job_id(job):
        return None
    happened = _happened(warehouse, _EVENTS, job)
    born = _happened(warehouse, _BIRTH, array_of(job) or job)
    if not happened or not born:
        return None
    birth = born[0].event
    assert isinstance(birth, ev.JobSubmitted)
    is_array = birth.array is not None and array_of(job) is None
    elements = _elements(warehouse, job, birth) if is_array else None
    document = fold_job(job, born[0], happened, elements, now_ns=warehouse.cursor.at_ns)
    document.sequence = warehouse.cursor.sequence
    [(state, document.queue)] = warehouse.rows(_NOW, [job])  # what became of its queue, other events say
    if document.state == "scheduled":
        document.state = state  # and of the jobs that it waits for
    if document.array is not None:
        started_ns = warehouse.rows(_FIRST_START, [born[0].sequence, f"{job}_"])[0][0]
        document.started_at = timestamp(started_ns) if started_ns is not None else None  # with its first element
    if document.array is not None and document.state == "cancelled":
        unborn = document.array.pop("waiting", 0)  # elements never offered end with their array
        document.array["cancelled"] = document.array.get("cancelled", 0) + unborn
    return document


def _happened(warehouse: Warehouse, query: str, job: str) -> list[Happened]:
    within = warehouse.rows(_WITHIN, [job])
    if not within:
        return []
    rows = warehouse.rows(query, [*within[0], job])
    return [Happened(sequence, at_ns, _decoder.decode(body)) for sequence, at_ns, body in rows]


def _elements(warehouse: Warehouse, job: str, birth: ev.JobSubmitted) -> dict[str, int]:
    assert birth.array is not None
    counts = dict(warehouse.rows(_ELEMENTS, [f"{job}_"]))
    waiting = birth.array[1] - birth.array[0] + 1 - sum(counts.values())
    return {"waiting": waiting} | counts if waiting else counts
