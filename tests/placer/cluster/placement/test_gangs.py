"""Several units: all or nothing, in the smallest domain that takes them; held against trying everything on small worlds."""

from collections.abc import Callable, Iterable
from itertools import product
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bench.vectors.allocation import descriptions
from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, seat, seat_several
from fairlead_placer.cluster.capacity.topology_domains import LEVELS as COLUMNS
from fairlead_placer.cluster.capacity.unit_request import unit_requests
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.placement import gangs as gangs_module
from fairlead_placer.cluster.placement.gangs import Shortfall
from fairlead_placer.scheduling.node_selection import NodeSelection, find
from fairlead_schemas.units.hardware import DOMAIN_LABELS, domain_of
from fairlead_schemas.wire.resources import Request
from tests.placer.cluster.capacity.ground import Ground, machine, requests

GEFORCE = descriptions()["rtx4090x8-pcie"]
LEVELS = ("node", *DOMAIN_LABELS, "")


def whole(gpus: int = 8, **more: object) -> Request:
    """Units of whole GPUs."""
    return Request(gpu_milli=gpus * 1000, **more)  # type: ignore[arg-type] -- a builder


def racks(*sizes: int, block: int = 2, **more: object) -> Ground:
    """Racks of so many nodes, `block` racks to a block: "r1n1", "r1n2" …"""
    ground = Ground()
    for rack, size in enumerate(sizes, 1):
        labels = {"fairlead/rack": f"r{rack}", "fairlead/block": f"b{(rack - 1) // block}"}
        for at in range(1, size + 1):
            ground.join(machine(f"r{rack}n{at}", labels=labels, **more))  # type: ignore[arg-type] -- a builder
    return ground


def nodes(found: NodeSelection | Shortfall | None) -> list[str]:
    """Return the nodes of a placement, in the order of ranks."""
    assert isinstance(found, NodeSelection), found
    return [part.node for part in found.parts]


# ---------------------------------------------------------------------------------- by example


def test_all_or_nothing() -> None:
    """Four of five nodes are no place for five; nothing is taken."""
    ground = racks(4)
    assert find(ground.state, whole(nodes=5)) == Shortfall(4, "", 0)
    assert all(node.left.parts == 0 for node in ground.state.nodes.values())
    assert nodes(ground.place(whole(nodes=4))) == ["r1n1", "r1n2", "r1n3", "r1n4"]


def test_the_smallest_domain_that_it_fills_best() -> None:
    """A rack of just so many nodes, not a part of a larger one; a block where no rack is enough; else the pool."""
    ground = racks(4, 2, 3, 2)
    assert nodes(ground.place(whole(nodes=2))) == ["r2n1", "r2n2"]
    assert nodes(ground.place(whole(nodes=5))) == ["r3n1", "r3n2", "r3n3", "r4n1", "r4n2"]
    assert nodes(ground.place(whole(nodes=3))) == ["r1n1", "r1n2", "r1n3"]


def test_few_domains_are_touched() -> None:
    """Over the pool, whole racks first, and the rest in the smallest that takes it."""
    found = nodes(racks(2, 5, 4, 3, block=1).place(whole(nodes=11)))
    assert {name[:2] for name in found} == {"r2", "r3", "r1"}


def test_a_required_level_is_not_given_up() -> None:
    """No rack takes four though the block would: the refusal has the number that one rack takes."""
    ground = racks(3, 3)
    assert find(ground.state, whole(nodes=4, require=("rack",))) == Shortfall(4, "rack", 3)
    assert len(nodes(find(ground.state, whole(nodes=4, require=("block",))))) == 4
    assert len(nodes(find(ground.state, whole(nodes=4, prefer=("rack",))))) == 4


def test_a_node_without_location_labels_is_a_rack_by_itself() -> None:
    """A gang that must be in one rack does not go there; several tasks on one node do."""
    ground = Ground()
    for at in range(3):
        ground.join(machine(f"n{at}"))
    assert find(ground.state, whole(nodes=2, require=("rack",))) == Shortfall(2, "rack", 1)
    assert nodes(find(ground.state, whole(1, nodes=8, tasks=True, require=("rack",)))) == ["n0"]
    assert isinstance(find(ground.state, whole(1, nodes=9, tasks=True, require=("rack",))), Shortfall)


def test_a_domain_that_spans_what_is_required() -> None:
    """An NVLink domain over two racks is no reason to leave the rack."""
    ground = Ground()
    for at in range(4):
        labels = {"fairlead/rack": f"r{at // 2}", "fairlead/nvlink-domain": "v1"}
        ground.join(machine(f"n{at}", labels=labels))
    ground.state.change(ground.state.nodes["n1"], quarantined=True)
    assert nodes(find(ground.state, whole(nodes=2, require=("rack",)))) == ["n2", "n3"]
    assert isinstance(find(ground.state, whole(nodes=3, require=("rack",))), Shortfall)
    assert len(nodes(find(ground.state, whole(nodes=3)))) == 3


