"""Time since the placer's last answer, and its consequences: nothing is started without a lease, and each run ends
when its own time without one is over. Pure; times are monotonic nanoseconds.

The lease runs from the moment of the beat that the placer has answered, not from the arrival of the answer.
"""

from collections.abc import Iterable, Iterator

from fairlead_agent.core.lease import NEVER_NS, STOP_AFTER_LEAST_NS
from fairlead_agent.core.ledger import RunEntry


class PlacerLease:
    """Lease of one node, renewed by the placer's answers, and the placer's silence since the last one. `fence_ns`: how long
    the silence may last before nothing is started and most runs end.
    """

    def __init__(self, fence_ns: int, now: int, renewed: int | None) -> None:
        """`renewed`: when an earlier process of this boot had its lease renewed last (files/guard_files.py). An agent that
        starts again, and again, must not give its work another while each time."""
        self.fence_ns = fence_ns
        #: From here on no run is started until the placer sends again.
        self.fenced = False
        #: The moment that the placer's last word was about; before the first one, of this start or an earlier one.
        self.since = now if renewed is None else min(now, renewed)
        self._confirmed_at: int | None = None

    def has_lease(self, now: int) -> bool:
        """True while the placer's last word is younger than the fence: only then is anything started, since
        otherwise the placer may have given the work to another node."""
        return not self.fenced and self._confirmed_at is not None and now - self._confirmed_at < self.fence_ns

    def broken(self, beat: int, now: int) -> bool:
        """Take note that the placer has answered the beat of that moment. Return True if the answer renews a lease that was
        over. An answer that was buffered for too long renews none. The same holds for an answer to a beat of the future:
        that beat is of an earlier boot.
        """
        if not (self._confirmed_at or 0) < beat <= now or now - beat >= self.fence_ns:
            return False
        had_lease = self.has_lease(now)
        self._confirmed_at = beat
        self.since = max(self.since, beat)
        self.fenced = False
        return not had_lease

    def over_for(self, runs: Iterable[RunEntry], now: int) -> Iterator[tuple[RunEntry, int]]:
        """Runs whose time without a word is over, each with since how long: late after a sleep, say. Fences the node."""
        silence = now - self.since
        self.fenced = self.fenced or silence >= self.fence_ns
        if silence < min(self.fence_ns, STOP_AFTER_LEAST_NS):
            return
        for run in runs:
            after = run.stop_after_ns or self.fence_ns
            if run.open and after != NEVER_NS and silence >= after:
                yield run, silence - after

    def wake_at(self, runs: Iterable[RunEntry]) -> list[int]:
        """Return the times at which `over_for` would find something. Of the given runs, only those with a time of their own
        count.
        """
        own = [self.since + run.stop_after_ns for run in runs if run.stop_after_ns > 0 and run.open]
        return own if self.fenced else [*own, self.since + self.fence_ns]
