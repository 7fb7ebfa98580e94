"""Small worlds with possible preemptions."""

from typing import Any

from fairlead_schemas.queuefile.settings import Preemption
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import QueueWorld

SOON = Preemption(protect_ns=0)


def world_of(*, gpus: int = 8, pool: dict[str, Any] | None = None, **queues: dict[str, Any]) -> QueueWorld:
    """One node, and queues whose runs are not protected unless they say so."""
    world = QueueWorld()
    world.node("n1", gpus=gpus)
    if pool:
        world.pool(**pool)
    world.tree(**{name: {"preemption": SOON} | settings for name, settings in queues.items()})
    return world


def running(world: QueueWorld, gpus: int, queue: str, **more: Any) -> str:
    """A job that has its place."""
    job = world.submit(gpus, queue=queue, **more)
    world.place_on("n1", gpus, job)
    return job


def refused(world: QueueWorld, gpus: int, queue: str, **more: Any) -> str:
    """A job that has its turn and no place."""
    job = world.submit(gpus, queue=queue, **more)
    world.refuse(job)
    return job


def pleas(world: QueueWorld) -> list[tuple[str, list[tuple[str, str]]]]:
    """(who asked, [(who may yield, by which rule)]) of every request in the log."""
    return [(e.job, [(v.job, v.rule) for v in e.victims]) for e in world.said(ev.PreemptionRequested)]
