"""Durations of runs of some kind, as counts over buckets of time: bounded, integers only, and the old fades.

A bucket is a quarter of an octave, so learned durations are right to about a quarter. One more run changes one count of
`LearnedDurations` in place: this is done with the end of every run. `RunDurations` are the same in a snapshot.
"""

from typing import NamedTuple

#: With so many runs, all counts are halved: half of what is known stems from the last so many.
RUNS_MAX = 64
#: Minimum number of runs that took longer than the current one so far; with fewer, no estimate is made.
LEAST = 3
#: A longer run counts as one of so many seconds (34 years).
SECONDS_MAX = 1 << 30


class RunDurations(NamedTuple):
    """Row of a snapshot: counts by bucket, rising, and when one was added last."""

    last_ns: int = 0
    counts: tuple[tuple[int, int], ...] = ()


def bucket_of(seconds: int) -> int:
    """The bucket of a time; less than 4 seconds count as 4."""
    if not 4 <= seconds <= SECONDS_MAX:
        seconds = 4 if seconds < 4 else SECONDS_MAX
    octave = seconds.bit_length() - 1
    return 4 * octave + (seconds >> (octave - 2) & 3)


def longest_of(bucket: int) -> int:
    """Seconds at which the bucket ends: all in it took less."""
    octave, quarter = divmod(bucket, 4)
    return (5 + quarter) << (octave - 2)


#: No time has a higher bucket.
BUCKETS = bucket_of(SECONDS_MAX) + 1


class LearnedDurations:
    """Counts of runs by bucket, their sum, and when a run was added last. Mutable."""

    __slots__ = ("counts", "last_ns", "runs", "typical")

    def __init__(self, saved: RunDurations = RunDurations()) -> None:  # noqa: B008 -- immutable
        #: [bucket]: how many runs.
        self.counts = [0] * BUCKETS
        for bucket, count in saved.counts:
            self.counts[bucket] = count
        self.runs = sum(self.counts)
        self.last_ns = saved.last_ns
        #: {bucket: `typical_s` of a run that has got there}, worked out since the last change.
        self.typical: dict[int, int] = {}

    def saved(self) -> RunDurations:
        """The same as a row of a snapshot."""
        return RunDurations(self.last_ns, tuple([(at, count) for at, count in enumerate(self.counts) if count]))

    def add(self, bucket: int, at_ns: int) -> None:
        """Count one more run of the bucket."""
        self.counts[bucket] += 1
        self.runs += 1
        self.last_ns = at_ns
        if self.typical:
            self.typical.clear()
        if self.runs > RUNS_MAX:
            self.counts = [count >> 1 for count in self.counts]
            self.runs = sum(self.counts)

    def restore(self, counts: list[int], bucket: int, count: int, runs: int, last_ns: int) -> None:
        """Make one `add` undone: `counts` is the list of before it, in which it has changed the bucket's count alone."""
        self.counts, self.runs, self.last_ns = counts, runs, last_ns
        counts[bucket] = count
        self.typical.clear()


def typical_s(known: LearnedDurations, elapsed_s: int) -> int:
    """Return the total seconds of a run that has taken `elapsed_s` by now: half of the longer runs took less. 0 if there were
    too few longer runs.
    """
    first = bucket_of(elapsed_s)  # the first bucket that ends later
    found = known.typical.get(first)
    if found is None:
        found = known.typical[first] = _half_of(known, first)
    return found


def _half_of(known: LearnedDurations, first: int) -> int:
    longer = known.counts[first:]
    runs = sum(longer)
    if runs < LEAST:
        return 0
    half = (runs + 1) // 2
    for bucket, count in enumerate(longer, first):
        half -= count
        if half <= 0:
            return longest_of(bucket)
    raise AssertionError("the counts of all buckets are fewer than their sum")
