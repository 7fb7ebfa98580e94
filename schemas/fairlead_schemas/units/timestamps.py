"""Timestamps: Unix nanoseconds in the log, RFC 3339 in UTC for people. Pure."""

from datetime import UTC, datetime

SECOND_NS = 1_000_000_000


def rfc3339(at_ns: int) -> str:
    """`rfc3339(1_767_225_600_000_000_000) == "2026-01-01T00:00:00.000Z"` (milliseconds, cut off)."""
    seconds, rest = divmod(at_ns, SECOND_NS)
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{rest // 1_000_000:03d}Z"


def rfc3339_or_none(at_ns: int) -> str | None:
    """None for 0, which rows use for "has not happened"."""
    return rfc3339(at_ns) if at_ns else None


def parse_rfc3339(text: str) -> int:
    """Unix nanoseconds. Raises ValueError when it is no time or names no zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return int(moment.timestamp()) * SECOND_NS + moment.microsecond * 1000
