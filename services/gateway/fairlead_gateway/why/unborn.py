"""Elements of an array that have not come into being: they have no row, and wait as their array does. Pure."""

from fairlead_gateway.problems import Refused, not_found
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow
from fairlead_schemas.http.api import Reason
from fairlead_schemas.units.ids import array_of

#: Of an array in any other state nothing more comes into being.
WAITING = frozenset({"scheduled", "queued", "held"})


def row_for(views: Views, job: str) -> JobRow | None:
    """The job's row; its array's where it is an element that has not been offered yet."""
    row = views.jobs.rows.get(job)
    if row is not None:
        return row
    array = _array(views, job)
    if array is None or array.array is None or array.elements is None or array.state not in WAITING:
        return None
    last = array.array[1]
    return array if last - array.elements["waiting"] < _index(job) <= last else None


def no_element(views: Views, job: str) -> Refused | None:
    """The answer where the array is there and has no such element."""
    array = _array(views, job)
    if array is None or array.array is None or array.array[0] <= _index(job) <= array.array[1]:
        return None
    first, last = array.array
    return not_found("job", job[:80], hint=f"array {array.id} has the elements {array.id}_{first} to {array.id}_{last}")


def as_its_array(array: JobRow, reason: Reason) -> Reason:
    """Return the array's reason, worded for an element."""
    message = f"comes into being when it is offered, by its array {array.id}; of that: {reason.message}"
    return Reason(code=reason.code, message=message, detail=reason.detail)


def _array(views: Views, job: str) -> JobRow | None:
    return views.jobs.rows.get(array_of(job) or "")


def _index(job: str) -> int:
    """-1 for what is no index."""
    index = job.partition("_")[2]
    return int(index) if index.isascii() and index.isdecimal() and len(index) <= 9 else -1
