"""Maintenance windows that are still ahead, and jobs that would not be gone in time; when one that is on gives a node back. Reads
state, changes nothing.

A job with a limit is not started where it could still be there at a window's start: the limit, with a minute to start, the
grace and the cleaning, counts as it does for guests (`run_ends.py`). One without a limit starts there until the notice
begins, which is what the notice is for: held back from the day on which a window is planned, it would wait for weeks.
"""

from collections.abc import Iterable

from fairlead_placer.cluster.entities import ClusterNode, JobRecord
from fairlead_placer.cluster.failure_history import NOWHERE, avoided
from fairlead_placer.cluster.plans import Window
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.cluster.timeline.run_ends import latest_end_ns
from fairlead_schemas.units.ids import array_of


class UpcomingMaintenance:
    """The windows that have not begun. One that has is the nodes' drain by now."""

    __slots__ = ("_nodes", "_state", "windows")

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.windows = [state.windows[name] for name in sorted(state.windows) if not state.windows[name].started]
        self._nodes: dict[tuple[str, ...], frozenset[str]] = {(): NOWHERE}

    def met(self, job: str, at_ns: int) -> list[Window]:
        """Return the windows that would overlap the job if it were placed on their nodes at `at_ns`."""
        if not self.windows:
            return []
        kept = self._state.jobs.get(array_of(job) or job)
        return [window for window in self.windows if _comes_over(window, kept, at_ns)]

    def nodes(self, job: str, at_ns: int) -> frozenset[str]:
        """The nodes of those."""
        met = self.met(job, at_ns)
        key = tuple([window.name for window in met])
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = frozenset(name for window in met for name in window.nodes)
        return found

    def clear_ns(self, job: str, nodes: Iterable[str], at_ns: int) -> int:
        """The first time, not before that one, at which no window would come over the job on any of these nodes."""
        if not self.windows:
            return at_ns
        names = set(nodes)
        windows = [window for window in self.windows if not names.isdisjoint(window.nodes)]
        kept = self._state.jobs.get(array_of(job) or job)
        while met := [window for window in windows if _comes_over(window, kept, at_ns)]:
            at_ns = max(window.ends_ns for window in met)
        return at_ns


def _comes_over(window: Window, job: JobRecord | None, at_ns: int) -> bool:
    if at_ns >= window.ends_ns:
        return False
    if at_ns >= window.starts_ns - window.notice_ns:
        return True
    if job is None or not job.total_ns:
        return False
    return latest_end_ns(job, job.request.units, at_ns) > window.starts_ns


def returns_ns(state: ClusterState, node: ClusterNode) -> int:
    """Return the time (Unix ns) at which the windows that keep the node empty return it. The result is 0 if no window keeps
    it, or if the node is lost or quarantined as well.
    """
    if node.on_duty or node.setter != "maintenance" or node.lost or node.quarantined:
        return 0
    ends = [each.ends_ns for each in state.windows.values() if each.started and node.name in each.nodes]
    return max(ends, default=0)


def barred(state: ClusterState, job: str, now_ns: int) -> frozenset[str]:
    """Nodes to which the job does not go now: it has failed there, or a window comes over it."""
    failed = avoided(state, job)
    return failed | UpcomingMaintenance(state).nodes(job, now_ns) if state.windows else failed
