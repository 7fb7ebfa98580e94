"""Nodes cut into instances of one profile, and what instances are called under each strategy."""

import pytest

from fairlead_placer.mig.choice import MigGpu
from fairlead_placer.mig.layouts import Instance
from fairlead_placer.mig.models import BY_NAME, MODELS, Model
from fairlead_placer.mig.single import (
    Recut,
    Strategy,
    asked_profile,
    plan_uniform,
    product_under_single,
    resource_under,
    uniform_layout,
    uniform_profile,
)
from tests.placer.mig.exhaustive import gpu, instances, is_legal

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


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_uniform_layout_holds_as_many_as_the_driver_allows(model: Model) -> None:
    """Of every profile of every model, and whatever one of them is there already."""
    for profile in model.profiles:
        cut = model.cut(profile)
        for present in [(), *((Instance(profile, start),) for start in cut.starts)]:
            found = uniform_layout(model, profile, present)
            assert len(found) == cut.count_max
            assert set(present) <= set(found)
            assert list(found) == sorted(found)


def test_a_node_is_brought_to_one_profile() -> None:
    """Idle instances of others go, those of the profile stay; a GPU that is as it should be has no part."""
    gpus = [
        gpu(A100, "3g.20gb@0", uuid="a"),
        gpu(A100, "", "1g.5gb@2 3g.20gb@4", uuid="b"),
        gpu(A100, uuid="c", enabled=False),
        gpu(A100, "3g.20gb@0", "3g.20gb@4", uuid="d"),
    ]
    found = plan_uniform(gpus, "3g.20gb")
    assert found == (
        Recut("a", (), instances("3g.20gb@4")),
        Recut("b", instances("1g.5gb@2"), instances("3g.20gb@0")),
        Recut("c", (), instances("3g.20gb@0 3g.20gb@4")),
    )
    assert found is not None
    assert plan_uniform(gpus[3:], "3g.20gb") == ()
    for held, part in zip(gpus, found, strict=False):
        after = {*held.layout.instances} - {*part.destroy} | {*part.create}
        assert is_legal(A100, tuple(after))


def test_a_node_in_use_otherwise_stays_as_it_is() -> None:
    """Nothing in use is touched; nor is half a node cut."""
    assert plan_uniform([gpu(A100), gpu(A100, "2g.10gb@0")], "3g.20gb") is None
    assert plan_uniform([gpu(A100), gpu("A30-24GB")], "3g.20gb") is None
    assert plan_uniform([gpu(A100, "", "2g.10gb@0")], "9g.99gb") is None


def test_a_uniform_layout_of_an_unknown_profile_is_an_error() -> None:
    """The caller has checked the model."""
    with pytest.raises(ValueError):
        uniform_layout(BY_NAME[A100], "1g.6gb")
