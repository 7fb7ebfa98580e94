"""Price of a run's part of one node."""

from typing import NamedTuple

from fairlead_schemas.wire.events import Part


class Price(NamedTuple):
    """A run (its place among the candidates), its part of the node, and what it counts for there."""

    at: int
    part: Part
    price: int
