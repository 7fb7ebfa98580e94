"""Reports and beats, as inputs of the core. Decodes, bounds, and drops what the core has had; decides nothing.

A beat becomes no input: it renews a lease here and is answered at once. Only a lost node's return, and a lease's
end, are the core's business.

Relay for messages between agents about a run that both share: nodes reach the services, but not each other.

The subject names the sender, because the server lets each node publish as itself only. The receiver gets the name from
a service, and so can trust it. The relay decides and keeps no state: any placer process serves it, leading or not.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import msgspec

from fairlead_bus.core import Core, Input
from fairlead_bus.environment_settings import BadSetting, seconds
from fairlead_bus.port import Bus, Message, Subscription, Unavailable
from fairlead_placer.core import PlacerCore
from fairlead_placer.decide import membership
from fairlead_placer.decide.fencing import DEFAULT_LEASE_NS, LeaseWatch, next_after_ns
from fairlead_placer.decide.reports import RefusedReport, fault_of
from fairlead_placer.shell.publisher import DesiredStatePublisher
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import digest_of
from fairlead_schemas.wire.rank_rpc import GangAnswer, GangReply, encode_gang
from fairlead_schemas.wire.reports import (
    REPORT_BYTES_MAX,
    REPORTS_PER_MESSAGE_MAX,
    ReportBatch,
    decode_heartbeat,
    decode_reports,
)

#: Reports in one decision, beyond which the next message waits for the next one.
REPORTS_PER_TAKE_MAX = 400
#: Messages that wait; more are dropped and will be sent again.
WAITING_MAX = 4096
#: The longest that messages are held back while our own commit is on its way, and how many.
HELD_S, HELD_MAX = 0.05, 4096
#: Refused messages that are recorded per interval; the rest is only counted: garbage must not fill the log.
REFUSED_PER_INTERVAL_MAX = 20
REFUSED_INTERVAL_NS = 10 * SECOND_NS
BEATS_HEARD_WITHIN_NS = SECOND_NS
#: The agents' (fairlead_agent/settings.py, reconcile.py; a test compares): silence after which they fence themselves,
#: the grace that their runs then get at most, and what is left for the kill, a guard that waits for its agent, slow clocks.
FENCE_S, FENCE_GRACE_S, FENCE_MARGIN_S = 60.0, 30.0, 30.0
#: Silence after which a node is given no new work; some beats.
QUIET_S = 15.0


def lease_from(env: Mapping[str, str]) -> int:
    """FAIRLEAD_NODE_LEASE_S in ns, 120 s by default. Raises BadSetting.

    A node must have ended its work before another gets it, so the lease outlasts the agents' fence, its grace and a
    margin: FAIRLEAD_SELF_FENCE_S, FAIRLEAD_FENCE_GRACE_S and FAIRLEAD_FENCE_MARGIN_S must be the same here as on the nodes.
    """
    lease_s = seconds(env, "FAIRLEAD_NODE_LEASE_S", DEFAULT_LEASE_NS / SECOND_NS)
    fence_s = seconds(env, "FAIRLEAD_SELF_FENCE_S", FENCE_S)
    grace_s = seconds(env, "FAIRLEAD_FENCE_GRACE_S", FENCE_GRACE_S)
    margin_s = seconds(env, "FAIRLEAD_FENCE_MARGIN_S", FENCE_MARGIN_S)
    least_s = fence_s + grace_s + margin_s
    if lease_s < least_s:
        raise BadSetting(
            f"FAIRLEAD_NODE_LEASE_S: expected at least {least_s:g} seconds (an agent's fence after {fence_s:g}, grace of "
            f"{grace_s:g}, margin of {margin_s:g}; FAIRLEAD_SELF_FENCE_S, FAIRLEAD_FENCE_GRACE_S and "
            f'FAIRLEAD_FENCE_MARGIN_S set these), found "{lease_s:g}"'
        )
    return int(lease_s * SECOND_NS)


def quiet_from(env: Mapping[str, str], lease_ns: int) -> int:
    """FAIRLEAD_NODE_QUIET_S in ns, 15 s by default and never more than half of the lease. Raises BadSetting."""
    return min(int(seconds(env, "FAIRLEAD_NODE_QUIET_S", QUIET_S) * SECOND_NS), lease_ns // 2)


class ReportSource:
    """`fairlead_bus.input_source.Source` for everything that agents say."""

    is_urgent = False

    def __init__(
        self,
        actor: DesiredStatePublisher,
        lease_ns: int = DEFAULT_LEASE_NS,
        monotonic_ns: Callable[[], int] | None = None,
        quiet_ns: int = 0,
    ) -> None:
        """`monotonic_ns`: by what silence is measured: a wall clock that is set is no silence. None: by the time of `take`."""
        self._actor = actor
        self._monotonic_ns = monotonic_ns
        self._watch = LeaseWatch(lease_ns, quiet_ns)
        self._waiting: deque[ReportBatch] = deque()
        self._refused: deque[RefusedReport] = deque()
        self._refused_since_ns = 0
        self._refused_count = 0
        #: Highest number that waits or is being decided upon: {node: (incarnation, n)}.
        self._on_the_way: dict[str, tuple[str, int]] = {}
        self._heard: set[str] = set()
        self._returned: set[str] = set()
        self._reconnected = False
        #: When something was taken last: by the service's time, and by that of silence.
        self._taken_at_ns = 0
        self._measured_ns = 0
        self._subscriptions: list[Subscription] = []
        #: Messages that wait for our own commit to be folded, and who takes them; when they wait no longer.
        self._held: list[tuple[Callable[[Message], None], Message]] = []
        self._let_in_later: asyncio.TimerHandle | None = None
        self.dropped = 0

    async def open(self, bus: Bus, core: Core, cursor: int, wake: Callable[[], None]) -> None:
        """Subscribe to reports and heartbeats. Every known node counts as seen at the first take."""
        self._core = cast(PlacerCore, core)
        self._wake = wake
        self._heard = set(self._core.rollback().nodes)
        bus.on_reconnect(self._on_reconnect)
        self._subscriptions = [
            await bus.subscribe(subjects.REPORTS, partial(self._hear, self._on_report)),
            await bus.subscribe(subjects.BEATS, partial(self._hear, self._on_beat)),
        ]

    def take(self, now_ns: int) -> list[Input]:
        """Return the inputs received, up to REPORTS_PER_TAKE_MAX reports, and the leases that are over."""
        self._let_in()
        self._taken_at_ns = now_ns
        self._measured_ns = measured_ns = self._monotonic_ns() if self._monotonic_ns is not None else now_ns
        # What was taken before is decided by now.
        self._on_the_way = {batch.node: (batch.incarnation, batch.reports[-1].n) for batch in self._waiting}
        inputs = [*self._take_refused(now_ns), *self._take_reports()]
        for node in sorted(self._heard):
            self._watch.heard(node, measured_ns)
        self._heard.clear()
        if self._reconnected:
            self._reconnected = False
            self._watch.restart(measured_ns)
        inputs += [Input("heard", 0, node) for node in sorted(self._returned)]
        self._returned.clear()
        silent = [*self._take_silent(measured_ns), *self._still_silent()]
        inputs += [Input("silent", 0, each) for each in silent]
        inputs += [Input("quiet", 0, name) for name in self._take_quiet(measured_ns)]
        # Until the next take, when this decision is in the log and folded: a beat that comes now must not let the
        # agent start what is being given to another node.
        self._actor.losing = {node for node, _ in silent}
        if self._waiting:
            self._wake()
        return inputs

    def wake_at(self) -> int | None:
        """At a lease's end; and soon after beats, so that a lease is not renewed later than it was."""
        if self._heard:
            return self._taken_at_ns + BEATS_HEARD_WITHIN_NS
        times = [
            self._watch.next_at(),
            *(after - self._watch.silence_ns(name) + self._measured_ns for name, after in self._waited_for()),
        ]
        next_ns = min((each for each in times if each is not None), default=None)
        return None if next_ns is None else self._taken_at_ns + next_ns - self._measured_ns

    async def close(self) -> None:
        """Listen no more."""
        if self._let_in_later is not None:
            self._let_in_later.cancel()
        for subscription in self._subscriptions:
            await subscription.close()
        await self._actor.close()

    def statistics(self) -> dict[str, int]:
        """Messages that wait, and those dropped so far."""
        return {"waiting": len(self._waiting), "dropped": self.dropped}

    # -- arrivals

    def _hear(self, handler: Callable[[Message], None], message: Message) -> None:
        """Now, or at the next `take` when our own commit is on its way: to look at the core's state would take it back there.
        No later than HELD_S: an agent's lease must not hang on our next commit."""
        if not self._held:
            if not self._core.has_pending:
                handler(message)
                return
            self._let_in_later = asyncio.get_running_loop().call_later(HELD_S, self._let_in)
        self._held.append((handler, message))
        if len(self._held) >= HELD_MAX:
            self._let_in()

    def _let_in(self) -> None:
        """Process the messages that were held back, in their order of arrival."""
        if self._let_in_later is not None:
            self._let_in_later.cancel()
            self._let_in_later = None
        held, self._held = self._held, []
        for handler, message in held:
            handler(message)

    def _on_reconnect(self) -> None:
        self._reconnected = True
        self._wake()

    def _on_report(self, message: Message) -> None:
        name = subjects.node_of(message.subject)
        if len(message.payload) > REPORT_BYTES_MAX or len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
            return
        try:
            batch = decode_reports(message.payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._refuse(name, "undecodable", str(error), message.payload)
            return
        fault = fault_of(name, batch)
        if fault is not None:
            self._refuse(name, *fault, message.payload)
        elif self._is_new(batch):
            self._waiting.append(batch)
            self._on_the_way[batch.node] = (batch.incarnation, batch.reports[-1].n)
            self._wake()

    def _is_new(self, batch: ReportBatch) -> bool:
        """False for what the core has had (it is confirmed again) and for what cannot be taken up yet."""
        if not 0 < len(batch.reports) <= REPORTS_PER_MESSAGE_MAX:
            return False
        node = self._core.rollback().nodes.get(batch.node)
        if node is None or node.incarnation != batch.incarnation:
            return batch.reports[0].n <= self._newest(batch) + 1
        self._heard.add(batch.node)
        if batch.reports[-1].n <= node.reported:
            self._actor.confirm(batch.node, batch.incarnation)
            return False
        return batch.reports[0].n <= max(node.reported, self._newest(batch)) + 1

    def _newest(self, batch: ReportBatch) -> int:
        """Return the newest report number of the batch's incarnation that is taken and not committed yet; its successor need not
        be sent again.
        """
        incarnation, newest = self._on_the_way.get(batch.node, ("", 0))
        return newest if incarnation == batch.incarnation else 0

    def _refuse(self, node: str, code: str, text: str, payload: bytes) -> None:
        if len(self._refused) >= REFUSED_PER_INTERVAL_MAX:
            self.dropped += 1
            return
        self._refused.append(RefusedReport(node[:80], code, text, digest_of(payload)))
        self._wake()

    def _on_beat(self, message: Message) -> None:
        try:
            beat = decode_heartbeat(message.payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.dropped += 1
            return
        if beat.node != subjects.node_of(message.subject):
            self.dropped += 1
            return
        node = self._core.rollback().nodes.get(beat.node)
        if node is not None and node.incarnation == beat.incarnation:
            self._heard.add(beat.node)
            if node.lost or membership.is_quiet(node):
                self._returned.add(beat.node)
                self._wake()
        self._actor.beat(beat)

    # -- taking

    def _take_reports(self) -> list[Input]:
        inputs: list[Input] = []
        count = 0
        while self._waiting and count + len(self._waiting[0].reports) <= REPORTS_PER_TAKE_MAX:
            batch = self._waiting.popleft()
            count += len(batch.reports)
            inputs.append(Input("report", batch.reports[-1].n, batch))
            self._heard.add(batch.node)
        return inputs

    def _take_silent(self, now_ns: int) -> list[tuple[str, int]]:
        nodes, found = self._core.rollback().nodes, self._watch.silent(now_ns)
        for name, _ in found:
            if name not in nodes:  # of something that never joined, as anybody may say
                self._watch.forget(name)
        return [each for each in found if each[0] in nodes and not nodes[each[0]].lost]

    def _take_quiet(self, now_ns: int) -> list[str]:
        nodes = self._core.rollback().nodes
        found = self._watch.quiet(now_ns) if self._watch.quiet_ns else []
        return [
            name for name in found if name in nodes and not nodes[name].lost and not membership.is_quiet(nodes[name])
        ]

    def _still_silent(self) -> list[tuple[str, int]]:
        """Lost nodes whose silence has become as long as a job of theirs waits for."""
        silences = [(name, self._watch.silence_ns(name), after) for name, after in self._waited_for()]
        return [(name, silence_ns) for name, silence_ns, after in silences if silence_ns >= after]

    def _waited_for(self) -> list[tuple[str, int]]:
        """(lost node, silence in ns) after which one of its runs may be started elsewhere."""
        state = self._core.rollback()
        found = [(name, next_after_ns(state, state.nodes[name])) for name in sorted(state.closed)]
        return [(name, after) for name, after in found if after is not None]

    def _take_refused(self, now_ns: int) -> list[Input]:
        if now_ns >= self._refused_since_ns + REFUSED_INTERVAL_NS:
            self._refused_since_ns, self._refused_count = now_ns, 0
        inputs: list[Input] = []
        while self._refused:
            refused = self._refused.popleft()
            if self._refused_count < REFUSED_PER_INTERVAL_MAX:
                self._refused_count += 1
                inputs.append(Input("refused", 0, refused))
            else:
                self.dropped += 1
        return inputs


#: Longer than an agent holds an answer back, shorter than the other waits for it.
ANSWER_S = 4.0
GROUP = "placer"


class Relay:
    """Asks in a node's name."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def open(self) -> None:
        """Take part."""
        await self._bus.serve(subjects.GANGS, self._on_call, group=GROUP)

    async def _on_call(self, message: Message) -> bytes:
        speaker, node = subjects.parse_gang(message.subject)
        try:
            heard = encode_gang(GangReply(speaker=speaker, call=msgspec.Raw(message.payload)))
            return await self._bus.request(subjects.rpc_node(node, "gang"), heard, timeout_s=ANSWER_S)
        except Unavailable:
            return encode_gang(GangAnswer())  # it is asked again
