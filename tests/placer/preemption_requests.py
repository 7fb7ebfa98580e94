"""Preemption requests of the queue, what the placer does about them, and nodes full of jobs."""

from fairlead_schemas.wire import events as ev
from tests.kit.placer_world import PlacerWorld, request


def plea(job: str, *victims: tuple[str, int], attempt: int = 1) -> ev.PreemptionRequested:
    """The queue names who may yield: (job, GPU-seconds) in order."""
    named = tuple(ev.Victim(job=v, attempt=1, rule="lower_priority", gpu_s=gpu_s) for v, gpu_s in victims)
    return ev.PreemptionRequested(cause="clock", job=job, attempt=attempt, victims=named)


def asked(events: list[ev.Event]) -> list[str]:
    """Who is asked to yield, in order."""
    return [e.job for e in events if isinstance(e, ev.PreemptionStarted)]


def made(events: list[ev.Event]) -> tuple[str, ...]:
    """The nodes that are kept now."""
    [event] = [e for e in events if isinstance(e, ev.ReservationMade)]
    return event.nodes


def running(*loads: tuple[int, ...], gpus: int = 4) -> PlacerWorld:
    """Nodes a, b, c … of 4 GPUs; on each, jobs of so many GPUs: 1, 2, 3 … in the order of writing."""
    world = PlacerWorld()
    for name, jobs in zip("abcdef", loads, strict=False):
        world.join(name, gpus, labels={"name": name})
        for wanted in jobs:
            world.offer(request(wanted, selector=(f"name={name}",)))
    return world
