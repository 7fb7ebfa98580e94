"""GPU time once more, from an exported log alone: plain Python over JSON, sharing no code with the telemetry service. Pure.

    book = read(lines)                          log.jsonl of `fairlead audit export`, line by line
    differences(statement, book, prices)        [] where a statement says exactly what the log does

It exists to disagree. So it works the other way round: where the service folds events into stays and sums them in SQL, this
keeps everything, and then asks of each placement which queue the job was in, when it ended and when its devices were back.
docs/reference/usage.md says the rules that both follow.
"""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from fairlead_schemas.units.timestamps import HOUR_NS, calendar_period, midnight, utc_day

#: milli-GPU times ns of one GPU-hour.
_GPU_HOUR = 1000 * HOUR_NS
#: Maximum number of differences that are reported.
DIFFERENCES_MAX = 20

type Json = dict[str, Any]


class NotCounted(ValueError):
    """A log does not say what is needed to count; the message says where."""


class Interval(NamedTuple):
    """Part of an attempt on one node. Times are Unix ns; `end` and `back` are the end of the log where there was none."""

    words: dict[str, str]  # what statements are made by: user, queue, project, job, attempt, model, pool
    charged: int  # milli-GPU
    held: int
    weight: int
    begin: int
    end: int
    back: int


class Happening(NamedTuple):
    """An event, its place in the order of all events, and the placer's clock there."""

    place: int
    at: int
    event: Json


#: {(type, the job, node, queue or pool that it is about): events in order}; under "" all of a type.
type EventIndex = dict[tuple[str, str], list[Happening]]


class Book(NamedTuple):
    """Contents of a log up to a sequence."""

    intervals: list[Interval]
    sequence: int
    at: int  # the placer's clock
    prices: list[Json] = []  # PriceSet events, in order


def read(lines: Iterable[bytes], upto: int | None = None) -> Book:
    """Every interval of GPU time in a log, as of a sequence (None: its end)."""
    index: EventIndex = {}
    clock = sequence = place = 0
    for line in lines:
        row = _decoded(line, sequence)
        if upto is not None and row["sequence"] > upto:
            break
        sequence, commit = row["sequence"], row["commit"]
        if commit["writer"] == "placer" and commit["events"]:
            clock = max(clock, commit["at_ns"])
        for event in commit["events"]:
            place += 1
            about = next((event[word] for word in ("job", "node", "path", "pool") if word in event), "")
            for key in {about, ""}:
                index.setdefault((event["type"], key), []).append(Happening(place, clock, event))
    intervals = [
        interval for placed in index.get(("JobPlaced", ""), []) for interval in _intervals(placed, index, clock)
    ]
    return Book(intervals, sequence, clock, [each.event for each in index.get(("PriceSet", ""), [])])


def _decoded(line: bytes, after: int) -> Json:
    try:
        return json.loads(line)
    except ValueError as error:
        raise NotCounted(f"the line after sequence {after} is no JSON: {error}") from None


def _intervals(placed: Happening, index: EventIndex, now: int) -> Iterable[Interval]:
    event = placed.event
    job, attempt = event["job"], event["attempt"]
    submission = _of(index, "JobSubmitted", job.split("_")[0])[0]
    queue = _queue(submission, placed.place, index)
    pool = _pool(queue, placed.place, index)
    ends = [each.at for each in _of(index, "RunEnded", job, attempt=attempt)]
    units = _units(submission.event["request"], sum(part.get("tasks", 1) for part in event["parts"]))
    for rank, part in enumerate(event["parts"]):
        tasks = part.get("tasks", 1)
        charged, units = sum(units[:tasks]), units[tasks:]
        held = part.get("gpu_milli", 1000) * len(part.get("gpus", ()))
        if not charged and not held:
            continue
        label, model = _model(part, placed.place, index)
        words = {
            "user": submission.event["user"],
            "project": submission.event.get("project", ""),
            "queue": queue,
            "pool": pool,
            "job": job,
            "attempt": f"{job}.{attempt}",
            "model": model,
        }
        backs = _backs(index, job, attempt, rank, part["node"])
        yield Interval(
            words,
            charged,
            held,
            _weight(pool, label, placed.place, index),
            placed.at,
            min(ends, default=now),
            min(backs, default=now),
        )


