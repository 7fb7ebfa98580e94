"""GPUs, CPUs and NICs of one node for one part of an attempt: the decision that the others of this package make up."""

from typing import NamedTuple

from fairlead_placer.topology.choices import Shortage
from fairlead_placer.topology.cpus import NumaCpus, apart, beside
from fairlead_placer.topology.domains import NUMA, relaxed
from fairlead_placer.topology.inside import Inside
from fairlead_placer.topology.masks import members_of
from fairlead_placer.topology.nics import GpuNic


class Ask(NamedTuple):
    """Needs of one part. `require` and `prefer` are kinds of domains.py, added up."""

    gpus: int = 0
    cpus: int = 0  # whole ones
    require: int = 0
    prefer: int = 0


class Placed(NamedTuple):
    """Resources given to a part, in rising order, and their quality."""

    gpus: tuple[int, ...]
    #: () also where the node's CPU lists are not known.
    cpus: tuple[int, ...]
    nics: tuple[GpuNic, ...]
    #: What was required, and what was preferred and could be had.
    held: int
    link_score: int
    numa_nodes: int  # that the GPUs lie on


class Masks(NamedTuple):
    """The same as sets, and what holds."""

    gpus: int
    cpus: int
    held: int


def place(inside: Inside, free_gpus: int, free_cpus: int, ask: Ask) -> Placed | Shortage:
    """Return the resources given to the ask out of those free (masks), or the shortage of its requirement: see `choose`."""
    found = choose(inside, free_gpus, free_cpus, ask)
    if isinstance(found, Shortage):
        return found
    gpus, cpus, held = found
    return Placed(members_of(gpus), members_of(cpus), inside.nics(gpus), held, *inside.choices.facts(gpus))


def choose(inside: Inside, free_gpus: int, free_cpus: int, ask: Ask) -> Masks | Shortage:
    """Return the resources given to the ask, or the shortage.

    GPUs come by `Choices.choose`; among choices with equal link scores, one whose NUMA nodes have enough CPUs is preferred.
    CPUs are near the GPUs (cpus.py). If NUMA holds, CPUs come from the same NUMA node as the GPUs; without known CPU lists
    it applies to the GPUs alone. NICs by level (nics.py). Raises ValueError for GPUs that are not there.
    """
    if not ask.prefer:
        return _choose(inside, free_gpus, free_cpus, ask, ask.require)
    short: Shortage | None = None
    for held in relaxed(ask.require, ask.prefer):
        found = _choose(inside, free_gpus, free_cpus, ask, held)
        if isinstance(found, Masks):
            return found
        short = found
    assert short is not None, "the last thing tried is what is required alone"
    return short


def _choose(inside: Inside, free_gpus: int, free_cpus: int, ask: Ask, held: int) -> Masks | Shortage:
    nodes, strict = inside.numa, bool(held & NUMA)
    gpus = _gpus(inside, free_gpus, free_cpus, ask, held)
    if isinstance(gpus, Shortage):
        return gpus
    cpus: int | Shortage = 0
    if ask.cpus and nodes:
        others = free_gpus & ~gpus
        if gpus & inside.near_gpus:
            cpus = beside(nodes, free_cpus, ask.cpus, gpus, strict, others)
        else:
            cpus = apart(nodes, free_cpus, ask.cpus, others, strict)
    if isinstance(cpus, Shortage):
        return cpus
    return Masks(gpus, cpus, held)


def _gpus(inside: Inside, free_gpus: int, free_cpus: int, ask: Ask, held: int) -> int | Shortage:
    choices, nodes = inside.choices, inside.numa
    chosen = choices.choose(free_gpus, ask.gpus, held)
    if isinstance(chosen, Shortage) or not (ask.gpus and ask.cpus and nodes):
        return chosen
    if _enough(nodes, free_cpus, chosen, ask.cpus):
        return chosen
    strict = bool(held & NUMA)
    # A NUMA node that cannot feed its GPUs is left out: all that are asked for where they must lie on one, else one.
    least = ask.cpus if strict else -(-ask.cpus // ask.gpus)
    fed = free_gpus
    for node in nodes:
        if (node.mask & free_cpus).bit_count() < least:
            fed &= ~node.gpus
    better = choices.choose(fed, ask.gpus, held)
    if strict:
        return _starved(inside, free_gpus, free_cpus, ask, held) if isinstance(better, Shortage) else better
    if isinstance(better, Shortage) or choices.facts(better)[0] < choices.facts(chosen)[0]:
        return chosen
    return better if _enough(nodes, free_cpus, better, ask.cpus) else chosen


def _enough(nodes: tuple[NumaCpus, ...], free_cpus: int, gpus: int, cpus: int) -> bool:
    near = 0
    for node in nodes:
        if node.gpus & gpus:
            near |= node.mask
    return (near & free_cpus).bit_count() >= cpus


def _starved(inside: Inside, free_gpus: int, free_cpus: int, ask: Ask, held: int) -> Shortage:
    """GPUs are there on one NUMA node, and CPUs are not there with them."""

    def most(gpus: int, cpus: int) -> int:
        able = [
            node for node in inside.numa if isinstance(inside.choices.choose(node.gpus & gpus, ask.gpus, held), int)
        ]
        return max(((node.mask & cpus).bit_count() for node in able), default=0)

    ever = min(ask.cpus, most(inside.all_gpus, inside.all_cpus))
    return Shortage("numa_gpus_cpus", most(free_gpus, free_cpus), ask.cpus, ever)
