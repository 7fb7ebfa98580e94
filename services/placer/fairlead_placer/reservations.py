"""Nodes that are kept for a job which has waited long: which ones, and until when. Emits on a draft.

Kept nodes take no other work; as what runs there ends, the job gets its place. That ends the reservation by itself
(JobPlaced); ReservationEnded ends it otherwise, and answers a claim for which no nodes can be kept.
"""

from heapq import nsmallest

from fairlead_placer.capacity.asks import asks_of
from fairlead_placer.capacity.seats import never
from fairlead_placer.draft import EVENT_BYTES, Draft
from fairlead_placer.entities import Node, Offer, pool_of
from fairlead_placer.nodes.avoiding import avoided
from fairlead_placer.state import State
from fairlead_schemas import events as ev
from fairlead_schemas.resources import Request


def end(draft: Draft) -> None:
    """End what is kept for an offer that is open no more: before the offer goes back."""
    state = draft.state
    for kept in [state.reservations[job] for job in sorted(state.reservations)]:
        if draft.full:
            return
        offer = state.offers.get(kept.job)
        if offer is None or offer.attempt != kept.attempt:
            recall = state.recalls.get(kept.job)
            cause = recall.cause if recall is not None else kept.cause
            draft.emit(ev.ReservationEnded(cause=cause, job=kept.job, attempt=kept.attempt))


def mend(draft: Draft) -> bool:
    """Choose anew where a node that is kept has gone. False when the commit was full before the end."""
    state = draft.state
    for kept in [state.reservations[job] for job in sorted(state.reservations)]:
        offer = state.offers.get(kept.job)
        if offer is None or all(serves(state.nodes[name], offer.request, kept.job) for name in kept.nodes):
            continue
        if draft.full or not _keep(draft, offer, kept.cause):
            return False
    return True


def answer(draft: Draft) -> bool:
    """Decide the claims, in the order of their offers. False as for `mend`."""
    state = draft.state
    for offer in sorted((state.offers[job] for job in state.claims), key=lambda offer: (offer.rank, offer.job)):
        if draft.full or not _keep(draft, offer, state.claims[offer.job].cause):
            return False
    return True


def _keep(draft: Draft, offer: Offer, cause: str) -> bool:
    nodes = nodes_for(draft.state, offer.request, offer.job)
    if nodes is None:
        draft.emit(ev.ReservationEnded(cause=cause, job=offer.job, attempt=offer.attempt))
        return True
    if not draft.has_room(made_bytes(nodes)):
        return False
    make(draft, offer, nodes, cause)
    return True


def made_bytes(nodes: list[str]) -> int:
    """What the event takes that names these nodes."""
    return EVENT_BYTES + sum(len(name) + 3 for name in nodes)


def make(draft: Draft, offer: Offer, nodes: list[str], cause: str) -> None:
    """Keep these nodes, and no others, for the offer."""
    names = tuple(sorted(nodes))
    event = ev.ReservationMade(cause=cause, job=offer.job, attempt=offer.attempt, nodes=names)
    draft.emit(event, made_bytes(nodes))


def nodes_for(state: State, request: Request, job: str) -> list[str] | None:
    """The nodes to keep: those that lack least (GPUs before CPU before memory), then with the fewest living ranks,
    then by name. None when too few could ever take a part."""
    nodes, beside = state.pools.of(request).members.values(), avoided(state, job)
    serving = [node for node in nodes if node.name not in beside and serves(node, request, job)]
    if len(serving) < request.nodes:
        return None
    return [node.name for node in nsmallest(request.nodes, serving, key=lambda node: lack(node, request))]


def serves(node: Node, request: Request, job: str) -> bool:
    """True when the node, empty, would take a unit of the job, and is kept for nobody else."""
    if not node.serving or node.keeper not in ("", job) or node.pool != pool_of(request):
        return False
    ask = asks_of(request)[0]
    return not never(node.left, ask)


def lack(node: Node, request: Request) -> tuple[int, int, int, int, str]:
    """What must still come free on the node (GPUs, milli-CPU, MiB), how many ranks live there, its name."""
    ask, left = asks_of(request)[0], node.left
    suits = ask.verdict(left.build).suits
    free = (
        (left.free & suits).bit_count()
        if ask.whole
        else sum(left.rest(at) >= ask.milli for at in range(len(left.uuids)))
    )
    return (
        max(0, ask.gpus - free),
        max(0, request.cpu_milli - left.cpu_milli),
        max(0, request.memory_mib - left.memory_mib),
        node.live,
        node.name,
    )