def _of(index: EventIndex, kind: str, about: str, **fields: object) -> list[Happening]:
    """The events of a kind that say this."""
    found = index.get((kind, about), [])
    return [each for each in found if all(each.event.get(name) == value for name, value in fields.items())]


def _units(request: Json, got: int) -> list[int]:
    """milli-GPU of each unit that the job got, in the order of the ranks."""
    kinds = [[kind.get("gpu_milli", 0)] * kind.get("nodes", 1) for kind in (request, *request.get("also", ()))]
    if request.get("nodes_min"):
        kinds[0] = kinds[0][: len(kinds[0]) - (sum(map(len, kinds)) - got)]
    return [milli for kind in kinds for milli in kind]


def _queue(submission: Happening, until: int, index: EventIndex) -> str:
    """Return the job's queue at a place in the log: as submitted, moved by people, or moved with all others of a removed
    queue.
    """
    changes = _of(index, "JobMoved", submission.event["job"]) + _of(index, "QueueRemoved", "")
    queue = str(submission.event["queue"])
    for each in sorted(changes, key=lambda each: each.place):
        event = each.event
        if not submission.place < each.place < until:
            continue
        if event["type"] == "JobMoved":
            queue = event["queue"]
        elif event["path"] == queue:
            queue = event.get("move_to") or queue
    return queue


def _newest(found: Iterable[Happening], until: int) -> Json:
    """The newest of these events before a place; {} where there is none."""
    earlier = [each for each in found if each.place < until]
    return max(earlier, key=lambda each: each.place).event if earlier else {}


def _pool(queue: str, until: int, index: EventIndex) -> str:
    top = queue.split("/", maxsplit=1)[0]
    set_ = _newest(_of(index, "QueueConfigured", top) + _of(index, "QueueRemoved", top), until)
    return (set_.get("settings") or {}).get("pool") or "default"


def _weight(pool: str, label: str, until: int, index: EventIndex) -> int:
    set_ = _newest(_of(index, "PoolConfigured", pool) + _of(index, "PoolRemoved", pool), until)
    return (set_.get("settings") or {}).get("prices", {}).get(label, 1000)


def _model(part: Json, until: int, index: EventIndex) -> tuple[str, str]:
    """(the node's label, the model that it or its GPUs say)."""
    node = part["node"]
    inventory = _newest(_of(index, "NodeJoined", node) + _of(index, "NodeChanged", node), until)["inventory"]
    label = inventory.get("labels", {}).get("nvidia.com/gpu.product", "")
    models = {gpu["uuid"]: gpu["model"] for gpu in inventory.get("gpus", ())}
    return label, label or next((models.get(uuid, "") for uuid in part.get("gpus", ())), "")


def _backs(index: EventIndex, job: str, attempt: int, rank: int, node: str) -> list[int]:
    """Every moment at which the log says that this part is free."""
    ended = [each for each in _of(index, "RunEnded", job, attempt=attempt) if node in each.event.get("released", ())]
    early = _of(index, "RankEnded", job, attempt=attempt, rank=rank, released=True)
    return [each.at for each in ended + early + _of(index, "AllocationReleased", job, attempt=attempt, node=node)]


# ------------------------------------------------------------------------------------------ bills

#: (key, model, from when on the price holds or the month begins)
type Key = tuple[str, str, int]
#: What a line says, by the names of the API.
COMPARED = ("runs", "charged", "held", "weighted", "per_gpu_hour", "currency", "amount")


