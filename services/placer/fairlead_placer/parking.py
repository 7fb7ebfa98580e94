"""Offers in the order of their rank, by equivalence class: one that does not fit parks its class, others pass.

A parked class is tried again only after a node that it could use has gained something. What is said about it is
bounded by `is_news`: a full cluster where jobs come and go stays silent.
"""

from heapq import heapify, heappop, heapreplace
from zlib import crc32

from fairlead_placer.capacity import gpus_of
from fairlead_placer.draft import EVENT_BYTES, Draft
from fairlead_placer.entities import Node, Offer, OfferClass
from fairlead_placer.evolve_runs import NEWS_INTERVAL_NS
from fairlead_placer.fit import choose, choose_kept, part_on, score_of
from fairlead_placer.nodes.avoiding import NOWHERE, avoided
from fairlead_placer.reasons import Refusal, refusal
from fairlead_placer.state import State
from fairlead_schemas import events as ev

MASTER_PORT_FIRST, MASTER_PORTS = 20000, 10000
GPU_BYTES, PART_BYTES = 44, 90
#: Whose turn: a job's that nodes are kept for, or that goes not everywhere where its class does; its class's.
_OWN, _CLASS = 0, 1


def place(draft: Draft) -> bool:
    """Place what fits, in order. False when the commit was full before the end."""
    state = draft.state
    picky = _picky(state)
    # Heads of the classes that may fit, and each job that has a turn of its own, which comes before its class's: no
    # two entries agree in rank, job and turn, so the comparison never reaches the class.
    heads = [(*_head(group, picky), _CLASS, group) for group in state.classes.values() if _may_fit(draft, group)]
    own = [*_kept(state), *(state.offers[job] for job in sorted(picky.keys() - state.reservations.keys()))]
    heads += [(offer.rank, offer.job, _OWN, state.classes[offer.request]) for offer in own]
    heapify(heads)
    while heads:
        if draft.full:
            return False
        _, job, turn, group = heads[0]
        offer = state.offers.get(job)
        if turn == _OWN:
            heappop(heads)
            if offer is not None and not _place_own(draft, offer, picky.get(job, NOWHERE)):
                return False
            continue
        if offer is not None and job in picky:  # all of its class had their own turns
            _park(draft, group, offer)
            group.picky = True
            heappop(heads)
            continue
        if offer is not None:  # else it has its place from a turn of its own
            chosen = choose(state.pools.of(group.request), group.request)
            if chosen is None:
                _park(draft, group, offer)
                heappop(heads)
                continue
            if not _placed(draft, offer, chosen):
                return False
        if group.offers:
            heapreplace(heads, (*_head(group, picky), _CLASS, group))
        else:
            heappop(heads)
    return True


def _kept(state: State) -> list[Offer]:
    return [offer for offer in map(state.offers.get, state.reservations) if offer is not None]


def _picky(state: State) -> dict[str, frozenset[str]]:
    """{job with an open offer: nodes that it has failed on and goes to no more}."""
    few, many = sorted((state.failed_on, state.offers), key=len)
    found = {job: avoided(state, job) for job in few if job in many}
    return {job: names for job, names in found.items() if names}


def _head(group: OfferClass, picky: dict[str, frozenset[str]]) -> tuple[int, str]:
    """The first of the class that goes wherever its class goes; the first of all when there is none."""
    if not picky:
        return group.offers[0]
    return next((head for head in group.offers if head[1] not in picky), group.offers[0])


def _place_own(draft: Draft, offer: Offer, beside: frozenset[str]) -> bool:
    """Place a job on nodes that are kept for it, or beside those that it avoids, if there is room by now. False as for
    `_placed`."""
    state, request = draft.state, offer.request
    kept = state.reservations.get(offer.job)
    if kept is not None:
        nodes = [state.nodes[name] for name in kept.nodes]
        chosen = choose_kept(state.pools.of(request), nodes, request, beside)
    elif _may_fit(draft, state.classes[request]):
        chosen = choose(state.pools.of(request), request, beside)
    else:
        chosen = None
    return chosen is None or _placed(draft, offer, chosen)


def _may_fit(draft: Draft, group: OfferClass) -> bool:
    return group.failed_at < 0 or draft.state.pools.gained_since(group.request, group.failed_at)


def _placed(draft: Draft, offer: Offer, chosen: list[Node]) -> bool:
    """Place the offer. False when its event has no room left: a gang of thousands of GPUs fills a commit alone."""
    request = offer.request
    size = EVENT_BYTES + request.nodes * (PART_BYTES + GPU_BYTES * gpus_of(request))
    if not draft.has_room(size):
        return False
    score = score_of(chosen, request)
    address, port = "", 0
    if request.nodes > 1:
        chosen = sorted(chosen, key=lambda node: node.name)
        address, port = chosen[0].inventory.address, master_port(offer.job, offer.attempt)
    parts = tuple(part_on(node, request) for node in chosen)
    event = ev.JobPlaced(
        cause=offer.cause, job=offer.job, attempt=offer.attempt, parts=parts, master_address=address,
        master_port=port, score=score,
    )  # fmt: skip
    draft.emit(event, size)
    return True


def master_port(job: str, attempt: int) -> int:
    """The rendezvous port of a gang's attempt: always the same one for it, 20000 to 29999."""
    return MASTER_PORT_FIRST + crc32(f"{job}.{attempt}".encode()) % MASTER_PORTS


def _park(draft: Draft, group: OfferClass, offer: Offer) -> None:
    found = refusal(draft.state, group.request, offer.job)
    if not is_news(group, found, draft.now_ns):
        # Not through the journal: the version tells by itself whether this is still known (see OfferClass).
        group.failed_at = draft.state.pools.version
    else:
        draft.emit(
            ev.JobUnplaceable(
                cause=offer.cause, job=offer.job, attempt=offer.attempt, reasons=found.reasons, nodes=found.nodes,
                fitting=found.fitting, gpu_milli_free=found.gpu_milli_free, gpu_milli_total=found.gpu_milli_total,
            ),
            2 * EVENT_BYTES,
        )  # fmt: skip


def is_news(group: OfferClass, found: Refusal, now_ns: int) -> bool:
    """True for a class's first refusal, a cause not named lately, another number of nodes; and, once an interval,
    when a cause has gone. Numbers alone are no news."""
    said = group.outcome
    if said is None or said.nodes != found.nodes:
        return True
    keys, named = found.reasons.keys(), set(said.keys)
    return not keys <= named or (keys != named and now_ns >= said.since_ns + NEWS_INTERVAL_NS)
