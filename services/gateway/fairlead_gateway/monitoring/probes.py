"""Signs of life, collected: each service is asked, its lease is read, and a command without a reader is stored now and
then.

`readiness.py` judges them. A round costs a request to each service; while the gateway is not ready, rounds are
frequent, so that a start is noticed at once.

Nodes that have fallen silent, by the beats that this gateway receives: for people to see, never for a decision.

The log records a silent node only when its lease is over (NodeLost, after two minutes by default). Until then the
placer still counts on it. An operator should see earlier that an agent is dead or cut off, so the gateway listens
to the agents' beats itself. None of this is stored: a gateway that has just started, or has just got its connection
back, has received no beats yet and reports no node as silent for SILENT_AFTER_S.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

import msgspec

from fairlead_bus.port import Bus, BusError, Message, StreamFull
from fairlead_gateway.monitoring.command_watch import CommandWatch
from fairlead_gateway.monitoring.readiness import OTHERS, WRITERS, LogStatus, ReadinessEvidence
from fairlead_gateway.sources.live_views import LiveViews
from fairlead_gateway.views.fold import Views
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import ALIVE, UNHEARD_MAX, Condition, NodesHeard, decode_alive

ROUND_S = 2.0
ROUND_UNREADY_S = 0.25
ANSWER_S = 2.0
#: Without a command stored for so long, an empty one is: an idle gateway must notice a server that refuses.
IDLE_S = 10.0
#: No service reads the commands of this name.
PROBE_USER = "probe"


class ServiceProbes:
    """The conditions of this gateway's cluster; `run` keeps them fresh."""

    def __init__(self, bus: Bus, folding: LiveViews, watch: CommandWatch) -> None:
        self._bus, self._folding, self._watch = bus, folding, watch
        self.evidence = ReadinessEvidence(self._now())

    def conditions(self) -> list[Condition]:
        """Return what is wrong as of now, worst first."""
        folding = self._folding
        facts = LogStatus(
            folding.bus_answers, folding.is_near_end, folding.has_room, folding.views.sequence, folding.log_end
        )
        found = self.evidence.conditions(facts, self._now())
        if lost := self._watch.conditions:  # the reason why no command is stored
            return [*lost, *(each for each in found if each.code != "commands_refused")]
        return found

    def appended(self, error: BusError | None) -> None:
        """The outcome of a command's append; None: stored."""
        if error is None:
            self.evidence.stored(self._now())
        else:
            self.evidence.not_stored(str(error), is_full=isinstance(error, StreamFull))

    async def run(self) -> None:
        """Collect signs of life in rounds, without end."""
        while True:
            works = [self._ask(name) for name in (*WRITERS, *OTHERS)]
            works += [self._look_at_lease(name) for name in WRITERS]
            if not self.evidence.stored_since(self._now() - IDLE_S):
                works.append(self._probe())
            await asyncio.gather(*works)
            await asyncio.sleep(ROUND_UNREADY_S if any(each.blocks for each in self.conditions()) else ROUND_S)

    async def _ask(self, service: str) -> None:
        # Without an answer there is nothing to note: the last one becomes older.
        with contextlib.suppress(BusError, msgspec.MsgspecError):
            answer = await self._bus.request(subjects.rpc(service, ALIVE), b"", timeout_s=ANSWER_S)
            self.evidence.answered(service, decode_alive(answer), self._now(), self._folding.log_end)

    async def _look_at_lease(self, service: str) -> None:
        with contextlib.suppress(BusError):
            if await self._bus.get(subjects.LEASE, service) is not None:
                self.evidence.leased(service, self._now())

    async def _probe(self) -> None:
        """Store a command that no service reads. Skip a stream that has lost messages: its sequences would fill the gap up to
        the one that counts as read, and would hide the loss.
        """
        if not self._watch.is_fresh or self._watch.conditions:
            return
        seen = self._watch.seen
        try:
            sequence = await self._bus.append(subjects.CMD, subjects.cmd(PROBE_USER), b"[]")
            self._watch.stored(sequence, seen)
        except BusError as error:
            self.appended(error)
        else:
            self.appended(None)

    @staticmethod
    def _now() -> float:
        return time.monotonic()


#: Five beats of an agent, as they come by default; of one that beats more rarely, SILENT_AFTER_BEATS of its own.
SILENT_AFTER_S, SILENT_AFTER_BEATS = 10.0, 5


class NodePresence:
    """Time of the last beat of each known node, on a monotonic clock."""

    def __init__(self, views: Views, is_connected: Callable[[], bool]) -> None:
        self._nodes = views.nodes.rows
        self._is_connected = is_connected
        self.monotonic = time.monotonic
        #: {node: (time of its last heartbeat, time between it and the one before)}
        self._beats: dict[str, tuple[float, float]] = {}
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
        if self._listening_since is None or not self._beats or not self._is_connected():
            return 0
        beat_at, interval = self._beats.get(node, (self._listening_since, 0.0))
        silence = self.monotonic() - beat_at
        return int(silence) if silence >= max(SILENT_AFTER_S, SILENT_AFTER_BEATS * interval) else 0

    def contacts(self) -> NodesHeard:
        """Return which of the nodes that are not lost have sent beats, and not fallen silent since."""
        known = [name for name, row in self._nodes.items() if not row.lost]
        unheard = sorted(name for name in known if name not in self._beats or self.silent_s(name))
        return NodesHeard(known=len(known), heard=len(known) - len(unheard), unheard=unheard[:UNHEARD_MAX])

    def missing(self) -> list[str]:
        """Return the unheard nodes once there was time to hear them."""
        listening = self._listening_since
        if listening is None or not self._beats or not self._is_connected():
            return []
        if self.monotonic() - listening < SILENT_AFTER_S:
            return []
        return self.contacts().unheard

    def _restart(self) -> None:
        self._beats.clear()
        self._listening_since = self.monotonic()

    def _on_beat(self, message: Message) -> None:
        name = subjects.node_of(message.subject)
        if name in self._nodes:
            now = self.monotonic()
            before, _ = self._beats.get(name, (now, 0.0))
            self._beats[name] = now, now - before
