"""What each writer of the log records of its own clock. Written by the service shell, which has the clock; cores decide nothing by it."""

from fairlead_schemas.events.base import EventBase


class QueueClockStepped(EventBase, tag=True, frozen=True, kw_only=True):
    """The wall clock of the queue's machine was set. Log time goes on as before and creeps to it."""

    step_ns: int
    lag_ns: int = 0


class PlacerClockStepped(EventBase, tag=True, frozen=True, kw_only=True):
    """The wall clock of the placer's machine was set. Log time goes on as before and creeps to it."""

    step_ns: int
    lag_ns: int = 0


class TelemetryClockStepped(EventBase, tag=True, frozen=True, kw_only=True):
    """The wall clock of the telemetry service's machine was set. Log time goes on as before and creeps to it."""

    step_ns: int
    lag_ns: int = 0


type ClockStepped = QueueClockStepped | PlacerClockStepped | TelemetryClockStepped

#: Which of them a writer emits.
CLOCK_STEPPED: dict[str, type[QueueClockStepped] | type[PlacerClockStepped] | type[TelemetryClockStepped]] = {
    "queue": QueueClockStepped,
    "placer": PlacerClockStepped,
    "telemetry": TelemetryClockStepped,
}
