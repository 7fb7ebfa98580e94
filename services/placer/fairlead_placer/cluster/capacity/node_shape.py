"""A node as placement sees it when nothing runs on it; nodes that are alike share one `Build`."""

from functools import lru_cache
from itertools import count
from weakref import WeakValueDictionary

from fairlead_placer.mig.models import Model, find_model
from fairlead_placer.packing.rows import Grain
from fairlead_placer.topology.device_selection import NodeDevices, NodeDevicesTable
from fairlead_schemas.queuefile.settings import MODEL_LABEL
from fairlead_schemas.units.hardware import DOMAIN_LABELS, MIG_PREFIX
from fairlead_schemas.units.selectors import NODE_LABEL
from fairlead_schemas.wire.resources import Gpu, Inventory, NodeTopology

#: Labels with the name and location of a node: alike nodes differ in them, so selectors check them at each node.
DOMAIN_KEYS = frozenset([NODE_LABEL, *(key for keys in DOMAIN_LABELS.values() for key in keys)])
#: Label with the CPUs of each NUMA node that no job is pinned to.
SYSTEM_CPUS_LABEL = "fairlead/system-cpus"
SYSTEM_CPUS_MAX = 64
#: Labels of nodes that slice their GPUs by time, in GPU-feature-discovery's words.
REPLICAS_LABEL = "nvidia.com/gpu.replicas"
SHARING_LABEL = "nvidia.com/gpu.sharing-strategy"

#: Label with how a node offers its MIG instances, in the words of NVIDIA's device plugin: under this strategy all are of one
#: profile, and asked for as if they were GPUs.
STRATEGY_LABEL, SINGLE = "nvidia.com/mig.strategy", "single"
#: Actions that an admin allows the placer on GPUs that can be repartitioned: "fixed" none, "recut" (the same
#: as no label) repartition GPUs in MIG mode, "auto" also turn MIG mode on and off.
MIG_LABEL = "fairlead/mig"

MILLI = 1000
#: Kinds of GPUs whose model is remembered.
MODELS_MAX = 1024
#: Free CPU and memory of a node are distinguished by this many leading bits: by all the parts that these bits
#: can count, or down to half as many. Where no GPU is left, CPU and memory matter less.
BITS, BITS_FULL = 6, 3
#: No two builds of a process have the same number, or an ask would take one cluster's for another's.
_numbers = count(1)


class NodeShape:
    """Hardware and settings of a node that do not change with work. Compared by identity: equal builds are one object
    while it is referenced.
    """

    __slots__ = (
        "__weakref__",
        "all_gpus",
        "cpu_milli",
        "cut",
        "gpus",
        "grain",
        "inside",
        "labels",
        "memory_mib",
        "mig_models",
        "model",
        "nics",
        "number",
        "repartitions",
        "replicas",
        "single",
        "switches",
        "taints",
        "telling",
    )

    def __init__(self, number: int, inventory: Inventory, inside: NodeDevices, taints: tuple[str, ...]) -> None:
        self.number = number
        #: In the order of the inventory.
        self.gpus: tuple[Gpu, ...] = inventory.gpus
        self.all_gpus = (1 << len(inventory.gpus)) - 1
        self.labels = _lasting(inventory)
        self.taints = taints
        self.inside = inside
        #: True when it matters which GPUs are free, not only how many: they lie differently, or are of several kinds.
        self.telling = inside.telling or len({(gpu.memory_mib, gpu.compute_capability) for gpu in inventory.gpus}) > 1
        pinned = inside.all_cpus.bit_count() * MILLI
        self.cpu_milli = min(inventory.cpu_milli, pinned) if inside.numa else inventory.cpu_milli
        self.memory_mib = inventory.memory_mib
        self.grain = Grain(*_low(self, BITS), *_low(self, BITS_FULL if inventory.gpus else BITS))
        #: Its GPUs' model, as the label says it or its first GPU does; "" without GPUs.
        self.model = (inventory.labels.get(MODEL_LABEL) or inventory.gpus[0].model) if inventory.gpus else ""
        self.nics = len(inventory.inside.nics)
        #: In how many replicas each of its GPUs is given out; 0: not sliced.
        self.replicas = replicas_of(inventory.labels)
        #: Mask of the GPUs in MIG mode; the model of each GPU that can be cut, None of others.
        self.cut = sum(1 << place for place, gpu in enumerate(inventory.gpus) if gpu.mig)
        self.mig_models = tuple(mig_model(gpu) for gpu in inventory.gpus)
        #: All of its instances are alike, and asked for as if they were GPUs. Such a node is cut by its admin alone.
        self.single = bool(self.cut) and inventory.labels.get(STRATEGY_LABEL) == SINGLE
        allowed = inventory.labels.get(MIG_LABEL, "recut")
        #: True if GPUs in MIG mode may be repartitioned, and True if MIG mode may be turned on and off.
        self.repartitions = allowed in ("recut", "auto") and not self.single and not self.replicas
        self.switches = allowed == "auto" and self.repartitions


