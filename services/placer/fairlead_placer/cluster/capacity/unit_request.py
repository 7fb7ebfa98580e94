"""Request as the placer reads it: what one unit needs of a node, and what all of it needs of the cluster. Also a
pool's view of it: its shape for packing, and the builds that it may use.

Equal kinds of units share one `UnitRequest`, which remembers what it has found out about builds.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from fairlead_placer.cluster.capacity.node_shape import DOMAIN_KEYS, MILLI, NodeShape
from fairlead_placer.packing.policy import Arrivals, RequestShape, TypicalWork
from fairlead_placer.topology.device_selection import DeviceRequest as InsideAsk
from fairlead_placer.topology.device_selection import place
from fairlead_placer.topology.gpu_choice import Shortage
from fairlead_placer.topology.gpu_topology import WORDS
from fairlead_schemas.queuefile.settings import MODEL_LABEL
from fairlead_schemas.units import selectors
from fairlead_schemas.units.hardware import DOMAIN_LEVELS
from fairlead_schemas.units.taints import is_last_choice, tolerates
from fairlead_schemas.wire.resources import Gpu, Request

#: Kinds of units that are remembered at once.
ASKS_MAX = 4096
#: What a job with several kinds of units says once.
_OF_ALL = ("pool", "tolerations", "require", "prefer", "packing", "exclusive", "tasks")
#: Builds that an ask remembers.
VERDICTS_MAX = 1 << 15
#: Sets of free GPUs of a build whose links an ask remembers.
LINKS_MAX = 1 << 12


class NodeShapeFit(NamedTuple):
    """Result of an ask for a build: the cause why it never fits there ("" where it may), and the GPUs that suit (a mask).
    `cut`: it gets MIG instances there.
    """

    cause: str
    suits: int
    cut: bool = False


class UnitRequest:
    """Ask for one unit. `request` is its kind, with the settings of the whole job (tolerations, topology) included."""

    __slots__ = (
        "_links",
        "cpus",
        "gpus",
        "inside",
        "level",
        "milli",
        "near",
        "request",
        "stands",
        "verdicts",
        "whole",
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        self.whole = not request.gpu_parts
        #: GPUs, and thousandths of each.
        self.gpus = request.gpu_milli // MILLI if self.whole else request.gpu_parts
        self.milli = MILLI if self.whole else -(-request.gpu_milli // max(1, request.gpu_parts))
        #: CPUs to pin to, where the node's are known: whole ones only, as Kubernetes' static policy does.
        self.cpus = request.cpu_milli // MILLI if request.cpu_milli % MILLI == 0 else 0
        require = sum(WORDS[word] for word in request.require if word in WORDS)
        prefer = sum(WORDS[word] for word in request.prefer if word in WORDS)
        self.inside = InsideAsk(self.gpus, self.cpus, require, prefer)
        #: The smallest domain that all units must lie in ("" : any), and the ones that they shall, smallest first.
        self.level = next((level for level in DOMAIN_LEVELS if level in request.require), "")
        #: What the selector says of where nodes stand: that differs between nodes of one build.
        self.stands = tuple(text for text in request.selector if selectors.key_of(text) in DOMAIN_KEYS)
        self.near = tuple(level for level in DOMAIN_LEVELS if level in request.prefer)
        #: {number of a build: `verdict` on it}, as far as it was requested.
        self.verdicts: dict[int, NodeShapeFit] = {}
        self._links: dict[int, dict[int, int]] = {}

    def shape(self, models: tuple[str, ...]) -> RequestShape:
        """Return the ask as packing sees it, where these GPU models will do (none named: all)."""
        request = self.request
        if not self.gpus or request.profile:  # what is idle of MIG instances no column tells; seats look
            return RequestShape(request.cpu_milli, request.memory_mib)
        return RequestShape(request.cpu_milli, request.memory_mib, self.gpus, self.milli, models)

    def links(self, build: int) -> dict[int, int]:
        """Return {mask of the free GPUs, and above them the faulted ones: the best link score}, for the masks requested so
        far.
        """
        found = self._links.get(build)
        if found is None or len(found) >= LINKS_MAX:
            if len(self._links) >= VERDICTS_MAX:
                self._links.clear()
            found = self._links[build] = {}
        return found

    def verdict(self, build: NodeShape) -> NodeShapeFit:
        """Return the verdict of the ask on an empty node of the build."""
        found = self.verdicts.get(build.number)
        if found is None:
            if len(self.verdicts) >= VERDICTS_MAX:
                self.verdicts.clear()
            cut = bool(self.request.profile) or (build.single and self.gpus > 0)
            suits = _cuttable(build, self) if cut else _suiting(build, self)
            found = self.verdicts[build.number] = NodeShapeFit(_cause(build, self, suits, cut), suits, cut)
        return found


@lru_cache(ASKS_MAX)
def unit_requests(request: Request) -> tuple[UnitRequest, ...]:
    """Return an ask for each kind of unit of the request. Settings of the whole job apply to each."""
    if not request.also:
        return (UnitRequest(request),)
    said = {name: getattr(request, name) for name in _OF_ALL}
    return tuple(UnitRequest(msgspec.structs.replace(kind, **said, also=())) for kind in request.kinds)


@lru_cache(ASKS_MAX)
def several(ask: UnitRequest, units: int) -> UnitRequest:
    """The ask for so many units on one node."""
    request = ask.request
    return UnitRequest(
        msgspec.structs.replace(
            request,
            gpu_milli=units * request.gpu_milli,
            gpu_parts=units * request.gpu_parts,
            cpu_milli=units * request.cpu_milli,
            memory_mib=units * request.memory_mib,
        )
    )


def _suiting(build: NodeShape, ask: UnitRequest) -> int:
    """GPUs that are whole, or may be made whole again."""
    suits = sum(1 << at for at, gpu in enumerate(build.gpus) if gpu_suits(gpu, ask.request))
    return suits if build.switches else suits & ~build.cut


def _cuttable(build: NodeShape, ask: UnitRequest) -> int:
    """Return the GPUs that have, or may be given, instances that the ask needs (a mask). A GPU without a known way to be
    cut may have any instance.
    """
    profile = ask.request.profile
    if build.single:  # whose instances are asked for as GPUs
        return 0 if profile else build.cut
    able = build.all_gpus if build.switches else build.cut
    models = enumerate(build.mig_models)
    return sum(
        1 << at
        for at, model in models
        if able >> at & 1 and (build.cut >> at & 1 if model is None else model.cut_number(profile) is not None)
    )


def gpu_suits(gpu: Gpu, request: Request) -> bool:
    """True when the GPU is large and new enough."""
    return gpu.memory_mib >= request.gpu_memory_mib and gpu.compute_capability >= request.compute_capability


def _cause(build: NodeShape, ask: UnitRequest, suits: int, cut: bool) -> str:
    """The first that holds, in the order of placement_causes.CAUSES."""
    request = ask.request
    if not tolerates(build.taints, request.tolerations):
        return "taint"
    asked = (each for each in request.selector if each not in ask.stands)
    failed = next((each for each in asked if not selectors.suits(build.labels, (each,))), "")
    if failed:
        return "gpu_model" if failed.startswith(MODEL_LABEL) else "selector"
    gpus = _cause_of_instances(build, ask, suits) if cut else _cause_of_gpus(build, ask, suits)
    return gpus or _cause_of_amounts(build, request)


def _cause_of_instances(build: NodeShape, ask: UnitRequest, suits: int) -> str:
    if not suits:
        return "mig_profile"
    if build.single and (not ask.whole or ask.request.replicas):
        return "mig_mode"  # an instance has no shares and no replicas
    return "topology" if ask.inside.require else ""


def _cause_of_gpus(build: NodeShape, ask: UnitRequest, suits: int) -> str:
    request, gpus = ask.request, ask.gpus
    if not gpus:
        return _cause_of_cpus(build, ask)
    if bool(build.replicas) != request.replicas:
        return "sharing"
    if len(build.gpus) < gpus:
        return "gpus"
    if build.cut and not build.switches and (build.all_gpus & ~build.cut).bit_count() < gpus:
        return "mig_mode"
    if suits.bit_count() < gpus:
        large = sum(gpu.memory_mib >= request.gpu_memory_mib for gpu in build.gpus)
        return "gpu_memory" if large < gpus else "compute_capability"
    if not (ask.whole and ask.inside.require):
        return ""
    if isinstance(build.inside.choices.choose(suits, gpus, ask.inside.require), Shortage):
        return "topology"
    return _cause_of_cpus(build, ask, suits)


def _cause_of_cpus(build: NodeShape, ask: UnitRequest, suits: int = 0) -> str:
    """Return "topology" if CPUs cannot be placed as required, with the GPUs; else "". Their total number is not checked
    here.
    """
    if not (ask.cpus and ask.inside.require and build.inside.numa):
        return ""
    found = place(build.inside, suits, build.inside.all_cpus, ask.inside)
    return "topology" if isinstance(found, Shortage) and found.what != "cpus" else ""


def _cause_of_amounts(build: NodeShape, request: Request) -> str:
    if build.nics < request.nics:
        return "nics"
    if build.cpu_milli < request.cpu_milli:
        return "cpu"
    return "memory" if build.memory_mib < request.memory_mib else ""


#: Additional points of a node with a taint that prefers work elsewhere: more than any packing costs.
UNWELCOME = 1 << 44


class PackingRequest:
    """An ask, and the builds of a pool as they were when it was made."""

    __slots__ = ("_builds", "ask", "shape")

    def __init__(self, builds: dict[int, NodeShape], ask: UnitRequest) -> None:
        self._builds, self.ask = builds, ask
        every = {build.model for build in builds.values() if build.gpus}
        models = {build.model for build in builds.values() if build.gpus and not ask.verdict(build).cause}
        shape = ask.shape(() if models == every else tuple(sorted(models)))
        if ask.request.replicas:  # as small as any node cuts them; `seat` knows the node's own
            cut = max((build.replicas for build in builds.values()), default=0)
            shape = shape._replace(gpu_milli=MILLI // cut if cut else MILLI)
        self.shape: RequestShape = shape

    def burden(self, build: int) -> int | None:
        """Return the extra points that a node of the build costs; None where the ask may not use it."""
        found = self._builds.get(build)  # a row without nodes may be of a build that no node has
        if found is None or self.ask.verdict(found).cause:
            return None
        return UNWELCOME if is_last_choice(found.taints, self.ask.request.tolerations) else 0


def typical(work: Arrivals[Request], wanted: Callable[[UnitRequest], PackingRequest]) -> TypicalWork:
    """The work that a pool has seen, by request, as packing knows it: by shape."""
    weights: dict[RequestShape, int] = {}
    for request, weight in work.weights.items():
        for ask in unit_requests(request):
            shape = wanted(ask).shape
            weights[shape] = weights.get(shape, 0) + weight * ask.request.nodes
    return TypicalWork(weights, work.arrived)
