"""A place inside one node for one unit: which GPUs, how much of them, which CPUs, which network devices.

The one judge of whether a unit fits: placement, refusals, reservations and preemption all ask here.
"""

from typing import NamedTuple

from fairlead_placer.capacity.asks import Ask, several
from fairlead_placer.capacity.builds import MILLI
from fairlead_placer.capacity.left import Left, cpu_list
from fairlead_placer.topology.choices import Shortage
from fairlead_placer.topology.inside import Inside
from fairlead_placer.topology.masks import mask_of, members_of
from fairlead_placer.topology.placing import Placed, place
from fairlead_schemas import selectors
from fairlead_schemas.events import Part

#: What the inside's shortages are called among the causes (reasons.CAUSES).
_CAUSES = {
    "free": "free_gpus", "cpus": "free_cpu", "numa_cpus": "free_numa", "numa_gpus_cpus": "free_numa",
    "nvlink": "free_links", "switch": "free_links", "numa": "free_numa", "socket": "free_numa",
    "domains": "free_links",
}  # fmt: skip


#: Answers that are remembered for one inside; eight GPUs have 256 sets of nine sizes.
SEATS_MAX = 8192


class Seat(NamedTuple):
    """GPUs by their places in the node's order; masks of CPUs are as Linux counts them."""

    gpus: tuple[int, ...]
    milli: int = 0  # of each; 0: whole
    cpus: int = 0
    nics: tuple[int, ...] = ()  # of each GPU, by their places
    link_score: int = 0
    numa_nodes: int = 0
    #: Kinds of topology.domains that hold.
    held: int = 0


def is_faulted(left: Left, ask: Ask) -> bool:
    """True when so many of the node's GPUs are faulted that the unit does not fit, whatever comes free."""
    return bool(left.faulted) and (ask.verdict(left.build).suits & ~left.faulted).bit_count() < ask.gpus


def never(left: Left, ask: Ask) -> str:
    """The cause why the node does not take the unit, whatever comes free there; "" where it may."""
    cause = ask.verdict(left.build).cause
    if cause:
        return cause
    if ask.stands and not selectors.suits(left.where, ask.stands):
        return "selector"
    return "gpu_faulted" if left.faulted and is_faulted(left, ask) else ""


def seat(left: Left, ask: Ask, rest: int = 0) -> Seat | str:
    """Where the unit fits now, or the cause why not. `rest`: a share goes to a GPU that has so much left, if one does
    (0: to the one with the least)."""
    verdict = ask.verdict(left.build)
    if verdict.cause:
        return verdict.cause
    if (ask.stands or left.faulted) and (cause := never(left, ask)):
        return cause
    short = _amounts(left, ask)
    if not ask.gpus and not short and not left.build.inside.numa:
        return Seat(())
    if not ask.whole:
        return _share(left, ask, verdict.suits, rest) if not short else _gpu_cause(left, ask, verdict.suits) or short
    free = left.free & verdict.suits
    if free.bit_count() < ask.gpus:
        return "free_gpus"
    return short or _whole(left, ask, free)


def seat_several(left: Left, ask: Ask, units: int) -> Seat | str:
    """The same for several units on the node: well linked together if they can be, and what is required holds for each."""
    together = several(ask, units)
    found = seat(left, together)
    if isinstance(found, Seat) or not (ask.whole and ask.inside.require):
        return found
    cause = never(left, ask) or _amounts(left, together)
    if cause:
        return cause
    rest, suits, cpus = left.copy(), ask.verdict(left.build).suits, 0
    for _ in range(units):
        free = rest.free & suits
        one = _whole(rest, ask, free) if free.bit_count() >= ask.gpus else "free_gpus"
        if isinstance(one, str):
            return one
        rest.free, rest.cpus, cpus = rest.free & ~mask_of(one.gpus), rest.cpus & ~one.cpus, cpus | one.cpus
    inside, chosen = left.build.inside, left.free & ~rest.free
    nics = tuple(each.nic for each in inside.nics(chosen))
    return Seat(members_of(chosen), 0, cpus, nics, *inside.choices.facts(chosen), held=ask.inside.require)


def short_of(left: Left, ask: Ask) -> str | None:
    """The cause why nodes of the same row and free GPUs have no seat, "" where they have one; None where each must be asked.
    The build must suit."""
    if ask.stands:
        return None
    if left.faulted and is_faulted(left, ask):
        return "gpu_faulted"
    if not ask.whole:
        short = _amounts(left, ask)
        return _gpu_cause(left, ask, ask.verdict(left.build).suits) or short or None
    free = left.free & ask.verdict(left.build).suits
    if free.bit_count() < ask.gpus:
        return "free_gpus"
    short = _amounts(left, ask)
    if short:
        return short
    inside = left.build.inside
    told = not ((inside.telling and ask.inside.require) or (inside.numa and ask.cpus) or ask.request.exclusive)
    return "" if told else None


