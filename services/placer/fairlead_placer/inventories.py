"""Validation of the inventory that an agent reports for its node: bounds and consistency. Pure."""

from functools import lru_cache

import msgspec

from fairlead_placer.topology.description import TopologyError, checked
from fairlead_schemas.units.selectors import KEY_CHARS_MAX, VALUE_CHARS_MAX
from fairlead_schemas.units.taints import TAINTS_MAX, NodeLabelError, parse_taint
from fairlead_schemas.wire.resources import TOPOLOGY_BYTES_MAX, UNKNOWN_TOPOLOGY, Gpu, Inventory, NodeTopology

#: Amounts are added up, names repeated in every placement and order.
AMOUNT_MAX = 1 << 40
UUID_CHARS_MAX = 80
ADDRESS_CHARS_MAX = 255
LABELS_MAX = 256
INSTANCES_MAX = 16  # of a GPU
PROFILE_CHARS_MAX = 32
#: Different insides whose check is remembered.
INSIDES_KEPT_MAX = 64
#: Of the whole as JSON: one more inventory fits into a commit that is just not full (draft.py), and into a message.
INVENTORY_BYTES_MAX = 48 * 1024


def fault_of_inventory(inventory: Inventory) -> str:
    """Return the fault of the inventory: the expectation and, for short values, the finding; "" if there is none."""
    if not 0 <= inventory.cpu_milli <= AMOUNT_MAX or not 0 <= inventory.memory_mib <= AMOUNT_MAX:
        return f"expected amounts of 0 to {AMOUNT_MAX}"
    if len(inventory.address) > ADDRESS_CHARS_MAX:
        return f"expected an address of at most {ADDRESS_CHARS_MAX} characters, found {len(inventory.address)}"
    wrong = _fault_of_gpus(inventory.gpus) or _fault_of_words(inventory) or _fault_of_inside(inventory)
    if not wrong and (size := len(msgspec.json.encode(inventory))) > INVENTORY_BYTES_MAX:
        return f"expected an inventory of at most {INVENTORY_BYTES_MAX} bytes, found {size}"
    return wrong


def _fault_of_gpus(gpus: tuple[Gpu, ...]) -> str:
    instances = [instance for gpu in gpus for instance in gpu.instances]
    uuids = [gpu.uuid for gpu in gpus] + [instance.uuid for instance in instances]
    if len(set(uuids)) < len(uuids):
        return "expected each GPU and each instance once"
    if any(len(uuid) > UUID_CHARS_MAX for uuid in uuids):
        return f"expected UUIDs of at most {UUID_CHARS_MAX} characters"
    if any(len(gpu.instances) > INSTANCES_MAX for gpu in gpus):
        return f"expected at most {INSTANCES_MAX} instances of a GPU"
    if any(not 0 < len(each.profile) <= PROFILE_CHARS_MAX or each.start < -1 for each in instances):
        return f"expected of an instance a profile of 1 to {PROFILE_CHARS_MAX} characters and a start of 0 or more"
    return ""


def _fault_of_words(inventory: Inventory) -> str:
    labels, taints = inventory.labels, inventory.taints
    if len(labels) > LABELS_MAX:
        return f"expected at most {LABELS_MAX} labels, found {len(labels)}"
    if any(len(key) > KEY_CHARS_MAX or len(value) > VALUE_CHARS_MAX for key, value in labels.items()):
        return f"expected labels with keys of at most {KEY_CHARS_MAX} and values of {VALUE_CHARS_MAX} characters"
    if len(taints) > TAINTS_MAX or len(set(taints)) < len(taints):
        return f"expected at most {TAINTS_MAX} taints, each once, found {len(taints)}"
    try:
        for taint in taints:
            parse_taint(taint)
    except NodeLabelError as error:
        return str(error)
    return ""


def _fault_of_inside(inventory: Inventory) -> str:
    inside, gpus = inventory.inside, len(inventory.gpus)
    if inside == UNKNOWN_TOPOLOGY:
        return ""
    if inside.gpus != gpus:
        return f"inside: numa: expected a NUMA node, or -1, of each of the {gpus} GPUs, found {inside.gpus}"
    return _fault_of_description(inside)


@lru_cache(INSIDES_KEPT_MAX)
def _fault_of_description(inside: NodeTopology) -> str:
    """Nodes of a kind are alike, and looking through one takes a millisecond."""
    if (size := len(msgspec.json.encode(inside))) > TOPOLOGY_BYTES_MAX:
        return f"inside: expected at most {TOPOLOGY_BYTES_MAX} bytes, found {size}"
    try:
        checked(inside)
    except TopologyError as error:
        return f"inside: {error}"
    return ""
