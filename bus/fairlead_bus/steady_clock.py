"""Log time: runs with the boot's clock, follows the wall clock at a bounded pace, and never falls.

The wall clock is sometimes set: by NTP at boot, by a person, by a virtual machine that was resumed. A service that
adopted such a step would end running jobs at limits that they have not reached. Log time therefore runs with the boot's
clock, which cannot be set, and creeps to the wall clock, forward or back, by at most one part in `CREEP`. Pure: both
clocks are arguments. Start at `SteadyClock.now`.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

#: Log time gains or loses at most one part in so many: an hour is crept to within 100 hours.
CREEP = 100
#: A difference between wall clock and boot's clock that changes by more than this is a step, and is recorded.
STEP_NS = 5_000_000_000
#: Maximum number of steps kept until they are taken. Beyond it, the newest ones are summed up.
STEPS_MAX = 16


class Step(NamedTuple):
    """A step of the wall clock. Positive: forward."""

    step_ns: int
    #: The distance from log time to the wall clock after it: what is crept to.
    lag_ns: int


def boottime_ns() -> int:
    """Nanoseconds of the boot. A suspended machine's sleep counts: the jobs of other nodes ran on meanwhile."""
    # Only Linux has it; elsewhere (a laptop that tries the demo) a sleep is seen as a step, and crept to.
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """Log time of one writer in Unix nanoseconds."""

    def __init__(self, wall: Callable[[], int], boot: Callable[[], int] = boottime_ns) -> None:
        self._wall, self._boot = wall, boot
        self._now = 0
        self._asked_ns = 0
        #: Wall clock minus boot's clock, as of the last step or the last time that they agreed.
        self._apart_ns = 0
        self._lag_ns = 0
        #: Where this is False, the wall clock is not crept to: it differs from everybody else's.
        self.is_trusted = True
        self._steps: list[Step] = []

    def now(self) -> int:
        """Log time: never below an earlier answer."""
        boot_ns, wall_ns = self._boot(), self._wall()
        if not self._now:
            self._now, self._asked_ns, self._apart_ns = wall_ns, boot_ns, wall_ns - boot_ns
            return wall_ns
        passed_ns, self._asked_ns = max(0, boot_ns - self._asked_ns), boot_ns
        self._now += passed_ns
        lag_ns = wall_ns - self._now
        if lag_ns:
            self._note(wall_ns - boot_ns, lag_ns)
            if self.is_trusted:
                most_ns = passed_ns // CREEP
                crept_ns = min(max(lag_ns, -most_ns), most_ns)
                self._now += crept_ns
                lag_ns -= crept_ns
        if not lag_ns:
            self._apart_ns = wall_ns - boot_ns
        self._lag_ns = lag_ns
        return self._now

    def resume(self, at_ns: int, passed_ns: int) -> None:
        """Resume from the log: its last commit bears `at_ns` and was stored `passed_ns` ago.

        Log time continues from there. Starting at the wall clock instead would adopt two differences all at once: the one that
        the previous process was still creeping to, and the wall clock's changes while no service led.
        """
        self.now()
        self._now = at_ns + max(0, passed_ns)
        self._lag_ns = self._wall() - self._now

    @property
    def lag_ns(self) -> int:
        """The distance from log time to the wall clock, as of the last `now`; positive: the wall clock is ahead."""
        return self._lag_ns

    def steps(self) -> list[Step]:
        """The steps since the last call, oldest first."""
        steps, self._steps = self._steps, []
        return steps

    @property
    def has_stepped(self) -> bool:
        """True while there are steps to be taken by `steps`."""
        return bool(self._steps)

    def _note(self, apart_ns: int, lag_ns: int) -> None:
        step_ns = apart_ns - self._apart_ns
        if abs(step_ns) <= STEP_NS:
            return
        self._apart_ns = apart_ns
        if len(self._steps) >= STEPS_MAX:
            step_ns += self._steps.pop().step_ns
        self._steps.append(Step(step_ns, lag_ns))
