"""Packing requests on an empty node: the first cause why one never fits, in the order of CAUSES."""

from typing import Any

import msgspec
import pytest

from bench.vectors.allocation import descriptions
from fairlead_placer.cluster.capacity.node_shape import REPLICAS_LABEL, SHARING_LABEL
from fairlead_placer.cluster.capacity.unit_request import unit_requests
from fairlead_schemas.queuefile.settings import MODEL_LABEL
from fairlead_schemas.units import selectors
from fairlead_schemas.units.selectors import NODE_LABEL
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.placement_causes import CAUSES
from fairlead_schemas.wire.resources import Inventory, Request
from tests.kit.placer_world import PlacerWorld, request
from tests.placer.cluster.capacity.ground import build, machine

H100 = machine(
    inside=descriptions()["dgx-h100"],
    cpu=224,
    gpu_memory_mib=81559,
    capability=90,
    labels={MODEL_LABEL: "NVIDIA-H100-80GB-HBM3"},
)
GEFORCE = machine(inside=descriptions()["rtx4090x8-pcie"], cpu=224)
PLAIN = machine(gpus=4, cpu=16, memory_gib=64)
SLICED = machine(gpus=4, labels={REPLICAS_LABEL: "4", SHARING_LABEL: "time-slicing"})
TAINTED = machine(taints=("spot=yes:NoSchedule",))
SOFT = machine(taints=("spot=yes:PreferNoSchedule",))

#: (node, what is asked for, the cause, GPUs that suit)
VERDICTS: list[tuple[Inventory, dict[str, Any], str, int]] = [
    (PLAIN, {"gpu_milli": 4000}, "", 0b1111),
    (PLAIN, {"gpu_milli": 5000}, "gpus", 0b1111),
    (TAINTED, {}, "taint", 0xFF),
    (TAINTED, {"tolerations": ("spot",)}, "", 0xFF),
    (TAINTED, {"tolerations": ("spot=no:NoSchedule",), "gpu_milli": 9000}, "taint", 0xFF),
    (SOFT, {}, "", 0xFF),
    (H100, {"selector": (f"{MODEL_LABEL}~A100",), "gpu_milli": 1000}, "gpu_model", 0xFF),
    (H100, {"selector": (f"{MODEL_LABEL}~H100",), "gpu_milli": 1000}, "", 0xFF),
    (H100, {"selector": ("zone=b",), "gpu_milli": 9000}, "selector", 0xFF),
    (PLAIN, {"selector": ("not to be read ((",)}, "selector", 0b1111),
    (SLICED, {"gpu_milli": 1000}, "sharing", 0b1111),
    (SLICED, {"gpu_milli": 250, "gpu_parts": 1, "replicas": True}, "", 0b1111),
    (PLAIN, {"gpu_milli": 250, "gpu_parts": 1, "replicas": True}, "sharing", 0b1111),
    (SLICED, {"cpu_milli": 1000}, "", 0b1111),
    (PLAIN, {"gpu_milli": 500, "gpu_parts": 1}, "", 0b1111),
    (PLAIN, {"gpu_milli": 1000, "gpu_memory_mib": 80000}, "gpu_memory", 0),
    (PLAIN, {"gpu_milli": 500, "gpu_parts": 1, "gpu_memory_mib": 80000}, "gpu_memory", 0),
    (H100, {"gpu_milli": 1000, "compute_capability": 90}, "", 0xFF),
    (PLAIN, {"gpu_milli": 1000, "compute_capability": 90}, "compute_capability", 0),
    (GEFORCE, {"gpu_milli": 2000, "require": ("nvlink",)}, "topology", 0xFF),
    (GEFORCE, {"gpu_milli": 1000, "require": ("nvlink",)}, "", 0xFF),
    (GEFORCE, {"gpu_milli": 4000, "require": ("numa",)}, "", 0xFF),
    (GEFORCE, {"gpu_milli": 5000, "require": ("numa",)}, "topology", 0xFF),
    (GEFORCE, {"gpu_milli": 5000, "require": ("rack",)}, "", 0xFF),
    (GEFORCE, {"gpu_milli": 4000, "cpu_milli": 113_000, "require": ("numa",)}, "topology", 0xFF),
    (GEFORCE, {"gpu_milli": 4000, "cpu_milli": 112_000, "require": ("numa",)}, "", 0xFF),
    (GEFORCE, {"cpu_milli": 113_000, "require": ("numa",)}, "topology", 0xFF),
    (GEFORCE, {"cpu_milli": 300_000}, "cpu", 0xFF),
    (GEFORCE, {"gpu_milli": 1000, "nics": 3}, "nics", 0xFF),
    (GEFORCE, {"gpu_milli": 1000, "nics": 2}, "", 0xFF),
    (PLAIN, {"nics": 1, "cpu_milli": 17_000}, "nics", 0b1111),
    (PLAIN, {"cpu_milli": 17_000, "memory_mib": 65 * 1024}, "cpu", 0b1111),
    (PLAIN, {"memory_mib": 65 * 1024}, "memory", 0b1111),
    (machine(gpus=0), {"gpu_milli": 1000}, "gpus", 0),
    (machine(gpus=0), {"cpu_milli": 1000}, "", 0),
]  # fmt: skip


