"""A node as placement sees it when nothing runs on it; nodes that are alike share one `Build`."""

from itertools import count
from weakref import WeakValueDictionary

from fairlead_placer.topology.inside import Inside, Insides
from fairlead_schemas.inside import Description
from fairlead_schemas.queues import MODEL_LABEL
from fairlead_schemas.resources import Gpu, Inventory
from fairlead_schemas.topology import DOMAIN_LABELS

#: Labels that say where a node stands: nodes that are alike differ in them, so selectors look for them at each node.
DOMAIN_KEYS = frozenset(key for keys in DOMAIN_LABELS.values() for key in keys)
#: Label with the CPUs of each NUMA node that no job is pinned to.
SYSTEM_CPUS_LABEL = "fairlead/system-cpus"
SYSTEM_CPUS_MAX = 64
#: Labels of nodes that slice their GPUs by time, in GPU-feature-discovery's words.
REPLICAS_LABEL = "nvidia.com/gpu.replicas"
SHARING_LABEL = "nvidia.com/gpu.sharing-strategy"

MILLI = 1000
#: No two builds of a process have the same number, or an ask would take one cluster's for another's.
_numbers = count(1)


class Build:
    """What a node is made of. Compared by identity: equal ones are one object while somebody holds it."""

    __slots__ = (
        "__weakref__", "all_gpus", "cpu_milli", "gpus", "inside", "labels", "memory_mib", "model", "nics", "number",
        "replicas", "taints", "telling",
    )  # fmt: skip

    def __init__(self, number: int, inventory: Inventory, inside: Inside, taints: tuple[str, ...]) -> None:
        self.number = number
        #: In the order of the inventory.
        self.gpus: tuple[Gpu, ...] = inventory.gpus
        self.all_gpus = (1 << len(inventory.gpus)) - 1
        self.labels = inventory.labels
        self.taints = taints
        self.inside = inside
        #: True when it matters which GPUs are free, not only how many: they lie differently, or are of several kinds.
        self.telling = inside.telling or len({(gpu.memory_mib, gpu.compute_capability) for gpu in inventory.gpus}) > 1
        pinned = inside.all_cpus.bit_count() * MILLI
        self.cpu_milli = min(inventory.cpu_milli, pinned) if inside.numa else inventory.cpu_milli
        self.memory_mib = inventory.memory_mib
        #: Its GPUs' model, as the label says it or its first GPU does; "" without GPUs.
        self.model = (inventory.labels.get(MODEL_LABEL) or inventory.gpus[0].model) if inventory.gpus else ""
        self.nics = len(inventory.inside.nics)
        #: In how many replicas each of its GPUs is given out; 0: not sliced.
        self.replicas = replicas_of(inventory.labels)


def replicas_of(labels: dict[str, str]) -> int:
    """Replicas of each GPU as the node's labels say; 0 where GPUs are not sliced by time, or the label makes no sense."""
    if labels.get(SHARING_LABEL, "none") not in ("time-slicing", "mps"):
        return 0
    text = labels.get(REPLICAS_LABEL, "")
    count = int(text) if text.isascii() and text.isdecimal() and len(text) <= 3 else 0
    return count if count > 1 else 0


class Builds:
    """All builds that some node has; derived, never in a snapshot."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[object, Build] = WeakValueDictionary()
        self._insides: dict[int, Insides] = {}

    def of(self, inventory: Inventory, taints: tuple[str, ...] = ()) -> Build:
        """The build of a node of this inventory. Raises topology.TopologyError for an inside that makes no sense."""
        gpus = tuple((gpu.model, gpu.memory_mib, gpu.compute_capability, gpu.mig) for gpu in inventory.gpus)
        labels = tuple(sorted(item for item in inventory.labels.items() if item[0] not in DOMAIN_KEYS))
        key = (gpus, labels, inventory.cpu_milli, inventory.memory_mib, taints, inventory.inside)
        build = self._known.get(key)
        if build is None:
            build = Build(next(_numbers), inventory, self._inside(inventory), taints)
            self._known[key] = build
        return build

    def _inside(self, inventory: Inventory) -> Inside:
        text = inventory.labels.get(SYSTEM_CPUS_LABEL, "0")
        reserved = min(int(text), SYSTEM_CPUS_MAX) if text.isascii() and text.isdecimal() and len(text) <= 3 else 0
        insides = self._insides.get(reserved)
        if insides is None:
            insides = self._insides[reserved] = Insides(reserved)
        known = inventory.inside.gpus == len(inventory.gpus)
        return insides.of(inventory.inside if known else Description(numa=(-1,) * len(inventory.gpus)))
