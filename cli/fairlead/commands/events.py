"""`events`: the record itself, as it happened (as tables: `sql.py`); and text lines for events of the log: an event's type
without its frame, its fields in words, its cause.

Amounts use the notation of files (GPUs, CPUs, memory), times are calendar times, durations have two units. Fields that
are too long for a line are left out; `-o wide` and `-o json` have all of them, in the log's own integers.
"""

from typing import Annotated, Any

import msgspec
import typer

from fairlead.commands.options import (
    Output,
    complete_job,
    complete_node,
    complete_queue,
    connect,
    moment_of,
    pick,
    time_of,
)
from fairlead.render import terminal
from fairlead.render.terminal import Format
from fairlead_schemas.http.cloudevents import CloudEventOut
from fairlead_schemas.policies.idle import IdleEvidence, evidence_words
from fairlead_schemas.queuefile.amounts import amount_words, gpu_hours_word, number, resource_word
from fairlead_schemas.queuefile.settings import PoolSettings, QueueSettings
from fairlead_schemas.queuefile.settings_format import pool_words, queue_words
from fairlead_schemas.units.quantities import format_duration, format_milli
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339_seconds

#: What is above is a time (2001 and later), what is below a duration (of at most 31 years).
SINCE_1970_LEAST_NS = 10**9 * SECOND_NS
#: Fields too long for a line.
_LONG = frozenset(
    {
        "template",
        "spec",
        "request",
        "inventory",
        "parts",
        "cause",
        "type",
        "gpus",
        "digest",
        "key",
        "near",
        "evidence",
        "policies",
    }
)
#: Amounts of the `resource` in the same event.
_OF_RESOURCE = frozenset({"held", "needed", "ceiling"})
#: GPU time, in milli-GPU-seconds.
_GPU_TIME = frozenset({"spent", "budget"})


OfTypes = Annotated[
    list[str] | None,
    typer.Option("--type", help="Only these types: job.placed, JobPlaced, node.*; repeatable.", show_default=False),
]
OfNodes = Annotated[
    list[str] | None,
    typer.Option(
        "--node", help="Only what names this node; repeatable.", autocompletion=complete_node, show_default=False
    ),
]
OfUsers = Annotated[
    list[str] | None,
    typer.Option(
        "--user", "-u", help='Only about jobs of this user, or by them; "me": you; repeatable.', show_default=False
    ),
]
OfQueues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        "-q",
        help="Only about this queue, those below it and their jobs; repeatable.",
        autocompletion=complete_queue,
        show_default=False,
    ),
]


def event_line(event: CloudEventOut, *, wide: bool = False) -> str:
    """`job.placed job=812 attempt=0 … <- 40213.1`: with `wide` every field as the log has it."""
    what = event.type.removeprefix("fairlead.").removesuffix(".v1")
    data: dict[str, Any] = event.data if isinstance(event.data, dict) else {"data": event.data}
    words = " ".join(f"{name}={_value(value)}" for name, value in (data if wide else event_fields(data)).items())
    cause = event.cause or data.get("cause", "")
    return f"{what} {words}{f' <- {cause}' if cause else ''}"


