"""Choice of idle MIG instances of a node for a unit. Takes existing instances; repartition is not done here (the room
cutting/).

On a node under the single strategy (label `nvidia.com/mig.strategy`) `nvidia.com/gpu` means one of its instances,
as it does in Kubernetes: so n whole GPUs are n instances there, with the memory that each must have.
"""

import re
from collections import Counter
from typing import NamedTuple

from fairlead_placer.capacity.asks import Ask
from fairlead_placer.capacity.cuts import Cell
from fairlead_placer.capacity.left import Left
from fairlead_placer.mig.choice import Change, MigGpu, choose_gpu
from fairlead_placer.mig.layouts import Instance, Layout
from fairlead_schemas.units.hardware import is_profile, profile_milli

_NAME = re.compile(r"\d+g\.(\d+)gb")


class Taken(NamedTuple):
    """Instances, and the GPU (by its place) of each; in the order of GPUs and starts."""

    instances: tuple[str, ...]
    gpus: tuple[int, ...]
    profile: str


def count_idle(left: Left) -> tuple[tuple[str, int], ...]:
    """(profile, how many instances of it may be given now), sorted."""
    if left.cuts is None:
        return ()
    found = Counter(cell.instance.profile for cell in left.cuts.idle(left.cuttable).values())
    return tuple(sorted(found.items()))


def take(left: Left, ask: Ask, suits: int) -> Taken | str:
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
    return Taken(tuple(chosen), tuple(idle[uuid].place for uuid in chosen), profile)


def _chosen(left: Left, idle: dict[str, Cell], profile: str, count: int) -> list[str]:
    """Return instances chosen one after the other: on GPUs in use before others, at the start that would leave the longest
    runway if all idle instances were cut again.
    """
    chosen: list[str] = []
    waiting = dict(idle)
    for _ in range(count):
        grant = choose_gpu(_gpus(left, waiting, chosen), profile, change=Change.TAKE)
        wanted = None if grant is None else Cell(int(grant.uuid), grant.instance)
        #: If the layout of a GPU is unknown, the first will do.
        uuid = next((uuid for uuid, cell in waiting.items() if cell == wanted), next(iter(waiting)))
        chosen.append(uuid)
        del waiting[uuid]
    return chosen


def _gpus(left: Left, waiting: dict[str, Cell], chosen: list[str]) -> list[MigGpu]:
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
