"""The source of what samples say: fed by what ingest decodes, asked by the service shell before it decides. Wiring only."""

from collections.abc import Callable

from fairlead_bus.core import Core, Input
from fairlead_bus.port import Bus
from fairlead_schemas.wire.samples import SampleColumns, rows_of
from fairlead_telemetry.idle.core import IdleCore
from fairlead_telemetry.idle.limits import CHECK_NS
from fairlead_telemetry.idle.questions import SOURCE
from fairlead_telemetry.idle.watch import ActivityWatch


class ActivitySource:
    """Implements `fairlead_bus.input_source.Source`: one input every CHECK_NS, while there are policies."""

    is_urgent = False

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._watch = ActivityWatch()
        self._core: IdleCore | None = None
        self._next_ns = 0

    def feed(self, batch: SampleColumns) -> None:
        """Feed in a batch that arrived just now and was not seen before. Rows are made of it only where a run is watched."""
        if self._watch.wants(batch.node):
            self._watch.take(rows_of(batch), self._clock())

    def keep_time(self, clock: Callable[[], int]) -> None:
        """Judge from here on by this clock: log time, which does not step, is also what is decided by."""
        self._clock = clock

    async def open(self, bus: Bus, core: Core, cursor: int, wake: Callable[[], None]) -> None:
        """Ask from here on what this core wants to know."""
        assert isinstance(core, IdleCore)
        self._core = core

    def take(self, now_ns: int) -> list[Input]:
        """Return the answers to the core's questions when a check is due, else an empty list."""
        if self._core is None or now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + CHECK_NS
        self._watch.follow(self._core.questions())
        answers = self._watch.answers(now_ns)
        return [Input(SOURCE, 0, answers)] if answers else []

    def wake_at(self) -> int | None:
        """Return when the next check is due. Without policies no question is open, and a command that sets policies wakes the shell."""
        return self._next_ns if self._core is not None and self._core.state.policies else None

    async def close(self) -> None:
        """Do nothing: the source holds no open resources."""
