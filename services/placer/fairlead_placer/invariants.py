"""Checks that must hold of a state at every event (ARCHITECTURE.md, Invariants; the placer's part). Used by tests and
simulation.
"""

from fairlead_placer.apply.jobs import RESERVATIONS_MAX, starving
from fairlead_placer.apply.nodes import REMOVED_MAX
from fairlead_placer.cluster.capacity.free_resources import FreeResources, MigInstances, cpu_mask
from fairlead_placer.cluster.capacity.node_shape import MILLI
from fairlead_placer.cluster.capacity.unit_request import unit_requests
from fairlead_placer.cluster.entities import ClusterNode, Reservation, pool_of_node
from fairlead_placer.cluster.failure_history import FAILED_ON_MAX, FAILS_MAX
from fairlead_placer.cluster.plans import keep_back
from fairlead_placer.cluster.pools import key_of
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.cluster.timeline.earliest_start import is_sound
from fairlead_placer.packing.policies import DEFAULT
from fairlead_schemas.wire.events import Part


class InvariantBroken(AssertionError):
    """A state that no valid log can lead to; the message says what was expected and what was found."""


def check(state: ClusterState) -> None:
    """I1 no GPU, CPU or memory twice; I2 capacity conserved; I6 gangs whole; derived tables true. Raises
    InvariantBroken."""
    for node in state.nodes.values():
        _check_node(state, node)
    _check_runs(state)
    _check_offers(state)
    _check_reservations(state)
    _check_index(state)
    _check_plans(state)


def _expect(ok: bool, message: str) -> None:
    if not ok:
        raise InvariantBroken(message)


def _check_node(state: ClusterState, node: ClusterNode) -> None:
    parts = {key: state.runs[key].parts[rank] for key, rank in node.held.items()}
    _check_gpus(node, parts)
    cpus = [cpu_mask(part.cpus) for part in parts.values() if part.cpus]
    _expect(sum(cpus) == _union(cpus), f"I1: a CPU of {node.name} is in two allocations: {sorted(parts)}")
    build = node.left.build
    fresh = FreeResources(
        build, node.left.uuids, MigInstances(node.inventory.gpus, build.mig_models) if build.cut else None
    )
    for uuid in node.faulted:
        fresh.fault(uuid)
    if node.name in state.layouts:
        keep_back(fresh, state.layouts[node.name])
    for part in parts.values():
        fresh.take(part)
    for name in (
        "cpu_milli",
        "memory_mib",
        "milli",
        "caps",
        "parts",
        "free",
        "shared",
        "faulted",
        "barred",
        "odd",
        "cpus",
    ):
        found, expected = getattr(node.left, name), getattr(fresh, name)
        _expect(found == expected, f"I2: {name} of {node.name}: expected {expected} left, found {found}")
    if node.left.cuts is not None and fresh.cuts is not None:
        held = (node.left.cuts.held, node.left.cuts.going), (fresh.cuts.held, fresh.cuts.going)
        _expect(held[0] == held[1], f"I2: MIG instances of {node.name}: expected {held[1]}, found {held[0]}")
    live = sum(not state.runs[key].ended >> rank & 1 for key, rank in node.held.items())
    _expect(node.live == live, f"{node.name}: expected {live} living ranks, found {node.live}")


