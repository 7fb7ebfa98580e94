"""Telemetry service in virtual time without a bus: the production core and watch, fed with a log and synthetic
samples.

The caller writes what the queue and the placer would write. Every commit is encoded and decoded. A decision
must leave the state unchanged, and after each own commit a snapshot must restore to itself.
"""

from collections.abc import Callable, Sequence

from fairlead_bus.core import Input
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import TelemetryCommand
from fairlead_schemas.wire.commit import (
    COMMIT_BYTES_MAX,
    COMMIT_EVENTS_MAX,
    GENESIS,
    VERSION,
    Commit,
    decode_commit,
    encode_commit,
)
from fairlead_schemas.wire.samples import SampleBatch
from fairlead_telemetry.idle.core import IdleCore
from fairlead_telemetry.idle.limits import CHECK_NS
from fairlead_telemetry.idle.questions import SOURCE
from fairlead_telemetry.idle.watch import ActivityWatch

#: A core that makes more commits than this about one state is wrong.
COMMITS_MAX = 200

type EventListener = Callable[[int, ev.TelemetryEvent], None]


class VirtualTelemetry:
    """Telemetry service. `on_event` is called with every event that it commits and the time. With `is_careful`, the state
    is checked around every decision.
    """

    def __init__(self, now_ns: int, on_event: EventListener | None = None, *, is_careful: bool = True) -> None:
        self.now_ns, self._is_careful = now_ns, is_careful
        self.core, self.watch = IdleCore(), ActivityWatch()
        self.published: list[tuple[int, ev.TelemetryEvent]] = []
        self._on_event = on_event
        self._sequence = self._commands = 0
        self._check_ns = now_ns

    def fold(self, writer: str, *events: ev.Event) -> None:
        """A commit of any writer comes by."""
        self._sequence += 1
        payload = encode_commit(
            Commit(
                v=VERSION,
                writer=writer,
                n=self._sequence,
                basis=self._sequence - 1,
                at_ns=self.now_ns,
                cursors={},
                prev=GENESIS,
                events=list(events),
            )
        )
        assert len(payload) <= COMMIT_BYTES_MAX, len(payload)
        assert len(events) <= COMMIT_EVENTS_MAX, len(events)
        self.core.evolve(self._sequence, decode_commit(payload))

    def ask(self, *commands: TelemetryCommand) -> list[ev.TelemetryEvent]:
        """Commands in one message; the events that answer them."""
        self._commands += 1
        before = len(self.published)
        self._decide([Input("CMD", self._commands, list(commands))])
        return [event for _, event in self.published[before:] if event.cause.startswith("cmd:")]

    def feed(self, batch: SampleBatch) -> None:
        """A node's samples arrive."""
        self.watch.take(batch, self.now_ns)

    def advance(self, to_ns: int) -> None:
        """Nothing but time, up to then."""
        while True:
            wake_ns = self.core.wake_at()
            next_ns = min(self._check_ns, self._check_ns if wake_ns is None else max(self.now_ns, wake_ns))
            if next_ns > to_ns:
                break
            self.now_ns = max(self.now_ns, next_ns)
            if self.now_ns >= self._check_ns:
                self._check_ns = self.now_ns + CHECK_NS
                self.watch.follow(self.core.questions())
                self._decide([Input(SOURCE, 0, self.watch.answers(self.now_ns))])
            self._decide([])
        self.now_ns = max(self.now_ns, to_ns)

    def restart(self) -> None:
        """Restart the process: the state is restored from the log, and no samples have been seen."""
        self.core, self.watch = IdleCore.restore(self.core.snapshot()), ActivityWatch()

    def _decide(self, inputs: Sequence[Input]) -> None:
        for _ in range(COMMITS_MAX):
            before = self.core.snapshot() if self._is_careful else b""
            decision = self.core.decide(inputs, self.now_ns)
            assert not self._is_careful or self.core.snapshot() == before, "deciding changed the state"
            inputs = []
            if not decision.events and not decision.cursors:
                return
            self.fold("telemetry", *decision.events)
            assert not self._is_careful or self._restores(), "a snapshot does not restore to itself"
            for event in decision.events:
                assert isinstance(event, ev.TelemetryEvent)
                self.published.append((self.now_ns, event))
                if self._on_event is not None:
                    self._on_event(self.now_ns, event)
        raise AssertionError(f"{COMMITS_MAX} commits at one moment, the last {self.published[-3:]}")

    def _restores(self) -> bool:
        state = self.core.snapshot()
        return IdleCore.restore(state).snapshot() == state
