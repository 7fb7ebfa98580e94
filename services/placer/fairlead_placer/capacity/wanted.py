"""View of an ask by a pool: its shape for packing, and the builds that it may use."""

from collections.abc import Callable

from fairlead_placer.capacity.asks import Ask, asks_of
from fairlead_placer.capacity.builds import MILLI, Build
from fairlead_placer.packing.shapes import Shape
from fairlead_placer.packing.typical import Arrivals, TypicalWork
from fairlead_schemas.units.taints import is_last_choice
from fairlead_schemas.wire.resources import Request

#: Additional points of a node with a taint that prefers work elsewhere: more than any packing costs.
UNWELCOME = 1 << 44


class Wanted:
    """An ask, and the builds of a pool as they were when it was made."""

    __slots__ = ("_builds", "ask", "shape")

    def __init__(self, builds: dict[int, Build], ask: Ask) -> None:
        self._builds, self.ask = builds, ask
        every = {build.model for build in builds.values() if build.gpus}
        models = {build.model for build in builds.values() if build.gpus and not ask.verdict(build).cause}
        shape = ask.shape(() if models == every else tuple(sorted(models)))
        if ask.request.replicas:  # as small as any node cuts them; `seat` knows the node's own
            cut = max((build.replicas for build in builds.values()), default=0)
            shape = shape._replace(gpu_milli=MILLI // cut if cut else MILLI)
        self.shape: Shape = shape

    def burden(self, build: int) -> int | None:
        """Return the extra points that a node of the build costs; None where the ask may not use it."""
        found = self._builds.get(build)  # a row without nodes may be of a build that no node has
        if found is None or self.ask.verdict(found).cause:
            return None
        return UNWELCOME if is_last_choice(found.taints, self.ask.request.tolerations) else 0


def typical(work: Arrivals[Request], wanted: Callable[[Ask], Wanted]) -> TypicalWork:
    """The work that a pool has seen, by request, as packing knows it: by shape."""
    weights: dict[Shape, int] = {}
    for request, weight in work.weights.items():
        for ask in asks_of(request):
            shape = wanted(ask).shape
            weights[shape] = weights.get(shape, 0) + weight * ask.request.nodes
    return TypicalWork(weights, work.arrived)
