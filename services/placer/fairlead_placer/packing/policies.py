"""Policies by name. The names are defined in the contract (`fairlead_schemas.queuefile.settings.Packing`): pools are configured with
them.
"""

from collections.abc import Callable

from fairlead_placer.packing.fgd import Fgd
from fairlead_placer.packing.fragmentation import Fragmentation
from fairlead_placer.packing.policy import Policy
from fairlead_placer.packing.simple import MOST_ALLOCATED, SPREAD, Weights
from fairlead_schemas.queuefile.settings import Packing, PoolSettings

DEFAULT: Packing = PoolSettings().packing

#: {name: a new one}
POLICIES: dict[str, Callable[[], Policy]] = {
    "fragmentation": Fragmentation,
    "fgd": Fgd,
    "most_allocated": lambda: MOST_ALLOCATED,
    "spread": lambda: SPREAD,
    "weights": Weights,
}
