"""Steps of a pool of a few nodes."""

import msgspec
from hypothesis import strategies as st

from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.pools import PoolIndex
from fairlead_placer.packing.policy import EmptyNode
from fairlead_placer.scheduling.node_selection import NodeSelection, find
from fairlead_schemas.queuefile.settings import MODEL_LABEL, POOL_LABEL
from fairlead_schemas.wire.resources import Gpu, Inventory, Request
from tests.placer.cluster.capacity.ground import Ground
from tests.placer.packing.anew import check

MACHINES = [EmptyNode(96_000, 393_216, 8, "A"), EmptyNode(64_000, 262_144, 4, "B"), EmptyNode(33_000, 65_537, 1, "A")]

MODELS = st.sampled_from([(), (), (f"{MODEL_LABEL} in (A)",), (f"{MODEL_LABEL} in (B,C)",)])
SIZES = [(0, 0), (1, 0), (1, 330), (1, 500), (1, 700), (2, 0), (2, 330), (4, 0), (8, 0)]
REQUESTS = st.builds(
    lambda cpu, memory, size, selector, packing: Request(
        cpu_milli=cpu, memory_mib=memory, gpu_milli=size[0] * (size[1] or 1000), gpu_parts=size[0] if size[1] else 0,
        selector=selector if size[0] else (), packing=packing,
    ),
    st.sampled_from([0, 100, 7_777, 12_000]), st.sampled_from([0, 4_096, 65_537]), st.sampled_from(SIZES), MODELS,
    st.sampled_from(["", "", "", "pack", "spread"]),
)  # fmt: skip
#: Place a request; or, by number: one that came before is looked at again, a job ends, a node is lost or found, goes to
#: another pool or comes back, is of another make from now on; a node joins; rows are forgotten; many such jobs arrive that
#: go nowhere. And whether anybody looks then.
THINGS = ["again", "again", "end", "end", "lose", "move", "become", "join", "tidy", "arrive"]
STEPS = st.tuples(
    st.one_of(REQUESTS, REQUESTS, st.tuples(st.sampled_from(THINGS), st.integers(0, 50))), st.sampled_from([0, 0, 1, 3])
)

MAKES = [
    *((machine, ()) for machine in MACHINES),
    (EmptyNode(5_000, 4_200, 3, "C"), ()),
    (EmptyNode(48_000, 99_999, 0), ()),
    (MACHINES[0], ("old:PreferNoSchedule",)),
    (MACHINES[1], ("own:NoSchedule",)),
]


def stock(name: str, make: int) -> Inventory:
    """A node of one of the makes."""
    machine, taints = MAKES[make % len(MAKES)]
    gpus = tuple(
        Gpu(uuid=f"{name}-{at}", index=at, model=machine.model, memory_mib=0, compute_capability=0)
        for at in range(machine.gpus)
    )
    labels = {MODEL_LABEL: machine.model} if machine.model else {}
    return Inventory(
        gpus=gpus,
        cpu_milli=machine.cpu_milli,
        memory_mib=machine.memory_mib,
        labels=labels,
        taints=taints,
        hostname=name,
    )


class Play:
    """A ground with one policy, and what happens there."""

    def __init__(self, policy: str, nodes: int) -> None:
        self.ground, self.policy, self.keys = Ground(), policy, list[str]()
        self.last = Request(gpu_milli=1000)
        self.seen = [self.last]
        for make in range(nodes):
            self.join(make)

    @property
    def index(self) -> PoolIndex:
        """The pool's; it is another one after its last node has left."""
        found = self.ground.state.pools.of(Request())
        found.policy = self.policy
        return found

    def do(self, step: Request | tuple[str, int], looks: int) -> None:
        """One step, and so many looks at what the last request would be told."""
        if isinstance(step, Request):
            self.place(step)
        else:
            getattr(self, step[0])(step[1])
        for _ in range(looks):
            self.look()

    def look(self) -> None:
        """At what the last request is told now."""
        assert self.index.rows.free_milli == sum(
            node.left.free_milli for node in self.index.members.values() if node.open
        )
        check(self.ground, self.last)

    def review(self) -> None:
        """Looks at what the last requests would be told."""
        for wanted in self.seen[-5:]:
            self.last = wanted
            self.look()

    def place(self, request: Request) -> None:
        """As the placer does: it learns, and looks for a place."""
        self.last = self.ground.state.intern(request)
        self.seen.append(self.last)
        self.arrive(1)
        assert self.index.policy == self.policy
        place = find(self.ground.state, self.last)
        if isinstance(place, NodeSelection):
            self.keys.append(self.ground.put(place))

    def again(self, at: int) -> None:
        self.last = self.seen[at % len(self.seen)]

    def arrive(self, times: int) -> None:
        for _ in range(times):
            self.ground.state.arrive(self.last)

    def end(self, at: int) -> None:
        if self.keys:
            self.ground.end(self.keys.pop(at % len(self.keys)))

    def node(self, at: int) -> ClusterNode:
        return list(self.ground.state.nodes.values())[at % len(self.ground.state.nodes)]

    def lose(self, at: int) -> None:
        node = self.node(at)
        self.ground.state.change(node, lost=not node.lost)

    def move(self, at: int) -> None:
        node = self.node(at)
        labels = dict(node.inventory.labels)
        if labels.pop(POOL_LABEL, None) is None:
            labels[POOL_LABEL] = "other"
        self.ground.state.change(node, inventory=msgspec.structs.replace(node.inventory, labels=labels))

    def become(self, at: int) -> None:
        node = self.node(at)
        inventory = stock(node.name, at)
        self.ground.state.change(node, inventory=inventory, taints=inventory.taints)

    def join(self, make: int) -> None:
        self.ground.join(stock(f"n{len(self.ground.state.nodes) * 37 % 100:02d}", make))

    def tidy(self, _: int) -> None:
        self.index.tidy(self.ground.state.pools.version)
