"""Waits for the bus: repeated until an answer or a limit, and reported."""

import pytest
import structlog

from fairlead_bus import bus_faults
from fairlead_bus.bus_faults import retry_until_available, state_reaching
from fairlead_bus.memory import MemoryBus, MemoryHub
from fairlead_bus.port import LogDamaged, StreamState, Unavailable


class Flaky:
    """A call that fails so often before it answers."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures, self.calls = failures, 0
        self.error = error or Unavailable("stream LOG: no leader")

    async def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return "answer"


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_faults, "RETRY_S", 0.001)


async def test_a_call_is_repeated_until_it_answers() -> None:
    """Without a line in the log when that takes a moment only."""
    call = Flaky(3)
    with structlog.testing.capture_logs() as logs:
        assert await retry_until_available(call) == "answer"
    assert (call.calls, logs) == (4, [])


async def test_a_wait_is_reported_with_its_reason_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line for a wait of several calls, one for its end."""
    monkeypatch.setattr(bus_faults, "MOMENT_S", 0.0)
    with structlog.testing.capture_logs() as logs:
        await retry_until_available(Flaky(3))
    assert [(line["log_level"], line["event"], line.get("reason")) for line in logs] == [
        ("warning", "waiting for the bus", "stream LOG: no leader"),
        ("info", "the bus answers again", None),
    ]


async def test_a_limit_ends_the_wait() -> None:
    """With the error of the last call."""
    with pytest.raises(Unavailable, match="no leader"):
        await retry_until_available(Flaky(10**9), limit_s=0.05)


async def test_other_errors_are_raised_at_once() -> None:
    """Damage does not go away by waiting."""
    call = Flaky(1, LogDamaged(1, "gap"))
    with pytest.raises(LogDamaged):
        await retry_until_available(call)
    assert call.calls == 1


class Behind(MemoryBus):
    """A bus whose log has several copies, of which the one that answers first knows less than there is."""

    def __init__(self, *lasts: int, copies: int = 3) -> None:
        super().__init__(MemoryHub())
        self.lasts, self._count = list(lasts), copies

    async def state(self, stream: str) -> StreamState:
        last = self.lasts.pop(0) if len(self.lasts) > 1 else self.lasts[0]
        return StreamState(1, last, 0, -1, "", copies=self._count)


async def test_a_stream_that_seems_shorter_is_looked_at_again() -> None:
    """A server that was cut off knows less for a while; one copy alone is the truth."""
    assert (await state_reaching(Behind(5, 5, 9), "LOG", 8)).last == 9
    assert (await state_reaching(Behind(5, 9, copies=1), "LOG", 8)).last == 5


async def test_a_stream_that_stays_shorter_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """After as long as a deposed leader may answer."""
    monkeypatch.setattr(bus_faults, "STALE_S", 0.02)
    assert (await state_reaching(Behind(5), "LOG", 8)).last == 5
