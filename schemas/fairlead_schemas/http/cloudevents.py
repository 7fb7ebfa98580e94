"""CloudEvents 1.0 (structured JSON): how outsiders send us things and read our log.

In: `fairlead.job.submit.v1` (data: a job file), `fairlead.job.cancel.v1`, `.hold.v1`, `.release.v1`
(data: {"job": id}). Source + id is the idempotency key. Out: every event of the log as
`fairlead.<aggregate>.<what>.v1` with id `<sequence>.<index>`.
"""

import re
from functools import cache
from typing import Any

import msgspec

SPECVERSION = "1.0"
SOURCE_OUT = "/fairlead/log"

JOB_SUBMIT = "fairlead.job.submit.v1"
JOB_CANCEL = "fairlead.job.cancel.v1"
JOB_HOLD = "fairlead.job.hold.v1"
JOB_RELEASE = "fairlead.job.release.v1"
TYPES_IN = (JOB_SUBMIT, JOB_CANCEL, JOB_HOLD, JOB_RELEASE)


class CloudEventIn(msgspec.Struct, frozen=True, kw_only=True):
    """CloudEvent as a client sends it. Extension attributes are allowed by the standard and ignored."""

    specversion: str
    type: str
    source: str
    id: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    subject: str = ""
    time: str = ""
    datacontenttype: str = "application/json"
    dataschema: str = ""


class JobNamed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Data of a cancel, hold or release event."""

    job: str


class CloudEventOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of the log as outsiders read it. `sequence` and `cause` are extension attributes."""

    specversion: str
    id: str
    source: str
    type: str
    time: str
    datacontenttype: str
    sequence: str
    data: Any
    cause: str = ""
    subject: str = ""


_WORDS = re.compile(r"[A-Z][a-z0-9]*")


@cache
def type_of(event_type: str) -> str:
    """`type_of("JobStopRequested") == "fairlead.job.stop_requested.v1"`."""
    aggregate, *what = (word.lower() for word in _WORDS.findall(event_type))
    return f"fairlead.{aggregate}.{'_'.join(what)}.v1"
