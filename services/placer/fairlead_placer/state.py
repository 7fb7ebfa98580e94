"""What the placer knows: nodes, kept jobs, open offers, runs. Folded from the log and from nothing else.

The tables are mutable for speed, but only `evolve` changes them, through the methods of `State`: each one
notes its inverse in the journal while one is open, so that `decide` can try its own events on the state and
leave it as it was. Nothing that decides may depend on the order of a dict: an undone removal comes back last.
"""

from bisect import bisect_left, insort
from typing import Any, NamedTuple

import msgspec

from fairlead_placer.capacity import Index
from fairlead_schemas.events import Part, RunOutcome
from fairlead_schemas.resources import Gpu, Inventory, Request

READY, CORDONED, DRAINING, DRAINED = "ready", "cordoned", "draining", "drained"


class Node:
    """One machine and what it has left."""

    __slots__ = (
        "boot_id", "by", "cause", "cpu_free_milli", "deadline_ns", "duty", "entry", "gpus_free", "held", "holders",
        "hosts", "incarnation", "inventory", "level", "live", "lost", "memory_free_mib", "name", "reason", "reported",
        "size", "superseded", "uniform",
    )  # fmt: skip

    def __init__(self, name: str, incarnation: str, boot_id: str, inventory: Inventory) -> None:
        self.name = name
        #: The id of its agent's journal, and those it replaced (newest last, a few).
        self.incarnation = incarnation
        self.superseded: tuple[str, ...] = ()
        self.boot_id = boot_id
        #: Number of the last report that a commit consumed.
        self.reported = 0
        self.lost = False
        #: ready | cordoned | draining | drained, who set it and why; it outlives the agent.
        self.duty = READY
        self.by = ""
        self.reason = ""
        #: Cause of the drain ("cmd:<id>"), and when its runs are stopped (0: never, or done).
        self.cause = ""
        self.deadline_ns = 0
        #: {run key: rank} of every part that is not released yet, dirty ones included.
        self.held: dict[str, int] = {}
        #: {GPU UUID: run key}.
        self.holders: dict[str, str] = {}
        #: Held parts whose rank has not ended.
        self.live = 0
        self.inventory = inventory
        self.hosts: tuple[str, ...] = (inventory.address,)
        self.uniform = is_uniform(inventory.gpus)
        self.gpus_free = len(inventory.gpus)
        self.cpu_free_milli = inventory.cpu_milli
        self.memory_free_mib = inventory.memory_mib
        #: Where the index has it: (CPU free, name, node), bucket, GPUs in all; None while it takes no work.
        self.entry: tuple[int, str, Node] | None = None
        self.level = 0
        self.size = 0

    @property
    def open(self) -> bool:
        """True when it may be given new work."""
        return not self.lost and self.duty == READY


def is_uniform(gpus: tuple[Gpu, ...]) -> bool:
    """True when every GPU is as good as any other of the node."""
    return len({(gpu.model, gpu.memory_mib, gpu.compute_capability) for gpu in gpus}) <= 1


class Job:
    """What an order needs of a job; kept from its submission to its end (an array: to the whole array's end)."""

    __slots__ = ("grace_ns", "name", "queue", "request", "spec", "user")

    def __init__(self, name: str, queue: str, user: str, grace_ns: int, request: Request, spec: msgspec.Raw) -> None:
        self.name = name
        self.queue = queue
        self.user = user
        self.grace_ns = grace_ns
        self.request = request
        self.spec = spec


class Offer(NamedTuple):
    """An attempt that waits for a place."""

    job: str
    attempt: int
    rank: int
    cause: str  # "<sequence>.<index>" of its JobOffered
    request: Request


class Recall(NamedTuple):
    """An offer that the queue wants back."""

    job: str
    attempt: int
    cause: str
    #: Reason of the stop ("" for a mere recall): if the offer was placed all the same, its run is stopped.
    stop: str


class Outcome(NamedTuple):
    """What was said about a parked class, as far as it decides whether to say it again."""

    #: Causes named since `since_ns`: those that come and go are not named again each time.
    keys: tuple[str, ...]
    nodes: int
    since_ns: int


