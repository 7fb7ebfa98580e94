"""Idle policies: the conditions under which a run counts as idle, the action taken, and the evidence for it; and
thresholds and evidence of idle policies in people's words: "5%" of a GPU's time, "20W", "10KiB/s", "500m" CPU, "10m".

Scopes are "global", "project:<name>" and "user:<name>". For each rule the narrowest policy that covers a run
applies, within the bounds of the wider ones. The telemetry service decides by the policies; the queue carries
out its requests.
"""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from fairlead_schemas.queuefile.amounts import duration_word
from fairlead_schemas.units.quantities import (
    QuantityError,
    format_duration,
    format_milli,
    parse_cpu,
    parse_duration,
    thousandths,
)

#: When a run counts as idle.
IdleRule = Literal[
    "utilization",  # every signal that is asked about stayed below its threshold
    "interaction",  # no one typed in a terminal of it
    "lifetime",  # it has run for so long, whatever it does
]
#: What is done once the notice is over.
IdleAction = Literal[
    "note",  # the log records it, and no one is notified
    "warn",  # its owner is notified
    "stop",  # it gets its checkpoint notice and grace, and ends
    "requeue",  # the same; it waits again for another attempt
    "shrink",  # its lease is cut: it ends then unless a person extends it, whatever it does meanwhile
]
#: Whether it is done.
IdleMode = Literal[
    "dry_run",  # only the action and its saving are reported, nothing is done
    "on_demand",  # only when a waiting job can use those very GPUs
    "always",
]
#: What is looked at. One that is missing or stale counts as activity.
IdleSignal = Literal["gpu", "memory_traffic", "power", "gpu_links", "cpu", "network", "disk", "terminal", "proxy"]
#: Why a run counts as active again.
ActiveReason = Literal[
    "active",  # a signal rose
    "unseen",  # signals are missing, or stale: no statement about idleness is possible
    "extended",  # its owner extended it
    "policy",  # the policy that called it idle does not speak of it any more
]


class IdleEvidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Signal over the window that decided: its highest value on any GPU or rank, and the threshold that it had to stay
    below.
    """

    signal: IdleSignal
    #: In the signal's unit: thousandths of a GPU's time (gpu, memory_traffic), milliwatts above the GPU's rest
    #: (power), bytes per second (gpu_links, network, disk), milli-CPU (cpu), nanoseconds since the last presence
    #: of a user (terminal, proxy).
    highest: int
    mean: int
    threshold: int
    samples: int


class IdlePolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Idle policy for one rule at one scope."""

    rule: IdleRule
    action: IdleAction
    mode: IdleMode = "dry_run"
    #: {signal: threshold}, in the units of IdleEvidence; only for "utilization". A terminal's or proxy's value is
    #: the time since the last presence of a user, so its threshold is the least value, not the most.
    below: dict[IdleSignal, int] = {}
    #: For how long: below the thresholds; without a person; since the start.
    after_ns: int
    #: Between telling the owner and acting.
    notice_ns: int
    #: Longest that one extension lasts, and how many there may be.
    extend_ns: int = 0
    extensions_max: int = 0
    #: Of "shrink": what is left of the lease.
    shrink_ns: int = 0
    #: Kinds of jobs that it speaks of; none: of all.
    kinds: tuple[Literal["batch", "session", "service"], ...] = ()
    #: Bounds for narrower scopes: the longest `after_ns` that they may set (0: this one), and whether they may set less than this mode
    #: or action at all.
    after_max_ns: int = 0
    may_soften: bool = False


#: How signals are called in sentences.
NAMES: dict[IdleSignal, str] = {
    "gpu": "GPU",
    "memory_traffic": "GPU memory traffic",
    "power": "power above rest",
    "gpu_links": "GPU links",
    "cpu": "CPU",
    "network": "network",
    "disk": "disk",
    "terminal": "terminal",
    "proxy": "proxy",
}
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
        return _milliwatts(text)
    if signal in _RATES:
        match = _RATE.match(text.strip())
        if match is None:
            raise QuantityError(f'expected bytes per second such as "10KiB/s" or "2MB/s", found "{text}"')
        return thousandths(match[1], match[2]) * _BYTES[match[3]] // 1000
    return parse_duration(text) if signal in _PRESENCE else parse_cpu(text)


def _percent(text: str) -> int:
    match = _PERCENT.match(text.strip())
    value = int(match[1]) * 10 + int(match[2] or 0) if match else 1001
    if value > 1000:
        raise QuantityError(f'expected a part of the GPU\'s time from "0%" to "100%", such as "5%", found "{text}"')
    return value


def _milliwatts(text: str) -> int:
    match = _WATTS.match(text.strip())
    if match is None:
        raise QuantityError(f'expected power above the GPU\'s rest such as "20W", found "{text}"')
    return thousandths(match[1], match[2])


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
        return f"no activity at the {name} for {value}, {most} allowed"
    window = f" for {format_duration(window_ns)}" if window_ns else ""
    samples = f"{seen.samples:,} sample{'' if seen.samples == 1 else 's'}"
    return f"{name} at most {value} of {most}{window}, {samples}"
