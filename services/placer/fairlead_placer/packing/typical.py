"""The typical work: which shapes arrive, and how often, learned from the stream.

Counts are integers, bounded and halved from time to time, so that work which no longer comes is forgotten.
"""

from collections.abc import Mapping

from fairlead_placer.packing.shapes import Shape

#: What one arrival adds; halving leaves a trace of it for some time.
ARRIVAL = 256
#: After so many arrivals, all counts are halved: half of what is known stems from the last so many.
HALVED_EVERY = 8192
#: Work is another when so many parts of it are.
MOVED_PARTS = 8
#: Shapes that are remembered; a new one takes the place of the rarest.
SHAPES_MAX = 512


class Arrivals[Kind]:
    """Weights of kinds of work, for one pool."""

    def __init__(self, weights: Mapping[Kind, int] | None = None, arrived: int = 0) -> None:
        #: {kind: its weight}, in the order in which they came first.
        self.weights: dict[Kind, int] = dict(weights or {})
        #: Arrivals so far.
        self.arrived = arrived

    def observe(self, shape: Kind) -> None:
        """Count one arrived request, whether or not it will find a place."""
        self.arrived += 1
        if shape not in self.weights and len(self.weights) >= SHAPES_MAX:
            del self.weights[min(self.weights, key=self.weights.__getitem__)]
        self.weights[shape] = self.weights.get(shape, 0) + ARRIVAL
        if self.arrived % HALVED_EVERY == 0:
            self.weights = {each: weight // 2 for each, weight in self.weights.items() if weight > 1}

    def has_moved(self, since: Mapping[Kind, int]) -> bool:
        """True when kinds are no longer as frequent as by those weights: an eighth of all is elsewhere."""
        total, known = sum(self.weights.values()), max(1, sum(since.values()))
        kinds = self.weights.keys() | since.keys()
        moved = sum(abs(self.weights.get(kind, 0) * known - since.get(kind, 0) * total) for kind in kinds)
        return moved * MOVED_PARTS > total * known


class TypicalWork(Arrivals[Shape]):
    """The same by shape: what policies weigh."""

    def with_gpus(self) -> list[tuple[Shape, int]]:
        """Return (shape, weight) of the work that asks for GPUs."""
        return [(shape, weight) for shape, weight in self.weights.items() if shape.total_milli]
