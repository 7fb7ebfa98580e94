"""One unit: it is placed if and only if some node would take it, and refusals count every node once."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.vectors.allocation import descriptions
from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, seat
from fairlead_placer.cluster.capacity.node_shape import REPLICAS_LABEL, SHARING_LABEL
from fairlead_placer.cluster.capacity.unit_request import unit_requests
from fairlead_placer.cluster.entities import Offer
from fairlead_placer.cluster.pools import PoolIndex, key_of
from fairlead_placer.explain.reasons import cause_of, refusal
from fairlead_placer.scheduling.node_selection import NodeSelection, find
from fairlead_schemas.wire.resources import Request
from tests.placer.cluster.capacity.ground import Ground, grounds, machine, requests

DGX1 = descriptions()["dgx1-v100"]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    grounds(), st.lists(requests(), min_size=1, max_size=4), st.sampled_from([(), ("fairlead/rack=r1",), ("zone=b",)])
)
def test_a_request_that_fits_somewhere_is_placed(
    ground: Ground, wanted: list[Request], selector: tuple[str, ...]
) -> None:
    """The same answer as a check of every node; and the part is one that `seat` would give there."""
    for each in wanted:
        request = msgspec.structs.replace(each, selector=selector)
        able, found = ground.fitting(request), find(ground.state, request)
        assert isinstance(found, NodeSelection) == bool(able)
        _check_refusal(ground, request, len(able))
        if isinstance(found, NodeSelection):
            part = found.parts[0]
            assert part.node in able
            assert len(part.gpus) == unit_requests(request)[0].gpus
            ground.put(found)


def _check_refusal(ground: Ground, request: Request, able: int) -> None:
    """Every node once, by the cause that it has by itself."""
    told, ask = refusal(ground.state, Offer("1", 1, 1, "1.0", request)), unit_requests(request)[0]
    causes = [cause_of(node, ask, "1") for node in ground.state.nodes.values()]
    assert told.reasons == {cause: causes.count(cause) for cause in set(causes) if cause}
    assert (told.nodes, told.fitting) == (len(ground.state.nodes), able)
    assert told.nodes == told.fitting + sum(told.reasons.values())


@settings(max_examples=60, deadline=None)
@given(grounds(), st.lists(requests(), min_size=1, max_size=4))
def test_the_index_equals_one_built_from_the_nodes(ground: Ground, wanted: list[Request]) -> None:
    """An index built from scratch has the same rows, and the same rows fit."""
    live, fresh, other = ground.state.pools.of(Request()), PoolIndex(), Ground()
    for node in ground.state.nodes.values():
        copy = other.join(node.inventory, quarantined=node.quarantined, keeper=node.keeper, faulted=node.faulted)
        copy.left = node.left
        fresh.add(copy)
    fresh.settled()
    assert _here(live) == _here(fresh)
    assert sorted(live.aside) == sorted(fresh.aside)
    assert (
        live.rows.free_milli
        == fresh.rows.free_milli
        == sum(node.left.free_milli for node in live.members.values() if node.row >= 0)
    )
    for request in wanted:
        ask = unit_requests(request)[0]
        lines = [index.line(ask, ground.state.work_of(request))[1] for index in (live, fresh)]
        fits = [
            {
                index.rows.keys[row]
                for row in range(index.rows.rows)
                if index.inhabitants[row] and line.takes(index.rows, row)
            }
            for index, line in zip((live, fresh), lines, strict=True)
        ]
        assert fits[0] == fits[1]
        seats = {
            key_of(node.left)
            for node in live.members.values()
            if node.row >= 0 and isinstance(seat(node.left, ask), NodeAllocation)
        }
        assert seats <= fits[0], "a node that takes it is in a row that does not"


def _here(index: PoolIndex) -> dict[object, dict[int, list[str]]]:
    return {index.rows.keys[row]: masks for row, masks in enumerate(index.inhabitants) if masks}


def test_the_best_links_of_all_nodes_that_are_alike() -> None:
    """Of two nodes of which four GPUs are free each, the one whose pair is linked twice."""
    ground = Ground()
    for name, free in (("n1", 0b1100_0011), ("n2", 0b0000_1001)):
        node = ground.join(machine(name, inside=DGX1))
        taken = tuple(gpu.uuid for at, gpu in enumerate(node.inventory.gpus) if not free >> at & 1)
        place = find(ground.state, Request(gpu_milli=1000))
        assert isinstance(place, NodeSelection)
        part = msgspec.structs.replace(place.parts[0], node=name, gpus=taken[: 8 - 4] if name == "n1" else taken[:4])
        ground.put(msgspec.structs.replace(place, nodes=[node], parts=(part,)))
    left = {name: node.left for name, node in ground.state.nodes.items()}
    assert left["n1"].free.bit_count() == left["n2"].free.bit_count() == 4
    pair = Request(gpu_milli=2000)
    best = max(left, key=lambda name: _links(left[name], pair))
    found = find(ground.state, pair)
    assert isinstance(found, NodeSelection) and found.parts[0].node == best
    assert found.score["links"] == _links(left[best], pair)


def _links(left, request: Request) -> int:  # type: ignore[no-untyped-def] -- a Left
    found = seat(left, unit_requests(request)[0])
    assert isinstance(found, NodeAllocation)
    return found.link_score


def test_nodes_with_different_faults_are_alike() -> None:
    """Nothing is known of their insides: which of the GPUs is faulted does not keep the others from being used."""
    ground = Ground()
    for at in range(2):
        ground.join(machine(f"n{at}"), faulted={f"n{at}-g{at}": "xid79"})
    assert ground.place(Request(gpu_milli=2000)) is not None
    assert ground.place(Request(gpu_milli=7000)) is not None


def test_the_memory_of_a_share_is_looked_for_on_every_gpu() -> None:
    """The GPU that packing would take has thousandths left, and no memory; another one of the node has both."""
    ground = Ground()
    ground.join(machine(gpus=2, gpu_memory_mib=40000))
    assert ground.place(Request(gpu_milli=200, gpu_parts=1, gpu_memory_mib=39000)) is not None
    assert ground.place(Request(gpu_milli=200, gpu_parts=1, gpu_memory_mib=20000)) is not None


def test_replicas_of_a_node_with_finer_shares_than_its_pool_charges() -> None:
    """Eight of them fit on a GPU that its node shares in eight, though each is charged a quarter."""
    ground = Ground()
    ground.join(machine(gpus=1, labels={REPLICAS_LABEL: "8", SHARING_LABEL: "mps"}))
    wanted = Request(gpu_milli=250, gpu_parts=1, replicas=True)
    assert [ground.place(wanted) is not None for _ in range(9)] == [True] * 8 + [False]


def test_shapes_of_a_pool_with_changing_labels_are_forgotten() -> None:
    """Unused shapes are removed while their rows remain: nothing fits in these rows."""
    ground = Ground()
    ground.join(machine("n1"))
    ground.join(machine("n2", gpus=0))
    for at in range(90):
        ground.state.change(ground.state.nodes["n1"], inventory=machine("n1", labels={"version": str(at)}))
        assert isinstance(find(ground.state, Request(gpu_milli=1000)), NodeSelection)
    assert len(ground.state.pools.of(Request()).builds) < 90


@pytest.mark.parametrize("rack", ["r1", "r2"])
def test_a_selector_of_a_rack_is_obeyed(rack: str) -> None:
    """Nodes differ in their rack only, and the job goes to the selected one."""
    ground = Ground()
    for at in range(4):
        ground.join(machine(f"n{at}", labels={"fairlead/rack": f"r{at // 2 + 1}"}))
    wanted = Request(gpu_milli=8000, selector=(f"fairlead/rack={rack}",))
    found = [ground.place(wanted) for _ in range(3)]
    nodes = ["n0", "n1"] if rack == "r1" else ["n2", "n3"]
    assert [each.parts[0].node if each else "" for each in found] == [*nodes, ""]
    assert refusal(ground.state, Offer("1", 1, 1, "1.0", wanted)).reasons == {"selector": 2, "free_gpus": 2}
