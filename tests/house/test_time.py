"""Time has one module: constants of its units, and its conversions to text and back, are in `units/timestamps.py`."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOME = ROOT / "schemas" / "fairlead_schemas" / "units" / "timestamps.py"
SOURCES = ("bench", "bus", "cli", "replay", "schemas", "services")

_CONSTANTS = "import SECOND_NS, MINUTE_NS, HOUR_NS, DAY_NS or WEEK_NS from fairlead_schemas.units.timestamps"
_DEFINITION = r"^_?(?:MILLISECOND|SECOND|MINUTE|HOUR|DAY|WEEK)_NS\b[^=\n]*=(?!=)"
#: {pattern: the replacement}
BETTER = {
    _DEFINITION: _CONSTANTS,
    r"(?<![\w.])1_?000_?000_?000(?!\w)": _CONSTANTS,
    r"[/*] 10 ?\*\* ?9\b": _CONSTANTS,
    r"\bfromisoformat\(": "use parse_rfc3339 or midnight of fairlead_schemas.units.timestamps",
    r"\b(?:utc)?fromtimestamp\(": "use rfc3339, utc_text or utc_day of fairlead_schemas.units.timestamps",
    r"(?:\.|time import )strftime\b|%Y-%m-%d": "use rfc3339, rfc3339_seconds, utc_text or utc_day of fairlead_schemas.units.timestamps",
}


def own_time(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, replacement) of each constant and conversion of time that is not imported."""
    for pattern, better in BETTER.items():
        for found in re.finditer(pattern, text, re.MULTILINE):
            yield text.count("\n", 0, found.start()) + 1, better


def test_time_is_converted_in_one_module() -> None:
    """Each copy would be tested apart, and one of them would round or forget the zone."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {better}"
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != HOME
        for line, better in own_time(path.read_text())
    ]
    assert found == [], "\n".join(found)


def test_tests_import_the_constants_too() -> None:
    """Tests write other times as they like, so that a wrong constant fails in one of them."""
    found = [
        f"{path.relative_to(ROOT)}: {_CONSTANTS}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if re.search(_DEFINITION, path.read_text(), re.MULTILINE)
    ]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "SECOND_NS = 10**9",
        "_DAY_NS: int = 86_400 * x",
        "MINUTE_NS, HOUR_NS = x, y",
        "AFTER_NS = 5 * 1_000_000_000",
        "seconds = at_ns // 10**9",
        "moment = datetime.fromisoformat(text)",
        "moment = datetime.fromtimestamp(at_s, UTC)",
        'text = time.strftime("%H")',
        'text = f"{moment:%Y-%m-%d}"',
    ],
)
def test_a_copy_is_found(line: str) -> None:
    """The check can fail."""
    assert len(list(own_time(f"import x\n{line}\n"))) == 1


@pytest.mark.parametrize(
    "line", ["AFTER_NS = 5 * SECOND_NS", "if DAY_NS == step_ns:", "MOST = 10**9", "at = 1_700_000_000 * SECOND_NS"]
)
def test_other_numbers_are_allowed(line: str) -> None:
    """Large numbers of other units, and use of the constants."""
    assert list(own_time(line)) == []