def test_elastic_takes_as_many_as_can_be_had() -> None:
    """In the domain that it must lie in: the one that takes most; never fewer than its least."""
    ground = racks(2, 3)
    assert nodes(find(ground.state, whole(nodes=9, nodes_min=2, require=("rack",)))) == ["r2n1", "r2n2", "r2n3"]
    assert len(nodes(find(ground.state, whole(nodes=9, nodes_min=2)))) == 5
    assert find(ground.state, whole(nodes=9, nodes_min=4, require=("rack",))) == Shortfall(5, "rack", 3)
    assert nodes(find(ground.state, whole(nodes=2, nodes_min=1))) == ["r1n1", "r1n2"]


def test_tasks_share_nodes() -> None:
    """As few nodes as can be; each part says how many tasks it has."""
    ground = racks(2)
    found = find(ground.state, whole(1, nodes=8, tasks=True))
    assert isinstance(found, NodeSelection)
    assert [(part.node, len(part.gpus), part.tasks) for part in found.parts] == [("r1n1", 8, 8)]
    ground.put(found)
    two = ground.place(whole(3, nodes=2, tasks=True, cpu_milli=1000))
    assert two is not None and [(len(part.gpus), part.tasks, part.cpu_milli) for part in two.parts] == [(6, 2, 2000)]
    assert ground.place(whole(3, nodes=1, tasks=True)) is None
    assert ground.place(whole(1, nodes=2, tasks=True)) is not None


def test_each_task_is_placed_on_one_numa_node() -> None:
    """A topology requirement holds for each task, not for all tasks of a node together."""
    ground = Ground()
    ground.join(machine("n1", inside=GEFORCE, cpu=224))
    found = ground.place(whole(4, nodes=2, tasks=True, require=("numa",)))
    assert found is not None and [(part.node, len(part.gpus)) for part in found.parts] == [("n1", 8)]


def test_two_kinds_or_none() -> None:
    """Each kind gets its own nodes; ranks of the first kind come first."""
    ground = Ground()
    for at in range(2):
        ground.join(machine(f"big{at}", gpus=8))
        ground.join(machine(f"cpu{at}", gpus=0))
    wanted = Request(nodes=2, gpu_milli=8000, also=(Request(nodes=1, cpu_milli=60_000),))
    assert nodes(find(ground.state, wanted)) == ["big0", "big1", "cpu0"]
    wanted = msgspec.structs.replace(wanted, also=(Request(nodes=3, cpu_milli=60_000),))
    assert isinstance(find(ground.state, wanted), Shortfall)


def test_the_first_kind_leaves_the_others_their_nodes() -> None:
    """The cheapest node of the first kind is the only one of the second: it goes elsewhere."""
    ground = Ground()
    ground.join(machine("a", gpus=1, labels={"zone": "x"}))
    ground.join(machine("b", gpus=8))
    other = Request(gpu_milli=1000, selector=("zone=x",))
    assert nodes(find(ground.state, whole(1))) == ["a"]
    assert nodes(find(ground.state, msgspec.structs.replace(whole(1), also=(other,)))) == ["b", "a"]
    assert isinstance(find(ground.state, whole(1, nodes=2, also=(other,))), Shortfall)


def test_kinds_that_find_no_room_together_come_to_an_end() -> None:
    """Each alone would find room in the rack, both do not; they do in the other one."""
    ground = racks(2, 3)
    other = Request(nodes=2, gpu_milli=2000)
    found = find(ground.state, whole(nodes=1, require=("rack",), also=(other,)))
    assert {name[:2] for name in nodes(found)} == {"r2"}
    assert find(ground.state, whole(nodes=2, require=("rack",), also=(other,))) == Shortfall(4, "rack", 3)


def test_avoided_and_closed_nodes_take_no_part() -> None:
    """Those that the job has failed on, and those that take no work."""
    ground = racks(4)
    ground.state.change(ground.state.nodes["r1n2"], quarantined=True)
    assert nodes(find(ground.state, whole(nodes=2), {"r1n1"})) == ["r1n3", "r1n4"]
    assert isinstance(find(ground.state, whole(nodes=3), {"r1n1"}), Shortfall)


def test_an_exclusive_gang() -> None:
    """On empty nodes alone."""
    ground = racks(3)
    assert ground.place(whole(1)) is not None
    assert isinstance(find(ground.state, whole(1, nodes=3, exclusive=True)), Shortfall)
    found = ground.place(whole(1, nodes=2, exclusive=True))
    assert nodes(found) == ["r1n2", "r1n3"]
    assert isinstance(find(ground.state, whole(1, nodes=2)), Shortfall)


