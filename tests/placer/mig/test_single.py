"""Nodes cut into instances of one profile, and what instances are called under each strategy."""

import pytest

from fairlead_placer.mig.choice import MigGpu
from fairlead_placer.mig.single import (
    Strategy,
    asked_profile,
    product_under_single,
    resource_under,
    uniform_profile,
)
from tests.placer.mig.exhaustive import gpu

A100 = "A100-40GB"


def test_an_instance_is_asked_for_by_its_profile_or_as_a_gpu() -> None:
    """Mixed: a resource each. Single: as if it were a GPU. None: not at all."""
    assert resource_under(Strategy.MIXED, "1g.5gb+me") == "nvidia.com/mig-1g.5gb.me"
    assert resource_under(Strategy.SINGLE, "1g.5gb") == "nvidia.com/gpu"
    with pytest.raises(ValueError, match="no instances"):
        resource_under(Strategy.NONE, "1g.5gb")


def test_what_a_resource_means_depends_on_the_node() -> None:
    """`nvidia.com/gpu` is an instance only where all are alike and the node says so."""
    alike = [gpu(A100, "3g.20gb@0", "3g.20gb@4"), gpu(A100, "", "3g.20gb@0")]
    mixed = [gpu(A100, "3g.20gb@0", "1g.5gb@4")]
    assert asked_profile("nvidia.com/gpu", Strategy.SINGLE, alike) == "3g.20gb"
    assert asked_profile("nvidia.com/gpu", Strategy.SINGLE, mixed) is None
    assert asked_profile("nvidia.com/gpu", Strategy.MIXED, alike) is None
    assert asked_profile("nvidia.com/mig-3g.20gb", Strategy.MIXED, alike) == "3g.20gb"
    assert asked_profile("nvidia.com/mig-3g.20gb", Strategy.SINGLE, alike) is None
    assert asked_profile("nvidia.com/mig-3g.20gb", Strategy.NONE, alike) is None
    assert Strategy("single") is Strategy.SINGLE  # as the label nvidia.com/mig.strategy says it


def test_the_product_of_a_node_names_the_profile() -> None:
    """As in k8s-device-plugin's documentation; another profile takes the place of the one there."""
    assert product_under_single("A100-SXM4-40GB", "1g.5gb") == "A100-SXM4-40GB-MIG-1g.5gb"
    assert product_under_single("A100-SXM4-40GB-MIG-1g.5gb", "3g.20gb") == "A100-SXM4-40GB-MIG-3g.20gb"


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([gpu(A100, "1g.5gb@0"), gpu(A100, "", "1g.5gb@3")], "1g.5gb"),
        ([gpu(A100, "1g.5gb@0"), gpu(A100, "", "2g.10gb@2")], None),
        ([gpu(A100, "1g.5gb@0"), gpu(A100)], None),  # one is not cut
        ([gpu(A100, enabled=False)], None),
        ([], None),
    ],
)
def test_a_node_has_one_profile_or_none(gpus: list[MigGpu], expected: str | None) -> None:
    """All instances of all GPUs."""
    assert uniform_profile(gpus) == expected
