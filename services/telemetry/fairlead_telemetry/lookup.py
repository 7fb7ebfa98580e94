"""Lookup of one job's document in the warehouse: its events are read and folded by `jobdoc.py`."""

from collections.abc import Sequence

import msgspec

from fairlead_schemas.http import api
from fairlead_schemas.units.ids import array_of, is_job_id
from fairlead_schemas.wire import events as ev
from fairlead_telemetry.jobdoc import Happened, fold_job, timestamp
from fairlead_telemetry.warehouse import Warehouse

# For a single job DuckDB's planning is nearly all of the cost, and it grows with what a question mentions: so these are narrow, sorting
# is Python's, and the view `jobs` is asked only where nothing else knows.
#: Events of a job lie between its first and its newest; DuckDB skips all others by their sequence.
_ROW = "SELECT first_sequence, sequence, queue FROM fold.jobs WHERE job = ?"
_EVENTS = "SELECT sequence, idx, at_ns, body FROM events WHERE sequence BETWEEN ? AND ? AND job = ?"
_BIRTH = f"{_EVENTS} AND type = 'JobSubmitted'"
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
    born = _birth(warehouse, job, happened)
    if not happened or born is None:
        return None
    birth = born.event
    assert isinstance(birth, ev.JobSubmitted)
    is_array = birth.array is not None and array_of(job) is None
    elements = _elements(warehouse, job, birth) if is_array else None
    document = fold_job(job, born, happened, elements, now_ns=warehouse.cursor.at_ns)
    document.sequence = warehouse.cursor.sequence
    document.queue = queue  # what became of it, other events say
    if document.state == "scheduled":
        [(document.state,)] = warehouse.rows(_STATE, [job])  # and of the jobs that it waits for
    if document.array is not None:
        started_ns = warehouse.rows(_FIRST_START, [born.sequence, f"{job}_"])[0][0]
        document.started_at = timestamp(started_ns) if started_ns is not None else None  # with its first element
    if document.array is not None and document.state == "cancelled":
        unborn = document.array.pop("waiting", 0)  # elements never offered end with their array
        document.array["cancelled"] = document.array.get("cancelled", 0) + unborn
    return document


def _birth(warehouse: Warehouse, job: str, happened: Sequence[Happened]) -> Happened | None:
    """The JobSubmitted of a job, of an element its array's."""
    if (array := array_of(job)) is not None:
        row = warehouse.rows(_ROW, [array])
        happened = _happened(warehouse, _BIRTH, [*row[0][:2], array]) if row else ()
    return next((one for one in happened if isinstance(one.event, ev.JobSubmitted)), None)


def _happened(warehouse: Warehouse, query: str, parameters: Sequence[object]) -> list[Happened]:
    """In the order of the log. A repeated command says nothing of the job."""
    rows = sorted(warehouse.rows(query, parameters))
    found = [Happened(sequence, at_ns, _decoder.decode(body)) for sequence, _, at_ns, body in rows]
    return [one for one in found if not isinstance(one.event, ev.CommandRepeated)]


def _elements(warehouse: Warehouse, job: str, birth: ev.JobSubmitted) -> dict[str, int]:
    assert birth.array is not None
    counts = dict(warehouse.rows(_ELEMENTS, [f"{job}_"]))
    waiting = birth.array[1] - birth.array[0] + 1 - sum(counts.values())
    return {"waiting": waiting} | counts if waiting else counts
