"""Labels of nodes, and places of simulated ones. Pure.

Labels of GPUs have GPU-feature-discovery's keys and spelling. Simulated nodes have places: racks of nodes, blocks of racks, one spine.
"""

from collections import Counter
from collections.abc import Sequence

from fairlead_schemas.queuefile.settings import POOL_LABEL
from fairlead_schemas.units.hardware import linked_groups
from fairlead_schemas.wire.resources import Gpu, NodeTopology

#: Family by compute capability times ten, as GPU feature discovery names them.
_FAMILIES = (
    (100, "blackwell"),
    (90, "hopper"),
    (89, "ada-lovelace"),
    (80, "ampere"),
    (75, "turing"),
    (70, "volta"),
    (60, "pascal"),
)


STRATEGY_LABEL = "nvidia.com/mig.strategy"


def family(compute_capability: int) -> str:
    """ "ampere" for 80 or 86; "undefined" below Pascal."""
    return next((name for least, name in _FAMILIES if compute_capability >= least), "undefined")


def pool_labels(pool: str) -> dict[str, str]:
    """The label of a node that belongs to a pool; none for "", which is the default pool."""
    return {POOL_LABEL: pool} if pool else {}


def gpu_labels(
    gpus: Sequence[Gpu], machine: str, *, mig_capable: bool | None = None, clique: str = "", mps: bool = False
) -> dict[str, str]:
    """Return the labels of a node whose GPUs are all of one model (those of the first, if the models differ).

    `mps`: True if an MPS daemon runs. `mig_capable`: None derives it from the compute capability. `clique`: the
    NVLink domain beyond the node, if all its GPUs are in one.
    """
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
        "nvidia.com/mps.capable": "true" if mps else "false",
    }
    if machine:
        labels["nvidia.com/gpu.machine"] = machine.replace(" ", "-")
    if clique:
        labels["nvidia.com/gpu.clique"] = clique
    if first.compute_capability:
        labels["nvidia.com/gpu.family"] = family(first.compute_capability)
        labels["nvidia.com/gpu.compute.major"] = str(first.compute_capability // 10)
        labels["nvidia.com/gpu.compute.minor"] = str(first.compute_capability % 10)
    if mig_capable is not None or first.compute_capability:
        capable = mig_capable if mig_capable is not None else first.compute_capability in (80, 90, 100)
        labels["nvidia.com/mig.capable"] = "true" if capable else "false"
    return labels | _ecc_label(gpus) | mig_labels(gpus)


def _ecc_label(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the label of the ECC state, empty if the GPUs differ in it."""
    modes = {gpu.ecc for gpu in gpus}
    return {"fairlead/ecc": modes.pop()} if len(modes) == 1 and "" not in modes else {}


def mig_labels(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Instances by profile, as the mixed strategy counts them; nothing where no GPU is in MIG mode.

    A name such as "1g.10gb+me" is written with a dot, since a label's key holds no "+".
    """
    if not any(gpu.mig for gpu in gpus):
        return {}
    found = Counter(instance.profile.replace("+", ".") for gpu in gpus for instance in gpu.instances)
    return {
        STRATEGY_LABEL: "mixed",
        **{f"nvidia.com/mig-{profile}.count": str(count) for profile, count in sorted(found.items())},
        # As GPU instances are made here, one compute instance fills each.
        **{
            f"nvidia.com/mig-{profile}.slices.{kind}": profile.partition("g")[0]
            for profile in sorted(found)
            for kind in ("ci", "gi")
        },
    }


def driver_labels(driver: str, cuda: int) -> dict[str, str]:
    """Versions of the driver ("550.107.02") and of the newest CUDA that it runs (12050; 0: not known). The keys without
    "-version" are older names of the same."""
    labels: dict[str, str] = {}
    if driver:
        major, minor, revision, *_ = [*driver.split("."), "", ""]
        labels |= {
            "nvidia.com/cuda.driver-version.full": driver,
            "nvidia.com/cuda.driver-version.major": major,
            "nvidia.com/cuda.driver.major": major,
            "nvidia.com/cuda.driver-version.minor": minor,
            "nvidia.com/cuda.driver.minor": minor,
            "nvidia.com/cuda.driver-version.revision": revision,
            "nvidia.com/cuda.driver.rev": revision,
        }
    if cuda:
        major, minor = str(cuda // 1000), str(cuda % 1000 // 10)
        labels |= {
            "nvidia.com/cuda.runtime-version.full": f"{major}.{minor}",
            "nvidia.com/cuda.runtime-version.major": major,
            "nvidia.com/cuda.runtime.major": major,
            "nvidia.com/cuda.runtime-version.minor": minor,
            "nvidia.com/cuda.runtime.minor": minor,
        }
    return labels


def inside_labels(inside: NodeTopology) -> dict[str, str]:
    """On how many NUMA nodes its GPUs are, and how many groups NVLinks join them to; nothing where that is not known."""
    if not inside.gpus:
        return {}
    known = {node for node in inside.numa if node >= 0}
    numa = {"fairlead/numa": str(len(known))} if known else {}
    return {**numa, "fairlead/nvlink-domains": str(len(linked_groups(inside.nvlinks)) or inside.gpus)}


def rack_labels(number: int, nodes_per_rack: int, racks_per_block: int) -> dict[str, str]:
    """Labels of the node of that number (from 0); none where a rack holds none, no block where it holds no rack."""
    if nodes_per_rack < 1:
        return {}
    rack = number // nodes_per_rack
    labels = {"fairlead/rack": f"r{rack + 1}"}
    if racks_per_block >= 1:
        labels["fairlead/block"] = f"b{rack // racks_per_block + 1}"
    labels["fairlead/spine"] = "s1"
    return labels
