"""Decisions of the guard, and their times. Pure: no I/O; times are nanoseconds since boot and are passed as arguments.

A run is asked to end when its agent has been silent for as long as the run may live without a lease, and a little
longer, so that a living agent acts first. The run is killed when its grace is over, and again until it is gone. An end
is carried through once begun: an agent that comes back must not leave the run half ended.
"""

from typing import Literal, NamedTuple

from fairlead_agent.core.lease import GUARD_WAITS, NEVER_NS, STOP_AFTER_LEAST_NS, Lease

#: Longer than anything lasts.
NO_ACT_NS = 1 << 62


class Work(NamedTuple):
    """Run that is present: its name, and its permitted time without a lease (0: the node's default)."""

    run: str
    stop_after_ns: int = 0


class Act(NamedTuple):
    """TERM or KILL to all of a run."""

    run: str
    signal: Literal["TERM", "KILL"]


class GuardWatch:
    """Watch over one agent's directory."""

    def __init__(self) -> None:
        #: The newest lease that could be read.
        self.lease: Lease | None = None
        #: {run with a requested end: time at which it is killed}
        self.ending: dict[str, int] = {}

    def read(self, lease: Lease | None) -> None:
        """Update the lease from its file. If the file is gone or unreadable (None), the last lease still counts."""
        if lease is not None:
            self.lease = lease

    def silence_ns(self, now: int) -> int:
        """Return the time since the agent's last lease renewal, in nanoseconds."""
        return 0 if self.lease is None else max(0, now - self.lease.renewed_ns)

    def must_look(self, boot_id: str, now: int) -> bool:
        """Return True if an action may be due, so that the node's work must be looked up. No work survives from another boot."""
        return self.due_in_ns(boot_id, now) == 0

    def due_in_ns(self, boot_id: str, now: int) -> int:
        """Return the time until an action may be due if this lease is not renewed; 0 from then on, NO_ACT_NS without a lease."""
        lease = self.lease
        if lease is None or lease.boot_id != boot_id:
            return NO_ACT_NS
        least = min(lease.fence_ns, STOP_AFTER_LEAST_NS) + lease.margin_ns // GUARD_WAITS
        return 0 if self.ending else max(0, least - self.silence_ns(now))

    def look(self, there: list[Work], now: int) -> list[Act]:
        """Return the actions that are due for the work that is present."""
        lease = self.lease
        assert lease is not None, "asked only after must_look"
        self.ending = {run: at for run, at in self.ending.items() if any(run == work.run for work in there)}
        acts: list[Act] = []
        for work in there:
            kill_at = self.ending.get(work.run)
            if kill_at is not None:
                acts += [Act(work.run, "KILL")] if kill_at <= now else []
            elif work.stop_after_ns != NEVER_NS and (late_ns := self._late_ns(lease, work, now)) >= 0:
                # Noticed late, after a sleep, what is left of the grace is less: the placer does not wait longer.
                self.ending[work.run] = now + max(0, lease.grace_ns - late_ns)
                acts.append(Act(work.run, "TERM"))
        return acts

    def _late_ns(self, lease: Lease, work: Work, now: int) -> int:
        """Return the time since the run should have been asked to end, in nanoseconds; below 0: not yet due."""
        after = work.stop_after_ns or lease.fence_ns
        return self.silence_ns(now) - after - lease.margin_ns // GUARD_WAITS