# ---------------------------------------------------------------------------------- against brute force


@st.composite
def worlds(draw: st.DrawFn) -> Ground:
    """Up to six nodes in up to three racks, two blocks and two NVLink domains (in any relation), some of them in use."""
    ground = Ground()
    for at in range(draw(st.integers(1, 6))):
        labels = {
            key: draw(st.sampled_from(names))
            for key, names in (
                ("fairlead/rack", ["", "r1", "r2", "r3"]),
                ("fairlead/block", ["", "b1", "b2"]),
                ("fairlead/nvlink-domain", ["", "", "v1", "v2"]),
            )
        }
        labels = {key: name for key, name in labels.items() if name} | draw(st.sampled_from([{}, {"zone": "x"}]))
        inside = draw(st.sampled_from([machine().inside, GEFORCE]))
        found = machine(f"n{at}", draw(st.sampled_from([2, 4, 8])), inside=inside, labels=labels)
        ground.join(found, **draw(st.sampled_from([{}, {}, {}, {"quarantined": True}])))
    for request in draw(st.lists(requests(), max_size=6)):
        ground.place(request)
    return ground


@st.composite
def gangs(draw: st.DrawFn) -> Request:
    """Nodes, elastic nodes, tasks, or several kinds; with or without a domain that they must lie in."""
    one = draw(requests(units=draw(st.integers(2, 5))))
    require = tuple(sorted({*one.require, *draw(st.sampled_from([(), (), ("rack",), ("block",), ("nvlink-domain",)]))}))
    one = msgspec.structs.replace(one, require=require)
    match draw(st.sampled_from(["nodes", "elastic", "tasks", "kinds", "kinds"])):
        case "elastic":
            return msgspec.structs.replace(one, nodes_min=draw(st.integers(1, one.nodes - 1)))
        case "tasks":
            return msgspec.structs.replace(one, tasks=True)
        case "kinds":
            also = tuple(
                Request(
                    nodes=draw(st.integers(1, 2)),
                    gpu_milli=draw(st.sampled_from([0, 1000, 2000])),
                    cpu_milli=draw(st.sampled_from([0, 1000])),
                    selector=draw(st.sampled_from([(), (), ("zone=x",)])),
                )
                for _ in range(draw(st.integers(1, 2)))
            )
            least = draw(st.sampled_from([0, 0, 1]))
            return msgspec.structs.replace(one, nodes=2, nodes_min=least, also=also)
        case _:
            return one


@st.composite
def halls(draw: st.DrawFn) -> Ground:
    """Up to 24 nodes, most of them where racks lie in blocks and these in spines, a few anywhere; some in use."""
    ground = Ground()
    size = draw(st.integers(1, 4))
    astray = draw(st.sampled_from([0, 0, 1, 5]))
    for at in range(draw(st.integers(2, 24))):
        rack = at // size if at % 7 >= astray else draw(st.integers(0, 5))
        places = {"rack": rack, "block": rack // 2, "spine": rack // 6}
        known = draw(st.sampled_from([places, places, places, {"rack": rack}, {}]))
        labels = {f"fairlead/{level}": f"{level}{number}" for level, number in known.items()}
        inside = draw(st.sampled_from([machine().inside, GEFORCE]))
        found = machine(f"n{at * 7 % 24:02}", draw(st.sampled_from([4, 8])), inside=inside, labels=labels)
        ground.join(found, **draw(st.sampled_from([{}, {}, {}, {"quarantined": True}])))
    for request in draw(st.lists(requests(), max_size=12)):
        ground.place(request)
    return ground


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.one_of(worlds(), halls()), gangs(), st.sets(st.sampled_from([f"n{at:02}" for at in range(24)]), max_size=3))
def test_the_short_way_and_the_general_one_lead_to_the_same(
    ground: Ground, request: Request, avoided: set[str]
) -> None:
    """The same nodes, parts and score, or the same shortfall, however a gang is looked at."""
    found = find(ground.state, request, avoided)
    with patch.object(gangs_module, "is_plain", return_value=False):
        assert find(ground.state, request, avoided) == found


@pytest.mark.slow
@given(st.one_of(worlds(), halls()))
def test_levels_within_a_level(ground: Ground) -> None:
    """Those left out divide none of its domains: all nodes of one lie in one of theirs."""
    index, checked = ground.state.pools.of(whole()), 0
    for level in COLUMNS:
        for outer in set(COLUMNS) - {level} - set(index.domains.within(level)):
            if index.domains.known(outer) and COLUMNS.index(outer) > COLUMNS.index(level):
                for members in domains(ground, level):
                    checked += 1
                    found = {domain_of(node.inventory.labels, outer) for node in members}
                    assert len(members) == 1 or (len(found) == 1 and "" not in found)
    assume(checked)


