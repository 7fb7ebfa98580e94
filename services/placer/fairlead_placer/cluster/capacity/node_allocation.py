"""A place inside one node for one unit: which GPUs, how much of them, which CPUs, which network devices; and choice of
idle MIG instances of a node for a unit.

The one judge of whether a unit fits: placement, refusals, reservations and preemption all ask here.

Takes existing instances; repartition is not done here (the room cutting/).

On a node under the single strategy (label `nvidia.com/mig.strategy`) `nvidia.com/gpu` means one of its instances,
as it does in Kubernetes: so n whole GPUs are n instances there, with the memory that each must have.
"""

import re
from collections import Counter
from typing import NamedTuple

from fairlead_placer.cluster.capacity.free_resources import FreeResources, InstanceSlot, cpu_list
from fairlead_placer.cluster.capacity.node_shape import MILLI
from fairlead_placer.cluster.capacity.unit_request import UnitRequest, several
from fairlead_placer.mig.instance_choice import AllowedChange, MigGpu, choose_gpu
from fairlead_placer.mig.layouts import Instance, Layout
from fairlead_placer.topology.device_selection import DeviceRequest as InsideAsk
from fairlead_placer.topology.device_selection import NodeDevices, choose
from fairlead_placer.topology.gpu_choice import Shortage
from fairlead_placer.topology.gpu_topology import mask_of, members_of
from fairlead_schemas.units import selectors
from fairlead_schemas.units.hardware import is_profile, profile_milli
from fairlead_schemas.wire.events import Part

_NAME = re.compile(r"\d+g\.(\d+)gb")


class InstanceAllocation(NamedTuple):
    """Instances, and the GPU (by its place) of each; in the order of GPUs and starts."""

    instances: tuple[str, ...]
    gpus: tuple[int, ...]
    profile: str


def count_idle(left: FreeResources) -> tuple[tuple[str, int], ...]:
    """(profile, how many instances of it may be given now), sorted."""
    if left.cuts is None:
        return ()
    found = Counter(cell.instance.profile for cell in left.cuts.idle(left.cuttable).values())
    return tuple(sorted(found.items()))


def take(left: FreeResources, ask: UnitRequest, suits: int) -> InstanceAllocation | str:
    """The instances that a unit gets on this node now, on GPUs of the mask; or the cause why it gets none."""
    if left.cuts is None:
        return "free_mig"
    profile = ask.request.profile or left.cuts.profile()
    if not profile or memory_mib(profile) < (0 if ask.request.profile else ask.request.gpu_memory_mib):
        return "free_mig"
    usable = left.cuttable & suits
    idle = {uuid: cell for uuid, cell in left.cuts.idle(usable).items() if cell.instance.profile == profile}
    if len(idle) < ask.gpus:
        return "free_mig"
    chosen = list(idle) if len(idle) == ask.gpus else _chosen(left, idle, profile, ask.gpus)
    chosen.sort(key=lambda uuid: (idle[uuid].place, idle[uuid].instance.start, uuid))
    return InstanceAllocation(tuple(chosen), tuple(idle[uuid].place for uuid in chosen), profile)


def _chosen(left: FreeResources, idle: dict[str, InstanceSlot], profile: str, count: int) -> list[str]:
    """Return instances chosen one after the other: on GPUs in use before others, at the start that would leave the longest
    runway if all idle instances were cut again.
    """
    chosen: list[str] = []
    waiting = dict(idle)
    for _ in range(count):
        grant = choose_gpu(_gpus(left, waiting, chosen), profile, change=AllowedChange.TAKE)
        wanted = None if grant is None else InstanceSlot(int(grant.uuid), grant.instance)
        #: If the layout of a GPU is unknown, the first will do.
        uuid = next((uuid for uuid, cell in waiting.items() if cell == wanted), next(iter(waiting)))
        chosen.append(uuid)
        del waiting[uuid]
    return chosen


