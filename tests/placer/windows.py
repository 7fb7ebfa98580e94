"""Maintenance windows, and time that passes."""

from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import ScheduleMaintenance
from tests.kit.placer_world import SECOND, PlacerWorld


def schedule(
    world: PlacerWorld,
    *nodes: str,
    name: str = "cooling",
    starts: int = 100,
    ends: int = 200,
    notice: int = 40,
    **more: object,
) -> list[ev.Event]:
    command = ScheduleMaintenance(
        id=name,
        user="ops",
        name=name,
        nodes=nodes,
        starts_ns=world.now + starts * SECOND,
        ends_ns=world.now + ends * SECOND,
        notice_ns=notice * SECOND,
        reason="pump",
        **more,  # type: ignore[arg-type]
    )
    return world.command(command)


def pass_time(world: PlacerWorld, seconds: int) -> list[ev.Event]:
    world.now += seconds * SECOND
    return world.step()
