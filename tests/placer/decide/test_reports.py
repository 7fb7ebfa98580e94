"""Inventories that violate the contract, with the fault reported for each; and many that arrive at once."""

import pytest
from msgspec.structs import replace

from fairlead_agent.devices.profiles import played_inside, profiles
from fairlead_agent.devices.simulated import SimulatedDevices
from fairlead_bus.core import Input
from fairlead_placer.decide.reports import INCARNATION_CHARS_MAX, INVENTORY_BYTES_MAX, fault_of
from fairlead_schemas.wire.commit import COMMIT_BYTES_MAX
from fairlead_schemas.wire.reports import InventorySeen, Report, ReportBatch
from fairlead_schemas.wire.resources import Gpu, Inventory, MigInstance, NodeTopology, NumaNode
from tests.kit.placer_world import PlacerWorld, commit_bytes


def cut(*instances: str, profile: str = "1g.5gb") -> Gpu:
    """A GPU with MIG instances of these UUIDs."""
    found = tuple(MigInstance(uuid=uuid, profile=profile) for uuid in instances)
    return Gpu(uuid="g", index=0, model="A100", memory_mib=1, mig=True, instances=found)


def fault_with(found: Inventory) -> str:
    """Return the fault of a report with this inventory; "" if it is valid."""
    reports: list[Report] = [InventorySeen(n=1, boot_id="b", inventory=found)]
    code, message = fault_of("n1", ReportBatch(node="n1", incarnation="i", reports=reports)) or ("bad_inventory", "")
    assert code == "bad_inventory"
    return message


@pytest.mark.parametrize(
    "found",
    [
        Inventory(cpu_milli=2**63),
        Inventory(memory_mib=2**63),
        Inventory(address="a" * 300),
        Inventory(gpus=(Gpu(uuid="g" * 100, index=0, model="A100", memory_mib=1),)),
        Inventory(labels={f"k{number}": "" for number in range(257)}),
        Inventory(labels={"k" * 254: ""}),
        Inventory(labels={"k": "v" * 201}),
        Inventory(taints=tuple(f"k{number}:NoSchedule" for number in range(33))),
        Inventory(taints=("k:NoSchedule", "k:NoSchedule")),
        Inventory(hostname="h" * INVENTORY_BYTES_MAX),
        Inventory(gpus=(cut(*(f"MIG-{number}" for number in range(17))),)),
        Inventory(gpus=(cut("MIG-1", "MIG-1"),)),
        Inventory(gpus=(cut("m" * 100),)),
        Inventory(gpus=(cut("MIG-1", profile="p" * 33),)),
    ],
)
def test_an_inventory_beyond_its_bounds_is_out_of_contract(found: Inventory) -> None:
    """Its sums could not be written, its names would fill every placement."""
    assert fault_with(found)


INSIDE = played_inside("dgx-a100")


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        (NodeTopology(numa=(0, 0)), "inside: numa: expected a NUMA node, or -1, of each of the 8 GPUs, found 2"),
        (replace(INSIDE, numa=()), "inside: numa: expected a NUMA node, or -1, of each of the 8 GPUs, found 0"),
        (replace(INSIDE, pcie=INSIDE.pcie[:4]), "inside: pcie: expected 8 rows of 8, found rows of [8, 8, 8, 8]"),
        (replace(INSIDE, nvlinks=((65,) * 8,) * 8), "inside: nvlinks: expected 0 to 64 links and none to itself"),
        (replace(INSIDE, nics=("n" * 64, *INSIDE.nics[1:])), "inside: nics: expected names of 1 to 63 characters"),
        (
            replace(INSIDE, numa_nodes=(NumaNode(node=0, cpus="0-9999"),)),
            "inside: numa_nodes: node 0: expected rising CPU",
        ),
        (
            replace(INSIDE, numa_nodes=(NumaNode(node=0, cpus=" " * 32768),)),
            "inside: expected at most 32768 bytes, found",
        ),
    ],
)
def test_an_inside_that_makes_no_sense_is_refused(inside: NodeTopology, message: str) -> None:
    """With the field, what was expected and what was found."""
    found = Inventory(gpus=SimulatedDevices("n1", "dgx-a100").gpus(), inside=inside)
    assert fault_with(found).startswith(message)


def test_taints_that_are_none_are_refused() -> None:
    """As their admin should have written them."""
    assert fault_with(Inventory(taints=("team=vision",))).startswith('expected a taint such as "key=value:NoSchedule"')


@pytest.mark.parametrize("profile", sorted(profiles()))
def test_inventories_of_agents_are_valid(profile: str) -> None:
    """Of every machine that can be simulated; and of one without a known topology."""
    devices = SimulatedDevices("n1", profile)
    found = Inventory(gpus=devices.gpus(), labels=devices.labels(), inside=devices.inside(), taints=("k=v:NoExecute",))
    assert fault_with(found) == ""
    assert fault_with(Inventory(gpus=devices.gpus())) == ""


def test_a_boot_id_has_its_bound() -> None:
    """It is part of every desired state of the node."""
    reports: list[Report] = [InventorySeen(n=1, boot_id="b" * 81, inventory=Inventory())]
    fault = fault_of("n1", ReportBatch(node="n1", incarnation="i", reports=reports))
    assert fault == ("bad_inventory", "expected a boot id of at most 80 characters")


JOINS = {
    "nothing but names": (1000, Inventory()),
    "a machine with a known inside": (
        100,
        Inventory(
            gpus=SimulatedDevices("n", "dgx-a100").gpus(),
            cpu_milli=256_000,
            labels=SimulatedDevices("n", "dgx-a100").labels(),
            inside=played_inside("dgx-a100"),
            taints=("team=vision:NoSchedule",),
        ),
    ),
    "as much as may be": (20, Inventory(hostname="h" * (INVENTORY_BYTES_MAX - 64))),
}


@pytest.mark.parametrize(("count", "found"), JOINS.values(), ids=JOINS)
def test_many_nodes_that_join_at_once_are_spread_over_commits(count: int, found: Inventory) -> None:
    """Names and inventories of all sizes: no commit is too large, and every node joins, a few commits later."""
    world, names = PlacerWorld(), [f"n{number:062}" for number in range(count)]
    cluster = [Input("report", 1, joins(name, found)) for name in names]
    while len(world.core.state.nodes) < len(names):
        decision = world.decide(*[item for item in cluster if item.body.node not in world.core.state.nodes])
        assert commit_bytes(decision.events, decision.cursors) <= COMMIT_BYTES_MAX
        assert decision.events
        few = len(decision.events) < len(names) - len(world.core.state.nodes)
        assert not few or commit_bytes(decision.events) > COMMIT_BYTES_MAX // 2, "not many small ones either"
        world.fold("placer", decision.events, decision.cursors)
    assert all(node.inventory == found for node in world.core.state.nodes.values())


def joins(name: str, found: Inventory) -> ReportBatch:
    """The first report of an agent whose names are as long as they may be."""
    reports: list[Report] = [InventorySeen(n=1, boot_id="b" * 80, inventory=found)]
    batch = ReportBatch(node=name, incarnation="\x01" * INCARNATION_CHARS_MAX, reports=reports)
    assert fault_of(name, batch) is None
    return batch
