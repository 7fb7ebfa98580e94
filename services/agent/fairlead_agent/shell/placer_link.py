"""Messages between an agent and the placer: beats, reports and confirmations, desired states. The link owns the
subscriptions and passes on what it receives. Start at `PlacerLink.open`.
"""

import asyncio
import contextlib
import time
from typing import Protocol

import msgspec
import structlog

from fairlead_agent.core.outbox import Outbox
from fairlead_agent.core.reconcile import Reconciler
from fairlead_agent.files.guard_files import boottime_ns
from fairlead_agent.settings import Settings
from fairlead_agent.shell.upkeep import set_or_after
from fairlead_bus.port import Bus, BusError, Message, Subscription
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.desired import Desired, decode_desired
from fairlead_schemas.wire.reports import Heartbeat, ReportAck, decode_ack, encode

REPORT_POLL_S = 0.25
#: The same while no report waits.
REST_S = 2.0

_log = structlog.get_logger()


class PlacerEvents(Protocol):
    """Receiver of the placer's messages."""

    def desired(self, desired: Desired) -> None:
        """Take the placer's list of runs; the same one comes again and again."""
        ...

    def confirmed(self, confirm: ReportAck, now: int) -> None:
        """Take note that the placer has committed reports up to a number, and answered a beat."""
        ...

    def reconnected(self) -> None:
        """Handle the bus's return. Messages sent meanwhile are lost."""
        ...


class PlacerLink:
    """Link of one node with the placer. `core` is only read, for the contents of beats."""

    def __init__(self, bus: Bus, settings: Settings, core: Reconciler, outbox: Outbox, events: PlacerEvents) -> None:
        self._bus, self._settings, self._core, self._outbox, self._events = bus, settings, core, outbox, events
        self._report = asyncio.Event()
        self._read = asyncio.Event()
        self._subscriptions: list[Subscription] = []

    async def open(self) -> None:
        """Subscribe to the placer's messages."""
        node = self._settings.node
        self._subscriptions = [
            await self._bus.subscribe(subjects.confirm(node), self._on_confirm),
            await self._bus.on_put(subjects.DESIRED, node, self._on_desired),
        ]
        self._bus.on_reconnect(self._on_reconnect)

    async def close(self) -> None:
        """End the subscriptions."""
        for subscription in self._subscriptions:
            with contextlib.suppress(BusError):
                await subscription.close()

    def report_soon(self) -> None:
        """Send soon, because the outbox has something."""
        self._report.set()

    # ------------------------------------------------------------------ for ever

    async def beats(self) -> None:
        """Send heartbeats, which state how far the node has come."""
        ledger = self._core.ledger
        while True:
            beat = Heartbeat(
                node=ledger.node,
                incarnation=ledger.incarnation,
                desired=self._core.taken,
                reported=ledger.reported,
                at=boottime_ns(),
                wall_ns=time.time_ns(),
            )
            await self._bus.publish(subjects.beat(ledger.node), encode(beat))
            await asyncio.sleep(self._settings.beat_s)

    async def reads(self) -> None:
        """Read the desired state periodically, since a put may have been missed."""
        while True:
            with contextlib.suppress(BusError):
                value = await self._bus.peek(subjects.DESIRED, self._settings.node)
                if value is not None:
                    self._on_desired(self._settings.node, value)
            await set_or_after(self._read, self._settings.desired_s)

    async def reports(self) -> None:
        """Send what is to be sent, and again what was not confirmed in time."""
        subject = subjects.report(self._settings.node)
        while True:
            await set_or_after(self._report, REST_S if self._outbox.idle else REPORT_POLL_S)
            for message in self._outbox.due(boottime_ns()):
                await self._bus.publish(subject, message)

    # ------------------------------------------------------------------ what is received

    def _on_desired(self, _key: str, value: bytes) -> None:
        try:
            desired = decode_desired(value)
        except msgspec.MsgspecError as error:
            _log.error("desired state cannot be read", reason=str(error))
            return
        self._events.desired(desired)

    def _on_confirm(self, message: Message) -> None:
        try:
            confirm = decode_ack(message.payload)
        except msgspec.MsgspecError as error:
            _log.error("a confirmation cannot be read", reason=str(error))
            return
        now = boottime_ns()
        was_idle = self._outbox.idle
        self._outbox.confirm(confirm, now)
        self._events.confirmed(confirm, now)
        if self._outbox.sent < self._core.ledger.reported or (was_idle and not self._outbox.idle):
            self._report.set()

    def _on_reconnect(self) -> None:
        self._outbox.reconnected()
        self._report.set()
        self._read.set()
        self._events.reconnected()
