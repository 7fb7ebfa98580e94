"""Requests for reservations, reservations, and nodes that are busy for a known time."""

from fairlead_schemas.wire import events as ev
from tests.kit.placer_world import SECOND, PlacerWorld, request

MINUTE = 60
HOUR = 3600


def claim(job: str, attempt: int = 1, queue: str = "") -> ev.ReservationRequested:
    """The queue asks that nodes be kept."""
    return ev.ReservationRequested(cause="clock", job=job, attempt=attempt, waited_ns=1, queue=queue)


def kept(world: PlacerWorld) -> dict[str, tuple[str, ...]]:
    """{job: nodes that are kept for it}."""
    return {job: reservation.nodes for job, reservation in world.core.state.reservations.items()}


def made(events: list[ev.Event]) -> ev.ReservationMade:
    """The one reservation among the events."""
    [event] = [event for event in events if isinstance(event, ev.ReservationMade)]
    return event


def from_now(world: PlacerWorld, event: ev.ReservationMade) -> int:
    """Seconds to its start."""
    return (event.start_ns - world.now) // SECOND


def busy(*limits_s: int, gpus: int = 4, racks: tuple[str, ...] = ()) -> PlacerWorld:
    """Nodes a, b, c … each full with one job of that limit, which has just started."""
    world = PlacerWorld()
    for at, limit_s in enumerate(limits_s):
        name = "abcdef"[at]
        labels = {"name": name} | ({"fairlead/rack": racks[at]} if racks else {})
        world.join(name, gpus, labels=labels)
        world.offer(request(gpus, selector=(f"name={name}",)), limit_s=limit_s)
        world.start(name, str(at + 1))
    return world