def domains(ground: Ground, level: str) -> list[list[ClusterNode]]:
    """The open nodes of each domain of the level; a node without one is one by itself."""
    found: dict[str, list[ClusterNode]] = {}
    for name, node in ground.state.nodes.items():
        at = domain_of(node.inventory.labels, level) if level in DOMAIN_LABELS else ""
        if node.open:
            found.setdefault(at or (f"node {name}" if level else "all"), []).append(node)
    return list(found.values())


def most_units(members: Iterable[ClusterNode], request: Request) -> int:
    """The most units of the first kind that these nodes take, with all units of the others; -1 where these find no room."""
    asks = unit_requests(request)
    takes: Callable[[ClusterNode, int], bool] = lambda node, kind: isinstance(  # noqa: E731 -- short
        seat(node.left, asks[kind]), NodeAllocation
    )
    if request.tasks:
        counts = (
            max(
                (
                    u
                    for u in range(1, request.nodes + 1)
                    if isinstance(seat_several(node.left, asks[0], u), NodeAllocation)
                ),
                default=0,
            )
            for node in members
        )
        return min(sum(counts), request.nodes)
    able = [[None, *(kind for kind in range(len(asks)) if takes(node, kind))] for node in members]
    best = -1
    for choice in product(*able):
        if all(choice.count(at) >= kind.nodes for at, kind in enumerate(request.kinds[1:], 1)):
            best = max(best, choice.count(0))
    return min(best, request.nodes)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(worlds(), gangs())
def test_a_gang_has_a_place_if_and_only_if_there_is_one(ground: Ground, request: Request) -> None:
    """As many units as any domain takes that it may lie in, in a domain of the smallest level that takes as many."""
    level, least = unit_requests(request)[0].level, request.nodes_min or request.nodes
    best = max((most_units(members, request) for members in domains(ground, level)), default=-1)
    found = find(ground.state, request)
    if best < least:
        assert isinstance(found, Shortfall), f"expected no place, found {found}"
        assert found.level == level
        if level and not request.also:
            assert max(best, 0) <= found.best < least, "as far as columns tell"
        return
    assert isinstance(found, NodeSelection), f"expected {best} units to find a place, found {found}"
    _check(ground, request, found, best)


def _check(ground: Ground, request: Request, found: NodeSelection, units: int) -> None:
    asks, used = unit_requests(request), [part.node for part in found.parts]
    assert len(set(used)) == len(used), "a node is used twice"
    others = sum(kind.nodes for kind in request.kinds[1:])
    first = found.parts[: len(found.parts) - others]
    assert sum(part.tasks for part in first) == units
    assert all(len(part.gpus) == asks[0].gpus * part.tasks for part in first)
    level, rest = asks[0].level, [part.node for part in found.parts[len(first) :]]
    assert _is_in_one(ground, used, level)
    smaller = LEVELS[: LEVELS.index(level or "")]
    exact = {name: node.inventory.labels for name, node in ground.state.nodes.items()}
    for each in smaller:
        if each == "node" and not request.tasks:
            continue
        if level and not _nested(exact.values(), each, level):
            continue
        if any(most_units(members, request) >= units for members in domains(ground, each)):
            assert _is_in_one(ground, used, each), f"{used} are not in one {each}, though they could be"
            break
    for kind in request.kinds[1:]:
        mine, rest = rest[: kind.nodes], rest[kind.nodes :]
        assert mine == sorted(mine)
    ground.put(found)
    for node in ground.state.nodes.values():
        assert node.left.cpu_milli >= 0 and node.left.memory_mib >= 0 and min(node.left.caps, default=0) >= 0


def _is_in_one(ground: Ground, names: list[str], level: str) -> bool:
    return not level or any({node.name for node in members} >= set(names) for members in domains(ground, level))


def _nested(labels: Iterable[dict[str, str]], level: str, outer: str) -> bool:
    if level == "node":
        return True
    pairs = {(domain_of(each, level), domain_of(each, outer)) for each in labels if domain_of(each, level)}
    return all(at for _, at in pairs) and len(pairs) == len({of for of, _ in pairs}) and bool(pairs)


@pytest.mark.parametrize("level", [level for level in LEVELS if level])
def test_a_gang_of_one_node_fits_any_domain(level: str) -> None:
    """Location requirements do not matter to a single node."""
    assert nodes(find(racks(1).state, whole(require=(level,)))) == ["r1n1"]
