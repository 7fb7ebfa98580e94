"""One pool: its nodes, in rows of those that are alike, and who is in each. Derived; never in a snapshot.

A node that takes work is in one row, and there under the mask of its free GPUs, by name: history leaves no trace in the
order in which nodes are chosen. Nodes that take no work, or are kept for a job, stand aside.
"""

from bisect import bisect_left, insort

from fairlead_placer.capacity.asks import Ask
from fairlead_placer.capacity.builds import Build
from fairlead_placer.capacity.domains import Domains
from fairlead_placer.capacity.instances import count_idle
from fairlead_placer.capacity.left import Left
from fairlead_placer.capacity.wanted import Wanted, typical
from fairlead_placer.entities import Node
from fairlead_placer.packing.costs import NEVER, Costs, Line
from fairlead_placer.packing.policies import DEFAULT, POLICIES
from fairlead_placer.packing.rows import Key, Rows
from fairlead_placer.packing.typical import Arrivals
from fairlead_schemas.inside import GPUS_MAX
from fairlead_schemas.resources import Request

#: Rows for each node, and more, beyond which those that nobody is in are forgotten.
ROWS_PER_NODE, ROWS_SPARE = 4, 1024
#: Gains that are remembered; who asks about older ones looks at everything.
GAINS_MAX = 4096


class Index:
    """A pool's nodes."""

    def __init__(self) -> None:
        self.members: dict[str, Node] = {}
        self.aside: dict[str, Node] = {}
        self.rows = Rows()
        #: [row]: {mask of free GPUs: names, rising}. Where nothing is known of a node's inside, masks are all 0.
        self.inhabitants: list[dict[int, list[str]]] = []
        self.builds: dict[int, Build] = {}
        #: Whether some node here may have, or had, GPUs that are cut anew; and such as are made whole again.
        self.recuts = self.switches = False
        self.domains = Domains()
        #: The version at which a node last came, went or changed; {row: version} of what was gained since.
        self.stirred = 0
        self._gains: list[tuple[int, int]] = []
        self._forgotten = 0
        self._costs: dict[str, Costs] = {}
        self._wanted: dict[Ask, Wanted] = {}

    # -- nodes come and go

    def add(self, node: Node) -> None:
        """A node that is new here."""
        self.members[node.name] = node
        build = node.left.build
        if build.number not in self.builds:
            self._meet(build)
        node.slot = self.domains.add(node.name, node.inventory.labels)
        self.put(node)

    def discard(self, node: Node) -> None:
        """The node belongs elsewhere."""
        if node.row >= 0:
            self._lift(node)
        self.aside.pop(node.name, None)
        self.domains.discard(node.slot)
        del self.members[node.name]

    def put(self, node: Node) -> None:
        """Bring the node to where it belongs now."""
        if node.row >= 0:
            self._lift(node)
        if node.keeper or not node.open:
            self.aside[node.name] = node
            return
        if self.aside:
            self.aside.pop(node.name, None)
        left = node.left
        row = self.rows.enter(key_of(left))
        if row == len(self.inhabitants):
            self.inhabitants.append({})
        mask = left.free if left.build.inside.telling else 0
        if left.faulted:
            mask |= left.faulted << GPUS_MAX  # above the bits of the free ones
        masks = self.inhabitants[row]
        names = masks.get(mask)
        if names is None:
            masks[mask] = [node.name]
        else:
            insort(names, node.name)
        node.row, node.mask = row, mask
        self.domains.rows[node.slot] = row

    def _lift(self, node: Node) -> None:
        masks = self.inhabitants[node.row]
        names = masks[node.mask]
        if len(names) == 1:
            del masks[node.mask]
        else:
            del names[bisect_left(names, node.name)]
        self.rows.leave(node.row)
        self.domains.rows[node.slot] = -1
        node.row = -1

    def _meet(self, build: Build) -> None:
        """A build that nobody here had: what requests accept is looked at anew."""
        if len(self.builds) > 2 * len(self.members) + 64:
            self.builds = {node.left.build.number: node.left.build for node in self.members.values()}
        self.builds[build.number] = build
        self.recuts |= build.recuts and bool(build.cut or build.switches)
        self.switches |= build.switches and bool(build.cut)
        self._wanted.clear()
        self._costs.clear()

    def tidy(self, version: int) -> None:
        """Forget the rows that nobody is in, once they are many."""
        if self.rows.rows <= ROWS_PER_NODE * len(self.members) + ROWS_SPARE:
            return
        nodes = [node for node in self.members.values() if node.row >= 0]
        self.rows.clear()
        self.inhabitants.clear()
        self._gains.clear()
        self._forgotten = version
        for node in nodes:
            node.row = -1
            self.put(node)

    # -- what was gained

    def gained(self, node: Node, version: int) -> None:
        """A node that takes work has more than before."""
        if len(self._gains) >= GAINS_MAX:
            self._forgotten = self._gains[GAINS_MAX // 2 - 1][0]
            del self._gains[: GAINS_MAX // 2]
        self._gains.append((version, node.row))

    def gained_since(self, asks: tuple[Ask, ...], work: Arrivals[Request], version: int) -> bool:
        """True when a node that would take a unit of one of the asks, by its amounts, has gained since `version`."""
        if self.stirred > version or self._forgotten > version:
            return True
        gains = self._gains
        if not gains or gains[-1][0] <= version:
            return False
        since = {row for at, row in gains[bisect_left(gains, (version + 1, -1)) :] if at > version}
        costs = self.costs("", work)
        lines = [costs.line(self.wanted(ask)) for ask in asks]
        return any(line.cost[row] != NEVER for row in since for line in lines)

    def anything_gained_since(self, version: int) -> bool:
        """True when any node has gained since, whoever could use that."""
        newest = self._gains[-1][0] if self._gains else 0
        return max(self.stirred, self._forgotten, newest) > version

    # -- what requests cost

    def wanted(self, ask: Ask) -> Wanted:
        """The ask, as costs are kept for it here."""
        wanted = self._wanted.get(ask)
        if wanted is None:
            if len(self._wanted) >= WANTED_MAX:
                self._wanted.clear()
            wanted = self._wanted[ask] = Wanted(self.builds, ask)
        return wanted

    def line(self, ask: Ask, work: Arrivals[Request]) -> tuple[Costs, Line]:
        """What the ask costs in each row now, by the policy that it wants."""
        costs = self.costs(POLICY_WORDS.get(ask.request.packing, ""), work)
        return costs, costs.line(self.wanted(ask))

    def costs(self, policy: str, work: Arrivals[Request]) -> Costs:
        """Costs by the policy of that name ("": the default one), with what has been learned by now."""
        costs = self._costs.get(policy)
        if costs is None:
            costs = self._costs[policy] = Costs(POLICIES[policy or DEFAULT](), self.rows)
        if costs.follow(work.arrived):
            costs.learn(typical(work, self.wanted))
        return costs


#: Requests that are remembered at once, of each pool.
WANTED_MAX = 4096
#: {how a job says it: policy}
POLICY_WORDS = {"pack": "most_allocated", "spread": "spread"}


def key_of(left: Left) -> Key:
    """The row that a node with so much left is in."""
    build = left.build
    rests: tuple[int, ...] = ()
    if left.shared:
        rests = tuple(sorted(milli for milli in left.milli if 0 < milli < 1000))
    whole, cut = left.free.bit_count(), ()
    if left.cuts is not None:
        cut = count_idle(left)
        if build.single:  # packing sees as many GPUs as there are instances
            whole += sum(count for _, count in cut)
    return Key(build.number, build.model, left.cpu_milli, left.memory_mib, whole, rests, cut)
