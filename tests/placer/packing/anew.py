"""Reference answers of a pool, computed from scratch from its nodes, each by itself; and a comparison with the cached
ones."""

from collections.abc import Iterator
from typing import NamedTuple

from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, seat
from fairlead_placer.cluster.capacity.unit_request import UnitRequest, unit_requests
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.placement.node_choice import best
from fairlead_placer.cluster.pools import PoolIndex, key_of
from fairlead_placer.packing.costs import Costs
from fairlead_placer.packing.moves import NEVER
from fairlead_placer.packing.policy import POINTS, NodeState, columns_of
from fairlead_placer.packing.rows import Grain, Key
from fairlead_schemas.units.taints import is_last_choice
from fairlead_schemas.wire.resources import TOPOLOGY_GPUS_MAX, Request
from tests.placer.cluster.capacity.ground import Ground


def choices_of(rests: tuple[int, ...], count: int, milli: int) -> list[tuple[int, tuple[int, ...]]]:
    """(what is left of the GPU before, GPUs after), the plain way: one GPU may be any that has room, several are the fullest."""
    able = [at for at, rest in enumerate(rests) if rest >= milli]
    if len(able) < count:
        return []
    chosen = [(at,) for at in able] if count == 1 else [tuple(able[:count])]
    found: dict[tuple[int, tuple[int, ...]], None] = {}
    for places in chosen:
        after = [rest - milli if at in places else rest for at, rest in enumerate(rests)]
        found[rests[places[0]] if count == 1 else 0, tuple(sorted(each for each in after if each))] = None
    return list(found)


class Choice(NamedTuple):
    """One, as `Costs.ranked` ranks it; `first` is the first name of its row."""

    cost: int
    tightness: int
    first: str
    rest: int
    key: Key


def rounded(cpu: int, memory: int, model: int, gpus: tuple[int, ...], grain: Grain) -> NodeState:
    """The state that stands for a node with so much left."""
    low = grain[:2] if gpus else grain[2:]
    return NodeState(cpu | low[0], memory | low[1], model, gpus)


def state_of(index: PoolIndex, node: ClusterNode) -> NodeState:
    """A node's, from what it has left."""
    left = node.left
    gpus = tuple(sorted(rest for at in range(len(left.uuids)) if (rest := left.rest(at))))
    model = 1 << index.rows.models[left.build.model]
    return rounded(left.cpu_milli, left.memory_mib, model, gpus, left.build.grain)


def after_of(node: ClusterNode, state: NodeState, ask: UnitRequest) -> Iterator[tuple[int, NodeState]]:
    """Return (the GPU's remainder before, the state after) of each choice on a node."""
    request, build = ask.request, node.left.build
    cpu, memory = state.cpu - request.cpu_milli, state.memory - request.memory_mib
    if cpu >= 0 and memory >= 0 and not ask.verdict(build).cause:
        for rest, gpus in choices_of(state.gpus, ask.gpus, ask.milli if ask.gpus else 0):
            yield rest, rounded(cpu, memory, state.model, gpus, build.grain)


def exhaustive(index: PoolIndex, costs: Costs, ask: UnitRequest) -> list[Choice]:
    """The cheapest choice of every node by itself, of equal ones the fullest GPU, each row's once; in order."""
    nodes: dict[Key, list[ClusterNode]] = {}
    for node in index.members.values():
        if node.open and not node.keeper:
            nodes.setdefault(key_of(node.left), []).append(node)
    found: list[Choice] = []
    for key, alike in nodes.items():
        state, build = state_of(index, alike[0]), alike[0].left.build
        choices = list(after_of(alike[0], state, ask))
        burden = (1 << 44) if is_last_choice(build.taints, ask.request.tolerations) else 0
        before, *after = priced(costs, [state, *(each for _, each in choices)])
        grown = [each if costs.policy.absolute else each - before for each in after]
        if costs.policy.steps:
            grown = [sum(each > step for step in costs.policy.steps) for each in grown]
        tight = ((state.gpus.count(1000) + 1 if build.model else 0) << 42) + max(state.cpu, 0)
        each = [(cost, rest) for (rest, _), cost in zip(choices, grown, strict=True)]
        if each:
            cost, rest = min(each)
            found.append(Choice(cost + burden, tight, min(node.name for node in alike), rest, key))
    return sorted(found)


def priced(costs: Costs, states: list[NodeState]) -> list[int]:
    """Return the cost of states at current prices."""
    held = costs.policy.held(columns_of(states, TOPOLOGY_GPUS_MAX))
    assert costs._states._prices is not None
    return (held.fixed - held.slots @ costs._states._prices).tolist()


def check(ground: Ground, request: Request) -> None:
    """Check that each cached answer equals the one computed without caches."""
    index, ask = ground.state.pools.of(request), unit_requests(request)[0]
    work = ground.state.work_of(request)
    costs, line = index.line(ask, work)
    wanted = exhaustive(index, costs, ask)
    groups = list(costs.ranked(line))
    assert [len({each[:2] for each in group}) for group in groups] == [1] * len(groups)
    told = [each for group in groups for each in group]
    assert [each[:2] for each in told] == [each[:2] for each in wanted]
    assert len({row for _, _, row, _ in told}) == len(told)
    keys, rests = index.rows.keys, line.move.rests.tolist()
    named = [
        Choice(
            cost, tight, min(name for names in index.inhabitants[row].values() for name in names), rests[at], keys[row]
        )
        for cost, tight, row, at in told
    ]
    assert sorted(named) == wanted
    check_rows(index, costs, ask, told)
    check_best(ground, request, wanted)


def check_rows(index: PoolIndex, costs: Costs, ask: UnitRequest, told: list[tuple[int, int, int, int]]) -> None:
    """Check each row's cost, the rows allowed for it, and the parts of a cost."""
    line = costs.line(index.wanted(ask))
    for cost, _, _, at in told:
        assert 0 <= cost - POINTS * sum(costs.parts(line, at)) < 2 * POINTS
    by_row = costs.by_row(line).tolist()
    assert {row: cost for row, cost in enumerate(by_row) if cost < NEVER} == {row: cost for cost, _, row, _ in told}
    taking = {row for row in range(index.rows.rows) if index.rows.here[row] and line.takes(index.rows, row)}
    assert taking == {row for _, _, row, _ in told}


def check_best(ground: Ground, request: Request, wanted: list[Choice]) -> None:
    """The node is the first of the cheapest row that has one with a seat."""
    index, ask = ground.state.pools.of(request), unit_requests(request)[0]
    found = best(index, ask, ground.state.work_of(request))
    able = (
        name
        for choice in wanted
        for name in sorted(index.members)
        if index.members[name].row >= 0
        and key_of(index.members[name].left) == choice.key
        and isinstance(seat(index.members[name].left, ask, choice.rest), NodeAllocation)
    )
    assert (found.node.name if found else "") == next(able, "")