@pytest.mark.parametrize(("node", "wanted", "cause", "suits"), VERDICTS)
def test_verdicts(node: Inventory, wanted: dict[str, Any], cause: str, suits: int) -> None:
    """The cause and the GPUs that suit; the same when asked again."""
    ask = unit_requests(Request(**wanted))[0]
    assert tuple(ask.verdict(build(node)))[:2] == (cause, suits)
    assert ask.verdict(build(node)).cause == cause
    assert cause in {"", *CAUSES}


def test_gpus_of_several_kinds_on_one_node() -> None:
    """Only those that are large enough count."""
    gpus = machine(gpus=4).gpus
    large = tuple(msgspec.structs.replace(gpu, memory_mib=81920) for gpu in gpus[2:])
    node = msgspec.structs.replace(machine(gpus=4), gpus=(*gpus[:2], *large))
    two, three = (
        unit_requests(Request(gpu_milli=n * 1000, gpu_memory_mib=80000))[0].verdict(build(node)) for n in (2, 3)
    )
    assert (two.cause, two.suits, three.cause) == ("", 0b1100, "gpu_memory")


def test_the_location_of_a_node_is_not_part_of_its_shape() -> None:
    """Nodes of several racks share a shape: a selector of a rack is checked on each node."""
    r1, r2 = (machine(labels={"fairlead/rack": rack, "zone": "a"}) for rack in ("r1", "r2"))
    ask = unit_requests(Request(selector=("fairlead/rack=r2", "zone=a")))[0]
    assert ask.stands == ("fairlead/rack=r2",)
    assert ask.verdict(build(r1)).cause == ask.verdict(build(r2)).cause == ""


def test_nodes_are_chosen_and_excluded_by_name() -> None:
    """Nodes of one shape differ in their names, whatever label one of them sets; the name is checked on each node."""
    world = PlacerWorld()
    for name in ("n1", "n2", "n3"):
        world.join(name, 8, labels={NODE_LABEL: "n1"})
    assert placed_on(world, selectors.named(["n2"])) == "n2"
    assert placed_on(world, selectors.named(["n1", "n2"], without=True)) == "n3"
    assert placed_on(world, selectors.named(["n9"])) == ""


def placed_on(world: PlacerWorld, selector: list[str]) -> str:
    """The node of a job with a GPU; "" where it has none."""
    events = world.offer(request(1, selector=tuple(selector)))
    return next((event.parts[0].node for event in events if isinstance(event, ev.JobPlaced)), "")


def test_job_level_constraints_hold_for_each_task_group() -> None:
    """Pool, tolerations, topology and packing are the job's; amounts and selectors are each group's own."""
    other = Request(nodes=2, gpu_milli=1000, selector=("zone=b",))
    request = Request(
        nodes=3, cpu_milli=1000, pool="big", tolerations=("a",), require=("rack",), packing="spread", also=(other,)
    )
    first, second = (ask.request for ask in unit_requests(request))
    assert (first.nodes, first.gpu_milli, second.nodes, second.gpu_milli) == (3, 0, 2, 1000)
    assert (first.selector, second.selector) == ((), ("zone=b",))
    for kind in (first, second):
        assert (kind.pool, kind.tolerations, kind.require, kind.packing) == ("big", ("a",), ("rack",), "spread")
        assert kind.also == ()


def test_equal_requests_share_a_packing_request() -> None:
    """Cached results of a packing request are computed once for all equal requests."""
    assert unit_requests(Request(gpu_milli=1000))[0] is unit_requests(Request(gpu_milli=1000))[0]
