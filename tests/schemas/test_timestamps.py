"""Nanoseconds as text and back, and calendar periods in UTC."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_schemas.units.timestamps import (
    DAY_NS,
    SECOND_NS,
    calendar_period,
    midnight,
    parse_rfc3339,
    rfc3339,
    rfc3339_or_none,
    rfc3339_seconds,
    utc_day,
    utc_text,
)

#: 2026-01-01T00:00:00Z
YEAR_NS = 1_767_225_600 * SECOND_NS
#: Up to the year 2262, where nanoseconds leave 64 bits.
MOMENTS = st.integers(0, 2**63 - 1)


def at(*moment: int) -> int:
    """Unix ns of a time in UTC."""
    return int(datetime(*moment, tzinfo=UTC).timestamp()) * SECOND_NS  # pyright: ignore[reportArgumentType] year to minute


def test_a_time_as_text() -> None:
    """Fractions are cut off, never rounded up into the next second."""
    moment = YEAR_NS + 3_723 * SECOND_NS + 999_999_999
    assert rfc3339(moment) == "2026-01-01T01:02:03.999Z"
    assert rfc3339_seconds(moment) == "2026-01-01T01:02:03Z"
    assert utc_text(moment) == "2026-01-01 01:02:03"
    assert utc_day(moment) == "2026-01-01"
    assert (rfc3339_or_none(0), rfc3339_or_none(YEAR_NS)) == (None, "2026-01-01T00:00:00.000Z")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:00:00Z", YEAR_NS),
        ("2026-01-01T01:00:00+01:00", YEAR_NS),
        ("2026-01-01T00:00:00.000001Z", YEAR_NS + 1000),
        ("1969-12-31T23:59:59.5Z", -SECOND_NS // 2),
    ],
)
def test_text_as_a_time(text: str, expected: int) -> None:
    """With any zone, exact to the microsecond, before 1970 too."""
    assert parse_rfc3339(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "12"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """A time without a zone is ambiguous."""
    with pytest.raises(ValueError, match=r".+"):
        parse_rfc3339(text)


@given(MOMENTS)
def test_text_and_time_agree(moment: int) -> None:
    """Each text is the time without what the text leaves out."""
    assert parse_rfc3339(rfc3339(moment)) == moment - moment % 1_000_000
    assert parse_rfc3339(rfc3339_seconds(moment)) == moment - moment % SECOND_NS
    assert midnight(utc_day(moment)) == moment - moment % DAY_NS


@pytest.mark.parametrize(
    ("period", "moment", "begin", "end"),
    [
        ("day", (2024, 2, 29, 23, 59), (2024, 2, 29), (2024, 3, 1)),
        ("week", (2024, 12, 31, 5), (2024, 12, 30), (2025, 1, 6)),
        ("week", (2024, 12, 30), (2024, 12, 30), (2025, 1, 6)),
        ("month", (2024, 2, 1), (2024, 2, 1), (2024, 3, 1)),
        ("month", (2023, 2, 28, 23), (2023, 2, 1), (2023, 3, 1)),
        ("month", (2025, 12, 31), (2025, 12, 1), (2026, 1, 1)),
        ("month", (2026, 1, 31), (2026, 1, 1), (2026, 2, 1)),
        ("year", (2024, 12, 31, 23), (2024, 1, 1), (2025, 1, 1)),
        ("year", (2026, 1, 1), (2026, 1, 1), (2027, 1, 1)),
    ],
)
def test_periods_are_those_of_the_calendar_in_utc(period: Any, moment: Any, begin: Any, end: Any) -> None:
    """Weeks begin on Monday; leap years have their day."""
    assert calendar_period(period, at(*moment)) == (at(*begin), at(*end))


@given(period=st.sampled_from(["day", "week", "month", "year"]), moment=st.integers(0, 4 * 10**9 * SECOND_NS))
def test_periods_follow_each_other_without_a_gap(period: Any, moment: int) -> None:
    """Every moment is in exactly one."""
    begin, end = calendar_period(period, moment)
    assert begin <= moment < end
    assert calendar_period(period, end)[0] == end
    assert calendar_period(period, begin - 1)[1] == begin
