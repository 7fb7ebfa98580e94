"""The gateway's views of a placer's log, and nodes of any make for it."""

from typing import Any

from fairlead_gateway.views.fold import Views
from fairlead_schemas.wire.reports import InventorySeen
from tests.kit.placer_world import PlacerWorld
from tests.placer.cluster.capacity.ground import machine


def join(world: PlacerWorld, name: str, gpus: int = 8, **more: Any) -> None:
    """A node of any make."""
    world.incarnations[name], world.numbers[name] = name, 0
    world.report(name, InventorySeen(n=0, boot_id="b", inventory=machine(name, gpus, **more)))


def cluster(count: int, gpus: int = 8, **more: Any) -> PlacerWorld:
    """Nodes n1, n2 …, all alike."""
    world = PlacerWorld()
    for at in range(1, count + 1):
        join(world, f"n{at}", gpus, **more)
    return world


def views_of(world: PlacerWorld) -> Views:
    """What the gateway makes of the log."""
    views = Views()
    for sequence, commit in enumerate(world.log, 1):
        views.fold(sequence, commit)
    return views
