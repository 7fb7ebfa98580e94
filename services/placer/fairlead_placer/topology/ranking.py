"""How good a set of GPUs is by itself, as one integer: links first, then how it lies on NUMA nodes.

    rank = link score · 2^30 - (NUMA nodes spanned · 2^20 + sockets spanned · 2^10 + unevenness)

Unevenness is the most minus the fewest GPUs on a spanned NUMA node: each node feeds its GPUs with its own memory and
CPUs, so that the fullest is the slowest. Ranks of sets without a GPU in common add up, and no part reaches into the next:
of each, at most `GPUS_MAX` = 64 in all.
"""

from fairlead_placer.topology.shapes import Shape, link_score

LINK = 1 << 30
SPAN = 1 << 20
SOCKET = 1 << 10


def rank(shape: Shape, mask: int) -> int:
    """The set's rank; more is better."""
    return link_score(shape, mask) * LINK - spread(shape, mask)


def spread(shape: Shape, mask: int) -> int:
    """What lies far apart costs. GPUs whose NUMA node is not known count as one more node, and socket, together."""
    most = nodes = rest = 0
    least = 1 << 20
    for group in shape.numa:
        share = (mask & group).bit_count()
        if share:
            nodes += 1
            rest += share
            most = max(most, share)
            least = min(least, share)
    adrift = mask.bit_count() - rest
    if adrift:
        nodes += 1
        most = max(most, adrift)
        least = min(least, adrift)
    if nodes == 0:
        return 0
    sockets = 1 if nodes == 1 else (adrift > 0) + sum(mask & group != 0 for group in shape.sockets)
    return nodes * SPAN + sockets * SOCKET + most - least


def numa_spanned(shape: Shape, mask: int) -> int:
    """How many NUMA nodes the set lies on."""
    return spread(shape, mask) // SPAN
