"""What the guard does, and when. Pure: no I/O; times are nanoseconds since boot and arguments.

A run is asked to end when its agent has been silent for as long as the run may live without a lease, and a little longer: an
agent that lives is the first. It is killed when its grace is over, and again until it is gone. Once begun this is carried
through: what was told to end must not be left half ended by an agent that comes back.
"""

from typing import Literal, NamedTuple

from fairlead_agent.lease import GUARD_WAITS, NEVER_NS, STOP_AFTER_LEAST_NS, Lease


class Work(NamedTuple):
    """One run that is there: its name, and how long it may live without a lease (0: as its node says)."""

    run: str
    stop_after_ns: int = 0


class Act(NamedTuple):
    """TERM or KILL to all of a run."""

    run: str
    signal: Literal["TERM", "KILL"]


class Watch:
    """One agent's directory."""

    def __init__(self) -> None:
        #: The newest lease that could be read.
        self.lease: Lease | None = None
        #: {run that was told to end: when it is killed}
        self.ending: dict[str, int] = {}

    def read(self, lease: Lease | None) -> None:
        """What the file says now. One that is gone, or cannot be read, says nothing: what it said last counts."""
        if lease is not None:
            self.lease = lease

    def silence_ns(self, now: int) -> int:
        """How long the agent has had no word."""
        return 0 if self.lease is None else max(0, now - self.lease.renewed_ns)

    def must_look(self, boot_id: str, now: int) -> bool:
        """Whether something may be due, so that the node's work must be looked up. Of another boot nothing is left."""
        lease = self.lease
        if lease is None or lease.boot_id != boot_id:
            return False
        least = min(lease.fence_ns, STOP_AFTER_LEAST_NS) + lease.margin_ns // GUARD_WAITS
        return bool(self.ending) or self.silence_ns(now) >= least

    def look(self, there: list[Work], now: int) -> list[Act]:
        """What is to be done about the work that is there."""
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
        """How long ago the run should have been told to end; below 0: not yet."""
        after = work.stop_after_ns or lease.fence_ns
        return self.silence_ns(now) - after - lease.margin_ns // GUARD_WAITS
