"""Thresholds and evidence of idle policies in people's words: "5%" of a GPU's time, "20W", "10KiB/s", "500m" CPU, "10m"."""

import re
from collections.abc import Sequence

from fairlead_schemas.idle import IdleEvidence, IdleSignal
from fairlead_schemas.quantities import QuantityError, format_duration, format_milli, parse_cpu, parse_duration
from fairlead_schemas.queuewords import duration_word

#: How signals are called in sentences.
NAMES: dict[IdleSignal, str] = {
    "gpu": "GPU", "memory_traffic": "GPU memory traffic", "power": "power above rest", "gpu_links": "GPU links",
    "cpu": "CPU", "network": "network", "disk": "disk", "terminal": "terminal", "proxy": "proxy",
}  # fmt: skip
_PARTS = ("gpu", "memory_traffic")
_RATES = ("gpu_links", "network", "disk")
_PRESENCE = ("terminal", "proxy")

_PERCENT = re.compile(r"(\d{1,3})(?:\.(\d))?\s*%\Z", re.ASCII)
_WATTS = re.compile(r"(\d{1,6})(?:\.(\d{1,3}))?\s*W\Z", re.ASCII)
_RATE = re.compile(r"(\d{1,12})(?:\.(\d{1,3}))?\s*(B|KiB|MiB|GiB|kB|MB|GB)/s\Z", re.ASCII)
_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_threshold(signal: IdleSignal, text: str) -> int:
    """In the signal's unit (`IdleEvidence`). Raises QuantityError."""
    if signal in _PARTS:
        return _percent(text)
    if signal == "power":
        return _thousandths(_WATTS, text, 'power above the GPU\'s rest such as "20W"')
    if signal in _RATES:
        match = _RATE.match(text.strip())
        if match is None:
            raise QuantityError(f'expected bytes per second such as "10KiB/s" or "2MB/s", found "{text}"')
        return (int(match[1]) * 1000 + int((match[2] or "0").ljust(3, "0"))) * _BYTES[match[3]] // 1000
    return parse_duration(text) if signal in _PRESENCE else parse_cpu(text)


def _percent(text: str) -> int:
    match = _PERCENT.match(text.strip())
    value = int(match[1]) * 10 + int(match[2] or 0) if match else 1001
    if value > 1000:
        raise QuantityError(f'expected a part of the GPU\'s time from "0%" to "100%", such as "5%", found "{text}"')
    return value


def _thousandths(pattern: re.Pattern[str], text: str, what: str) -> int:
    match = pattern.match(text.strip())
    if match is None:
        raise QuantityError(f'expected {what}, found "{text}"')
    return int(match[1]) * 1000 + int((match[2] or "0").ljust(3, "0"))


def threshold_word(signal: IdleSignal, value: int) -> str:
    """The inverse of `parse_threshold`, exactly: "5%", "20W", "10KiB/s", "500m", "10m"."""
    if signal in _PARTS:
        return f"{_tenths(value)}%"
    if signal == "power":
        return f"{format_milli(value)}W"
    if signal in _RATES:
        unit = next(
            unit for unit in ("GiB", "GB", "MiB", "MB", "KiB", "kB", "B") if not value % _BYTES[unit] or unit == "B"
        )
        return f"{value // _BYTES[unit]}{unit if value else 'B'}/s"
    return duration_word(value) if signal in _PRESENCE else f"{value}m"


def _tenths(value: int) -> str:
    return f"{value // 10}.{value % 10}" if value % 10 else str(value // 10)


def _shown(signal: IdleSignal, value: int) -> str:
    """For a sentence: "1.2 %", "811 B/s", "9.8 KiB/s", "0.050 CPU"."""
    if signal in _PARTS:
        return f"{_tenths(value)} %"
    if signal == "power":
        return f"{value / 1000:.1f} W"
    if signal in _RATES:
        unit = next(unit for unit in ("GiB", "MiB", "KiB", "B") if value >= _BYTES[unit] or unit == "B")
        return f"{value} B/s" if unit == "B" else f"{value / _BYTES[unit]:.1f} {unit}/s"
    return format_duration(value) if signal in _PRESENCE else format_milli(value)


def evidence_words(evidence: Sequence[IdleEvidence], window_ns: int = 0) -> str:
    """Return the evidence in one line: "GPU at most 1.2 % of 5 % for 20m, 1,200 samples; network at most …". ""
    without evidence.
    """
    told = [_one(each, window_ns if not at else 0) for at, each in enumerate(evidence)]
    return "; ".join(told)


def _one(seen: IdleEvidence, window_ns: int) -> str:
    name, value, most = NAMES[seen.signal], _shown(seen.signal, seen.highest), _shown(seen.signal, seen.threshold)
    if seen.signal in _PRESENCE:
        return f"nobody at the {name} for {value}, {most} allowed"
    window = f" for {format_duration(window_ns)}" if window_ns else ""
    samples = f"{seen.samples:,} sample{'' if seen.samples == 1 else 's'}"
    return f"{name} at most {value} of {most}{window}, {samples}"
