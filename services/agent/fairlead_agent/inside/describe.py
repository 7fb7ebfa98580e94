"""The whole description of this machine's inside, from /sys and from what the GPUs' driver says of their links."""

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
import structlog

from fairlead_agent.inside.cpus import numa_nodes
from fairlead_agent.inside.nics import nics
from fairlead_agent.inside.pci import Place, level_between, place_at
from fairlead_schemas.inside import (
    GPUS_MAX,
    INSIDE_BYTES_MAX,
    NUMA_NODES_MAX,
    UNKNOWN,
    Description,
    Level,
    NumaNode,
)

_log = structlog.get_logger()

type Levels = tuple[tuple[Level, ...], ...]
type Links = tuple[tuple[int, ...], ...]


def describe(
    sys: Path, allowed: Collection[int], gpus: Sequence[str] = (), *, nvlinks: Links = (), pcie: Levels = ()
) -> Description:
    """What lies below `sys`, which is /sys or a copy of it. `allowed`: the CPUs that work may be given.

    `gpus`: PCI address of each ("0000:0c:00.0"); `nvlinks` and `pcie` [gpu][gpu] as their driver says, a level "" where it
    does not: that one is then told by the paths.
    """
    nodes = numa_nodes(sys, allowed)[:NUMA_NODES_MAX]
    places = [_on_a_node(place_at(sys, gpu), nodes) for gpu in gpus]
    cards = {name: _on_a_node(place, nodes) for name, place in nics(sys).items()}
    return bounded(
        Description(
            numa=tuple(-1 if place is None else place.numa for place in places),
            nvlinks=nvlinks,
            pcie=_filled(pcie, places),
            numa_nodes=nodes,
            nics=tuple(cards),
            nic_levels=tuple(tuple(_level(gpu, card) for card in cards.values()) for gpu in places) if cards else (),
        )
    )


def bounded(description: Description) -> Description:
    """The same; UNKNOWN itself where it says nothing, or more than a placer takes (that is logged)."""
    if description == UNKNOWN:
        return UNKNOWN
    size = len(msgspec.json.encode(description))
    if description.gpus > GPUS_MAX or size > INSIDE_BYTES_MAX:
        _log.warning("this machine's inside is too large to tell", gpus=description.gpus, bytes=size)
        return UNKNOWN
    return description


def _on_a_node(place: Place | None, nodes: tuple[NumaNode, ...]) -> Place | None:
    """On a machine with one NUMA node the kernel often says -1; everything is on that one."""
    if place is None or place.numa >= 0 or len(nodes) != 1:
        return place
    return place._replace(numa=nodes[0].node)


def _filled(pcie: Levels, places: Sequence[Place | None]) -> Levels:
    def level(i: int, j: int) -> Level:
        if i == j:
            return "X"
        return (pcie[i][j] if pcie else "") or _level(places[i], places[j])

    count = range(len(places))
    known = any(level(i, j) for i in count for j in range(i))
    return tuple(tuple(level(i, j) for j in count) for i in count) if known else ()


def _level(one: Place | None, other: Place | None) -> Level:
    return "" if one is None or other is None else level_between(one, other)
