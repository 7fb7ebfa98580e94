"""Pace of a service's commits: a busy service waits some ms for more input, so that its commits are fewer and larger.

Every commit costs the server an fsync, and every reader of the log a wake-up, whatever it contains. A service that has just committed
therefore waits until a few ms have passed since, but only while it is busy: an idle one decides at once, and so does one whose last
commit was large already. Pure: times are arguments, in seconds of any steady clock. Start at `CommitPace.left_s`.
"""

#: Least time between the starts of two small commits of a busy service, unless the service states another one.
GATHER_S = 0.004
#: A service is busy while more events than BUSY_EVENTS are left of its commits, after BUSY_EVENTS_PER_S have drained since. At most
#: FULL_EVENTS count, so that a service is idle again soon after a great commit.
BUSY_EVENTS, FULL_EVENTS, BUSY_EVENTS_PER_S = 50.0, 100.0, 200.0
#: A commit of so many events is large: waiting for more would save nothing worth the wait.
LARGE_EVENTS = 100


class CommitPace:
    """A service's recent commits as a leaking bucket of their events."""

    def __init__(self) -> None:
        self._level = 0.0
        self._last_s = float("-inf")
        self._is_large = False

    def note(self, events: int, now_s: float) -> None:
        """Note that a commit of so many events begins."""
        self._level = min(self._level_at(now_s) + events, FULL_EVENTS)
        self._last_s, self._is_large = now_s, events >= LARGE_EVENTS

    def is_close(self, now_s: float) -> bool:
        """Return True if the service is busy with small commits."""
        return not self._is_large and self._level_at(now_s) > BUSY_EVENTS

    def left_s(self, now_s: float, gather_s: float) -> float:
        """Return how long the next commit should still wait for more input, so that two begin `gather_s` apart; 0 or less: not at all."""
        return self._last_s + gather_s - now_s if self.is_close(now_s) else 0.0

    def _level_at(self, now_s: float) -> float:
        return max(0.0, self._level - (now_s - self._last_s) * BUSY_EVENTS_PER_S) if self._level else 0.0
