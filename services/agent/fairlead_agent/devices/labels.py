"""Node labels, those of GPUs in GPU-feature-discovery's keys and spelling. Pure."""

from collections.abc import Sequence

from fairlead_schemas.queues import POOL_LABEL
from fairlead_schemas.resources import Gpu

#: Family by compute capability times ten, as GPU feature discovery names them.
_FAMILIES = ((100, "blackwell"), (90, "hopper"), (89, "ada-lovelace"), (80, "ampere"), (75, "turing"), (70, "volta"), (60, "pascal"))  # fmt: skip


def family(compute_capability: int) -> str:
    """ "ampere" for 80 or 86; "undefined" below Pascal."""
    return next((name for least, name in _FAMILIES if compute_capability >= least), "undefined")


def pool_labels(pool: str) -> dict[str, str]:
    """The label of a node that belongs to a pool; none for "", which is the default pool."""
    return {POOL_LABEL: pool} if pool else {}


def gpu_labels(gpus: Sequence[Gpu], machine: str) -> dict[str, str]:
    """Labels of a node whose GPUs are all of one model (of the first, where they are not)."""
    if not gpus:
        return {}
    first = gpus[0]
    labels = {
        "nvidia.com/gpu.count": str(len(gpus)),
        "nvidia.com/gpu.product": first.model.replace(" ", "-"),
        "nvidia.com/gpu.memory": str(first.memory_mib),
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
    }
    if machine:
        labels["nvidia.com/gpu.machine"] = machine.replace(" ", "-")
    if first.compute_capability:
        labels["nvidia.com/gpu.family"] = family(first.compute_capability)
        labels["nvidia.com/gpu.compute.major"] = str(first.compute_capability // 10)
        labels["nvidia.com/gpu.compute.minor"] = str(first.compute_capability % 10)
        labels["nvidia.com/mig.capable"] = "true" if first.compute_capability in (80, 90, 100) else "false"
    return labels
