"""State of the placer: nodes, kept jobs, open offers, runs. Folded from the log and from no other source.

The tables are mutable for speed, but only `evolve` changes them, through the methods of `State`. Each method records
its inverse in the journal. `decide` can therefore try its own events on the state; the tried changes are taken back or,
once they are in the log, stay.
"""

from bisect import bisect_left, insort
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from fairlead_placer.cluster import undo_log
from fairlead_placer.cluster.capacity.free_resources import FreeResources, Mark, MigInstances
from fairlead_placer.cluster.entities import (
    ClusterNode,
    FastFail,
    JobFailure,
    JobRecord,
    LastSuccess,
    Offer,
    OfferClass,
    PlacedRun,
    PreemptionRequest,
    RemovedNode,
    Reservation,
    ReservationRequest,
    Withdrawal,
    pool_of_node,
)
from fairlead_placer.cluster.plans import LayoutPlan, RepartitionBackoff, RolloutPlan, Window, keep_back
from fairlead_placer.cluster.pools import Pools
from fairlead_placer.cluster.run_durations import LearnedDurations
from fairlead_placer.cluster.undo_log import PlacerUndoLog
from fairlead_placer.packing.policies import DEFAULT
from fairlead_placer.packing.policy import Arrivals
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, Packing
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.selectors import with_name
from fairlead_schemas.wire.events import Part
from fairlead_schemas.wire.resources import Request

#: Pools whose work is remembered.
POOLS_MAX = 1024
NOTHING_YET: Arrivals[Request] = Arrivals()


