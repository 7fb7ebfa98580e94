"""Durations of runs of some kind, as counts over buckets of time: bounded, integers only, and the old fades.

A bucket is a quarter of an octave, so learned durations are right to about a quarter.
"""

from bisect import bisect_left
from typing import NamedTuple

#: With so many runs, all counts are halved: half of what is known stems from the last so many.
RUNS_MAX = 64
#: Minimum number of runs that took longer than the current one so far; with fewer, no estimate is made.
LEAST = 3
#: A longer run counts as one of so many seconds (34 years).
SECONDS_MAX = 1 << 30


class RunDurations(NamedTuple):
    """Counts by bucket, rising, and when one was added last."""

    last_ns: int = 0
    counts: tuple[tuple[int, int], ...] = ()


def bucket_of(seconds: int) -> int:
    """The bucket of a time; less than 4 seconds count as 4."""
    seconds = min(max(4, seconds), SECONDS_MAX)
    octave = seconds.bit_length() - 1
    return 4 * octave + (seconds >> (octave - 2) & 3)


def longest_of(bucket: int) -> int:
    """Seconds at which the bucket ends: all in it took less."""
    octave, quarter = divmod(bucket, 4)
    return (5 + quarter) << (octave - 2)


def with_one(spans: RunDurations, seconds: int, at_ns: int) -> RunDurations:
    """Return the spans with one more run."""
    counts, bucket = spans.counts, bucket_of(seconds)
    at = bisect_left(counts, (bucket, 0))
    if at < len(counts) and counts[at][0] == bucket:
        counts = (*counts[:at], (bucket, counts[at][1] + 1), *counts[at + 1 :])
    else:
        counts = (*counts[:at], (bucket, 1), *counts[at:])
    if sum([count for _, count in counts]) > RUNS_MAX:
        counts = tuple((each, count // 2) for each, count in counts if count > 1)
    return RunDurations(at_ns, counts)


def typical_s(spans: RunDurations, elapsed_s: int) -> int:
    """Return the total seconds of a run that has taken `elapsed_s` by now: half of the longer runs took less. 0 if there were
    too few longer runs.
    """
    longer = [(bucket, count) for bucket, count in spans.counts if longest_of(bucket) > elapsed_s]
    runs = sum(count for _, count in longer)
    if runs < LEAST:
        return 0
    half = (runs + 1) // 2
    for bucket, count in longer:
        half -= count
        if half <= 0:
            return longest_of(bucket)
    raise AssertionError("the counts of all buckets are fewer than their sum")
