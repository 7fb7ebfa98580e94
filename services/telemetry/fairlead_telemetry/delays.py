"""Delays of samples from the node's clock into the warehouse, counted in steps. Pure."""

from collections.abc import Iterable

STEP_MS = 50
#: What took longer counts as this.
MOST_MS = 60_000


class Delays:
    """Since it was made."""

    def __init__(self) -> None:
        self._counts = [0] * (MOST_MS // STEP_MS + 1)
        self._total = 0

    def add(self, measured_ns: Iterable[int], now_ns: int) -> None:
        """Batches measured at these times were stored at `now_ns`; a clock that is ahead counts as no delay."""
        for at_ns in measured_ns:
            steps = max(0, now_ns - at_ns) // (STEP_MS * 1_000_000)
            self._counts[min(steps, len(self._counts) - 1)] += 1
            self._total += 1

    def within_ms(self, percent: int) -> int | None:
        """Return the delay in ms, rounded up to a step, within which that percentage of all samples arrived; None before the first."""
        wanted, passed = -(-self._total * percent // 100), 0
        for steps, count in enumerate(self._counts):
            passed += count
            if count and passed >= wanted:
                return (steps + 1) * STEP_MS
        return None