class ClusterState(PlacerUndoLog):
    """Everything folded, the index derived from it, and the journal of a decision that is being tried."""

    def __init__(self) -> None:
        super().__init__()
        self.sequence = 0
        #: Inputs consumed, except reports (each node keeps its own report number).
        self.cursors: dict[str, int] = {}
        self.nodes: dict[str, ClusterNode] = {}
        self.jobs: dict[str, JobRecord] = {}
        self.offers: dict[str, Offer] = {}
        self.withdrawals: dict[str, Withdrawal] = {}
        self.claims: dict[str, ReservationRequest] = {}
        self.preemption_requests: dict[str, PreemptionRequest] = {}
        self.reservations: dict[str, Reservation] = {}
        #: {job: attempt} of runs that have ended and whose end the queue has not answered: a late offer opens nothing.
        self.unanswered: dict[str, int] = {}
        #: {job that waits for another attempt: why the last one has ended}
        self.requeued: dict[str, str] = {}
        #: {job: where it has failed, and how}, newest last; until the job ends.
        self.failed_on: dict[str, tuple[JobFailure, ...]] = {}
        #: {node that was removed and has not come back: its journals}.
        self.removed: dict[str, RemovedNode] = {}
        #: {node: fast failures since a run did well there}; {user: where one did well last}.
        self.failing: dict[str, tuple[FastFail, ...]] = {}
        self.well: dict[str, LastSuccess] = {}
        #: {node: when it was taken out of work by itself}, for a while; what has tripped the breaker, and when; when
        #: a person has reset it.
        self.acts: dict[str, int] = {}
        self.tripped: dict[str, int] = {}
        self.reset_ns = 0
        #: {node: the plan to repartition one of its GPUs}; {GPU: how plans for it failed}.
        self.layouts: dict[str, LayoutPlan] = {}
        self.spoilt: dict[str, RepartitionBackoff] = {}
        self.windows: dict[str, Window] = {}
        self.rollouts: dict[str, RolloutPlan] = {}
        #: Pools whose runs may be moved to make room.
        self.defragmented: dict[str, bool] = {}
        #: {pool: its packing policy}, for pools that do not use the default one.
        self.packings: dict[str, Packing] = {}
        self.classes: dict[Request, OfferClass] = {}
        self.runs: dict[str, PlacedRun] = {}
        #: {pool: the work that has arrived there}: what packing takes for typical.
        self.arrivals: dict[str, Arrivals[Request]] = {}
        #: {kind of runs: how long they took}.
        self.spans: dict[str, LearnedDurations] = {}
        #: {job that nodes are kept for: when it was last looked whether they are still the best}. A memory of work
        #: done, not state.
        self.looked: dict[str, int] = {}
        #: What is left where (derived).
        self.pools = Pools(self.packings)
        #: Names of nodes that take no new work (derived). They are few, so that no caller has to scan all nodes.
        self.closed: set[str] = set()
        #: Names of suspect nodes, and of unhealthy ones (derived).
        self.suspects: set[str] = set()
        self.ailing: set[str] = set()
        self._requests: dict[Request, Request] = {}

    def request_of(self, job: str) -> Request | None:
        """Return the request of a kept job, or of an element of a kept array."""
        kept = self.jobs.get(array_of(job) or job)
        return None if kept is None else kept.request

    def job_of(self, run: PlacedRun) -> JobRecord | None:
        """The job of a run, or the array of an element; None once the queue has forgotten it."""
        job = run.job
        return self.jobs.get(job if "_" not in job else array_of(job) or job)

    def work_of(self, request: Request) -> Arrivals[Request]:
        """The work that has arrived in the request's pool."""
        return self.arrivals.get(request.pool or DEFAULT_POOL, NOTHING_YET)

    def arrive(self, request: Request) -> None:
        """A new job wants a place. Only folded, never tried."""
        pool = request.pool or DEFAULT_POOL
        arrivals = self.arrivals.get(pool)
        if arrivals is None:
            if len(self.arrivals) >= POOLS_MAX:
                return
            arrivals = self.arrivals[pool] = Arrivals()
        arrivals.observe(request)

    # -- one change each, with its inverse

    def change(self, node: ClusterNode, **fields: object) -> None:
        """Set fields of a node that the index looks at. Rare: joins, losses, cordons."""
        if self.journal is not None:
            self.journal.append((self._restore, node, {name: getattr(node, name) for name in fields}))
        self._restore(node, fields)

    def _restore(self, node: ClusterNode, fields: dict[str, object]) -> None:
        for name, value in fields.items():
            setattr(node, name, value)
        node.derive()
        self._sort(node)
        if "inventory" in fields or node.left.build.taints != node.taints:  # its labels may say another pool
            self.pools.leave(node)
            node.pool = pool_of_node(node.inventory)
            node.left = self._left(node)
            self.pools.enter(node)
        else:
            if "faulted" in fields:
                node.left = self._left(node)
            self.pools.changed(node)

    def _left(self, node: ClusterNode) -> FreeResources:
        """Return the unheld room of the node, from its inventory, taints, faults and held parts."""
        gpus, build = node.inventory.gpus, self.pools.builds.of(node.inventory, node.taints)
        left = FreeResources(
            build, tuple(gpu.uuid for gpu in gpus), MigInstances(gpus, build.mig_models) if build.cut else None
        )
        left.where = with_name(node.inventory.labels, node.name)
        for uuid in node.faulted:
            left.fault(uuid)
        if node.name in self.layouts:
            keep_back(left, self.layouts[node.name])
        for key, rank in node.held.items():
            left.take(self.runs[key].parts[rank])
        return left

    def lay_out(self, node: ClusterNode, plan: LayoutPlan | None) -> None:
        """A GPU of the node is to be cut so, or (None) is not any more."""
        if self.journal is not None:
            self.journal.append((self._lay_out, node, self.layouts.get(node.name)))
        self._lay_out(node, plan)

    def _lay_out(self, node: ClusterNode, plan: LayoutPlan | None) -> None:
        self.layouts.pop(node.name, None)
        if plan is not None:
            self.layouts[node.name] = plan
        node.left = self._left(node)
        self.pools.changed(node)

    def _sort(self, node: ClusterNode) -> None:
        """Into the few that need a look; whether it takes work may be another now."""
        node.open = node.takes_work
        (self.closed.discard if node.open else self.closed.add)(node.name)
        (self.suspects.add if node.suspect else self.suspects.discard)(node.name)
        (self.ailing.add if node.ailing else self.ailing.discard)(node.name)

    def pack(self, pool: str, packing: Packing) -> None:
        """Nodes of the pool are chosen by this policy from now on."""
        if self.journal is not None:
            self.journal.append((self._pack, pool, self.packings.get(pool, DEFAULT)))
        self._pack(pool, packing)

    def _pack(self, pool: str, packing: Packing) -> None:
        self.packings.pop(pool, None)
        if packing != DEFAULT:
            self.packings[pool] = packing
        self.pools.repacked(pool)

    def add_node(self, node: ClusterNode) -> None:
        """A node that was not known."""
        if self.journal is not None:
            self.journal.append((self._remove_node, node))
        self.nodes[node.name] = node
        node.left = self._left(node)
        self._sort(node)
        self.pools.enter(node)

    def remove_node(self, node: ClusterNode) -> None:
        """A node that holds nothing is not known any more."""
        self._remove_node(node)
        if self.journal is not None:
            self.journal.append((self._add_again, node))

    def _add_again(self, node: ClusterNode) -> None:
        self.nodes[node.name] = node
        self._sort(node)
        self.pools.enter(node)

    def _remove_node(self, node: ClusterNode) -> None:
        del self.nodes[node.name]
        for few in (self.closed, self.suspects, self.ailing):
            few.discard(node.name)
        self.pools.leave(node)

    def place(self, run: PlacedRun, nodes: Sequence[ClusterNode]) -> None:
        """An attempt that is new gets its parts, on these nodes in the order of its ranks; it waits no more."""
        journal, key, parts = self.journal, run.key, run.parts
        touched = self.touched
        if journal is not None:
            journal.append((self._unplace, run, nodes, [node.left.mark() for node in nodes]))
            touched = self._to_touch
        offer = self.offers.get(run.job)
        if offer is not None:
            self._close(offer)
        self.runs[key] = run
        for rank, node in enumerate(nodes):
            self._take(node, key, rank, parts[rank])
            touched.add(node.name)

    def _unplace(self, run: PlacedRun, nodes: Sequence[ClusterNode], marks: Sequence[Mark]) -> None:
        key = run.key
        del self.runs[key]
        for node, part, mark in zip(nodes, run.parts, marks, strict=True):
            node.live -= 1
            del node.held[key]
            node.left.back(mark, part)
            if node.suspect:
                self._sort(node)
            self.pools.gained(node)

    def take(self, node: ClusterNode, key: str, rank: int, part: Part) -> None:
        """Give a part of a node to a run."""
        if self.journal is not None:
            self.journal.append((self._untake, node, key, part))
        self._take(node, key, rank, part)

    def _take(self, node: ClusterNode, key: str, rank: int, part: Part) -> None:
        node.held[key] = rank
        node.left.take(part)
        node.live += 1
        if node.suspect:
            self._sort(node)
        self.pools.put(node)

    def _untake(self, node: ClusterNode, key: str, part: Part) -> None:
        node.live -= 1
        self._give(node, key, part)

    def give(self, node: ClusterNode, key: str, part: Part) -> None:
        """A part of an ended rank is free again."""
        if self.journal is not None:
            self.journal.append((self.hold, node, key, node.held[key], part))
        self._give(node, key, part)

    def _give(self, node: ClusterNode, key: str, part: Part) -> None:
        del node.held[key]
        node.left.give(part)
        if node.suspect:
            self._sort(node)
        self.pools.gained(node)

    def start_ranks(self, run: PlacedRun, ranks: int, at_ns: int) -> None:
        """These ranks (bits) have started; the first of a run is when it began."""
        if self.journal is not None:
            self.journal.append((self._unstart_ranks, run, run.started, run.began_ns))
        run.started |= ranks
        if not run.began_ns:
            run.began_ns = at_ns

    def _unstart_ranks(self, run: PlacedRun, started: int, began_ns: int) -> None:
        run.started, run.began_ns = started, began_ns

    def finish(self, run: PlacedRun) -> None:
        """The only rank of a run has ended, and its part is free again: `end_rank` and `release_rank` in one."""
        part, key = run.parts[0], run.key
        node = self.nodes[part.node]
        if self.journal is None:
            self.touched.add(node.name)
        else:
            self.journal.append((self._unfinish, run, node, part))
            self._to_touch.add(node.name)
        run.ended = run.released = 1
        del self.runs[key]
        node.live -= 1
        self._give(node, key, part)

    def _unfinish(self, run: PlacedRun, node: ClusterNode, part: Part) -> None:
        self.runs[run.key] = run
        run.ended = run.released = 0
        node.live += 1
        self.hold(node, run.key, 0, part)

    def end_rank(self, run: PlacedRun, rank: int) -> None:
        """A rank has ended; its part stays held until it is released."""
        node = self.nodes[run.parts[rank].node]
        if self.journal is not None:
            self.journal.append((self._unend_rank, run, node, run.ended))
        run.ended |= 1 << rank
        node.live -= 1
        self.touch(node.name)

    def _unend_rank(self, run: PlacedRun, node: ClusterNode, ended: int) -> None:
        run.ended = ended
        node.live += 1

    def release_rank(self, run: PlacedRun, rank: int) -> None:
        """The part of an ended rank is free again; a run is forgotten with its last one."""
        part = run.parts[rank]
        node = self.nodes[part.node]
        if self.journal is not None:
            self.journal.append((self._unrelease_rank, run, node, rank, part, run.released))
        run.released |= 1 << rank
        if run.released == run.all_ranks:
            del self.runs[run.key]
        self._give(node, run.key, part)
        self.touch(node.name)

    def _unrelease_rank(self, run: PlacedRun, node: ClusterNode, rank: int, part: Part, released: int) -> None:
        self.runs[run.key] = run
        run.released = released
        self.hold(node, run.key, rank, part)

    def hold(self, node: ClusterNode, key: str, rank: int, part: Part) -> None:
        """A part is held, whatever the inventory says by now: of GPUs that have left it none become fewer."""
        node.held[key] = rank
        node.left.take(part)
        if node.suspect:
            self._sort(node)
        self.pools.put(node)

    def open_offer(self, offer: Offer) -> None:
        """An attempt waits for a place, in the class of its request."""
        if self.journal is not None:
            self.journal.append((self._unopen, offer, offer.request not in self.classes))
        self._open(offer)

    def close_offer(self, job: str) -> Offer | None:
        """An attempt waits no more. Its class is forgotten with its last offer."""
        offer = self.offers.get(job)
        if offer is not None:
            self._close(offer)
        return offer

    def rerank(self, job: str, rank: int) -> None:
        """An open offer has another place in the order: nothing fits that did not, and nothing is news of its class."""
        offer = self.offers[job]
        if self.journal is not None:
            self.journal.append((self._rerank, offer))
        self._rerank(offer._replace(rank=rank))

    def _rerank(self, offer: Offer) -> None:
        group = self.classes[offer.request]
        del group.offers[bisect_left(group.offers, (self.offers[offer.job].rank, offer.job))]
        insort(group.offers, (offer.rank, offer.job))
        self.offers[offer.job] = offer

    def _open(self, offer: Offer) -> None:
        self.offers[offer.job] = offer
        group = self.classes.get(offer.request)
        if group is None:
            group = self.classes[offer.request] = OfferClass(offer.request)
        insort(group.offers, (offer.rank, offer.job))
        if group.picky or group.lent_at >= 0:
            self._joined(group)
        self.pools.version += 1  # as `stir_offers`: this is done for every offer

    def _joined(self, group: OfferClass) -> None:
        """There is one more in the class: what was found out about the others may not hold for it."""
        if group.picky:
            group.failed_at, group.picky = -1, False
        group.lent_at = -1

    def _close(self, offer: Offer) -> None:
        group = self.classes[offer.request]
        waiting, own = group.offers, (offer.rank, offer.job)
        at = 0 if waiting[0] == own else bisect_left(waiting, own)  # mostly it is the first one's turn
        if self.journal is not None:
            self.journal.append((self._reopen, offer, group, at))
        del self.offers[offer.job]
        del waiting[at]
        if not waiting:
            del self.classes[offer.request]

    def _unopen(self, offer: Offer, _is_new: bool) -> None:
        self._close(offer)

    def _reopen(self, offer: Offer, group: OfferClass, at: int) -> None:
        """Back to where it was: all that came after is taken back already."""
        self.offers[offer.job] = offer
        self.classes[offer.request] = group
        group.offers.insert(at, (offer.rank, offer.job))
        self._joined(group)
        self.pools.stir_offers()

    def reserve(self, kept: Reservation) -> None:
        """Keep these nodes, and no others, for the job."""
        if self.journal is not None:
            self.journal.append((self._keep, kept.job, self.reservations.get(kept.job)))
        self._keep(kept.job, kept)

    def unreserve(self, job: str) -> None:
        """Keep nothing for the job: its nodes take any work again."""
        kept = self.reservations.get(job)
        if kept is None:
            return
        if self.journal is not None:
            self.journal.append((self._keep, job, kept))
        self._keep(job, None)

    def _keep(self, job: str, kept: Reservation | None) -> None:
        before = self.reservations.pop(job, None)
        for name in before.nodes if before is not None else ():
            node = self.nodes[name]
            node.keeper = ""
            self.pools.gained(node)
        if kept is None:
            return
        self.reservations[job] = kept
        for name in kept.nodes:
            node = self.nodes[name]
            node.keeper = job
            self.pools.gained(node)

    def abort(self) -> None:
        """Restore the facts that a snapshot is made of, after an exception that may have struck in the middle of a change.
        All that is derived from them is unknown then: the state is to be loaded from a snapshot of itself (core.py)."""
        journal, self.journal = self.journal, None
        self._to_touch.clear()
        undo_log.restore(self, journal or [])

    @contextmanager
    def lent(self, nodes: Sequence[ClusterNode]) -> Generator[None]:
        """Meanwhile, kept nodes take work like any others: to look for a place on them."""
        keepers = [node.keeper for node in nodes]
        try:
            for node in nodes:
                node.keeper = ""
                self.pools.put(node)
            yield
        finally:
            for node, keeper in zip(nodes, keepers, strict=True):
                node.keeper = keeper
                self.pools.put(node)

    def intern(self, request: Request) -> Request:
        """Return one object for all equal requests."""
        if len(self._requests) > 4096:
            self._requests.clear()
        return self._requests.setdefault(request, request)