def bill(book: Book, span: tuple[int, int], by: str, prices: str) -> dict[Key, dict[str, Any]]:
    """The lines of a statement of the time (begin, end). `prices` is the text of a price table, "" for none."""
    begin, end = span
    table: list[dict[str, Any]] = list(
        csv.DictReader(line for line in prices.splitlines() if line.strip() and not line.startswith("#"))
    )
    table += [
        {
            "model": each["model"],
            "per_gpu_hour": str(Decimal(each["micro"]) / 1_000_000),
            "currency": each["currency"],
            "from_ns": each["from_ns"],
        }
        for each in book.prices
    ]
    lines: dict[Key, dict[str, Any]] = {}
    runs: dict[Key, set[str]] = {}
    for interval in book.intervals:
        model = interval.words["model"]
        rows = [row for row in table if row["model"] == model] or [row for row in table if row["model"] == "*"]
        for since, until, row in _priced(rows, begin, end):
            held = _overlap(interval.begin, interval.back, since, until) * interval.held
            charged = _overlap(interval.begin, interval.end, since, until) * interval.charged
            if not held and not charged:
                continue
            key = (interval.words[by], model, since)
            line = lines.setdefault(key, {"charged": 0, "held": 0, "weighted": 0, "row": row})
            line["charged"] += charged
            line["held"] += held
            line["weighted"] += charged * interval.weight
            runs.setdefault(key, set()).add(interval.words["attempt"])
    for key, line in lines.items():
        row = line.pop("row")
        line["runs"] = len(runs[key])
        line["per_gpu_hour"] = f"{Decimal(row['per_gpu_hour']).normalize():f}" if row else None
        line["currency"] = row["currency"] if row else ""
        line["amount"] = _cost(line["charged"], row["per_gpu_hour"]) if row else None
    return lines


def _span(statement: Json) -> tuple[int, int]:
    """Return the time that a statement is about: as it says, or the month that it names."""
    if statement.get("end_ns"):
        return statement["begin_ns"], statement["end_ns"]
    return calendar_period("month", midnight(f"{statement['month']}-01"))


def _priced(
    rows: Sequence[Mapping[str, Any]], begin: int, end: int
) -> Iterable[tuple[int, int, Mapping[str, Any] | None]]:
    """The time from price to price; before the first one there is none."""
    starts = sorted(
        (row["from_ns"] if "from_ns" in row else midnight(row["valid_from"]), at) for at, row in enumerate(rows)
    )
    edges: list[tuple[int, Mapping[str, Any] | None]] = [(0, None), *((since, rows[at]) for since, at in starts)]
    for at, (since, row) in enumerate(edges):
        until = edges[at + 1][0] if at + 1 < len(edges) else end
        if max(since, begin) < min(until, end):
            yield max(since, begin), min(until, end), row


def _overlap(begin: int, end: int, since: int, until: int) -> int:
    return max(0, min(end, until) - max(begin, since))


def _cost(charged: int, per_hour: str) -> str:
    """To hundredths, half up; exact before that."""
    hundredths = Fraction(charged, _GPU_HOUR) * Fraction(per_hour) * 100 + Fraction(1, 2)
    return f"{Decimal(hundredths.numerator // hundredths.denominator).scaleb(-2):.2f}"


def differences(statement: Json, book: Book, prices: str) -> list[str]:
    """Return the differences between a statement (as the API writes it) and the log; sentences, at most `DIFFERENCES_MAX`."""
    reported: list[str] = []
    if statement["as_of_ns"] != book.at or statement["sequence"] != book.sequence:
        reported.append(f"the log was read up to {book.sequence}, the statement up to {statement['sequence']}")
    wanted = bill(book, _span(statement), statement["by"], prices)
    found: dict[Key, Json] = {}
    for line in statement["lines"]:
        key = (line["key"], line["model"], line["from_ns"])
        if key in found:
            reported.append(f"{_named(key)}: is there twice")
        found[key] = line
    for key in sorted(wanted.keys() | found.keys()):
        if key not in found or key not in wanted:
            reported.append(f"{_named(key)}: is only in the {'statement' if key in found else 'log'}")
            continue
        for name in COMPARED:
            says, is_ = found[key][name], wanted[key][name]
            if says != is_:
                reported.append(f"{_named(key)}: {name} is {is_} by the log, {says} by the statement")
    totals: dict[str, Decimal] = {}
    for line in wanted.values():
        if line["amount"] is not None:
            totals[line["currency"]] = totals.get(line["currency"], Decimal(0)) + Decimal(line["amount"])
    sums = {currency: str(total) for currency, total in totals.items()}
    if sums != statement["totals"]:
        reported.append(f"totals are {sums} by the log, {statement['totals']} by the statement")
    return reported[:DIFFERENCES_MAX]


def _named(key: Key) -> str:
    name, model, since = key
    return f"{name or '-'}, {model or 'no model'}, from {utc_day(since)}"
