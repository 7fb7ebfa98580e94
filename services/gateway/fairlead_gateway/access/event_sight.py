"""Events of the log that a caller may see, and the fields of them that speak of others. Pure.

An event about a job is seen by those who may read the job now, without the fields that name others
(`fairlead_schemas.policies.event_visibility`); one about a node, queue or pool by those who may read that; every other event only
by those with `audit:read` on the cluster, who see all of them as they are.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from fairlead_gateway.access.caller import CLUSTER
from fairlead_gateway.access.redaction import scrub
from fairlead_gateway.access.targets import Sight
from fairlead_schemas.http import cloudevents as ce
from fairlead_schemas.policies.event_visibility import EVENTS_SHOWN


class EventSubject(msgspec.Struct):
    """Fields of an event that decide which watches receive it, and who may see it."""

    type: str
    cause: str = ""
    job: str = ""
    node: str = ""
    path: str = ""
    queue: str = ""
    pool: str = ""


_encode = msgspec.json.Encoder().encode

#: Fields of events about nodes, queues and pools that may name other things and people.
_TEXTS = frozenset({"by", "message", "move_to", "reason", "setter"})

#: Returns a rendered event as the caller may see it; None: not at all.
type Show = Callable[[EventSubject, bytes], bytes | None]
#: Makes that function by the caller's rights at the moment.
type EventFilter = Callable[[], Show]


def cloud_event(event_id: str, writer: str, time: str, about: EventSubject, data: msgspec.Raw) -> bytes:
    """Return an event of the log as a CloudEvent, encoded. `time`: RFC 3339, of its commit."""
    out = ce.CloudEventOut(
        specversion=ce.SPECVERSION,
        id=event_id,
        source=f"{ce.SOURCE_OUT}/{writer}",
        type=ce.type_of(about.type),
        time=time,
        datacontenttype="application/json",
        sequence=event_id.partition(".")[0],
        data=data,
        cause=about.cause,
        subject=_subject(about),
    )
    return _encode(out)


def _subject(about: EventSubject) -> str:
    if about.job:
        return f"job/{about.job}"
    if about.node:
        return f"node/{about.node}"
    if about.pool:
        return f"pool/{about.pool}"
    queue = about.path or about.queue
    return f"queue/{queue}" if queue else ""


def event_filter(sight: Sight) -> Show:
    """Return the function that shows events to the sight's caller."""
    if sight.caller.may("audit:read", CLUSTER):
        return lambda _about, event: event
    return lambda about, event: _shown(sight, about, event)


def _shown(sight: Sight, about: EventSubject, event: bytes) -> bytes | None:
    if about.job:
        fields = EVENTS_SHOWN.get(about.type)
        if fields is None or not sight.job_id(about.job):
            return None
        return _without(event, () if sight.all_jobs else fields, sight.caller.principal)
    if about.node:
        return _cleaned(sight, event) if sight.node_id(about.node) else None
    if about.type == "JobRejected":  # what somebody wanted of a queue, no event of the queue
        return None
    if path := about.path or about.queue:
        return _cleaned(sight, event) if sight.queue(path) else None
    if about.pool:
        return _cleaned(sight, event) if sight.pool(about.pool) else None
    return None


def _cleaned(sight: Sight, event: bytes) -> bytes:
    """Return an event about a node, queue or pool without others' jobs and without names that the caller may not see: it was folded from
    work of everybody.
    """
    document: dict[str, Any] = msgspec.json.decode(_without(event, (), sight.caller.principal))
    data = document["data"]
    if isinstance(jobs := data.get("jobs"), list):
        data["jobs"] = [job for job in jobs if sight.job_id(job)]
    for field in _TEXTS & data.keys():
        data[field] = scrub(sight, data[field])
    return msgspec.json.encode(document)


def _without(event: bytes, fields: tuple[str, ...], principal: str) -> bytes:
    """Return a CloudEvent without some fields of its data, and without the credential of another sender."""
    document: dict[str, Any] = msgspec.json.decode(event)
    data = document["data"]
    for field in fields:
        data.pop(field, None)
    if data.get("authority", {}).get("principal") != principal:
        data.pop("authority", None)
    return msgspec.json.encode(document)