def event_fields(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of an event that fit a line, in words."""
    shown: dict[str, Any] = {}
    for name, value in data.items():
        if name not in _LONG:
            key, text = _field(name, value, data)
            shown[key] = text
    if data.get("type") == "JobOffered":
        shown.pop("rank", None)  # a number that only compares; a gang's rank is another thing
    if isinstance(parts := data.get("parts"), list):
        shown["on"] = ",".join(str(part.get("node")) for part in parts)
    if isinstance(seen := data.get("evidence"), list):
        shown["evidence"] = _evidence(seen)
    if isinstance(near := data.get("near"), list):
        shown["near"] = ",".join(f"{miss.get('node')}:after:{miss.get('job')}" for miss in near)
    return shown


def _field(name: str, value: Any, data: dict[str, Any]) -> tuple[str, Any]:
    if name.endswith("_ns"):
        return name.removesuffix("_ns"), _moment(value)
    if isinstance(value, int) and "_milli" in name:
        return name.replace("gpu_milli", "gpus").removesuffix("_milli"), format_milli(value)
    resource = data.get("resource")
    if name == "resource" and resource:
        return name, resource_word(resource)
    if name in _OF_RESOURCE and resource:
        return name, number(resource, value)
    if name in _GPU_TIME and isinstance(value, int):
        return f"{name}_gpu_hours", gpu_hours_word(value)
    return name, _nested(name, value, data)


def _nested(name: str, value: Any, data: dict[str, Any]) -> Any:
    if not isinstance(value, dict):
        return value
    match name:
        case "amounts":
            return amount_words(value)
        case "settings":
            return _settings(value, data)
        case "score":
            return {_left(key): format_milli(each) if key.endswith("_milli") else each for key, each in value.items()}
        case _:
            return dict(_field(key, each, value) for key, each in value.items())


def _settings(value: dict[str, Any], data: dict[str, Any]) -> Any:
    """Return settings in the notation of a queue file; unchanged if they come from a gateway of another release."""
    try:
        if "path" in data:
            return queue_words(msgspec.convert(value, QueueSettings))
        return pool_words(msgspec.convert(value, PoolSettings))
    except msgspec.ValidationError:
        return value


def _evidence(value: list[Any]) -> Any:
    """Return evidence as one line; unchanged if it comes from a gateway of another release."""
    try:
        return evidence_words(msgspec.convert(value, list[IdleEvidence]))
    except msgspec.ValidationError:
        return value


def _left(key: str) -> str:
    """Return the display name of a field: "cpu_left_milli" becomes "cpus_left"."""
    return key.removesuffix("_milli").replace("cpu_", "cpus_") if key.endswith("_milli") else key


def _moment(value: Any) -> Any:
    """Nanoseconds as people read them: a time of the calendar, or a duration."""
    if not isinstance(value, int) or not value:
        return value
    if value < 0:
        return "never"
    if value < SINCE_1970_LEAST_NS:
        return format_duration(value)
    return rfc3339_seconds(value)


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return msgspec.json.encode(text).decode() if " " in text or not text.isprintable() else text


def events(
    job: Annotated[str, typer.Option("--job", help="Only events about this job.", autocompletion=complete_job)] = "",
    start: Annotated[
        int | None,
        typer.Option(
            "--from",
            min=1,
            help="Begin at this log sequence.  [default: 1; with --follow and no --job: now]",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new events.")] = False,
    since: Annotated[
        str,
        typer.Option(
            "--since", help='Only since: "2h" ago, "03:00", yesterday, "2026-01-31 03:00".', show_default=False
        ),
    ] = "",
    until: Annotated[
        str, typer.Option("--until", help="Only until then, in the same words; not with --follow.", show_default=False)
    ] = "",
    kinds: OfTypes = None,
    node: OfNodes = None,
    user: OfUsers = None,
    queue: OfQueues = None,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=1, help="Begin with the last so many.", show_default=False)
    ] = None,
    output: Output = Format.table,
) -> None:
    """Print events of the log: time, id, what, about whom, caused by what.

    fairlead events --job last

    fairlead events --from 40213 --follow -o json     (one CloudEvent per line)

    fairlead events --since 03:00 --until 03:20 --type "node.*"     (what happened to nodes in the night)

    fairlead events --queue research --tail 20 --follow

    User and queue of a job count for its events as long as it is listed by fairlead jobs --all; for older jobs: fairlead sql.
    """
    with connect() as client:
        job_id = pick(client, [job])[0] if job else ""
        begin = start or (None if (follow and not job) or since or tail else 1)
        found = client.events(
            start=begin,
            follow=follow,
            job=job_id,
            since=time_of(since) if since else "",
            until=time_of(until) if until else "",
            types=",".join(kinds or ()),
            node=",".join(node or ()),
            user=",".join(client.me() if each == "me" else each for each in user or ()),
            queue=",".join(queue or ()),
            tail=tail,
        )
        for event in found:
            terminal.write(_line(event, output))


def changes(
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            help='The moment before the first change: a log sequence, "2 hours ago", 03:12.',
            show_default=False,
        ),
    ],
    to: Annotated[
        str, typer.Option("--to", help="The moment of the last change.  [default: now]", show_default=False)
    ] = "",
    job: Annotated[str, typer.Option("--job", help="Only events about this job.", autocompletion=complete_job)] = "",
    kinds: OfTypes = None,
    node: OfNodes = None,
    user: OfUsers = None,
    queue: OfQueues = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="So many at most; 0: all.")] = 0,
    output: Output = Format.table,
) -> None:
    """Print the events that lead from the cluster at one moment to that at another, oldest first.

    fairlead changes --from "2 hours ago"

    fairlead changes --from 4711 --to 4890 --type "node.*"
    """
    with connect() as client:
        found = client.changes(
            moment_of(begin, "--from"),
            moment_of(to, "--to"),
            job=pick(client, [job])[0] if job else "",
            types=",".join(kinds or ()),
            node=",".join(node or ()),
            user=",".join(client.me() if each == "me" else each for each in user or ()),
            queue=",".join(queue or ()),
            limit=limit,
        )
        for event in found.items:
            terminal.write(_line(event, output))


def _line(event: CloudEventOut, output: Format) -> str:
    """Return the text of one event. JSON is one document per line, because a log has no end to close a list with."""
    if output is Format.json:
        return msgspec.json.encode(event).decode() + "\n"
    if output is Format.yaml:
        return "---\n" + terminal.document(event, output)
    if output is Format.names:
        return f"{event.id}\n"
    return f"[{event.time}] [{event.id}] {event_line(event, wide=output is Format.wide)}\n"
