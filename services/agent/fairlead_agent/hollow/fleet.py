"""The fleet: all hollow nodes of one process on one connection. Start at `HollowFleet.run`.

One subscription each for desired states and confirmations, one heap of ends, beats spread over their interval,
and reports sent per node and tick: what happened on a node within a tick travels in one message.
"""

import asyncio
import contextlib
import heapq
import itertools
import secrets
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
import structlog

from fairlead_agent.hollow.node import HollowNode, HollowSamples, Key, PlayedDesired, decode_played
from fairlead_agent.hollow.outcomes import PlayedCommands
from fairlead_agent.hollow.shapes import Shape, check_names
from fairlead_bus.port import Bus, BusError, Message, Subscription
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.reports import Heartbeat, decode_ack, encode

#: Reports of a tick travel together; idle latency is half of it on average.
TICK_S = 0.002
RESEND_LOOK_S = 0.25
BEAT_STEP_S = 0.02
SAMPLE_STEP_S = 0.01
READ_ALL_S = 30.0
#: Looks into the SPEC store before a run counts as one that cannot start, and the first pause between them; each is
#: twice the one before.
SPEC_TRIES = 5
SPEC_PAUSE_S = 0.2

_log = structlog.get_logger()


class HollowFleet:
    """N played nodes. `speed` divides every run time."""

    def __init__(
        self, bus: Bus, shapes: Sequence[Shape], *, speed: float = 1.0, beat_s: float = 2.0, sample_s: float = 0.0
    ) -> None:
        """`sample_s`: seconds between samples of each node; 0: none."""
        check_names(shapes)
        self.bus = bus
        self.speed = speed
        self.beat_s = beat_s
        self.sample_s = sample_s
        self.nodes = {shape.node: HollowNode(shape, secrets.token_hex(12)) for shape in shapes}
        self._commands = PlayedCommands()
        #: {node: its newest desired state, which names job files that are being read from the SPEC store}.
        self._fetching: dict[str, PlayedDesired] = {}
        self._ends: list[tuple[float, str, Key]] = []
        self._talking: set[HollowNode] = set(self.nodes.values())
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._subscriptions: list[Subscription] = []

    async def run(self) -> int:
        """Play until `stop`; the exit code is 0."""
        await self.open()
        await self._stopped.wait()
        await self.close()
        return 0

    async def stop(self) -> None:
        """End the fleet; its nodes fall silent."""
        self._stopped.set()

    def statistics(self) -> dict[str, int]:
        """Numbers for people who look at a running fleet."""
        nodes = self.nodes.values()
        return {
            "nodes": len(nodes),
            "gpus": sum(node.shape.gpus for node in nodes),
            "reported": sum(node.reported for node in nodes),
            "resends": sum(node.outbox.resends for node in nodes),
        }

    async def open(self) -> None:
        """Subscribe, introduce every node, start playing."""
        self._subscriptions = [
            await self.bus.on_put(subjects.DESIRED, "*", self._on_desired),
            await self.bus.subscribe(subjects.confirm("*"), self._on_confirm),
        ]
        self.bus.on_reconnect(self._on_reconnect)
        self._spawn(self._flush_all())
        for loop in (self._beats, self._resends, self._reads, *((self._samples,) if self.sample_s else ())):
            self._spawn(loop())
        _log.info("hollow nodes play", journal="memory", **self.statistics())

    async def close(self) -> None:
        """Stop playing."""
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for subscription in self._subscriptions:
            with contextlib.suppress(BusError):
                await subscription.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.critical("the fleet has failed", exc_info=error)
            self._stopped.set()

    # ------------------------------------------------------------------ what happens

    def _on_desired(self, name: str, value: bytes) -> None:
        node = self.nodes.get(name)
        if node is None:
            return
        try:
            desired = decode_played(value)
        except msgspec.MsgspecError as error:
            _log.error("desired state cannot be read", node=name, reason=str(error))
            return
        if name in self._fetching:
            self._fetching[name] = max(desired, self._fetching[name], key=lambda one: one.sequence)
        elif node.missing(desired, self._commands):
            self._fetching[name] = desired
            self._spawn(self._fetch_and_take(node))
        else:
            self._take(node, desired)

    def _take(self, node: HollowNode, desired: PlayedDesired) -> None:
        before = node.reported
        going = node.take(desired, self._commands, self.speed, time.time_ns())
        if going:
            now = time.monotonic()
            for seconds, key in going:
                heapq.heappush(self._ends, (now + seconds, node.name, key))
            self._set_timer()
        if node.reported != before:
            self._say(node)

    async def _fetch_and_take(self, node: HollowNode) -> None:
        """Read the job files that the SPEC store holds, then take up the newest desired state of the node."""
        tries = 0
        while tries < SPEC_TRIES and (missing := node.missing(self._fetching[node.name], self._commands)):
            for digest in sorted(missing):
                with contextlib.suppress(BusError):
                    spec = await self.bus.peek(subjects.SPEC, subjects.spec_key(node.name, digest))
                    if spec is not None:
                        self._commands.learn(digest, spec)
                        missing.discard(digest)
            if missing:
                await asyncio.sleep(SPEC_PAUSE_S * 2**tries)
                tries += 1
        self._take(node, self._fetching.pop(node.name))

    def _on_confirm(self, message: Message) -> None:
        node = self.nodes.get(subjects.node_of(message.subject))
        if node is not None:
            node.confirm(decode_ack(message.payload), time.monotonic_ns())
            if node.outbox.sent < node.reported:
                self._say(node)

    def _on_reconnect(self) -> None:
        for node in self.nodes.values():
            node.outbox.reconnected()
            self._talking.add(node)
        self._spawn(self._flush_all())
        self._spawn(self._read_all())

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ends:
            self._timer = asyncio.get_running_loop().call_later(
                max(0.0, self._ends[0][0] - time.monotonic()), self._on_ends
            )

    def _on_ends(self) -> None:
        now, at_ns = time.monotonic() + TICK_S / 2, time.time_ns()
        while self._ends and self._ends[0][0] <= now:
            _, name, key = heapq.heappop(self._ends)
            node = self.nodes[name]
            if node.over(key, at_ns):
                self._say(node)
        self._timer = None
        self._set_timer()

    # ------------------------------------------------------------------ reports

    def _say(self, node: HollowNode) -> None:
        self._talking.add(node)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_later(TICK_S, self._flush_soon)

    def _flush_soon(self) -> None:
        self._spawn(self._flush_all())

    async def _flush_all(self) -> None:
        self._flushing = False
        talking, self._talking = self._talking, set()
        now = time.monotonic_ns()
        for node in talking:
            for message in node.outbox.due(now):
                await self.bus.publish(subjects.report(node.name), message)

    async def _beats(self) -> None:
        names = list(self.nodes)
        steps = max(1, round(self.beat_s / BEAT_STEP_S))
        while True:
            for step in range(steps):
                for name in names[step::steps]:
                    node = self.nodes[name]
                    beat = Heartbeat(
                        node=name,
                        incarnation=node.incarnation,
                        desired=node.desired,
                        reported=node.reported,
                        at=time.monotonic_ns(),
                        wall_ns=time.time_ns(),
                    )
                    await self.bus.publish(subjects.beat(name), encode(beat))
                await asyncio.sleep(BEAT_STEP_S)

    async def _samples(self) -> None:
        """Each node's in its turn, spread over the interval; late ones are made up for, none is left out."""
        turns = [(name, HollowSamples(node)) for name, node in self.nodes.items()]
        pause_s, began = self.sample_s / len(turns), time.monotonic()
        for turn in itertools.count():
            name, samples = turns[turn % len(turns)]
            if (ahead_s := began + turn * pause_s - time.monotonic()) > 0:
                await asyncio.sleep(max(ahead_s, SAMPLE_STEP_S))
            await self.bus.publish(subjects.sample(name), samples.next(time.time_ns()))

    async def _resends(self) -> None:
        while True:
            await asyncio.sleep(RESEND_LOOK_S)
            now = time.monotonic_ns()
            for node in self.nodes.values():
                for message in node.outbox.due(now):
                    await self.bus.publish(subjects.report(node.name), message)

    async def _reads(self) -> None:
        while True:
            await self._read_all()
            await asyncio.sleep(READ_ALL_S)

    async def _read_all(self) -> None:
        """Read desired states that a put may have missed; the placer also writes again what a beat shows missing."""
        for name in self.nodes:
            with contextlib.suppress(BusError):
                value = await self.bus.peek(subjects.DESIRED, name)
                if value is not None:
                    self._on_desired(name, value)
