"""Nodes that have fallen silent, by the beats that this gateway receives: for people to see, never for a decision.

The log records a silent node only when its lease is over (NodeLost, after two minutes by default). Until then the
placer still counts on it. An operator should see earlier that an agent is dead or cut off, so the gateway listens
to the agents' beats itself. None of this is stored: a gateway that has just started, or has just got its connection
back, has received no beats yet and reports no node as silent for SILENT_AFTER_S.
"""

import time
from collections.abc import Callable

from fairlead_bus.port import Bus, Message
from fairlead_gateway.views.fold import Views
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import UNHEARD_MAX, NodesHeard

#: Five beats of an agent, as they come by default; of one that beats more rarely, SILENT_AFTER_BEATS of its own.
SILENT_AFTER_S, SILENT_AFTER_BEATS = 10.0, 5


class Presence:
    """Time of the last beat of each known node, on a monotonic clock."""

    def __init__(self, views: Views, is_connected: Callable[[], bool]) -> None:
        self._nodes = views.nodes.rows
        self._is_connected = is_connected
        self.monotonic = time.monotonic
        #: {node: (time of its last heartbeat, time between it and the one before)}
        self._heard: dict[str, tuple[float, float]] = {}
        #: Since when beats would have been received.
        self._listening_since: float | None = None

    async def listen(self, bus: Bus) -> None:
        """Receive beats from now on."""
        bus.on_reconnect(self._restart)
        await bus.subscribe(subjects.BEATS, self._on_beat)
        self._restart()

    def silent_s(self, node: str) -> int:
        """Return the whole seconds for which the node has been silent; 0 while its beats arrive, or where that is not known.

        Where no beat of any node has arrived, the fault is this gateway's: it may lack the permission.
        """
        if self._listening_since is None or not self._heard or not self._is_connected():
            return 0
        heard_at, interval = self._heard.get(node, (self._listening_since, 0.0))
        silence = self.monotonic() - heard_at
        return int(silence) if silence >= max(SILENT_AFTER_S, SILENT_AFTER_BEATS * interval) else 0

    def heard(self) -> NodesHeard:
        """Return which of the nodes that are not lost have sent beats, and not fallen silent since."""
        known = [name for name, row in self._nodes.items() if not row.lost]
        unheard = sorted(name for name in known if name not in self._heard or self.silent_s(name))
        return NodesHeard(known=len(known), heard=len(known) - len(unheard), unheard=unheard[:UNHEARD_MAX])

    def missing(self) -> list[str]:
        """Return the unheard nodes once there was time to hear them."""
        listening = self._listening_since
        if listening is None or not self._heard or not self._is_connected():
            return []
        if self.monotonic() - listening < SILENT_AFTER_S:
            return []
        return self.heard().unheard

    def _restart(self) -> None:
        self._heard.clear()
        self._listening_since = self.monotonic()

    def _on_beat(self, message: Message) -> None:
        name = subjects.node_of(message.subject)
        if name in self._nodes:
            now = self.monotonic()
            before, _ = self._heard.get(name, (now, 0.0))
            self._heard[name] = now, now - before
