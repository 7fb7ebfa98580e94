"""Time that a signal has been below its threshold, and its values meanwhile: seven integers, for any length of time.

Instead of a window of values there is one stretch: from the first value below the threshold after the newest that was
not, to now. It is exact to one sample. It needs no length, so a policy may change the requested length, and its memory
is constant. A stretch cannot look back further than the newest value that was not below: a raised threshold counts from
there on.
"""

from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_telemetry.idle.limits import UNSEEN_NS
from fairlead_telemetry.idle.questions import SignalReading


class IdleWindow:
    """Stretch of one signal on one part of a run."""

    __slots__ = ("count", "heard_ns", "highest", "rose", "rose_ns", "since_ns", "threshold", "total")

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold
        self.heard_ns = self.since_ns = self.highest = self.total = self.count = self.rose = self.rose_ns = 0

    def ask(self, threshold: int) -> None:
        """Another threshold: what was below the old one and is not below the new one is no rest."""
        if self.since_ns and self.highest >= threshold:
            self.rose, self.rose_ns, self.since_ns = self.highest, self.heard_ns, 0
        self.threshold = threshold

    def add(self, at_ns: int, highest: int, total: int, count: int) -> None:
        """A moment later than all before: the highest over the part's GPUs, and their sum and number."""
        if at_ns - self.heard_ns > UNSEEN_NS:
            self.since_ns = 0  # the time in between is unknown
        self.heard_ns = at_ns
        if highest >= self.threshold:
            self.rose, self.rose_ns, self.since_ns = highest, at_ns, 0
            return
        if not self.since_ns:
            self.since_ns, self.highest, self.total, self.count = at_ns, 0, 0, 0
        self.highest = max(self.highest, highest)
        self.total += total
        self.count += count

    def reading(self, now_ns: int) -> SignalReading | None:
        """Return the present reading; None where it is missing."""
        if now_ns - self.heard_ns > UNSEEN_NS:
            return None
        if not self.since_ns:
            return SignalReading(0, self.rose, self.rose, 1, self.rose, self.rose_ns)
        return SignalReading(self.since_ns, self.highest, self.total // self.count, self.count, self.rose, self.rose_ns)


class RisingCounter:
    """Rate of a value that rises from a start. Counting begins again where the value falls, or after a long silence."""

    __slots__ = ("at_ns", "value")

    def __init__(self) -> None:
        self.at_ns = self.value = 0

    def rate(self, value: int, at_ns: int, scale: int) -> int | None:
        """Return (its rise times `scale`) per second since the moment before; None where that is not known."""
        before, since_ns = self.value, at_ns - self.at_ns
        self.value, self.at_ns = value, at_ns
        if value < before or not 0 < since_ns <= UNSEEN_NS:
            return None
        return (value - before) * scale * SECOND_NS // since_ns


def over_parts(readings: list[SignalReading | None]) -> SignalReading | None:
    """Return one signal over all parts of a run: idle since the last of them, as high as the highest; None if it is missing on
    any.
    """
    if len(readings) == 1:
        return readings[0]
    found = [each for each in readings if each is not None]
    if not found or len(found) < len(readings):
        return None
    samples = sum(each.samples for each in found)
    newest = max(found, key=lambda each: each.rose_ns)
    return SignalReading(
        0 if any(not each.since_ns for each in found) else max(each.since_ns for each in found),
        max(each.highest for each in found),
        sum(each.mean * each.samples for each in found) // samples,
        samples,
        newest.rose,
        newest.rose_ns,
    )