def _union(masks: list[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _check_gpus(node: ClusterNode, parts: dict[str, Part]) -> None:
    """Check that no GPU is given out beyond a whole one and that a whole GPU has no further share."""
    used: dict[str, int] = {}
    instances: set[str] = set()
    cut: set[str] = set()
    for key, part in parts.items():
        if part.instances:
            cut.update(part.gpus)
            for each in part.instances:
                _expect(each not in instances, f"I1: MIG instance {each} of {node.name} is in two allocations: {key}")
                instances.add(each)
            continue
        for uuid in part.gpus:
            used[uuid] = used.get(uuid, 0) + (part.gpu_milli or MILLI)
            _expect(
                used[uuid] <= MILLI, f"I1: GPU {uuid} of {node.name} is given out to {used[uuid]} thousandths: {key}"
            )
    both = cut & used.keys()
    _expect(not both, f"I1: GPUs of {node.name} are given out by instances and otherwise: {sorted(both)}")


def _check_runs(state: ClusterState) -> None:
    for key, run in state.runs.items():
        names = [part.node for part in run.parts]
        _expect(len(set(names)) == len(names), f"I6: {key} uses a node twice: {names}")
        _expect(
            run.released & ~run.ended == 0,
            f"I1: {key} gave back a rank that has not ended: {run.released:b} {run.ended:b}",
        )
        _expect(run.released != run.all_ranks, f"{key} holds nothing and is still kept")
        for rank, name in enumerate(names):
            holds = name in state.nodes and state.nodes[name].held.get(key) == rank
            _expect(holds != bool(run.released >> rank & 1), f"I6: rank {rank} of {key} on {name}: held is {holds}")


def _check_offers(state: ClusterState) -> None:
    inside = {job for group in state.classes.values() for _, job in group.offers}
    _expect(inside == state.offers.keys(), f"offers and classes differ: {inside ^ state.offers.keys()}")
    _expect(not state.offers.keys() & state.withdrawals.keys(), "a withdrawn offer is still open")
    for group in state.classes.values():
        _expect(bool(group.offers) and group.offers == sorted(group.offers), f"class out of order: {group.offers}")


def _check_reservations(state: ClusterState) -> None:
    """Check that nodes are kept for offers that are open or being returned, and that since then only guests were placed there."""
    for job, kept in state.reservations.items():
        waiting = state.offers.get(job) or state.withdrawals.get(job)
        found = None if waiting is None else waiting.attempt
        _expect(found == kept.attempt, f"nodes are kept for {job}.{kept.attempt}, whose offer is not open ({found})")
        for name in kept.nodes:
            _check_guests(state, kept, state.nodes[name])
    keepers = {name: job for job, kept in state.reservations.items() for name in kept.nodes}
    found = {name: node.keeper for name, node in state.nodes.items() if node.keeper}
    _expect(keepers == found, f"nodes are kept as {keepers}, but record {found}")
    nodes = [name for kept in state.reservations.values() for name in kept.nodes]
    _expect(len(nodes) == len(keepers), f"a node is kept twice: {sorted(nodes)}")
    _expect(state.claims.keys() <= state.offers.keys(), f"claims without an offer: {sorted(state.claims)}")
    lacking = {job for job, preemption in state.preemption_requests.items() if not preemption.amounts}
    _expect(lacking <= state.offers.keys(), f"requests for a placement without an offer: {sorted(lacking)}")
    for pool in state.pools.each():
        _expect(starving(state, pool) <= RESERVATIONS_MAX, f"nodes of {pool} are kept for {starving(state, pool)} jobs")


def _check_guests(state: ClusterState, kept: Reservation, node: ClusterNode) -> None:
    """Check that later guests are gone by the reserved start, by their limits, or leave room for a unit of the job."""
    since, request = kept.since_of(node.name), state.request_of(kept.job)
    late = [key for key in node.held if state.runs[key].epoch > since]
    if not late or request is None:
        return
    _expect(
        not (kept.hole or request.also or request.tasks),
        f"{node.name} was kept for {kept.job} since {since}, and {late} were placed there after",
    )
    _expect(
        is_sound(state, kept, node, unit_requests(request)[0]),
        f"{node.name} is kept for {kept.job} from {kept.start_ns}, and its guests {late} may still be in its way",
    )


def _check_index(state: ClusterState) -> None:
    members: list[str] = []
    for pool, index in state.pools.each().items():
        _expect(bool(index.members), f"pool {pool} has no node and is still kept")
        policy = state.packings.get(pool, DEFAULT)
        _expect(index.policy == policy, f"pool {pool} goes by {index.policy}, and is to go by {policy}")
        names = [*index.aside]
        for row, masks in enumerate(index.inhabitants):
            here = [name for inside in masks.values() for name in inside]
            _expect(
                index.rows.here[row] == len(here),
                f"row {row} of {pool} counts {index.rows.here[row]}, holds {here}",
            )
            names += here
            for mask, inside in masks.items():
                _expect(bool(inside) and inside == sorted(inside), f"row {row} of {pool} is out of order: {inside}")
                for name in inside:
                    node = index.members[name]
                    _expect((node.row, node.mask) == (row, mask), f"{name} is at the wrong place of the index")
                    _expect(index.rows.keys[row] == key_of(node.left), f"{name} is not like the others of its row")
        _expect(sorted(names) == sorted(index.members), f"index of {pool} holds {sorted(names)}")
        members += [name for name, node in index.members.items() if _belongs(node, pool)]
        aside = sorted(name for name, node in index.members.items() if not node.takes_work or node.keeper)
        _expect(sorted(index.aside) == aside, f"pool {pool}: expected {aside} aside, found {sorted(index.aside)}")
    _expect(sorted(members) == sorted(state.nodes), f"pools hold {sorted(members)}")
    closed = {name for name, node in state.nodes.items() if not node.takes_work}
    _expect(state.closed == closed, f"expected {sorted(closed)} closed, found {sorted(state.closed)}")
    wrong = sorted(name for name, node in state.nodes.items() if node.open != node.takes_work)
    _expect(not wrong, f"it is not known any more whether these take work: {wrong}")
    suspects = {name for name, node in state.nodes.items() if node.suspect}
    _expect(state.suspects == suspects, f"expected {sorted(suspects)} suspect, found {sorted(state.suspects)}")
    ailing = {name for name, node in state.nodes.items() if node.ailing}
    _expect(state.ailing == ailing, f"expected {sorted(ailing)} ailing, found {sorted(state.ailing)}")


def _check_plans(state: ClusterState) -> None:
    """Rollouts have each node once; what is remembered of nodes and jobs is bounded."""
    for rollout in state.rollouts.values():
        names = [*rollout.pending, *(each.node for each in rollout.in_hand)]
        _expect(len(set(names)) == len(names), f"rollout {rollout.name} has a node twice: {names}")
        _expect(set(names) <= set(rollout.nodes), f"rollout {rollout.name} has nodes that are not its own: {names}")
    known = state.nodes.keys()
    both = known & state.removed.keys()
    _expect(not both, f"nodes are both known and removed: {sorted(both)}")
    _expect(len(state.removed) <= REMOVED_MAX, f"{len(state.removed)} removed nodes are remembered")
    planned = {name for plan in (*state.windows.values(), *state.rollouts.values()) for name in plan.nodes}
    _expect(planned <= known, f"plans are made for nodes that are unknown: {sorted(planned - known)}")
    _expect(state.failing.keys() <= known and state.acts.keys() <= known, "failures are kept of nodes that are unknown")
    longest = max(map(len, [*state.failing.values(), *state.failed_on.values()]), default=0)
    _expect(longest <= max(FAILS_MAX, FAILED_ON_MAX), f"{longest} failures are kept of one node or job")
    without = [job for job in state.failed_on if state.request_of(job) is None]
    _expect(not without, f"failures are kept of jobs that have ended: {without}")


def _belongs(node: ClusterNode, pool: str) -> bool:
    return node.pool == pool == pool_of_node(node.inventory)
