"""Quality of a set of GPUs alone, as one integer: links first, then its spread over NUMA nodes.

    rank = link score · 2^30 - (NUMA nodes spanned · 2^20 + sockets spanned · 2^10 + unevenness)

Unevenness is the most minus the fewest GPUs on a spanned NUMA node: each node feeds its GPUs with its own memory and
CPUs, so that the fullest is the slowest. Ranks of sets without a GPU in common add up, and no part reaches into the
next: each part is at most `GPUS_MAX` = 64 in all.
"""

from fairlead_placer.topology.shapes import Shape, link_score

LINK = 1 << 30
SPAN = 1 << 20
SOCKET = 1 << 10


def rank(shape: Shape, mask: int) -> int:
    """The set's rank; more is better."""
    return link_score(shape, mask) * LINK - spread(shape, mask)


def spread(shape: Shape, mask: int) -> int:
    """Return the cost of GPUs that are far apart. GPUs with an unknown NUMA node count as one more node, and socket, together."""
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
    """Return the number of NUMA nodes that the set spans."""
    return spread(shape, mask) // SPAN
