"""Policies by name."""

from collections.abc import Callable

from fairlead_placer.packing.fgd import Fgd
from fairlead_placer.packing.fragmentation import Fragmentation
from fairlead_placer.packing.policy import Policy
from fairlead_placer.packing.simple import MOST_ALLOCATED, SPREAD, Weights

DEFAULT = "fragmentation"

#: {name: a new one}
POLICIES: dict[str, Callable[[], Policy]] = {
    "fragmentation": Fragmentation,
    "fgd": Fgd,
    "most_allocated": lambda: MOST_ALLOCATED,
    "spread": lambda: SPREAD,
    "weights": Weights,
}
