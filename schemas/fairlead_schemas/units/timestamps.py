"""Time in the log and for people: Unix nanoseconds, RFC 3339 in UTC, calendar periods in UTC. Pure.

No other module has constants of time units or converts between nanoseconds and text (tests/house/test_time.py).
Durations in words ("1h 30m") are in `quantities.py`.
"""

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import time as clock_time
from typing import Literal

MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS
WEEK_NS = 7 * DAY_NS

#: "3:00", "03:00" or "03:00:30".
_CLOCK = re.compile(r"\d{1,2}:\d\d(?::\d\d)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(at_ns: int) -> str:
    """`rfc3339(1_767_225_600_000_000_000) == "2026-01-01T00:00:00.000Z"` (milliseconds, cut off)."""
    return f"{_utc(at_ns).isoformat()[:19]}.{at_ns % SECOND_NS // MILLISECOND_NS:03d}Z"


def rfc3339_or_none(at_ns: int) -> str | None:
    """None for 0, which rows use for "has not happened"."""
    return rfc3339(at_ns) if at_ns else None


def rfc3339_seconds(at_ns: int) -> str:
    """`rfc3339_seconds(1_767_225_600_000_000_000) == "2026-01-01T00:00:00Z"`."""
    return f"{_utc(at_ns).isoformat()[:19]}Z"


def utc_text(at_ns: int) -> str:
    """Return a time for sentences: "2026-01-01 00:00:00"."""
    return _utc(at_ns).isoformat(" ")[:19]


def utc_day(at_ns: int) -> str:
    """Return the day of a time: "2026-01-01"."""
    return _utc(at_ns).isoformat()[:10]


def parse_rfc3339(text: str) -> int:
    """Unix nanoseconds. Raises ValueError when it is no time or names no zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return _ns(moment)


def parse_moment(text: str, now_ns: int, zone: tzinfo | None = None) -> int:
    """Return the time that people mean, Unix ns: RFC 3339, "2026-01-31 03:00" or "2026-01-31T03:00:00", "2026-01-31" (its begin), "03:00"
    (the last one before now), "now", "today" and "yesterday" (their begins), "yesterday 03:00".

    What names no zone is in `zone`; None: in that of the machine. Raises ValueError.
    """
    now = _utc(now_ns).astimezone(zone)
    if text == "now":
        return now_ns
    day, _, clock = text.partition(" ")
    if day in ("today", "yesterday"):
        moment = datetime.combine(now.date() - timedelta(days=day == "yesterday"), _clock(clock or "00:00"))
    elif _CLOCK.fullmatch(text):
        moment = datetime.combine(now.date(), _clock(text))
        if moment > now.replace(tzinfo=None):
            moment -= timedelta(days=1)
    else:
        moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.astimezone(zone) if zone is None else moment.replace(tzinfo=zone)
    return _ns(moment)


def _clock(text: str) -> clock_time:
    if not _CLOCK.fullmatch(text):
        raise ValueError(f'expected a time of a day such as "03:00", found "{text}"')
    return clock_time.fromisoformat(text if text[1:2].isdecimal() else f"0{text}")


def midnight(day: str) -> int:
    """Return the Unix nanoseconds at which a day such as "2026-01-01" begins. Raises ValueError."""
    return (date.fromisoformat(day) - _EPOCH.date()).days * DAY_NS


def calendar_period(period: Literal["day", "week", "month", "year"], at_ns: int) -> tuple[int, int]:
    """(begin, end) in Unix ns of the calendar period that holds a moment. Weeks begin on Monday."""
    day = _utc(at_ns).replace(hour=0, minute=0, second=0)
    match period:
        case "day":
            begin, end = day, day + timedelta(days=1)
        case "week":
            begin = day - timedelta(days=day.weekday())
            end = begin + timedelta(days=7)
        case "month":
            begin = day.replace(day=1)
            end = begin.replace(year=day.year + day.month // 12, month=day.month % 12 + 1)
        case "year":
            begin = day.replace(month=1, day=1)
            end = begin.replace(year=day.year + 1)
    return _ns(begin), _ns(end)


def _utc(at_ns: int) -> datetime:
    return datetime.fromtimestamp(at_ns // SECOND_NS, UTC)


def _ns(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
