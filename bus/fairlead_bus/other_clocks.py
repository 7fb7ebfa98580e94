"""Comparison of this machine's wall clock with the clocks of the bus's server and of the nodes.

A writer with a wrong clock would write wrong times and hours into the log permanently. Such a writer therefore does not
lead, and a leader does not follow a clock that differs from all others. The server's clock is requested first, which
costs one request. If it disagrees, the nodes' heartbeats are read for a moment, since they bear the nodes' clocks.
Start at `OtherClocks.differ`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

import msgspec

from fairlead_bus.port import Bus, Message, Unavailable
from fairlead_bus.settings import seconds
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.reports import decode_heartbeat

#: FAIRLEAD_CLOCK_SKEW_S, unless set: how far a clock may be from another.
SKEW_NS = 5_000_000_000
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
        asked_ns = self._wall()
        try:
            times = await self._bus.times(subjects.LOG)
        except Unavailable:
            return ""
        if not times.now_ns:  # a server that does not state its time
            return ""
        # The answer may have been under way for long, and the clock may have been set meanwhile.
        server_ns = times.now_ns - min((asked_ns, self._wall()), key=lambda own_ns: abs(times.now_ns - own_ns))
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
