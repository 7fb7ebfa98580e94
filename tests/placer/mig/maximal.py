"""Every full layout that the placer's tables and rooms allow: to hold them against what was published."""

from fairlead_placer.mig.layouts import Instance, LayoutRoom
from fairlead_placer.mig.models import Model


def maximal_layouts(model: Model, left_out: frozenset[str] = frozenset()) -> list[tuple[Instance, ...]]:
    """Every layout to which no instance can be added, of the profiles not left out. Instances by start; layouts sorted."""
    indices = [index for index, profile in enumerate(model.profiles) if profile not in left_out]
    found: list[tuple[Instance, ...]] = []

    def grow(room: LayoutRoom, held: tuple[Instance, ...], below: int) -> None:
        """Instances are added from the highest start down, so that each layout comes once."""
        more = [(start, index) for index in indices for start in room.free_starts(model.shape, index)]
        if not more:
            found.append(held)
        for start, index in more:
            if start < below:
                grow(room.add(model.shape, index, start), (Instance(model.profiles[index], start), *held), start)

    grow(LayoutRoom(), (), model.shape.memory)
    return sorted(found)
