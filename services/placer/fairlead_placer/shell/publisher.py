"""Effects of the placer outside once a commit is in the log: desired state to nodes, confirmations to agents.

Everything is derived from folded state, so it may be repeated and loses nothing when it fails. After a restart or a
reconnect everything is sent again, and a node whose beats show an older desired state gets it again.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

import structlog

from fairlead_bus.port import Bus, BusError, OutcomeUnknown, TooLarge, Unavailable
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.core import PlacerCore
from fairlead_placer.desired_state import OrderBook
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.reports import Heartbeat, ReportAck, encode

#: A node that has not taken up its desired state for so long gets it again.
REWRITE_S = 1.0
#: Pause before writing again when the bus was away.
RETRY_S = 0.5
#: Reports that are committed sooner after the last confirmations are confirmed with the next ones: a node of short runs
#: reports hundreds of times a second, and an agent sends again only after a second.
CONFIRM_S = 0.05
SPECS_KNOWN_MAX = 10_000

log = structlog.get_logger()


class DesiredStatePublisher:
    """Writes DESIRED and confirms reports. `act` is the service's act; `beat` is called for each beat."""

    def __init__(
        self, bus: Bus, *, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], int] = time.time_ns
    ) -> None:
        self._bus = bus
        self._monotonic = monotonic
        self._wall = wall
        self._core: PlacerCore | None = None
        self._book = OrderBook()
        #: {node: (sequence of the value last written, when)}
        self._written: dict[str, tuple[int, float]] = {}
        self._specs_stored: set[str] = set()
        #: Nodes to be written, and answers to be sent, without waiting for the next commit.
        self._behind: set[str] = set()
        #: Nodes whose changed desired state is not written yet.
        self._due: set[str] = set()
        self._answers: dict[str, ReportAck] = {}
        #: Nodes whose committed reports are not confirmed yet, when confirmations were last sent, and the timer that sends the next
        #: ones if no commit does.
        self._advanced: set[str] = set()
        self._confirmed_at = float("-inf")
        self._confirm_later: asyncio.TimerHandle | None = None
        #: {node: `at` of the newest beat of its incarnation}
        self._beats: dict[str, int] = {}
        #: Nodes whose loss is being decided or is on its way into the log: their lease is over, no beat renews it.
        self.losing: set[str] = set()
        self._wake = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        bus.on_reconnect(self.again)

    async def act(self, core: PlacerCore) -> None:
        """Write what has changed since the last call, and confirm what has been committed, now or soon."""
        if self._core is not core:
            self._start(core)
        state = core.rollback()
        touched, advanced = state.touched, state.advanced
        state.touched, state.advanced = set(), set()
        self._due |= touched
        await self._write(core, touched)
        self._advanced |= advanced
        if self._monotonic() - self._confirmed_at >= CONFIRM_S:
            await self._send(self._confirms())
        elif self._advanced and self._confirm_later is None:
            self._confirm_later = asyncio.get_running_loop().call_later(2 * CONFIRM_S, self._confirm_late)

    def _confirm_late(self) -> None:
        self._confirm_later = None
        self._wake.set()

    def _confirms(self) -> dict[str, ReportAck]:
        """Take the confirmations of committed reports, as of now: {node: confirmation}."""
        if self._confirm_later is not None:
            self._confirm_later.cancel()
            self._confirm_later = None
        advanced, self._advanced = self._advanced, set()
        if not advanced or self._core is None:
            return {}
        self._confirmed_at = self._monotonic()
        nodes = self._core.rollback().nodes
        return {name: self._confirm_of(nodes[name]) for name in sorted(advanced & nodes.keys())}

    async def _send(self, answers: dict[str, ReportAck]) -> None:
        for confirm in answers.values():
            await self._bus.publish(subjects.confirm(confirm.node), encode(confirm))

    def _start(self, core: PlacerCore) -> None:
        self._core = core
        state = core.rollback()
        state.touched |= state.nodes.keys()
        if self._pump is None:
            self._pump = asyncio.create_task(self._keep_up(), name="placer-act")

    def again(self) -> None:
        """Drive every node's desired state again."""
        if self._core is not None:
            self._behind |= self._core.rollback().nodes.keys()
            self._wake.set()

    async def _write(self, core: PlacerCore, names: set[str]) -> None:
        """Value by value, each as of the state at that very moment; what the bus refuses is tried again."""
        left = sorted(names, reverse=True)
        try:
            while left:
                try:
                    await self._write_one(core, left[-1])
                except TooLarge as error:  # one node must not keep the others from theirs
                    log.critical("desired state does not fit the bus", node=left[-1], reason=str(error))
                left.pop()
        except (Unavailable, OutcomeUnknown):  # writing it again does no harm
            self._behind |= set(left)
            self._wake.set()

    async def _write_one(self, core: PlacerCore, name: str) -> None:
        node = core.rollback().nodes.get(name)
        if node is None:
            await self._forget(name)
            return
        value = self._book.desired(core.rollback(), node)
        sequence = core.rollback().sequence
        for digest, spec in self._book.take_specs().items():
            key = subjects.spec_key(name, digest)
            if key not in self._specs_stored:
                try:
                    await self._bus.put(subjects.SPEC, key, spec)
                except BusError:
                    self._book = OrderBook()  # it will name the spec again
                    raise
                self._remember(key)
        await self._bus.put_quickly(subjects.DESIRED, name, value)
        self._written[name] = (sequence, self._monotonic())
        self._due.discard(name)

    async def _forget(self, name: str) -> None:
        """The node was removed: nothing is desired of it."""
        await self._bus.delete(subjects.DESIRED, name)
        for table in (self._written, self._beats):
            table.pop(name, None)
        self._due.discard(name)

    def _remember(self, key: str) -> None:
        if len(self._specs_stored) >= SPECS_KNOWN_MAX:
            self._specs_stored.clear()
        self._specs_stored.add(key)

    # -- between commits

    def beat(self, beat: Heartbeat) -> None:
        """Answer a beat at once; where it shows an old desired state, write that again. So, too, where it shows a newer one
        than we have written: our predecessor's last. Else we would speak of an older one until the next change there, which
        the agent would take for a log that went backwards."""
        core = self._core
        if core is None:
            return
        node = core.rollback().nodes.get(beat.node)
        known = node is not None and node.incarnation == beat.incarnation
        if known:
            self._beats[beat.node] = beat.at
        self.confirm(beat.node, beat.incarnation)
        if not known:
            return
        sequence, written_at = self._written.get(beat.node, (0, 0.0))
        other = beat.desired < sequence or sequence < beat.desired <= core.rollback().sequence
        if other and self._monotonic() - written_at > REWRITE_S:
            self._behind.add(beat.node)

    def confirm(self, name: str, incarnation: str) -> None:
        """Confirm to an agent which of its reports are committed. An unknown agent is asked for its reports from the first. A
        replaced agent is notified of its successor; that does not renew its lease, so it stops its work. An agent of a
        removed node is notified of the removal.
        """
        state = self._core.rollback() if self._core is not None else None
        node = state.nodes.get(name) if state is not None else None
        removed = state.removed.get(name) if state is not None and node is None else None
        if removed is not None and incarnation in removed.incarnations:
            self._answers[name] = ReportAck(node=name, removed=incarnation)
        elif node is None or (node.incarnation != incarnation and incarnation not in node.superseded):
            self._answers[name] = ReportAck(node=name)
        else:
            self._answers[name] = self._confirm_of(node)
        self._wake.set()

    def _confirm_of(self, node: ClusterNode) -> ReportAck:
        """The node's numbers. A value that is older than the last one written, or than a change that is still to be
        written, may order a run that has been ended since (the node was lost meanwhile): it must start nothing."""
        assert self._core is not None
        state, name = self._core.rollback(), node.name
        due = node.lost or name in state.touched or name in self._due or name in self._behind
        desired = state.sequence if due else self._written.get(name, (0, 0.0))[0]
        beat = 0 if name in self.losing else self._beats.get(name, 0)
        return ReportAck(
            node=name,
            incarnation=node.incarnation,
            through=node.reported,
            beat=beat,
            wall_ns=self._wall(),
            desired=desired,
        )

    async def _keep_up(self) -> None:
        """Answers go out by themselves: an agent's lease must not hang on our next commit."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._catch_up()
            except Exception:
                # Ended by one value or one answer, this task would leave every agent of the cluster without a lease.
                log.exception("something could not be written to a node")
                await asyncio.sleep(RETRY_S)

    async def _catch_up(self) -> None:
        answers, self._answers = self._answers, {}
        # While our commit is on its way, confirmations wait for it (`act`) until they are late: to read the state now would take the
        # decision back, which is then folded again.
        if self._core is None or not self._core.has_pending or self._confirm_later is None:
            answers |= self._confirms()
        await self._send(answers)
        behind, self._behind = self._behind, set()
        if behind and self._core is not None:
            await self._write(self._core, behind)
            if self._behind:
                await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """Act no more."""
        if self._confirm_later is not None:
            self._confirm_later.cancel()
        if self._pump is not None:
            self._pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pump
