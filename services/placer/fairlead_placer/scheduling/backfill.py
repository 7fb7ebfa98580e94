"""Guests: jobs that run on nodes kept for another job without delaying its start (conservative backfill).

A guest whose limit, with grace and cleaning, ends before the reserved start takes any room that is there now. Any other
guest, of one unit, takes only room that the reserved job will not need: the reserved job's seat is computed on the
node's resources at the start, and the guest is seated in the remainder. There are no guests if the start is not known,
or if the reserved job has several kinds of units or tasks. The search is bounded: of each class the first OFFERS_MAX
offers, once for each gain of the kept nodes.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, part_of, seat
from fairlead_placer.cluster.capacity.unit_request import UnitRequest, unit_requests
from fairlead_placer.cluster.entities import ClusterNode, Offer, OfferClass, Reservation, pool_of
from fairlead_placer.cluster.failure_history import NOWHERE
from fairlead_placer.cluster.placement.node_choice import NodeChoice
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.cluster.timeline.earliest_start import is_backfill, stays
from fairlead_placer.cluster.timeline.run_ends import end_of, latest_end_ns
from fairlead_placer.scheduling.node_selection import NodeSelection, find, found_on
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire.resources import Request

#: Offers of a class that are looked at, the first in rank.
OFFERS_MAX = 256


class ReservedNodes(NamedTuple):
    """A reservation whose nodes take guests, what a unit of it needs, and its nodes."""

    kept: Reservation
    pool: str
    ask: UnitRequest
    nodes: list[ClusterNode]


class BackfillCandidate(NamedTuple):
    """A place on kept nodes, and the job that they are kept for."""

    found: NodeSelection
    host: str


#: Places an offer; False when the commit has no room left for it.
type Place = Callable[[PlacerDraft, Offer, NodeSelection, str], bool]


def reserved_nodes(state: ClusterState, now_ns: int) -> dict[str, list[ReservedNodes]]:
    """{pool: reservations there that take guests}."""
    found: dict[str, list[ReservedNodes]] = {}
    for job in sorted(state.reservations):
        kept, request = state.reservations[job], state.request_of(job)
        if request is None or not admits_backfill(kept, request) or kept.start_ns <= now_ns:
            continue
        nodes = [node for node in map(state.nodes.__getitem__, kept.nodes) if node.open]
        pool = pool_of(request)
        found.setdefault(pool, []).append(ReservedNodes(kept, pool, unit_requests(request)[0], nodes))
    return found


def admits_backfill(kept: Reservation, request: Request) -> bool:
    """True where the start is known, and what each node must have then."""
    return not kept.hole and kept.start_ns > 0 and not request.also and not request.tasks


# ---------------------------------------------------------------------------- in turn


class _Line:
    """The offers of a class that wait for a turn."""

    __slots__ = ("at", "failed", "group", "hosts", "offers")

    def __init__(self, group: OfferClass, offers: list[Offer], here: list[ReservedNodes]) -> None:
        self.group, self.offers, self.hosts = group, offers, here
        self.at = 0
        #: What is known to fail for all of the class: which hosts they are gone from in time, and where they do not go.
        self.failed: set[tuple[tuple[bool, ...], frozenset[str]]] = set()


def place_backfill(
    draft: PlacerDraft, open_to: Mapping[str, list[ReservedNodes]], picky: Mapping[str, frozenset[str]], place: Place
) -> bool:
    """Give everybody who waits a turn, in the order of ranks. False when the commit was full before the end."""
    state = draft.state
    lines = [_line(state, group, open_to[pool_of(group.request)]) for group in _hopeful(state, open_to)]
    heads = [(line.offers[0].rank, line.offers[0].job, line) for line in lines if line.offers]
    heapify(heads)
    while heads:
        if draft.full:
            return False
        line = heads[0][2]
        offer = line.offers[line.at]
        line.at += 1
        free_for_backfill, in_time = picky.get(offer.job, NOWHERE), _in_time(state, offer, line.hosts, draft.now_ns)
        same = in_time, free_for_backfill
        guest = (
            None
            if same in line.failed
            else find_backfill(state, offer, line.hosts, in_time, free_for_backfill, draft.now_ns)
        )
        if guest is not None:
            if not place(draft, offer, guest.found, guest.host):
                return False
        else:
            line.failed.add(same)
        if line.at < len(line.offers):
            heapreplace(heads, (line.offers[line.at].rank, line.offers[line.at].job, line))
        else:
            heappop(heads)
            line.group.lent_at = state.pools.version  # a memory of work done, as `failed_at`
    return True


def _hopeful(state: ClusterState, open_to: Mapping[str, list[ReservedNodes]]) -> list[OfferClass]:
    """Return the eager classes of which a unit has room on some kept node now. Guests only take room, so the others have no
    place until something is gained: that is noted."""
    found: list[OfferClass] = []
    for group in _eager(state, open_to):
        asks = unit_requests(group.request)
        nodes = (node for host in open_to[pool_of(group.request)] for node in host.nodes)
        if any(isinstance(seat(node.left, ask), NodeAllocation) for node in nodes for ask in asks):
            found.append(group)
        else:
            group.lent_at = state.pools.version
    return found


def _eager(state: ClusterState, open_to: Mapping[str, list[ReservedNodes]]) -> list[OfferClass]:
    """Classes for which something may have changed on kept nodes of their pool since they were tried."""
    found: list[OfferClass] = []
    for group in state.classes.values():
        if pool_of(group.request) in open_to:
            index = state.pools.of(group.request)
            if group.lent_at < max(index.lent, index.stirred):
                found.append(group)
    return found


def _line(state: ClusterState, group: OfferClass, here: list[ReservedNodes]) -> _Line:
    own = {host.kept.job for host in here}
    offers = [state.offers[job] for _, job in group.offers[:OFFERS_MAX] if job not in own]
    return _Line(group, offers, here)


def _in_time(state: ClusterState, offer: Offer, here: Sequence[ReservedNodes], now_ns: int) -> tuple[bool, ...]:
    """[host]: whether the job, placed now, is gone before the host starts."""
    job = state.jobs.get(array_of(offer.job) or offer.job)
    if job is None or not job.total_ns:
        return (False,) * len(here)
    end_ns = latest_end_ns(job, offer.request.units, now_ns)
    return tuple([end_ns <= host.kept.start_ns for host in here])


# ---------------------------------------------------------------------------- a place


def find_backfill(
    state: ClusterState,
    offer: Offer,
    here: Sequence[ReservedNodes],
    in_time: Sequence[bool],
    avoided: frozenset[str],
    now_ns: int,
) -> BackfillCandidate | None:
    """Return a place for the offer on kept nodes, on none of the avoided ones. A gang may use open nodes as well."""
    request, asks = offer.request, unit_requests(offer.request)
    going = [host for host, leaves in zip(here, in_time, strict=True) if leaves]
    keepers = {node.name: host for host in going for node in host.nodes if node.name not in avoided}
    nodes = [state.nodes[name] for name in keepers]
    if any(isinstance(seat(node.left, ask), NodeAllocation) for node in nodes for ask in asks):
        with state.lent(nodes):
            found = find(state, request, avoided)
        if isinstance(found, NodeSelection):
            return BackfillCandidate(
                found, next((keepers[n.name].kept.job for n in found.nodes if n.name in keepers), "")
            )
    if request.units > 1 or request.exclusive:  # such a job is a guest of no host
        return None
    for host in here:
        for node in host.nodes:
            if node.name in avoided or not isinstance(seat(node.left, asks[0]), NodeAllocation):
                continue  # most often nothing is free at all
            left = free_for_backfill(state, host, node, now_ns)
            place = seat(left, asks[0]) if left is not None else ""
            if isinstance(place, NodeAllocation):
                return BackfillCandidate(
                    found_on(state.pools.of(request), [NodeChoice(node, asks[0], place, (0, 0))]), host.kept.job
                )
    return None


def free_for_backfill(state: ClusterState, host: ReservedNodes, node: ClusterNode, now_ns: int) -> FreeResources | None:
    """Return the room that the node has both now and at the start, minus the seat of the job that it is kept for; None if that
    job would have no seat.
    """
    left, kept = node.left.copy(), host.kept
    if host.ask.verdict(left.build).cut:  # its instances at that time are not known now
        return None
    for key, rank in node.held.items():
        run = state.runs[key]
        if is_backfill(kept, node, run) and stays(state, run, rank, kept.start_ns):
            continue
        if 0 < end_of(state, run, rank, now_ns).at_ns <= kept.start_ns:
            left.give(run.parts[rank])
    place = seat(left, host.ask)
    if not isinstance(place, NodeAllocation):
        return None
    left.take(part_of(node.name, left, host.ask, place))
    return node.left.both(left)
