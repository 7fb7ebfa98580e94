"""Nodes whose instances are all alike, and the names under which instances are asked for.

NVIDIA's device plugin has two strategies for a node that is cut (k8s-device-plugin, Apache-2.0): under **mixed** each profile is a
resource of its own; under **single** every GPU of the node is cut into instances of one profile, and those are `nvidia.com/gpu`, as if
they were GPUs. The node's label `nvidia.com/mig.strategy` says which.
"""

from collections.abc import Sequence
from enum import StrEnum

from fairlead_placer.mig.choice import MigGpu
from fairlead_placer.mig.finding import read_product
from fairlead_schemas.migprofiles import profile_of, resource_of

WHOLE_GPU = "nvidia.com/gpu"


class Strategy(StrEnum):
    """How a node offers its instances."""

    NONE = "none"  # it has none: GPUs are whole
    SINGLE = "single"
    MIXED = "mixed"


def resource_under(strategy: Strategy, profile: str) -> str:
    """The resource by which an instance of the profile is asked for on a node. ValueError for NONE, which offers none."""
    if strategy == Strategy.NONE:
        raise ValueError(f"a node that offers no instances has no resource for {profile}")
    return WHOLE_GPU if strategy == Strategy.SINGLE else resource_of(profile)


def asked_profile(resource: str, strategy: Strategy, gpus: Sequence[MigGpu]) -> str | None:
    """The profile that a resource means on a node with these GPUs; None where it asks for no instance there."""
    if strategy == Strategy.MIXED:
        return profile_of(resource)
    return uniform_profile(gpus) if strategy == Strategy.SINGLE and resource == WHOLE_GPU else None


def product_under_single(product: str, profile: str) -> str:
    """The label `nvidia.com/gpu.product` of a node under the single strategy: `A100-SXM4-40GB-MIG-1g.5gb`.

    `product`: the GPU's name; a profile that it carries already is replaced. NVIDIA's own prefix stays as it is.
    """
    carried = read_product(product).profile
    return f"{product.removesuffix(f'-MIG-{carried}') if carried else product}-MIG-{profile}"


def uniform_profile(gpus: Sequence[MigGpu]) -> str | None:
    """The one profile of all instances of a node; None where MIG is off or nothing is cut on a GPU, or they differ."""
    found = {instance.profile for gpu in gpus for instance in gpu.layout.instances}
    if len(found) != 1 or not all(gpu.enabled and gpu.layout.instances for gpu in gpus):
        return None
    return found.pop()