def _gpus(left: FreeResources, waiting: dict[str, InstanceSlot], chosen: list[str]) -> list[MigGpu]:
    """The GPUs of known layout that have some of the waiting instances, named by their places; all else counts as busy."""
    cuts, models = left.cuts, left.build.mig_models
    assert cuts is not None
    found: list[MigGpu] = []
    for place in sorted({cell.place for cell in waiting.values()}):
        model = models[place]
        if model is None or not cuts.legal >> place & 1:
            continue
        layout = cuts.layout(place)
        more: tuple[Instance, ...] = tuple(
            cuts.cells[uuid].instance for uuid in chosen if cuts.cells[uuid].place == place
        )
        idle = tuple(instance for instance in layout.idle if instance not in more)
        found.append(MigGpu(str(place), model, Layout(layout.busy + more, idle)))
    return found


def memory_mib(profile: str) -> int:
    """Return the memory (MiB) of an instance of the profile, as its name counts it; 0 where the name does not give it."""
    match = _NAME.match(profile)
    return int(match[1]) * 1024 if match else 0


def milli_of_profile(profile: str) -> int:
    """Return the part of a GPU that an instance is charged as, in thousandths; 1000 where its name is no profile's."""
    return profile_milli(profile) if is_profile(profile) else 1000


#: What the inside's shortages are called among the causes (placement_causes.CAUSES).
_CAUSES = {
    "free": "free_gpus",
    "cpus": "free_cpu",
    "numa_cpus": "free_numa",
    "numa_gpus_cpus": "free_numa",
    "nvlink": "free_links",
    "switch": "free_links",
    "numa": "free_numa",
    "socket": "free_numa",
    "domains": "free_links",
}


#: Answers that are remembered for one inside.
SEATS_MAX = 1 << 15


class NodeAllocation(NamedTuple):
    """GPUs by their places in the node's order; masks of CPUs are as Linux counts them."""

    gpus: tuple[int, ...]
    milli: int = 0  # of each; 0: whole
    cpus: int = 0
    nics: tuple[int, ...] = ()  # of each GPU, by their places
    link_score: int = 0
    numa_nodes: int = 0
    #: Kinds of topology.domains that hold.
    held: int = 0
    #: UUIDs of MIG instances, one for each of `gpus`; a GPU is then named once for each instance on it.
    instances: tuple[str, ...] = ()
    #: CPUs and network devices as a part says them: a seat is worked out once, and parts are made of it often.
    cpu_list: str = ""
    nic_names: tuple[str, ...] = ()


def is_faulted(left: FreeResources, ask: UnitRequest) -> bool:
    """True when so many of the node's GPUs are faulted that the unit does not fit, whatever comes free."""
    if not left.faulted:
        return False
    verdict = ask.verdict(left.build)
    return (verdict.suits & ~left.faulted).bit_count() < (1 if verdict.cut else ask.gpus)


def never(left: FreeResources, ask: UnitRequest) -> str:
    """The cause why the node does not take the unit, whatever comes free there; "" where it may."""
    cause = ask.verdict(left.build).cause
    if cause:
        return cause
    if ask.stands and not selectors.suits(left.where, ask.stands):
        return "selector"
    return "gpu_faulted" if left.faulted and is_faulted(left, ask) else ""


def seat(left: FreeResources, ask: UnitRequest, rest: int = 0) -> NodeAllocation | str:
    """Return the seat where the unit fits now, or the cause why it does not. `rest`: a share goes to a GPU that has this
    much left, if one does (0: to the one with the least).
    """
    build = left.build
    cause, suits, cut = ask.verdicts.get(build.number) or ask.verdict(build)
    if cause:
        return cause
    if (ask.stands or left.faulted) and (cause := never(left, ask)):
        return cause
    short = amounts_short(left, ask)
    if not ask.gpus and not short and not build.inside.numa:
        return NodeAllocation(())
    if cut:
        taken = take(left, ask, suits)
        return taken if isinstance(taken, str) else short or _beside(left, ask, taken)
    if not ask.whole:
        return _share(left, ask, suits, rest) if not short else _gpu_cause(left, ask, suits) or short
    free = left.free & suits
    if free.bit_count() < ask.gpus:
        return "free_gpus"
    return short or _whole(left, ask, free)


