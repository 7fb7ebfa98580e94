"""Log time, and the comparison of this machine's wall clock with others.

Log time runs with the boot's clock, follows the wall clock at a bounded pace, and never falls.

The wall clock is sometimes set: by NTP at boot, by a person, by a virtual machine that was resumed. A service that
adopted such a step would end running jobs at limits that they have not reached. Log time therefore runs with the boot's
clock, which cannot be set, and creeps to the wall clock, forward or back, by at most one part in `CREEP`. Pure: both
clocks are arguments. Start at `SteadyClock.now`.

`OtherClocks` compares the wall clock with the clocks of the bus's server and of the nodes. A writer with a wrong clock would write wrong times and hours into the log permanently. Such a writer therefore does not
lead, and a leader does not follow a clock that differs from all others. The server's clock is requested first, which
costs one request. If it disagrees, the nodes' heartbeats are read for a moment, since they bear the nodes' clocks.
Start at `OtherClocks.differ`.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from fairlead_bus.environment_settings import seconds
from fairlead_bus.port import Bus, Message, Unavailable
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.reports import decode_heartbeat

#: Log time gains or loses at most one part in so many: an hour is crept to within 100 hours.
CREEP = 100
#: A difference between wall clock and boot's clock that changes by more than this is a step, and is recorded.
STEP_NS = 5 * SECOND_NS
#: Maximum number of steps kept until they are taken. Beyond it, the newest ones are summed up.
STEPS_MAX = 16


class ClockStep(NamedTuple):
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
        self._read_ns = 0
        #: Wall clock minus boot's clock, as of the last step or the last time that they agreed.
        self._apart_ns = 0
        self._lag_ns = 0
        #: Where this is False, the wall clock is not crept to: it differs from everybody else's.
        self.is_trusted = True
        self._steps: list[ClockStep] = []

    def now(self) -> int:
        """Log time: never below an earlier answer."""
        boot_ns, wall_ns = self._boot(), self._wall()
        if not self._now:
            self._now, self._read_ns, self._apart_ns = wall_ns, boot_ns, wall_ns - boot_ns
            return wall_ns
        passed_ns, self._read_ns = max(0, boot_ns - self._read_ns), boot_ns
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

    def steps(self) -> list[ClockStep]:
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
        self._steps.append(ClockStep(step_ns, lag_ns))


#: FAIRLEAD_CLOCK_SKEW_S, unless set: how far a clock may be from another.
SKEW_NS = 5 * SECOND_NS
#: The time for which nodes are listened to: agents beat every 2 s. Less than a lease lasts.
LISTEN_S = 2.5


def skew_from(env: Mapping[str, str]) -> int:
    """FAIRLEAD_CLOCK_SKEW_S in ns. Raises BadSetting."""
    return int(seconds(env, "FAIRLEAD_CLOCK_SKEW_S", SKEW_NS / 1e9) * 1e9)


def disagreement(server_ns: int, nodes_ns: Iterable[int], skew_ns: int) -> str:
    """Return "" where at least half of the others are within `skew_ns`, else a sentence. Arguments: the others' clocks
    minus one's own."""
    nodes = list(nodes_ns)
    far = [each for each in nodes if abs(each) > skew_ns]
    others, wrong = 1 + len(nodes), len(far) + (abs(server_ns) > skew_ns)
    if 2 * wrong <= others:
        return ""
    text = f"the bus's server is {server_ns / 1e9:+.1f} s from it"
    if nodes:
        median_ns = sorted(nodes)[len(nodes) // 2]
        text += f", {len(far)} of {len(nodes)} nodes are too far from it (median {median_ns / 1e9:+.1f} s)"
    return f"{text}; at most {skew_ns / 1e9:g} s are allowed"


class OtherClocks:
    """Other clocks of the cluster, compared with the wall clock of this machine."""

    def __init__(self, bus: Bus, wall: Callable[[], int], skew_ns: int = SKEW_NS) -> None:
        self._bus, self._wall, self._skew_ns = bus, wall, skew_ns

    async def differ(self, *, ask_nodes: bool = False) -> str:
        """Return "" while the wall clock agrees with the server's, or with at least half of all others; else a sentence.

        `ask_nodes`: compare with the nodes even where the server agrees. An unavailable server counts as agreeing.
        """
        before_ns = self._wall()
        try:
            times = await self._bus.times(subjects.LOG)
        except Unavailable:
            return ""
        if not times.now_ns:  # a server that does not state its time
            return ""
        # The answer may have been under way for long, and the clock may have been set meanwhile.
        server_ns = times.now_ns - min((before_ns, self._wall()), key=lambda own_ns: abs(times.now_ns - own_ns))
        if abs(server_ns) <= self._skew_ns and not ask_nodes:
            return ""
        return disagreement(server_ns, await self._nodes(), self._skew_ns)

    async def _nodes(self) -> list[int]:
        """The clocks of the nodes that beat now, minus the own one."""
        found: dict[str, int] = {}

        def take(message: Message) -> None:
            try:
                beat = decode_heartbeat(message.payload)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                return  # the placer counts them
            if beat.wall_ns and beat.node == subjects.node_of(message.subject):
                found[beat.node] = beat.wall_ns - self._wall()

        listening = await self._bus.subscribe(subjects.BEATS, take)
        try:
            await asyncio.sleep(LISTEN_S)
        finally:
            await listening.close()
        return list(found.values())
