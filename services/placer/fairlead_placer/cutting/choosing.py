"""Choice of the GPU that is repartitioned for a waiting job, and of its layout. Reads state, changes nothing.

An instance in use is never touched. The same holds for a node that already cuts a GPU. Of the ways to serve one
instance, the one is taken that strands fewest slices for the work that is seen (mig/choice.py). Then all jobs after
it in the order that fit next to it are served at once (mig/plans.py). A GPU is made whole again only where whole
ones are missing and its instances are not in use. Jobs of several instances, or of whole GPUs: `all_or_nothing.py`.
"""

from collections.abc import Iterator, Sequence

from fairlead_placer.capacity.seats import amounts_short, seat
from fairlead_placer.cutting import all_or_nothing
from fairlead_placer.cutting.gpus import Recut, cut, gpus_of
from fairlead_placer.cutting.waiting import Want, demand_seen
from fairlead_placer.entities import Node
from fairlead_placer.mig.choice import choose_gpu
from fairlead_placer.nodes.ahead import barred
from fairlead_placer.state import State

__all__ = ["Recut", "choose"]


def choose(state: State, want: Want, beside: Sequence[Want], now_ns: int) -> list[Recut]:
    """Return what to cut for the want; nothing where that would not serve it. `beside`: wants that may be served at once."""
    request = want.request
    if request.profile and request.nodes == 1 and request.gpu_parts == 1:
        return _for_one(state, want, beside, now_ns)
    return all_or_nothing.choose(state, want, now_ns)


def _for_one(state: State, want: Want, beside: Sequence[Want], now_ns: int) -> list[Recut]:
    weights = demand_seen(state, want.request)
    nodes = _candidates(state, want, now_ns)
    home = {gpu.uuid: (node, gpu) for node in nodes for gpu in gpus_of(state, node, now_ns)}
    grant = choose_gpu((gpu for _, gpu in home.values()), want.request.profile, weights)
    if grant is None:
        return []
    node, gpu = home[grant.uuid]
    recut = cut(node, gpu, _served_here(state, node, beside, now_ns), weights)
    return [] if recut is None else [recut]


def _candidates(state: State, want: Want, now_ns: int) -> Iterator[Node]:
    """Nodes that lack nothing but what cutting could give, by name; each cuts one GPU at a time."""
    for node in all_or_nothing.nodes_for(state, want, now_ns):
        lacks = node.name not in state.layouts and seat(node.left, want.ask) == "free_mig"
        if lacks and not amounts_short(node.left, want.ask):
            yield node


def _served_here(state: State, node: Node, beside: Sequence[Want], now_ns: int) -> list[Want]:
    """Return the wants that could run on the node together, by its CPU and memory."""
    cpu_milli, memory_mib, found = node.left.cpu_milli, node.left.memory_mib, list[Want]()
    for want in beside:
        request = want.request
        if request.cpu_milli <= cpu_milli and request.memory_mib <= memory_mib and _takes(state, node, want, now_ns):
            found.append(want)
            cpu_milli, memory_mib = cpu_milli - request.cpu_milli, memory_mib - request.memory_mib
    return found


def _takes(state: State, node: Node, want: Want, now_ns: int) -> bool:
    free = node.keeper in ("", want.job) and node.name not in barred(state, want.job, now_ns)
    return free and not want.ask.verdict(node.left.build).cause
