"""Worlds with budgets, and what is spent of them."""

from datetime import UTC, datetime
from typing import Any

from fairlead_schemas.queuefile.settings import Budget
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld

HOUR = 3600


def at(*moment: int) -> int:
    """Unix ns of a moment in UTC."""
    return int(datetime(*moment, tzinfo=UTC).timestamp()) * SECOND  # type: ignore[misc] -- year, month, day, …


def budget(gpu_hours: float, **more: Any) -> Budget:
    return Budget(gpu_milli_s=int(gpu_hours * HOUR * 1000), **more)


def world_at(*moment: int, **queues: Budget | None) -> QueueWorld:
    """A node of 8 GPUs and queues with these budgets, at a moment."""
    world = QueueWorld()
    world.now = at(*moment)
    world.node("n1", gpus=8, model="a100")
    world.node("n2", gpus=8, model="old")
    world.tree(**{path: {"budget": each} for path, each in queues.items()})
    return world


def use(world: QueueWorld, gpus: int, hours: float, queue: str, node: str = "n1") -> None:
    """A job that runs for so long."""
    job = world.submit(gpus, queue=queue)
    world.place_on(node, gpus, job)
    world.now += int(hours * HOUR) * SECOND
    world.end(job)
    world.settle()


def marks(world: QueueWorld) -> list[tuple[str, int, int]]:
    """(queue, percent, GPU-hours spent) of every mark in the log."""
    return [(e.queue, e.percent, e.spent // (HOUR * 1000)) for e in world.said(ev.BudgetReached)]
