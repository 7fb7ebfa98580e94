"""Shapes of nodes: equal nodes share one, and the facts that labels add to it."""

import msgspec
import pytest

from bench.vectors.allocation import descriptions
from fairlead_placer.cluster.capacity.node_shape import (
    REPLICAS_LABEL,
    SHARING_LABEL,
    SYSTEM_CPUS_LABEL,
    NodeShapes,
    replicas_of,
)
from fairlead_placer.topology.gpu_topology import TopologyError
from tests.placer.cluster.capacity.ground import machine


def test_equal_nodes_share_a_shape() -> None:
    """Names, UUIDs and racks may differ; another label, taint, CPU count or topology is another shape."""
    builds = NodeShapes()
    one = builds.of(machine("a", labels={"fairlead/rack": "r1"}))
    assert builds.of(machine("b", labels={"fairlead/rack": "r2"})) is one
    others = [
        builds.of(machine("c", labels={"zone": "x"})),
        builds.of(machine("d"), ("a:NoSchedule",)),
        builds.of(machine("e", cpu=32)),
        builds.of(machine("f", inside=descriptions()["dgx-h100"])),
    ]
    assert len({id(each) for each in [one, *others]}) == 5
    assert len({each.number for each in [one, *others]}) == 5


def test_cpus_are_no_more_than_can_be_pinned() -> None:
    """If CPU lists are known, the system's CPUs are left out of each NUMA node."""
    inside = descriptions()["dgx-h100"]
    assert NodeShapes().of(machine(inside=inside, cpu=224)).cpu_milli == 224_000
    assert NodeShapes().of(machine(inside=inside, cpu=224, labels={SYSTEM_CPUS_LABEL: "2"})).cpu_milli == 220_000
    assert NodeShapes().of(machine(inside=inside, cpu=64)).cpu_milli == 64_000
    assert NodeShapes().of(machine(cpu=64, labels={SYSTEM_CPUS_LABEL: "2"})).cpu_milli == 64_000


@pytest.mark.parametrize("text", ["", "x", "-1", "1" * 9, "\u0662"])
def test_a_count_of_system_cpus_that_makes_no_sense_is_none(text: str) -> None:
    """An agent's admin may write anything."""
    found = NodeShapes().of(machine(inside=descriptions()["dgx-h100"], cpu=224, labels={SYSTEM_CPUS_LABEL: text}))
    assert found.cpu_milli == 224_000


@pytest.mark.parametrize(
    ("labels", "replicas"),
    [
        ({}, 0),
        ({REPLICAS_LABEL: "4"}, 0),
        ({REPLICAS_LABEL: "4", SHARING_LABEL: "time-slicing"}, 4),
        ({REPLICAS_LABEL: "4", SHARING_LABEL: "mps"}, 4),
        ({REPLICAS_LABEL: "4", SHARING_LABEL: "none"}, 0),
        ({REPLICAS_LABEL: "1", SHARING_LABEL: "mps"}, 0),
        ({REPLICAS_LABEL: "many", SHARING_LABEL: "mps"}, 0),
    ],
)
def test_replicas_are_what_labels_say(labels: dict[str, str], replicas: int) -> None:
    """In GPU feature discovery's words."""
    assert replicas_of(labels) == replicas


def test_it_matters_which_gpus_are_free() -> None:
    """Linked and unlinked GPUs differ, and so do GPUs of several models."""
    assert not NodeShapes().of(machine()).telling
    assert NodeShapes().of(machine(inside=descriptions()["dgx1-v100"])).telling
    mixed = machine(gpus=2)
    mixed = msgspec.structs.replace(mixed, gpus=(mixed.gpus[0], msgspec.structs.replace(mixed.gpus[1], memory_mib=1)))
    assert NodeShapes().of(mixed).telling


def test_an_inside_that_makes_no_sense_is_refused() -> None:
    """With the field's name."""
    inside = msgspec.structs.replace(descriptions()["dgx-h100"], nvlinks=((1,),))
    with pytest.raises(TopologyError, match="nvlinks"):
        NodeShapes().of(machine(inside=inside))


def test_a_build_is_forgotten_with_its_last_node() -> None:
    """Numbers are never given twice, so that no answer about one is taken for another's."""
    builds = NodeShapes()
    first = builds.of(machine()).number
    assert builds.of(machine()).number != first
