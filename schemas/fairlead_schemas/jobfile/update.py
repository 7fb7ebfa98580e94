"""Values of a job that may be changed after its submit: their bounds, and the job file after a change. Pure."""

from collections.abc import Iterator
from typing import Any

import msgspec

from fairlead_schemas.jobfile.job_spec import LABEL_CHARS_MAX, NAME_CHARS_MAX
from fairlead_schemas.units.ids import PRIORITY_MAX
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.units.validation import FieldError, shown_name

#: Labels that a changed job may have.
LABELS_MAX = 100


def change_fault(name: str | None, priority: int | None, labels: dict[str, str] | None) -> FieldError | None:
    """Return the first value that a job cannot have, None where all can be; None stands for a value that is not changed."""
    if priority is not None and not 0 <= priority <= PRIORITY_MAX:
        return FieldError(field="priority", message=f"expected 0 to {PRIORITY_MAX}, found {priority}")
    if labels is not None and len(labels) > LABELS_MAX:
        return FieldError(field="labels", message=f"expected at most {LABELS_MAX}, found {len(labels)}")
    return next(name_faults(name or "", labels or {}), None)


def name_faults(name: str, labels: dict[str, str]) -> Iterator[FieldError]:
    """Yield what is wrong with a job's name and labels, in a job file as in a change."""
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        yield FieldError(field="name", message=f"expected at most {NAME_CHARS_MAX} printable characters")
    for key, value in labels.items():
        field = f"labels.{shown_name(key)}"
        if not 0 < len(key) <= LABEL_CHARS_MAX or not key.isprintable() or key.strip() != key:
            message = f"expected a key of 1 to {LABEL_CHARS_MAX} printable characters"
            yield FieldError(field=field, message=message)
        if len(value) > LABEL_CHARS_MAX or not value.isprintable():
            message = f"expected a value of at most {LABEL_CHARS_MAX} printable characters"
            yield FieldError(field=field, message=message)


def updated_spec(
    spec: bytes, name: str | None, priority: int | None, total_ns: int | None, labels: dict[str, str] | None
) -> bytes:
    """Return a canonical job file with the values of a JobUpdated; None: as it is. A limit is rounded up to whole seconds."""
    job: dict[str, Any] = msgspec.json.decode(spec)
    for key, value in (("name", name), ("priority", priority), ("labels", labels)):
        if value is not None:
            job[key] = value
    if total_ns is not None:
        time = {key: value for key, value in job.pop("time", {}).items() if key != "total"}
        if total_ns:
            time["total"] = f"{-(-total_ns // SECOND_NS)}s"
        if time:
            job["time"] = time
    return msgspec.json.encode(job, order="deterministic")
