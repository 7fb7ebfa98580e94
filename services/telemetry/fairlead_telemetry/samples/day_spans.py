"""Spans of time that leave the warehouse for files, and the names of those files. Pure.

A day that is over leaves as one span; a day of very many rows leaves hour by hour. Where the warehouse holds too many
rows, hours of the present day leave, too. Spans begin and end at whole hours (UTC).
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from fairlead_schemas.units.timestamps import DAY_NS, HOUR_NS, MINUTE_NS, rfc3339, utc_day

#: Samples come late: a span is left alone for so long after its end.
SETTLE_NS = 10 * MINUTE_NS
#: Rows of a file at most, unless a single hour has more: they are sorted in one go.
SPAN_ROWS = 20_000_000
#: Rows that stay in the warehouse for the present day.
ROOM_ROWS = 50_000_000
#: What comes late for a day that is in files already waits for as many rows, or for the next day's end.
LATE_ROWS = 100_000


class DaySpan(NamedTuple):
    """From one Unix time to before another."""

    from_ns: int
    to_ns: int


def due_spans(hours: Mapping[int, int], now_ns: int, filed_days: Collection[int] = ()) -> list[DaySpan]:
    """Spans to be written now, oldest first. `hours`: {hours since 1970: rows in the warehouse}; `filed_days`: days since
    1970 that are in files already."""
    over = {hour: rows for hour, rows in hours.items() if (hour + 1) * HOUR_NS + SETTLE_NS <= now_ns}
    days: dict[int, dict[int, int]] = {}
    for hour in sorted(over):
        days.setdefault(hour // 24, {})[hour] = over[hour]
    ended = {day: of for day, of in days.items() if (day + 1) * DAY_NS + SETTLE_NS <= now_ns}
    fresh = ended.keys() - set(filed_days)
    spans: list[DaySpan] = []
    for day, of in ended.items():
        rows = sum(of.values())
        if day in fresh or fresh or rows >= LATE_ROWS:
            spans += [DaySpan(day * DAY_NS, (day + 1) * DAY_NS)] if rows <= SPAN_ROWS else [_hour(hour) for hour in of]
    left = sum(hours.values()) - sum(sum(of.values()) for of in ended.values())
    for hour in [hour for day, of in days.items() if day not in ended for hour in of]:
        if left <= ROOM_ROWS:
            break
        spans.append(_hour(hour))
        left -= over[hour]
    return spans


def _hour(hour: int) -> DaySpan:
    return DaySpan(hour * HOUR_NS, (hour + 1) * HOUR_NS)


def file_name(kind: str, span: DaySpan, taken: Collection[str]) -> str:
    """ "samples-2026-11-21.parquet" for a day, "samples-2026-11-21T13.parquet" for an hour; ".2" and so on where that is taken."""
    is_day = span.to_ns - span.from_ns == DAY_NS
    words = utc_day(span.from_ns) if is_day else rfc3339(span.from_ns)[: len("2026-11-21T13")]
    number = 1
    while (name := f"{kind}-{words}{f'.{number}' if number > 1 else ''}.parquet") in taken:
        number += 1
    return name
