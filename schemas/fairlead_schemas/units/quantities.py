"""Quantities as people write them, turned into the integers that the log carries.

CPU is milli-CPU, GPU milli-GPU, memory MiB, time nanoseconds. Words follow Kubernetes
("500m", "64Gi"); durations follow Slurm and systemd ("7d", "1h 30m", "90").
"""

import re

from fairlead_schemas.units.timestamps import DAY_NS, HOUR_NS, MINUTE_NS, SECOND_NS

MILLI = 1000
#: A hundred years, an exbibyte, a million GPUs: more is a slip of the pen, and would not fit the log's 64-bit integers.
DURATION_NS_MAX = 100 * 366 * DAY_NS
MEMORY_MIB_MAX = 2**40
GPUS_MAX = 999_999

_CPU = re.compile(r"(\d{1,9})(?:\.(\d{1,3}))?(m?)\Z", re.ASCII)
_MEMORY = re.compile(r"(\d{1,15})(?:\.(\d{1,3}))?(Ki|Mi|Gi|Ti|Pi|k|K|M|G|T|P)?\Z", re.ASCII)
_MEMORY_BYTES = {
    "": 1,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
}
_DURATION_PART = re.compile(r"(\d{1,12})(ms|s|m|h|d|w|\Z)\s*", re.ASCII)
_DURATION_NS = {
    "ms": SECOND_NS // 1000,
    "s": SECOND_NS,
    "m": MINUTE_NS,
    "h": HOUR_NS,
    "d": DAY_NS,
    "w": 7 * DAY_NS,
    "": SECOND_NS,
}
_CLOCK = re.compile(r"(?:(\d{1,4})-)?(\d{1,3}):(\d{2})(?::(\d{2}))?\Z", re.ASCII)


class QuantityError(ValueError):
    """A quantity could not be read; the message says what was expected and what was found."""


def thousandths(whole: str, decimals: str | None) -> int:
    """`thousandths("1", "5") == 1500`; at most three decimals."""
    return int(whole) * MILLI + int((decimals or "0").ljust(3, "0"))


def parse_cpu(text: str | int) -> int:
    """Milli-CPU from "32", "0.5" or "500m"."""
    match = _CPU.match(str(text).strip())
    if match is None or (match[2] and match[3]):
        raise QuantityError(f'expected a CPU quantity such as "8", "0.5" or "500m", found "{text}"')
    if match[3]:
        return int(match[1])
    return thousandths(match[1], match[2])


def parse_gpu(text: str | int) -> int:
    """Milli-GPU from a whole number of GPUs; shares of a GPU are not a resource amount."""
    digits = str(text).strip()
    if not (digits.isascii() and digits.isdecimal()):
        raise QuantityError(f'expected a whole number of GPUs such as 8, found "{text}"')
    if len(digits.lstrip("0")) > len(str(GPUS_MAX)):
        raise QuantityError(f'expected at most {GPUS_MAX} GPUs, found "{text}"')
    return int(digits) * MILLI


def parse_memory(text: str | int) -> int:
    """MiB, rounded up, from "64Gi", "1.5Ti", "512Mi", "1G" or a plain number of bytes."""
    return -(-parse_bytes(text) // 2**20)


def parse_bytes(text: str | int) -> int:
    """Bytes, rounded up, from a memory quantity."""
    match = _MEMORY.match(str(text).strip())
    if match is None or (match[2] and not match[3]):
        raise QuantityError(f'expected a memory quantity such as "64Gi" or "512Mi", found "{text}"')
    amount = thousandths(match[1], match[2])
    size = -(-amount * _MEMORY_BYTES[match[3] or ""] // MILLI)
    if size > MEMORY_MIB_MAX * 2**20:
        raise QuantityError(f'expected at most 1024Pi of memory, found "{text}"')
    return size


def parse_duration(text: str | int) -> int:
    """Nanoseconds from "7d", "1h 30m", "250ms", "90" (seconds) or Slurm's "[d-]hh:mm[:ss]"."""
    stripped = str(text).strip()
    clock = _CLOCK.match(stripped)
    if clock is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * SECOND_NS
    position, total = 0, 0
    while position < len(stripped):
        part = _DURATION_PART.match(stripped, position)
        if part is None:
            break
        total += int(part[1]) * _DURATION_NS[part[2]]
        position = part.end()
    if not stripped or position < len(stripped):
        raise QuantityError(f'expected a duration such as "90s", "1h 30m" or "7d", found "{text}"')
    if total > DURATION_NS_MAX:
        raise QuantityError(f'expected at most 100 years, found "{text}"')
    return total


def format_memory(mib: int) -> str:
    """The shortest exact spelling: `format_memory(65536) == "64Gi"`."""
    for unit, size in (("Ti", 2**20), ("Gi", 2**10)):
        if mib and mib % size == 0:
            return f"{mib // size}{unit}"
    return f"{mib}Mi"


def counted(number: int, noun: str) -> str:
    """Return "1 file" or "2 files"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_bytes(size: int) -> str:
    """Bytes for people: `format_bytes(1_500_000) == "1.4 MiB"`."""
    for unit, unit_bytes in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= unit_bytes:
            return f"{size / unit_bytes:.1f} {unit}"
    return f"{size} bytes"


def format_milli(milli: int) -> str:
    """Whole units where exact, else three decimals: 8000 is "8", 1500 is "1.500"."""
    return str(milli // MILLI) if milli % MILLI == 0 else f"{milli // MILLI}.{milli % MILLI:03d}"


def format_duration(ns: int) -> str:
    """Two largest units: `format_duration(5_400 * SECOND_NS) == "1h 30m"`."""
    seconds = ns // SECOND_NS
    if seconds < 1:
        return f"{ns // (SECOND_NS // 1000)}ms"
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size:
            parts.append(f"{seconds // size}{unit}")
            seconds %= size
    return " ".join(parts[:2])


#: A rate is known after so long.
_RATE_AFTER_S = 1.0


def progress_text(what: str, unit: str, done: int, of: int, seconds: float) -> str:
    """Return the progress of work as text: "replay: 12,000 of 50,000 commits (24 %), 4,100 a second, 9 s left"."""
    text = f"{what}: {done:,} of {of:,} {unit}"
    if of:
        text += f" ({100 * done // of} %)"
    if done and seconds >= _RATE_AFTER_S:
        rate = done / seconds
        text += f", {rate:,.0f} a second" if rate >= 1 else f", {60 * rate:,.1f} a minute"
        text += f", {_time_left((of - done) / rate)} left" if of > done else ""
    return text


def _time_left(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}m {rest:02}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60:02}m"