def _low(build: NodeShape, bits: int) -> tuple[int, int]:
    """Return the masks of CPU and memory below their first `bits` bits."""
    cpu, memory = (max(0, amount.bit_length() - bits) for amount in (build.cpu_milli, build.memory_mib))
    return (1 << cpu) - 1, (1 << memory) - 1


def mig_model(gpu: Gpu) -> Model | None:
    """Return the MIG model that describes how the GPU can be cut; None where it cannot be, or where that is unknown."""
    return _mig_model(gpu.model, gpu.memory_mib)


@lru_cache(MODELS_MAX)
def _mig_model(product: str, memory_mib: int) -> Model | None:
    found = find_model(product, memory_mib)
    return found if isinstance(found, Model) else None


def _lasting(inventory: Inventory) -> dict[str, str]:
    """Return the labels without the counts of MIG instances, which change whenever a GPU is repartitioned."""
    return {key: value for key, value in inventory.labels.items() if not key.startswith(MIG_PREFIX)}


def replicas_of(labels: dict[str, str]) -> int:
    """Replicas of each GPU as the node's labels say; 0 where GPUs are not sliced by time, or the label makes no sense."""
    if labels.get(SHARING_LABEL, "none") not in ("time-slicing", "mps"):
        return 0
    text = labels.get(REPLICAS_LABEL, "")
    count = int(text) if text.isascii() and text.isdecimal() and len(text) <= 3 else 0
    return count if count > 1 else 0


class NodeShapes:
    """All builds that some node has; derived, never in a snapshot."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[object, NodeShape] = WeakValueDictionary()
        self._insides: dict[int, NodeDevicesTable] = {}

    def of(self, inventory: Inventory, taints: tuple[str, ...] = ()) -> NodeShape:
        """The build of a node of this inventory. Raises topology.TopologyError for an inside that makes no sense."""
        gpus = tuple((gpu.model, gpu.memory_mib, gpu.compute_capability, gpu.mig) for gpu in inventory.gpus)
        labels = tuple(sorted(item for item in _lasting(inventory).items() if item[0] not in DOMAIN_KEYS))
        key = (gpus, labels, inventory.cpu_milli, inventory.memory_mib, taints, inventory.inside)
        build = self._known.get(key)
        if build is None:
            build = NodeShape(next(_numbers), inventory, self._inside(inventory), taints)
            self._known[key] = build
        return build

    def _inside(self, inventory: Inventory) -> NodeDevices:
        text = inventory.labels.get(SYSTEM_CPUS_LABEL, "0")
        reserved = min(int(text), SYSTEM_CPUS_MAX) if text.isascii() and text.isdecimal() and len(text) <= 3 else 0
        insides = self._insides.get(reserved)
        if insides is None:
            insides = self._insides[reserved] = NodeDevicesTable(reserved)
        known = inventory.inside.gpus == len(inventory.gpus)
        return insides.of(inventory.inside if known else NodeTopology(numa=(-1,) * len(inventory.gpus)))
