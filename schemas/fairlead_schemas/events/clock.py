"""Clock events of each writer of the log. Written by the service shell, which has the clock; cores base no
decision on them.
"""

from fairlead_schemas.events.base import EventBase


class QueueClockStepped(EventBase, tag=True, frozen=True, kw_only=True):
    """The wall clock of the queue's machine was set. Log time continues as before and slowly approaches the new clock."""

    step_ns: int
    lag_ns: int = 0


class PlacerClockStepped(EventBase, tag=True, frozen=True, kw_only=True):
    """The wall clock of the placer's machine was set. Log time continues as before and slowly approaches the new
    clock.
    """

    step_ns: int
    lag_ns: int = 0


class TelemetryClockStepped(EventBase, tag=True, frozen=True, kw_only=True):
    """The wall clock of the telemetry service's machine was set. Log time continues as before and slowly approaches
    the new clock.
    """

    step_ns: int
    lag_ns: int = 0


type ClockStepped = QueueClockStepped | PlacerClockStepped | TelemetryClockStepped

#: Which of them a writer emits.
CLOCK_STEPPED: dict[str, type[QueueClockStepped] | type[PlacerClockStepped] | type[TelemetryClockStepped]] = {
    "queue": QueueClockStepped,
    "placer": PlacerClockStepped,
    "telemetry": TelemetryClockStepped,
}
