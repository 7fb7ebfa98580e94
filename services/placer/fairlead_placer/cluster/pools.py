"""Pools of nodes, and the index of each: its nodes, in rows of like nodes. Also when the capacity for placing last
grew.

Derived from the nodes, and from how pools are to be packed. A pool is there while it has a node.

Derived; never in a snapshot.

Nodes are alike if they are of one build, with equal GPUs left and nearly as much CPU and memory. Rows give the cost
of a choice, and where none can fit; the `seat` decides if a unit fits a node.

A node that takes work is in one row, and there under the mask of its free GPUs, by name: history leaves no trace in
the order in which nodes are chosen. Nodes that take no work, or are kept for a job, are set aside.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping

import numpy as np

from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_placer.cluster.capacity.node_allocation import count_idle
from fairlead_placer.cluster.capacity.node_shape import NodeShape, NodeShapes
from fairlead_placer.cluster.capacity.topology_domains import Domains
from fairlead_placer.cluster.capacity.unit_request import PackingRequest, UnitRequest, typical, unit_requests
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.packing.costs import Costs
from fairlead_placer.packing.moves import Moves, RowCosts
from fairlead_placer.packing.policies import DEFAULT, POLICIES
from fairlead_placer.packing.policy import Arrivals, EmptyNode, Ints, TypicalWork
from fairlead_placer.packing.rows import Key, Rows, ShapeFacts
from fairlead_placer.topology.gpu_topology import members_of
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, Packing
from fairlead_schemas.wire.resources import TOPOLOGY_GPUS_MAX, Request

#: Rows per node, and spare rows, beyond which rows without nodes are forgotten.
ROWS_PER_NODE, ROWS_SPARE = 4, 1024
#: The same of states that some job would leave.
STATES_PER_NODE, STATES_SPARE = 16, 1 << 16


class PoolIndex:
    """A pool's nodes."""

    def __init__(self, policy: str = DEFAULT) -> None:
        self.members: dict[str, ClusterNode] = {}
        self.aside: dict[str, ClusterNode] = {}
        #: Nodes that were `put` and are not brought to where they belong yet.
        self.unsettled: dict[str, ClusterNode] = {}
        #: GPUs of all members.
        self.gpus = 0
        self.rows = Rows()
        #: By name: that of jobs which ask for none (see `choose_by`).
        self.policy = policy
        self._moves = Moves(self.rows)
        #: [row]: {mask of free GPUs: names, rising}. Where it matters only how many are free, masks are 0.
        self.inhabitants: list[dict[int, list[str]]] = []
        self.builds: dict[int, NodeShape] = {}
        #: True if a node here may have, or had, GPUs that are repartitioned; and True for GPUs that are made whole
        #: again.
        self.repartitions = self.switches = False
        self.domains = Domains()
        #: The version at which a node last came, went or changed.
        self.stirred = 0
        #: Nodes that take work and have more than before, with the version of their last gain; and that of the last of all.
        self.gains: dict[str, tuple[ClusterNode, int]] = {}
        self.gained_last = 0
        #: [row]: the version at which a node that is in it gained last.
        self._row_gains: Ints = np.zeros(0, np.int64)
        #: Version at which a node that is kept for a job last gained something, or came to be kept.
        self.lent = 0
        self._costs: dict[str, Costs] = {}
        self._wanted: dict[UnitRequest, PackingRequest] = {}

    # -- nodes come and go

    def add(self, node: ClusterNode) -> None:
        """A node that is new here."""
        self.members[node.name] = node
        self.gpus += len(node.left.uuids)
        build = node.left.build
        if build.number not in self.builds:
            self._meet(build)
        self.rows.join(machine_of(build))
        node.slot = self.domains.add(node.name, node.inventory.labels)
        self.put(node)

    def discard(self, node: ClusterNode) -> None:
        """The node belongs elsewhere."""
        self.unsettled.pop(node.name, None)
        self.gains.pop(node.name, None)  # its row will be another pool's
        self._lift(node)
        self.gpus -= len(node.left.uuids)
        self.rows.join(machine_of(node.left.build), -1)
        self.aside.pop(node.name, None)
        self.domains.discard(node.slot)
        del self.members[node.name]

    def put(self, node: ClusterNode) -> None:
        """The node is to be brought to where it belongs, before anybody looks (`settled`): a decision that is tried,
        undone and folded moves it once."""
        self.unsettled[node.name] = node

    def settled(self) -> "PoolIndex":
        """The same, with every node where it belongs."""
        unsettled = self.unsettled
        if unsettled:
            for node in unsettled.values():
                self._settle(node)
            unsettled.clear()
        return self

    def _settle(self, node: ClusterNode) -> None:
        if node.keeper or not node.open:
            self._lift(node)
            self.aside[node.name] = node
            return
        if self.aside:
            self.aside.pop(node.name, None)
        left = node.left
        build, cpu, memory = left.build, left.cpu_milli, left.memory_mib
        mask = left.free if build.telling else 0
        if left.faulted:
            mask |= left.faulted << TOPOLOGY_GPUS_MAX  # above the bits of the free ones
        rests = rests_of(left) if left.shared else ()
        whole, cut = (left.free.bit_count(), ()) if left.cuts is None else cut_of(left)
        cpu_low, memory_low, cpu_full, memory_full = build.grain
        if whole or rests:
            key = (build.number, cpu | cpu_low, memory | memory_low, whole, rests, cut)
        else:
            key = (build.number, cpu | cpu_full, memory | memory_full, 0, rests, cut)
        domains, slot, rows, before = self.domains, node.slot, self.rows, node.row
        domains.cpu[slot], domains.memory[slot] = cpu, memory
        row = rows.row_of.get(key)
        if row is None:
            row = rows.begin(key)
            self.inhabitants.append({})
        if row == before:
            if mask == node.mask:
                return
        else:
            rows.move(before, row)
            domains.rows[slot] = row
        name, inhabitants = node.name, self.inhabitants
        if before >= 0:
            _vacate(inhabitants[before], node)
        masks = inhabitants[row]
        names = masks.get(mask)
        if names is None:
            masks[mask] = [name]
        else:
            insort(names, name)
        node.row, node.mask = row, mask

    def _lift(self, node: ClusterNode) -> None:
        """Take the node out of its row, to none."""
        if node.row >= 0:
            _vacate(self.inhabitants[node.row], node)
            self.rows.move(node.row, -1)
            node.row = self.domains.rows[node.slot] = -1

    def _meet(self, build: NodeShape) -> None:
        """Add a build that no node of the pool had before. Which builds requests accept is worked out again."""
        if len(self.builds) > 2 * len(self.members) + 64:
            self.builds = {node.left.build.number: node.left.build for node in self.members.values()}
        self.builds[build.number] = build
        self.rows.know(build.number, ShapeFacts(build.model, build.grain))
        self.repartitions |= build.repartitions and bool(build.cut or build.switches)
        self.switches |= build.switches and bool(build.cut)
        self._wanted.clear()
        self._costs.clear()

    def tidy(self, version: int) -> None:
        """Drop empty rows once there are many. Nodes that wait to be settled are few more rows, counted the next time."""
        nodes, rows = len(self.members), self.rows
        if (
            rows.rows <= ROWS_PER_NODE * nodes + ROWS_SPARE
            and len(rows.lattice) <= STATES_PER_NODE * nodes + STATES_SPARE
        ):
            return
        self.settled()
        nodes = [node for node in self.members.values() if node.row >= 0]
        self.rows.clear()
        self.inhabitants.clear()
        self.gains.clear()
        self._row_gains = np.zeros(0, np.int64)
        self.stirred = version  # waiting jobs look again
        for node in nodes:
            node.row = -1
            self._settle(node)

    # -- what was gained

    def gained_since(self, asks: tuple[UnitRequest, ...], work: Arrivals[Request], version: int) -> bool:
        """True when a node that would take a unit of one of the asks, by its amounts, has gained since `version`."""
        if self.stirred > version:
            return True
        if self.gained_last <= version:
            return False
        if self.gains:
            self._note_gains()
        rows = np.flatnonzero(self._row_gains > version).tolist()
        lines = [self.line(ask, work)[1] for ask in asks]
        return any(line.takes(self.rows, row) for line in lines for row in rows)

    def _note_gains(self) -> None:
        if len(self._row_gains) < self.rows.rows:
            self._row_gains = np.concatenate([self._row_gains, np.zeros(self.rows.rows, np.int64)])
        for node, version in self.gains.values():
            if node.row >= 0:
                self._row_gains[node.row] = version
        self.gains.clear()

    def anything_gained_since(self, version: int) -> bool:
        """Return True if any node has gained capacity since `version`, for whatever request."""
        return max(self.stirred, self.gained_last) > version

    # -- what requests cost

    def choose_by(self, policy: str) -> None:
        """From now on by the policy of that name: what the one before had learned and worked out is void."""
        if policy != self.policy:
            self.policy = policy
            self._costs.pop("", None)

    def wanted(self, ask: UnitRequest) -> PackingRequest:
        """The ask, as costs are kept for it here."""
        wanted = self._wanted.get(ask)
        if wanted is None:
            if len(self._wanted) >= PACKING_REQUESTS_MAX:
                self._wanted.clear()
            wanted = self._wanted[ask] = PackingRequest(self.builds, ask)
        return wanted

    def _typical(self, work: Arrivals[Request]) -> TypicalWork:
        return typical(work, self.wanted)

    def line(self, ask: UnitRequest, work: Arrivals[Request]) -> tuple[Costs, RowCosts]:
        """Return the cost of the ask in each row now, by the policy that it requests or the pool's, with what has been
        learned by now."""
        policy = POLICY_WORDS.get(ask.request.packing, "")
        costs = self._costs.get(policy)
        if costs is None:
            costs = self._costs[policy] = Costs(POLICIES[policy or self.policy](), self.rows, self._moves)
        if work.arrived >= costs.due or costs.generation != self.rows.generation:
            costs.follow(work, self._typical)
        return costs, costs.line(self._wanted.get(ask) or self.wanted(ask))