def seat_several(left: FreeResources, ask: UnitRequest, units: int) -> NodeAllocation | str:
    """The same for several units on the node: well linked together if they can be, and what is required holds for each."""
    together = several(ask, units)
    found = seat(left, together)
    if isinstance(found, NodeAllocation) or not (ask.whole and ask.inside.require):
        return found
    cause = never(left, ask) or amounts_short(left, together)
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
    return _seat_on(inside, chosen, cpus, ask.inside.require)


def gpus_short(left: FreeResources, ask: UnitRequest) -> str:
    """The cause that all nodes of the same build, free GPUs and rests share, when GPUs are what is short; else ""."""
    if left.faulted and is_faulted(left, ask):
        return "gpu_faulted"
    _, suits, cut = ask.verdict(left.build)
    if cut:
        taken = take(left, ask, suits)
        return taken if isinstance(taken, str) else ""
    if not ask.whole:
        return _gpu_cause(left, ask, suits)
    return "free_gpus" if (left.free & suits).bit_count() < ask.gpus else ""


def amounts_short(left: FreeResources, ask: UnitRequest) -> str:
    """Return which of CPU and memory is too small, or that other work is in the way; "" where neither holds."""
    request, cpu_milli, memory_mib = ask.request, left.cpu_milli, left.memory_mib
    if cpu_milli < request.cpu_milli:
        return "free_cpu"
    if memory_mib < request.memory_mib:
        return "free_memory"
    if cpu_milli <= 0 and memory_mib <= 0 and (left.build.cpu_milli or left.build.memory_mib):
        return "free_cpu"  # a job may hold the node alone: then even the smallest request does not fit
    return "not_empty" if request.exclusive and left.parts else ""


def _whole(left: FreeResources, ask: UnitRequest, free: int) -> NodeAllocation | str:
    inside, wanted = left.build.inside, ask.inside
    cpus = left.cpus if ask.cpus and inside.numa else 0
    key = (free, cpus, wanted)
    known = inside.seats.get(key)
    if known is None:
        if len(inside.seats) >= SEATS_MAX:
            inside.seats.clear()
        known = inside.seats[key] = _sought(inside, *key)
    return known


def _sought(inside: NodeDevices, free: int, cpus: int, wanted: InsideAsk) -> NodeAllocation | str:
    if not cpus and not (wanted.cpus and inside.numa):
        wanted = wanted._replace(cpus=0)
    found = choose(inside, free, cpus, wanted)
    if isinstance(found, Shortage):
        return _CAUSES[found.what]
    return _seat_on(inside, *found)


def _seat_on(inside: NodeDevices, gpus: int, cpus: int, held: int) -> NodeAllocation:
    """All of these GPUs, with these CPUs and the network devices nearest to each."""
    nics = tuple([each.nic for each in inside.nics(gpus)])
    return NodeAllocation(
        members_of(gpus),
        0,
        cpus,
        nics,
        *inside.choices.facts(gpus),
        held=held,
        cpu_list=cpu_list(cpus),
        nic_names=_names_of(inside, nics),
    )


def _names_of(inside: NodeDevices, nics: tuple[int, ...]) -> tuple[str, ...]:
    return tuple([inside.description.nics[at] for at in nics])


def milli_of(left: FreeResources, ask: UnitRequest) -> int:
    """Return the thousandths of a GPU that a part takes on this node: a replica is as large as the node cuts them."""
    return MILLI // left.build.replicas if ask.request.replicas and left.build.replicas else ask.milli


