"""Placing of offers in the order of their rank, by equivalence class: one that does not fit parks its class, and others
pass.

A parked class is tried again only after a node that it could use has gained capacity. A job without a place may be a
guest on nodes kept for another (`backfill.py`). Open nodes go first, because they need not be free again in time.
`is_news` bounds the outcomes published for a parked class: a full cluster where jobs come and go stays silent.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace
from zlib import crc32

import msgspec

from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.apply.runs import NEWS_INTERVAL_NS
from fairlead_placer.cluster.entities import Offer, OfferClass
from fairlead_placer.cluster.failure_history import NOWHERE, avoided
from fairlead_placer.cluster.placement.gangs import Shortfall
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.cluster.timeline.upcoming_maintenance import UpcomingMaintenance
from fairlead_placer.explain.reasons import near_misses, refusal
from fairlead_placer.scheduling.backfill import place_backfill, reserved_nodes
from fairlead_placer.scheduling.node_selection import NodeSelection, find, find_kept
from fairlead_schemas.wire import events as ev

MASTER_PORT_FIRST, MASTER_PORTS = 20000, 10000
GPU_BYTES, PART_BYTES = 44, 90
#: Whose turn: a job's that nodes are kept for, or that goes not everywhere where its class does; its class's.
_OWN, _CLASS = 0, 1
#: (rank, job, whose turn, the job's class)
type _Turn = tuple[int, str, int, OfferClass]
#: A class that fits on no open node, and what is short.
type _Short = tuple[OfferClass, Shortfall | None]
#: Jobs that fail alike until something is gained: their class, where they do not go, the version of the index.
type _Same = tuple[int, frozenset[str], int]


def place(draft: PlacerDraft) -> bool:
    """Place what fits, in order. False when the commit was full before the end."""
    state = draft.state
    picky = _picky(state, draft.now_ns)
    # Heads of the classes that may fit, and each job that has a turn of its own, which comes before its class's: no
    # two entries agree in rank, job and turn, so the comparison never reaches the class.
    heads: list[_Turn] = [
        (*_head(group, picky), _CLASS, group) for group in state.classes.values() if _may_fit(draft, group)
    ]
    own = [*_kept(state), *(state.offers[job] for job in sorted(picky.keys() - state.reservations.keys()))]
    heads += [(offer.rank, offer.job, _OWN, state.classes[offer.request]) for offer in own]
    heapify(heads)
    short: list[_Short] = []
    open_to = reserved_nodes(state, draft.now_ns) if state.reservations else {}
    whole = _place_all(draft, heads, picky, short, later=bool(open_to))
    if whole and open_to:
        whole = place_backfill(draft, open_to, picky, _placed)
    for group, found in short if whole else ():
        if group.offers:
            _report_unplaceable(draft, group, state.offers[_head(group, picky)[1]], found)
    return whole


def _place_all(
    draft: PlacerDraft, heads: list[_Turn], picky: Mapping[str, frozenset[str]], short: list[_Short], *, later: bool
) -> bool:
    """Place what fits on open nodes. The classes that do not are parked, or (`later`) noted as short. False as for
    `place`."""
    state = draft.state

    def park(group: OfferClass, offer: Offer, found: Shortfall | None) -> None:
        if later:
            short.append((group, found))
        else:
            _report_unplaceable(draft, group, offer, found)

    hopeless: set[_Same] = set()
    while heads:
        if draft.full:
            return False
        _, job, turn, group = heads[0]
        offer = state.offers.get(job)
        if turn == _OWN:
            heappop(heads)
            if offer is not None and not _place_own(draft, offer, picky.get(job, NOWHERE), hopeless):
                return False
            continue
        if offer is not None and job in picky:  # all of its class had their own turns
            park(group, offer, None)
            group.picky = True
            heappop(heads)
            continue
        if offer is not None:  # else it has its place from a turn of its own
            found = find(state, group.request)
            if isinstance(found, Shortfall):
                park(group, offer, found)
                heappop(heads)
                continue
            if not _placed(draft, offer, found):
                return False
        if group.offers:
            rank, job = _head(group, picky) if picky else group.offers[0]
            heapreplace(heads, (rank, job, _CLASS, group))
        else:
            heappop(heads)
    return True


def _kept(state: ClusterState) -> list[Offer]:
    return [offer for offer in map(state.offers.get, state.reservations) if offer is not None]


def _picky(state: ClusterState, now_ns: int) -> dict[str, frozenset[str]]:
    """{job with an open offer: nodes to which it does not go, since it has failed there or would be met by a window}."""
    few, many = sorted((state.failed_on, state.offers), key=len)
    found = {job: avoided(state, job) for job in few if job in many}
    if state.windows:
        ahead = UpcomingMaintenance(state)
        for job in state.offers if ahead.windows else ():
            found[job] = found.get(job, NOWHERE) | ahead.nodes(job, now_ns)
    return {job: names for job, names in found.items() if names}


def _head(group: OfferClass, picky: Mapping[str, frozenset[str]]) -> tuple[int, str]:
    """The first of the class that goes wherever its class goes; the first of all when there is none."""
    if not picky:
        return group.offers[0]
    return next((head for head in group.offers if head[1] not in picky), group.offers[0])


def _place_own(draft: PlacerDraft, offer: Offer, beside: frozenset[str], hopeless: set[_Same]) -> bool:
    """Place a job on nodes kept for it, or on nodes other than those that it avoids, if there is room by now. A job that
    avoids no nodes is placed elsewhere with its class. Return False as for `_placed`.
    """
    state, request = draft.state, offer.request
    kept, same = state.reservations.get(offer.job), (id(state.classes[request]), beside, state.pools.version)
    found: NodeSelection | Shortfall | None = None
    if kept is not None:
        found = find_kept(state, request, [state.nodes[name] for name in kept.nodes], beside)
    if found is None and beside and same not in hopeless and _may_fit(draft, state.classes[request]):
        found = find(state, request, beside)
        if isinstance(found, Shortfall):
            hopeless.add(same)
    return not isinstance(found, NodeSelection) or _placed(draft, offer, found)


def _may_fit(draft: PlacerDraft, group: OfferClass) -> bool:
    if group.failed_at < 0:
        return True
    state = draft.state
    if state.pools.gained_since(group.request, state.work_of(group.request), group.failed_at):
        return True
    group.failed_at = state.pools.version  # as in `_park`: a memory of work done
    return False


def _placed(draft: PlacerDraft, offer: Offer, found: NodeSelection, host: str = "") -> bool:
    """Place the offer. False when its event has no room left: a gang of thousands of GPUs fills a commit alone."""
    parts = found.parts
    extra_bytes = PART_BYTES * len(parts) + GPU_BYTES * len(parts[0].gpus) * len(parts)
    if not draft.has_room(extra_bytes):
        return False
    address, port = "", 0
    if len(parts) > 1:
        address, port = found.nodes[0].inventory.address, master_port(offer.job, offer.attempt)
    event = ev.JobPlaced(
        cause=offer.cause,
        job=offer.job,
        attempt=offer.attempt,
        parts=parts,
        master_address=address,
        master_port=port,
        score=found.score,
        guest_of=host,
    )
    draft.emit(event, extra_bytes)
    return True


def master_port(job: str, attempt: int) -> int:
    """The rendezvous port of a gang's attempt: always the same one for it, 20000 to 29999."""
    return MASTER_PORT_FIRST + crc32(f"{job}.{attempt}".encode()) % MASTER_PORTS


def _report_unplaceable(draft: PlacerDraft, group: OfferClass, offer: Offer, short: Shortfall | None) -> None:
    found = refusal(draft.state, offer, short, draft.now_ns)
    if not is_news(group, found, draft.now_ns):
        # Not through the journal: the version tells by itself whether this is still known (see OfferClass).
        group.failed_at = draft.state.pools.version
    else:
        near = near_misses(draft.state, group.request, offer.job, draft.now_ns)
        draft.emit(msgspec.structs.replace(found, near=near), (1 + len(near)) * draft.EVENT_BYTES)


def is_news(group: OfferClass, found: ev.JobUnplaceable, now_ns: int) -> bool:
    """True for a class's first refusal, a cause not named lately, another number of nodes; and, once an interval,
    when a cause has gone. Numbers alone are no news."""
    said = group.outcome
    if said is None or said.nodes != found.nodes:
        return True
    keys, named = found.reasons.keys(), set(said.keys)
    return not keys <= named or (keys != named and now_ns >= said.since_ns + NEWS_INTERVAL_NS)
