"""Shapes of hollow nodes: all alike, all of one profile, or shaped after a list of real nodes.

A list is CSV with the columns sn, cpu_milli, memory_mib, gpu, model (the openb node lists of Alibaba's trace).
"""

import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from fairlead_agent.devices.labels import STRATEGY_LABEL, gpu_labels, mig_labels, pool_labels
from fairlead_agent.devices.profiles import played_inside, profile_named, simulated_uuid
from fairlead_schemas.wire.resources import UNKNOWN_TOPOLOGY, Gpu, Inventory, NodeTopology


class GpuModel(NamedTuple):
    """GPU that a short model name means. Values are nominal; 0 where the name is masked and the value cannot be known."""

    product: str
    memory_mib: int
    compute_capability: int


MODELS: dict[str, GpuModel] = {
    "A100": GpuModel("NVIDIA A100-SXM4-80GB", 81920, 80),
    "A10": GpuModel("NVIDIA A10", 23028, 86),
    "T4": GpuModel("Tesla T4", 15360, 75),
    "P100": GpuModel("Tesla P100-SXM2-16GB", 16384, 60),
    "V100M16": GpuModel("Tesla V100-SXM2-16GB", 16384, 70),
    "V100M32": GpuModel("Tesla V100-SXM2-32GB", 32768, 70),
}


class Shape(NamedTuple):
    """Shape of one hollow node."""

    node: str
    gpus: int
    model: str
    cpu_milli: int
    memory_mib: int
    pool: str = ""
    #: The machine that it plays; then GPUs and model are that one's, and so is its inside, which is else not known.
    profile: str = ""
    #: What else its admin says of it.
    labels: Mapping[str, str] = {}
    taints: tuple[str, ...] = ()


def alike(count: int, gpus: int, prefix: str, model: str = "A100") -> list[Shape]:
    """`count` equal nodes, "<prefix>-1" to "<prefix>-<count>", the numbers zero-filled so that they sort."""
    return [Shape(name, gpus, model, 256_000, 2_097_152) for name in _names(count, prefix)]


def of_profile(count: int, profile: str, prefix: str) -> list[Shape]:
    """`count` nodes of one profile, named likewise. Raises DevicesUnfit for one that there is not."""
    found = profile_named(profile)
    return [
        Shape(name, len(found.numa), "", found.cpu_milli, found.node_memory_mib, profile=profile)
        for name in _names(count, prefix)
    ]


def _names(count: int, prefix: str) -> list[str]:
    width = len(str(count))
    return [f"{prefix}-{i:0{width}d}" for i in range(1, count + 1)]


def read_shapes(path: Path) -> list[Shape]:
    """Shapes from a node list. Raises ValueError naming the line."""
    with path.open(newline="") as file:
        return [_shape(row, number) for number, row in enumerate(csv.DictReader(file), start=2)]


def _shape(row: dict[str, str], line: int) -> Shape:
    try:
        node = re.sub(r"[^a-z0-9_-]", "-", row["sn"].lower())
        return Shape(node, int(row["gpu"] or 0), row["model"], int(row["cpu_milli"]), int(row["memory_mib"]))
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(f"line {line}: expected sn,cpu_milli,memory_mib,gpu,model: {error!r}") from error


def inventory(shape: Shape) -> Inventory:
    """Return the inventory that a hollow node reports."""
    gpus, found, inside = _of_profile(shape) if shape.profile else _of_model(shape)
    labels = {**found, **shape.labels, **pool_labels(shape.pool), "fairlead/runtime": "hollow"}
    return Inventory(
        gpus=gpus,
        cpu_milli=shape.cpu_milli,
        memory_mib=shape.memory_mib,
        labels=labels,
        runtime="hollow",
        simulated=True,
        hostname=shape.node,
        inside=inside,
        taints=shape.taints,
    )


def counted(before: Inventory, gpus: tuple[Gpu, ...]) -> Inventory:
    """The inventory with GPUs that are cut otherwise, and labels that say so."""
    labels = {key: value for key, value in before.labels.items() if not key.startswith("nvidia.com/mig-")}
    found = mig_labels(gpus)
    if not found:
        labels.pop(STRATEGY_LABEL, None)
    return msgspec.structs.replace(before, gpus=gpus, labels={**found, **labels})


def _of_profile(shape: Shape) -> tuple[tuple[Gpu, ...], dict[str, str], NodeTopology]:
    profile, inside = profile_named(shape.profile), played_inside(shape.profile)
    gpus = profile.gpus(shape.node)
    return gpus, profile.labels(gpus, inside), inside


def _of_model(shape: Shape) -> tuple[tuple[Gpu, ...], dict[str, str], NodeTopology]:
    model = MODELS.get(shape.model, GpuModel(shape.model, 0, 0))
    gpus = tuple(
        Gpu(
            uuid=simulated_uuid(shape.node, index),
            index=index,
            model=model.product,
            memory_mib=model.memory_mib,
            compute_capability=model.compute_capability,
        )
        for index in range(shape.gpus)
    )
    labels = {**gpu_labels(gpus, "hollow"), "fairlead/simulated": "true"}
    if shape.model:
        labels["fairlead/gpu-model"] = shape.model
    return gpus, labels, UNKNOWN_TOPOLOGY


def check_names(shapes: Iterable[Shape]) -> None:
    """Raises ValueError when two nodes have one name."""
    seen: set[str] = set()
    for shape in shapes:
        if shape.node in seen:
            raise ValueError(f"two hollow nodes are named {shape.node}")
        seen.add(shape.node)