def short_now(left: Left, ask: Ask) -> str:
    """The cause why this node, of which `short_of` could not tell, has no seat; "" where it has one."""
    if ask.whole and not (ask.stands or ask.inside.require or ask.request.exclusive):
        return "free_cpu" if left.cpus.bit_count() < ask.cpus else ""  # all else is there: `place` would find it
    found = seat(left, ask)
    return "" if isinstance(found, Seat) else found


def _amounts(left: Left, ask: Ask) -> str:
    request, build = ask.request, left.build
    if left.cpu_milli < request.cpu_milli:
        return "free_cpu"
    if left.memory_mib < request.memory_mib:
        return "free_memory"
    if left.cpu_milli <= 0 and left.memory_mib <= 0 and (build.cpu_milli or build.memory_mib):
        return "free_cpu"  # somebody may have the node for himself: nothing is so small that it goes beside him
    return "not_empty" if request.exclusive and left.parts else ""


def _whole(left: Left, ask: Ask, free: int) -> Seat | str:
    inside = left.build.inside
    if (not inside.numa or not ask.cpus) and not ask.inside.prefer:
        key = (free, ask.gpus, ask.inside.require)
        known = inside.seats.get(key)
        if known is None:
            if len(inside.seats) >= SEATS_MAX:
                inside.seats.clear()
            known = inside.seats[key] = _linked(inside, *key)
        return known
    found = place(inside, free, left.cpus if ask.cpus else 0, ask.inside)
    if isinstance(found, Shortage):
        return _CAUSES[found.what]
    return _seat_of(found)


def _linked(inside: Inside, free: int, gpus: int, require: int) -> Seat | str:
    """GPUs alone, without CPUs to pin to."""
    chosen = inside.choices.choose(free, gpus, require)
    if isinstance(chosen, Shortage):
        return _CAUSES[chosen.what]
    score, nodes = inside.choices.facts(chosen)
    return Seat(members_of(chosen), 0, 0, tuple(each.nic for each in inside.nics(chosen)), score, nodes, require)


def _seat_of(found: Placed) -> Seat:
    nics = tuple(each.nic for each in found.nics)
    return Seat(found.gpus, 0, mask_of(found.cpus), nics, found.link_score, found.numa_nodes, found.held)


def milli_of(left: Left, ask: Ask) -> int:
    """What a part of a GPU takes of it on this node: a replica is as large as the node cuts them."""
    return MILLI // left.build.replicas if ask.request.replicas and left.build.replicas else ask.milli


def cap_of(left: Left, ask: Ask, place: int) -> int:
    """MiB of the GPU's memory that a share may use: what was asked for, else its share. A replica has no cap."""
    if ask.request.replicas:
        return 0
    return ask.request.gpu_memory_mib or left.build.gpus[place].memory_mib * ask.milli // MILLI


def _share(left: Left, ask: Ask, suits: int, rest: int) -> Seat | str:
    milli = milli_of(left, ask)
    able = [at for at in members_of(suits) if left.rest(at) >= milli and left.caps[at] >= cap_of(left, ask, at)]
    if len(able) < ask.gpus:
        return _gpu_cause(left, ask, suits) or "free_gpu_memory"
    able.sort(key=lambda at: (left.rest(at) != rest, left.rest(at), at))
    gpus = tuple(sorted(able[: ask.gpus]))
    inside, cpus = left.build.inside, 0
    if inside.numa and ask.cpus:
        # Links mean nothing to parts of GPUs; CPUs beside them do.
        found = place(inside, mask_of(gpus), left.cpus, ask.inside._replace(require=0, prefer=0))
        if isinstance(found, Shortage):
            return _CAUSES[found.what]
        cpus = mask_of(found.cpus)
    chosen = mask_of(gpus)
    return Seat(gpus, milli, cpus, tuple(each.nic for each in inside.nics(chosen)), *inside.choices.facts(chosen))


def _gpu_cause(left: Left, ask: Ask, suits: int) -> str:
    milli = milli_of(left, ask)
    return "free_gpus" if sum(left.rest(at) >= milli for at in members_of(suits)) < ask.gpus else ""


def part_of(name: str, left: Left, ask: Ask, found: Seat, tasks: int = 1) -> Part:
    """The part of the node that the seat is."""
    request, build = ask.request, left.build
    cap = min((cap_of(left, ask, at) for at in found.gpus), default=0) if found.milli else 0
    uuids, nics = left.uuids, build.inside.description.nics
    return Part(
        node=name, gpus=tuple([uuids[at] for at in found.gpus]),
        cpu_milli=build.cpu_milli if request.exclusive else request.cpu_milli,
        memory_mib=build.memory_mib if request.exclusive else request.memory_mib,
        gpu_milli=found.milli, gpu_memory_mib=cap, cpus=cpu_list(found.cpus) if found.cpus else "",
        nics=tuple([nics[at] for at in found.nics]) if found.nics else (), tasks=tasks,
    )  # fmt: skip
