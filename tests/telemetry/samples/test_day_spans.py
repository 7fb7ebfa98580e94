"""Spans that leave the warehouse, and the time when they do."""

from fairlead_schemas.units.timestamps import DAY_NS, HOUR_NS
from fairlead_telemetry.samples import day_spans
from fairlead_telemetry.samples.day_spans import SETTLE_NS, DaySpan, due_spans, file_name

DAY = 20_777
HOUR = DAY * 24
OVER_NS = (DAY + 1) * DAY_NS + SETTLE_NS


def whole(number: int) -> DaySpan:
    return DaySpan(number * DAY_NS, (number + 1) * DAY_NS)


def hour(number: int) -> DaySpan:
    return DaySpan(number * HOUR_NS, (number + 1) * HOUR_NS)


def test_a_day_leaves_once_it_is_over() -> None:
    """Not before late samples have had their time; days of which there is nothing do not."""
    hours = {HOUR: 10, HOUR + 23: 10, HOUR + 30: 5}
    assert due_spans(hours, OVER_NS - 1) == []
    assert due_spans(hours, OVER_NS) == [whole(DAY)]
    assert due_spans(hours, OVER_NS + DAY_NS) == [whole(DAY), whole(DAY + 1)]
    assert due_spans({}, OVER_NS) == []


def test_a_day_of_very_many_rows_leaves_by_the_hour() -> None:
    """A file is sorted in one go, and shall fit."""
    assert due_spans({HOUR: day_spans.SPAN_ROWS, HOUR + 5: 1}, OVER_NS) == [hour(HOUR), hour(HOUR + 5)]


def test_hours_of_the_present_day_leave_where_there_are_too_many_rows() -> None:
    """The oldest first, and no more than must."""
    most = day_spans.ROOM_ROWS
    now_ns = HOUR * HOUR_NS + 3 * HOUR_NS + SETTLE_NS
    assert due_spans({HOUR: most // 2, HOUR + 1: most // 2}, now_ns) == []
    assert due_spans({HOUR: most // 2, HOUR + 1: most // 2, HOUR + 2: 1}, now_ns) == [hour(HOUR)]
    assert due_spans({HOUR + 3: 2 * most}, now_ns) == []


def test_late_samples_wait_for_a_batch() -> None:
    """Otherwise every late batch would be a file."""
    assert due_spans({HOUR: 7}, OVER_NS, [DAY]) == []
    assert due_spans({HOUR: day_spans.LATE_ROWS}, OVER_NS, [DAY]) == [whole(DAY)]
    assert due_spans({HOUR: 7, HOUR + 24: 9}, OVER_NS + DAY_NS, [DAY]) == [whole(DAY), whole(DAY + 1)]


def test_names_say_what_and_when() -> None:
    """And never one that is taken."""
    assert file_name("samples", whole(DAY), ()) == "samples-2026-11-20.parquet"
    assert file_name("samples", hour(HOUR + 13), ()) == "samples-2026-11-20T13.parquet"
    taken = {"uses-2026-11-20.parquet", "uses-2026-11-20.2.parquet"}
    assert file_name("uses", whole(DAY), taken) == "uses-2026-11-20.3.parquet"