def _vacate(masks: dict[int, list[str]], node: ClusterNode) -> None:
    """Take the name of a node off its row."""
    names = masks[node.mask]
    if len(names) == 1:
        del masks[node.mask]
    else:
        del names[bisect_left(names, node.name)]


#: Requests that are remembered at once, of each pool.
PACKING_REQUESTS_MAX = 4096
#: {how a job says it: policy}
POLICY_WORDS = {"pack": "most_allocated", "spread": "spread"}


def machine_of(build: NodeShape) -> EmptyNode:
    """A node of the build, as packing sees it."""
    return EmptyNode(build.cpu_milli, build.memory_mib, len(build.gpus), build.model)


def rests_of(left: FreeResources) -> tuple[int, ...]:
    """Return the rests of the GPUs that shares are on, ascending, without full ones."""
    milli = left.milli
    return tuple(sorted([rest for at in members_of(left.shared) if (rest := milli[at])]))


def cut_of(left: FreeResources) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Whole GPUs of a node, as packing sees them, and its idle MIG instances by profile. Under the single strategy it sees as
    many GPUs as there are idle instances."""
    cut = count_idle(left)
    more = sum(count for _, count in cut) if left.build.single else 0
    return left.free.bit_count() + more, cut


def key_of(left: FreeResources) -> Key:
    """Return the row of a node with this capacity left: its key has the most CPU and memory that such a node may have."""
    build = left.build
    whole, cut = cut_of(left)
    rests = rests_of(left)
    cpu_low, memory_low = build.grain[:2] if whole or rests else build.grain[2:]
    return Key(build.number, left.cpu_milli | cpu_low, left.memory_mib | memory_low, whole, rests, cut)


class Pools:
    """The index of every pool, under one version for all."""

    def __init__(self, packings: Mapping[str, Packing]) -> None:
        """Build the pools. `packings`: {pool: its policy} of pools that do not use the default one; code that changes it must
        call `repacked`.
        """
        self._packings = packings
        self._indices: dict[str, PoolIndex] = {}
        self.builds = NodeShapes()
        #: Rises with everything that could make a placement possible that was not.
        self.version = 0
        #: The version at which a pool last lost its last node.
        self._vanished = 0
        self._nowhere = PoolIndex()

    def of(self, request: Request) -> PoolIndex:
        """The index of the request's pool (an empty one where there is no such pool)."""
        # As `pool_of`: this is done for every offer.
        index = self._indices.get(request.pool or DEFAULT_POOL, self._nowhere)
        return index.settled() if index.unsettled else index

    def each(self) -> dict[str, PoolIndex]:
        """{pool: its index}."""
        return {pool: index.settled() for pool, index in self._indices.items()}

    def enter(self, node: ClusterNode) -> None:
        """Add a node that is in no pool yet: every class of its pool looks again."""
        index = self._indices.get(node.pool)
        if index is None:
            index = self._indices[node.pool] = PoolIndex(self._packings.get(node.pool, DEFAULT))
        index.add(node)
        self._stir(index)

    def leave(self, node: ClusterNode) -> None:
        """The node is no longer of its pool (a refusal's reasons are others, too)."""
        index = self._indices[node.pool]
        index.discard(node)
        self._stir(index)
        if not index.members:
            del self._indices[node.pool]
            self._vanished = self.version

    def changed(self, node: ClusterNode) -> None:
        """Update a node that starts or stops taking work, or that was seen again."""
        index = self._indices[node.pool]
        index.put(node)
        self._stir(index)

    def repacked(self, pool: str) -> None:
        """Change the pool to another policy. The possible placements stay the same, so no job needs to look again."""
        index = self._indices.get(pool)
        if index is not None:
            index.choose_by(self._packings.get(pool, DEFAULT))

    def _stir(self, index: PoolIndex) -> None:
        self.version += 1
        index.stirred = self.version

    def put(self, node: ClusterNode) -> None:
        """Bring the node to where it belongs now."""
        self._indices[node.pool].unsettled[node.name] = node  # as Index.put: this is done for every unit

    def gained(self, node: ClusterNode) -> None:
        """The node has more than before: bring it to where it belongs now."""
        index, name = self._indices[node.pool], node.name
        index.unsettled[name] = node
        self.version = version = self.version + 1
        if node.keeper:
            index.lent = version
        elif node.open:
            index.gains[name] = node, version
            index.gained_last = version

    def stir_offers(self) -> None:
        """There is something more to decide; capacity is what it was."""
        self.version += 1

    def gained_since(self, request: Request, work: Arrivals[Request], version: int) -> bool:
        """True when a node that the request could use has gained since `version`, or its pool is another."""
        return self._vanished > version or self.of(request).gained_since(unit_requests(request), work, version)

    def tidy(self) -> None:
        """Forget what no node needs any more; not while a decision is tried."""
        for index in self._indices.values():
            index.tidy(self.version)
