"""Value of room on a GPU for the observed work: two figures, both exact, both integers.

The **runway** of a room is the average number of further requests, each drawn by demand, that fit in a row before one
does not:

    runway = sum over k >= 1 of P(the next k requests all fit)
           = sum over sets S that fit of n! / (c1! c2! ...) * w1^c1 * w2^c2 ...

S holds c_i of profile i and n in all, and w_i is the share of profile i in the demand. The starts count as free to
choose when fit is judged, as if all requests were known at once. The runway decides the start of an instance. On an
A100 with all profiles alike, and on most mixes of fewer, no rule that sees one request at a time refuses fewer of the
streams that a better start would have granted (tests/placer/mig/test_streams.py).

**Stranded** slices are the free memory slices that a profile cannot use, averaged over the demand. The idea is FGD's
(Weng et al., "Beware of Fragmentation", USENIX ATC 2023): the figure is its F with MIG profiles for tasks. It adds up
over GPUs, and decides the GPU of a request.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import factorial, gcd

from fairlead_placer.mig.layouts import Room
from fairlead_placer.mig.models import Model
from fairlead_placer.mig.remains import counts_in, remains
from fairlead_placer.mig.shapes import Shape

#: Demand is rounded to so many parts, so that a request more changes no figure, and tables made for it stay.
PARTS = 60
#: Demands whose figures are remembered at once.
DEMANDS_MAX = 64


class Demand:
    """The shares of a shape's profiles in the demand, and what rooms are worth by them."""

    def __init__(self, shape: Shape, parts: tuple[int, ...]) -> None:
        assert len(parts) == len(shape.cuts) and sum(parts) > 0
        self.shape = shape
        #: In the order of the shape's cuts; only their proportions count.
        self.parts = parts
        self.total = sum(parts)
        #: The runway is counted in this part of a request.
        self.runway_unit = self.total**shape.instances_max
        self._remains = remains(shape)
        self._terms: dict[int, int] = {}
        self._runways: dict[Room, int] = {}

    def runway(self, room: Room) -> int:
        """More requests in a row, in units of one `runway_unit`th. KeyError for a room that no legal layout leaves."""
        known = self._runways.get(room)
        if known is None:
            known = self._runways[room] = sum(map(self._term, self._remains.sets(room)))
        return known

    def runway_milli(self, room: Room) -> int:
        """The same in thousandths of a request, rounded down, for people. KeyError as `runway`."""
        return self.runway(room) * 1000 // self.runway_unit

    def stranded_milli(self, room: Room) -> int:
        """Free memory slices that the average profile cannot use, in thousandths, rounded down. KeyError as `runway`."""
        free = self.shape.memory - room.mask.bit_count()
        most = self._remains.most(room)
        usable = sum(
            part * count * cut.size for part, count, cut in zip(self.parts, most, self.shape.cuts, strict=True) if part
        )
        return (free * self.total - usable) * 1000 // self.total

    def _term(self, packed: int) -> int:
        """Return the contribution of one set to the runway; the empty set contributes 0."""
        known = self._terms.get(packed)
        if known is None:
            counts = counts_in(packed, len(self.parts))
            size = sum(counts)
            known = factorial(size) * self.total ** (self.shape.instances_max - size) if size else 0
            for count, part in zip(counts, self.parts, strict=True):
                known = known // factorial(count) * part**count
            self._terms[packed] = known
        return known


def demand_of(model: Model, weights: Mapping[str, int] | None = None) -> Demand:
    """The demand for a model's profiles. `weights`: {profile: how often it was asked for}, any positive scale; other
    models' profiles are passed over.

    Where none of the model's was seen: each profile alike but those with media engines, which are asked for by few.
    ValueError for a negative weight.
    """
    seen = [0 if weights is None else weights.get(profile, 0) for profile in model.profiles]
    if min(seen) < 0:
        raise ValueError(f"weights must not be negative: {weights}")
    if not any(seen):
        return _demand(model.shape, tuple(int(not cut.media) for cut in model.shape.cuts))
    return _demand(model.shape, rounded(seen, PARTS))


def rounded(weights: list[int], parts: int) -> tuple[int, ...]:
    """The weights in at most `parts` parts with the proportions kept as well as they can be (largest remainders, then the
    first); what is there keeps a part of its own, which may exceed `parts` by as much. Not all weights may be 0."""
    divisor = gcd(*weights)
    total = sum(weights)
    if total // divisor <= parts:
        return tuple(weight // divisor for weight in weights)
    whole = [weight * parts // total for weight in weights]
    order = sorted(range(len(weights)), key=lambda index: (-(weights[index] * parts % total), index))
    for index in order[: parts - sum(whole)]:
        whole[index] += 1
    return tuple(max(count, int(weight > 0)) for count, weight in zip(whole, weights, strict=True))


@lru_cache(maxsize=DEMANDS_MAX)
def _demand(shape: Shape, parts: tuple[int, ...]) -> Demand:
    return Demand(shape, parts)