def cap_of(left: FreeResources, ask: UnitRequest, place: int) -> int:
    """MiB of the GPU's memory that a share may use: what was asked for, else its share. A replica has no cap."""
    if ask.request.replicas:
        return 0
    return ask.request.gpu_memory_mib or left.build.gpus[place].memory_mib * ask.milli // MILLI


def _share(left: FreeResources, ask: UnitRequest, suits: int, rest: int) -> NodeAllocation | str:
    milli, free = milli_of(left, ask), left.free
    able: list[tuple[bool, int, int]] = []
    for at in members_of((free | left.shared) & suits):
        have = MILLI if free >> at & 1 else left.milli[at]
        if have >= milli and left.caps[at] >= cap_of(left, ask, at):
            able.append((have != rest, have, at))
    if len(able) < ask.gpus:
        return _gpu_cause(left, ask, suits) or "free_gpu_memory"
    able.sort()
    chosen = mask_of([at for _, _, at in able[: ask.gpus]])
    inside = left.build.inside
    return _near(inside, chosen, left.cpus if ask.cpus and inside.numa else 0, ask, milli)


def _near(inside: NodeDevices, gpus: int, cpus: int, ask: UnitRequest, milli: int) -> NodeAllocation | str:
    """Return a seat with `milli` of each of these GPUs, with CPUs and network devices near them, or the cause why there is
    none. Links do not matter for parts of GPUs.
    """
    key = (gpus, cpus, (ask.inside.cpus, milli))
    known = inside.seats.get(key)
    if known is None:
        if len(inside.seats) >= SEATS_MAX:
            inside.seats.clear()
        known = _sought(inside, gpus, cpus, ask.inside._replace(require=0, prefer=0))
        if isinstance(known, NodeAllocation):
            known = known._replace(milli=milli)
        inside.seats[key] = known
    return known


def _beside(left: FreeResources, ask: UnitRequest, taken: InstanceAllocation) -> NodeAllocation | str:
    """Return the seat on these instances, or the cause why there is none. Links do not matter for instances; CPUs near
    their GPUs do.
    """
    inside, cpus, chosen = left.build.inside, 0, mask_of(taken.gpus)
    if inside.numa and ask.cpus:
        found = choose(inside, chosen, left.cpus, ask.inside._replace(gpus=chosen.bit_count(), require=0, prefer=0))
        if isinstance(found, Shortage):
            return _CAUSES[found.what]
        cpus = found.cpus
    milli = ask.milli if ask.request.profile else milli_of_profile(taken.profile)
    near = {each.gpu: each.nic for each in inside.nics(chosen)}  # empty where their distance is not known
    nics = tuple(near[at] for at in taken.gpus) if near else ()
    return NodeAllocation(
        taken.gpus,
        milli,
        cpus,
        nics,
        numa_nodes=inside.choices.facts(chosen)[1],
        instances=taken.instances,
        cpu_list=cpu_list(cpus),
        nic_names=_names_of(inside, nics),
    )


def _gpu_cause(left: FreeResources, ask: UnitRequest, suits: int) -> str:
    milli = milli_of(left, ask)
    return "free_gpus" if sum(left.rest(at) >= milli for at in members_of(suits)) < ask.gpus else ""


def part_of(name: str, left: FreeResources, ask: UnitRequest, found: NodeAllocation, tasks: int = 1) -> Part:
    """The part of the node that the seat is."""
    wants = left.build if ask.request.exclusive else ask.request
    gpus, milli, cpus, instances, uuids = found.gpus, found.milli, found.cpu_list, found.instances, left.uuids
    cap = min([cap_of(left, ask, at) for at in gpus]) if milli and not instances else 0
    whole = len(gpus) == len(uuids) and not instances
    return Part(
        node=name,
        gpus=uuids if whole else tuple([uuids[at] for at in gpus]),
        cpu_milli=wants.cpu_milli,
        memory_mib=wants.memory_mib,
        gpu_milli=milli,
        gpu_memory_mib=cap,
        cpus=cpus,
        instances=instances,
        nics=found.nic_names,
        tasks=tasks,
    )
