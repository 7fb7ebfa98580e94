"""A node's inside in one line, for people who look at many nodes."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from fairlead_schemas.wire.resources import UNKNOWN_TOPOLOGY, Gpu, NodeTopology

#: Different insides whose line is remembered: lists of nodes say it of each.
LINES_KEPT_MAX = 256


@lru_cache(LINES_KEPT_MAX)
def summary(inside: NodeTopology) -> str:
    """ "12 NVLinks between all 8 GPUs, on 4 of 8 NUMA nodes, 12 NICs"; "" where nothing is known."""
    if inside == UNKNOWN_TOPOLOGY:
        return ""
    parts = [_links(inside), _numa(inside), _counted(len(inside.nics), "NIC")]
    return ", ".join(part for part in parts if part)


def cut_summary(gpus: Sequence[Gpu]) -> str:
    """ "0: 4x 1g.5gb, 3g.20gb; 3: nothing": the MIG instances of each GPU in MIG mode, by its index; "" where there is none."""
    return "; ".join(f"{gpu.index}: {_instances(gpu)}" for gpu in gpus if gpu.mig)


def _instances(gpu: Gpu) -> str:
    found = Counter(instance.profile for instance in gpu.instances)
    return ", ".join(f"{count}x {name}" if count > 1 else name for name, count in sorted(found.items())) or "nothing"


def _links(inside: NodeTopology) -> str:
    pairs = [links for i, row in enumerate(inside.nvlinks) for links in row[:i]]
    linked = [links for links in pairs if links]
    if inside.gpus < 2:
        return ""
    if not linked:
        return "no NVLinks"
    least, most = min(linked), max(linked)
    count = _counted(most, "NVLink") if least == most else f"{least} to {most} NVLinks"
    if len(linked) == len(pairs):
        return f"{count} between all {inside.gpus} GPUs"
    return f"{count} between {len(linked)} of {len(pairs)} pairs of GPUs"


def _numa(inside: NodeTopology) -> str:
    held, there = {node for node in inside.numa if node >= 0}, len(inside.numa_nodes)
    if not inside.gpus or not held or held == {node.node for node in inside.numa_nodes}:
        return _counted(there, "NUMA node")
    return f"on {len(held)} of {there} NUMA nodes" if there else f"on {_counted(len(held), 'NUMA node')}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}" if count else ""