class OfferClass:
    """Open offers with equal requests: they fit or do not fit together."""

    __slots__ = ("failed_at", "offers", "outcome", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        #: (rank, job), rising.
        self.offers: list[tuple[int, str]] = []
        self.outcome: Outcome | None = None
        #: Version of the index at which it fitted nowhere (-1: not tried). A memory of work done, not state: trying
        #: again places nothing either. What a fresh look may do, after a restart, is name causes that have changed
        #: since the last look.
        self.failed_at = -1


class Verdict(NamedTuple):
    """How a rank ended."""

    outcome: RunOutcome
    exit_code: int | None
    signal: int | None
    rank: int
    message: str


class Run:
    """One authorised attempt on its nodes. Ranks are bits: rank 0 is 1, rank 1 is 2, rank 2 is 4 …"""

    __slots__ = (
        "attempt", "ended", "epoch", "hosts", "job", "key", "master_address", "master_port", "parts", "released",
        "started", "stop", "verdict",
    )  # fmt: skip

    def __init__(self, job: str, attempt: int, epoch: int, parts: tuple[Part, ...], hosts: tuple[str, ...]) -> None:
        self.key = run_key(job, attempt)
        self.job = job
        self.attempt = attempt
        #: Sequence of the commit that placed it.
        self.epoch = epoch
        self.parts = parts
        self.hosts = hosts
        self.master_address = ""
        self.master_port = 0
        self.started = 0
        self.ended = 0
        self.released = 0
        #: Why its orders say stop: cancelled | time_limit | drained | "".
        self.stop = ""
        #: The first rank's end that was no success; it decides the outcome and stops the others.
        self.verdict: Verdict | None = None

    @property
    def all_ranks(self) -> int:
        """Every rank's bit."""
        return (1 << len(self.parts)) - 1


def run_key(job: str, attempt: int) -> str:
    """`run_key("812_3", 2) == "812_3.2"`."""
    return f"{job}.{attempt}"


class State:
    """Everything folded, the index derived from it, and the journal of a decision that is being tried."""

    def __init__(self) -> None:
        self.sequence = 0
        #: Inputs consumed, except reports (each node's number stands in the node).
        self.cursors: dict[str, int] = {}
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[str, Job] = {}
        self.offers: dict[str, Offer] = {}
        self.recalls: dict[str, Recall] = {}
        self.classes: dict[Request, OfferClass] = {}
        self.runs: dict[str, Run] = {}
        self.index = Index(self.nodes)
        #: Names of nodes that take no new work (derived): few, so that nobody has to look through all.
        self.closed: set[str] = set()
        #: Inverses of what was tried, newest last; None while folding.
        self.journal: list[tuple[Any, ...]] | None = None
        #: Nodes whose desired state a fold has changed, and whose number it moved, since somebody acted on it.
        self.touched: set[str] = set()
        self.advanced: set[str] = set()
        self._requests: dict[Request, Request] = {}

    # -- one change each, with its inverse

    def set(self, thing: object, name: str, value: object) -> None:
        """Set a field of a run or node that the index does not look at."""
        if self.journal is not None:
            self.journal.append((setattr, thing, name, getattr(thing, name)))
        setattr(thing, name, value)

    def put[V](self, table: dict[str, V], key: str, value: V) -> None:
        """Set or replace an entry of a table."""
        if self.journal is not None:
            if key in table:
                self.journal.append((table.__setitem__, key, table[key]))
            else:
                self.journal.append((table.pop, key))
        table[key] = value

    def drop[V](self, table: dict[str, V], key: str) -> V | None:
        """Remove an entry of a table, if it is there."""
        value = table.pop(key, None)
        if value is not None and self.journal is not None:
            self.journal.append((table.__setitem__, key, value))
        return value

    def change(self, node: Node, **fields: object) -> None:
        """Set fields of a node that the index looks at. Rare: joins, losses, cordons."""
        if self.journal is not None:
            self.journal.append((self._restore, node, {name: getattr(node, name) for name in fields}))
        self._restore(node, fields)

    def _restore(self, node: Node, fields: dict[str, object]) -> None:
        for name, value in fields.items():
            setattr(node, name, value)
        if "inventory" in fields:
            self.index.match(node)
        self._place(node)

    def _place(self, node: Node) -> None:
        (self.closed.discard if node.open else self.closed.add)(node.name)
        self.index.put(node)
        self.index.stir()

    def add_node(self, node: Node) -> None:
        """A node that was not known."""
        self.nodes[node.name] = node
        if self.journal is not None:
            self.journal.append((self._remove_node, node))
        self.index.match(node)
        self._place(node)

    def _remove_node(self, node: Node) -> None:
        del self.nodes[node.name]
        self.closed.discard(node.name)
        self.index.unmatch(node)
        self.index.remove(node)
        self.index.stir()

    def take(self, node: Node, key: str, rank: int, part: Part) -> None:
        """Give a part of a node to a run."""
        node.held[key] = rank
        if part.gpus:
            holders = node.holders
            for uuid in part.gpus:
                holders[uuid] = key
            node.gpus_free -= len(part.gpus)
        node.cpu_free_milli -= part.cpu_milli
        node.memory_free_mib -= part.memory_mib
        node.live += 1
        self.index.put(node)
        if self.journal is not None:
            self.journal.append((self._untake, node, key, part))

    def _untake(self, node: Node, key: str, part: Part) -> None:
        node.live -= 1
        self._give(node, key, part)

    def give(self, node: Node, key: str, part: Part) -> None:
        """A part of an ended rank is free again."""
        rank = node.held[key]
        self._give(node, key, part)
        if self.journal is not None:
            self.journal.append((self._ungive, node, key, rank, part))

    def _give(self, node: Node, key: str, part: Part) -> None:
        del node.held[key]
        for uuid in part.gpus:
            del node.holders[uuid]
        # A GPU may have left the inventory while it was held: then it does not become free.
        if part.gpus:
            node.gpus_free = sum(gpu.uuid not in node.holders for gpu in node.inventory.gpus)
        node.cpu_free_milli += part.cpu_milli
        node.memory_free_mib += part.memory_mib
        self.index.put(node)
        self.index.gained(node)

    def _ungive(self, node: Node, key: str, rank: int, part: Part) -> None:
        node.held[key] = rank
        for uuid in part.gpus:
            node.holders[uuid] = key
        if part.gpus:
            node.gpus_free = sum(gpu.uuid not in node.holders for gpu in node.inventory.gpus)
        node.cpu_free_milli -= part.cpu_milli
        node.memory_free_mib -= part.memory_mib
        self.index.put(node)

    def open_offer(self, offer: Offer) -> None:
        """An attempt waits for a place, in the class of its request."""
        self._open(offer)
        if self.journal is not None:
            self.journal.append((self._close, offer))

    def close_offer(self, job: str) -> Offer | None:
        """An attempt waits no more. Its class is forgotten with its last offer."""
        offer = self.offers.get(job)
        if offer is None:
            return None
        group = self._close(offer)
        if self.journal is not None:
            self.journal.append((self._reopen, offer, group))
        return offer

    def _open(self, offer: Offer) -> None:
        self.offers[offer.job] = offer
        group = self.classes.get(offer.request)
        if group is None:
            group = self.classes[offer.request] = OfferClass(offer.request)
        insort(group.offers, (offer.rank, offer.job))
        self.index.stir_offers()

    def _close(self, offer: Offer) -> OfferClass:
        del self.offers[offer.job]
        group = self.classes[offer.request]
        del group.offers[bisect_left(group.offers, (offer.rank, offer.job))]
        if not group.offers:
            del self.classes[offer.request]
        return group

    def _reopen(self, offer: Offer, group: OfferClass) -> None:
        self.classes[offer.request] = group
        self._open(offer)

    # -- marks for those who act; a decision that is only tried leaves none

    def touch(self, name: str) -> None:
        """The node's desired state is another one."""
        if self.journal is None:
            self.touched.add(name)

    def undo(self) -> None:
        """Take back everything in the journal and close it."""
        journal, self.journal = self.journal, None
        for entry in reversed(journal or ()):
            entry[0](*entry[1:])

    def intern(self, request: Request) -> Request:
        """One object for all equal requests."""
        if len(self._requests) > 4096:
            self._requests.clear()
        return self._requests.setdefault(request, request)
