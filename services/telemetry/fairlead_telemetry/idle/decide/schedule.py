"""Runs that are due for a look, and the times at which the clock alone makes them due. Derived, no state: a restart looks
at all runs once.
"""

import heapq
from collections.abc import Iterator, Mapping

from fairlead_schemas.policies.idle import IdleRule
from fairlead_telemetry.idle.decide.policy_evaluation import SAID_ONLY, due_ns
from fairlead_telemetry.idle.scopes import InForce
from fairlead_telemetry.idle.state import Run


class Agenda:
    """Jobs of which something was folded, and jobs by their next moment. Moments that have passed by are skipped when they come.

    A decision that raises keeps what it has done here, so each method takes its steps in an order in which an exception
    between two of them costs a needless look and never a missed one: a mark is set before the one that led to it goes.
    """

    def __init__(self) -> None:
        self.looks: dict[str, None] = {}
        self._moments: list[tuple[int, str]] = []
        self._next: dict[str, int] = {}

    def look(self, job: str) -> None:
        """Something was folded of the job's run."""
        self.looks[job] = None

    def wake(self, now_ns: int) -> None:
        """Mark the runs that are due now for a look."""
        while self._moments and self._moments[0][0] <= now_ns:
            at_ns, job = self._moments[0]
            if self._next.get(job) == at_ns:
                self.looks[job] = None
                del self._next[job]
            heapq.heappop(self._moments)

    def settled(self, job: str, next_ns: int | None) -> None:
        """Record that the job needs no further event before this time."""
        if next_ns is None:
            self._next.pop(job, None)
        elif self._next.get(job) != next_ns:
            heapq.heappush(self._moments, (next_ns, job))
            self._next[job] = next_ns
        self.looks.pop(job, None)

    def next_ns(self) -> int | None:
        """The next moment of any job; 0 while some are to be looked at."""
        if self.looks:
            return 0
        while self._moments and self._next.get(self._moments[0][1]) != self._moments[0][0]:
            heapq.heappop(self._moments)
        return self._moments[0][0] if self._moments else None


def next_moment(run: Run, policies: Mapping[IdleRule, InForce]) -> int | None:
    """Return the next time at which the clock alone changes a run without an event now. Changes that samples decide come with
    the samples.
    """
    return min(_moments(run, policies), default=None)


def _moments(run: Run, policies: Mapping[IdleRule, InForce]) -> Iterator[int]:
    if not run.started_ns or run.stopping or any(idle.is_final for idle in run.idle.values()):
        return
    for idle in run.idle.values():
        if idle.step == "shrunk":
            yield idle.until_ns
        elif idle.policy.rule == "lifetime" and idle.step == "told" and idle.policy.action not in SAID_ONLY:
            yield due_ns(idle)
    lifetime = policies.get("lifetime")
    if lifetime is not None and "lifetime" not in run.idle:
        yield max(run.started_ns + lifetime.policy.after_ns, run.extended_ns)
