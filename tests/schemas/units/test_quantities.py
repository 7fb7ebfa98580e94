"""Quantities as people write them become integers, and come back as the shortest exact words."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_schemas.units.quantities import (
    QuantityError,
    format_duration,
    format_memory,
    format_milli,
    parse_cpu,
    parse_duration,
    parse_gpu,
    parse_memory,
)
from fairlead_schemas.units.timestamps import HOUR_NS, SECOND_NS


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parse_cpu, "32", 32_000),
        (parse_cpu, 2, 2_000),
        (parse_cpu, "0.5", 500),
        (parse_cpu, "1.25", 1_250),
        (parse_cpu, "500m", 500),
        (parse_cpu, " 8 ", 8_000),
        (parse_cpu, "0", 0),
        (parse_gpu, 8, 8_000),
        (parse_gpu, "1", 1_000),
        (parse_memory, "64Gi", 65_536),
        (parse_memory, "512Mi", 512),
        (parse_memory, "1Ti", 1_048_576),
        (parse_memory, "1.5Ti", 1_572_864),
        (parse_memory, "0.001Gi", 2),
        (parse_memory, "1G", 954),
        (parse_memory, "1", 1),
        (parse_memory, 2**20, 1),
        (parse_memory, 2**20 + 1, 2),
        (parse_memory, "0", 0),
        (parse_duration, "90", 90 * SECOND_NS),
        (parse_duration, 90, 90 * SECOND_NS),
        (parse_duration, "90s", 90 * SECOND_NS),
        (parse_duration, "1h 30m", HOUR_NS * 3 // 2),
        (parse_duration, "1h30m", HOUR_NS * 3 // 2),
        (parse_duration, "7d", 7 * 24 * HOUR_NS),
        (parse_duration, "2w", 14 * 24 * HOUR_NS),
        (parse_duration, "250ms", SECOND_NS // 4),
        (parse_duration, "01:30", HOUR_NS * 3 // 2),
        (parse_duration, "1-00:00:05", 24 * HOUR_NS + 5 * SECOND_NS),
        (parse_duration, "0", 0),
    ],
)
def test_usual_quantities_are_read(parse: Callable[[str | int], int], text: str | int, expected: int) -> None:
    """Each spelling that users of Kubernetes or Slurm know has its one meaning."""
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1e3", "1.2345", "0.5m", "8 cores", "1,5", "٣", "9" * 30, "999999999999999Pi"]
)
@pytest.mark.parametrize("parse", [parse_cpu, parse_gpu, parse_memory, parse_duration], ids=lambda f: f.__name__)
def test_text_that_is_no_quantity_is_refused(parse: Callable[[str | int], int], text: str) -> None:
    """There is no guess: the message has the expected form and the found text."""
    with pytest.raises(QuantityError, match="expected") as refused:
        parse(text)
    assert text in str(refused.value)


@given(st.integers(0, 10**9))
def test_memory_is_written_exactly(mib: int) -> None:
    """Formatting loses nothing."""
    assert parse_memory(format_memory(mib)) == mib


@given(st.integers(0, 10**9))
def test_milli_units_are_written_exactly(milli: int) -> None:
    """Formatting loses nothing."""
    assert parse_cpu(format_milli(milli)) == milli


@given(st.integers(0, 10**6))
def test_durations_are_written_to_two_units(seconds: int) -> None:
    """The words never say more than the duration, and are short of it by less than the smaller unit."""
    words = format_duration(seconds * SECOND_NS)
    assert len(words.split()) <= 2
    assert 0 <= seconds * SECOND_NS - parse_duration(words) < HOUR_NS


@given(st.text(max_size=40))
def test_no_text_crashes_a_parser(text: str) -> None:
    """Any text is parsed to an integer or refused."""
    for parse in (parse_cpu, parse_gpu, parse_memory, parse_duration):
        try:
            assert parse(text) >= 0
        except QuantityError:
            pass
