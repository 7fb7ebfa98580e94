"""Rules for a request that can be placed at all, shared by the gateway and the queue; and a request in a sentence: what
each node or task of it asks for, and how many of them there are.

The gateway turns words into a request and checks it here before sending. The queue checks again, because
commands come from elsewhere as well. The rules do not depend on the cluster's resources: admission and the
placer check those.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

from fairlead_schemas.queuefile.amounts import counted
from fairlead_schemas.units import selectors, taints
from fairlead_schemas.units.hardware import TOPOLOGY_LEVELS, is_profile, profile_milli, resource_of
from fairlead_schemas.units.quantities import MILLI
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire.resources import Request

#: Units of one kind, and kinds.
NODES_MAX = 4096
KINDS_MAX = 8
GPUS_PER_NODE_MAX = 64
NICS_MAX = 64
#: Larger numbers than any machine has; a bound so that sums stay ordinary integers.
AMOUNT_MAX = 1 << 40
COMPUTE_CAPABILITY_MAX = 999
#: A command repeats the selector in addition to the spec, and both must fit one message of commands.
SELECTOR_BYTES_MAX = 8 * 1024
PACKINGS = ("pack", "spread")
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"

#: A JobPlaced names every node and GPU of a gang, alone in its commit, and must fit a message of the log (1 MiB).
PLACEMENT_BYTES_MAX = 960 * 1024
#: So much a node takes in it, one GPU with its network device, and one MIG instance.
NODE_BYTES, GPU_BYTES, INSTANCE_BYTES = 150, 51, 44


#: (field as the job file calls it, message)
type _Fault = tuple[str, str]


@lru_cache(1024)
def faults(request: Request) -> tuple[FieldError, ...]:
    """Return faults that no valid request has, with the job file's names of fields. Remembered: a cluster's jobs ask for
    the same few things.
    """
    return tuple(FieldError(field=field, message=message) for field, message in _faults(request))


def _faults(request: Request) -> Iterator[_Fault]:
    where = "tasks" if request.tasks else "nodes"
    for at, kind in enumerate(request.kinds):
        path = f"groups[{at - 1}]." if at else ""
        yield from _of_kind(kind, path, path + ("nodes" if at else where))
    if request.nodes_min and (request.tasks or not 1 <= request.nodes_min < request.nodes):
        yield (where, f"expected fewer than {request.nodes} at least, found {request.nodes_min}")
    yield from _of_groups(request)
    yield from _of_place(request)
    if (size := placement_bytes(request)) > PLACEMENT_BYTES_MAX and request.units <= KINDS_MAX * NODES_MAX:
        most = request.units * PLACEMENT_BYTES_MAX // size
        yield (where, f"expected a gang that one event can name, about {most} such units, found {request.units}")


def placement_bytes(request: Request) -> int:
    """About what naming all its nodes and GPUs takes, if no two units share a node."""
    return sum(kind.nodes * (NODE_BYTES + _gpu_bytes(kind)) for kind in request.kinds)


def gpu_count(kind: Request) -> int:
    """GPUs, or parts of GPUs, of a unit."""
    return kind.gpu_parts or -(-kind.gpu_milli // MILLI)


def gpu_field(kind: Request) -> str:
    """The resource by which a unit asks for its GPUs."""
    return SHARED if kind.replicas else resource_of(kind.profile) if kind.profile else GPU


def _gpu_bytes(kind: Request) -> int:
    return gpu_count(kind) * (GPU_BYTES + (INSTANCE_BYTES if kind.profile else 0))


def _of_kind(kind: Request, path: str, where: str) -> Iterator[_Fault]:
    """Units, amounts and selector of one kind."""
    for field, amount, least, most in (
        (where, kind.nodes, 1, NODES_MAX),
        (f"{path}resources.cpu", kind.cpu_milli, 0, AMOUNT_MAX),
        (f"{path}resources.memory", kind.memory_mib, 0, AMOUNT_MAX),
        (f"{path}gpu.memory", kind.gpu_memory_mib, 0, AMOUNT_MAX),
        (f"{path}gpu.computeCapability", kind.compute_capability, 0, COMPUTE_CAPABILITY_MAX),
        (f"{path}resources.rdma/hca", kind.nics, 0, NICS_MAX),
    ):
        if not least <= amount <= most:
            yield (field, f"expected {least} to {most}, found {amount}")
    if not 0 <= kind.shm_mib <= max(0, kind.memory_mib):
        found = f"found {kind.shm_mib} MiB"
        message = f"expected at most resources.memory ({kind.memory_mib} MiB), in which it is counted; {found}"
        yield (f"{path}resources.shm", message)
    yield from ((f"{path}resources.{gpu_field(kind)}", message) for message in _of_gpus(kind))
    yield from _texts(f"{path}nodeSelector", kind.selector, lambda text: selectors.parse(text).text)


def _of_gpus(kind: Request) -> Iterator[str]:
    """Yield the faults of a unit's GPUs."""
    count, milli = gpu_count(kind), kind.gpu_milli
    if not 0 <= count <= GPUS_PER_NODE_MAX or milli < 0:
        found = count if milli >= 0 else milli
        yield f"expected at most {GPUS_PER_NODE_MAX} per node, found {found}; ask for more nodes instead"
    elif kind.profile and not is_profile(kind.profile):
        yield f'expected a profile such as 3g.20gb or 1g.5gb.me, found "{kind.profile[:40]}"'
    elif bool(kind.profile) + kind.replicas > bool(kind.gpu_parts):
        yield "expected parts of GPUs of one kind"
    elif kind.profile:
        if milli != count * profile_milli(kind.profile):
            yield f"expected {count * profile_milli(kind.profile)} milli-GPU, found {milli}"
    elif kind.replicas:
        if milli > count * MILLI:
            yield f"expected at most {count * MILLI} milli-GPU, found {milli}"
    elif kind.gpu_parts:
        if count != 1 or not 0 < milli < MILLI:
            yield f"expected a share of one GPU, found {count} of {milli} milli-GPU"
    elif milli % MILLI:
        yield f"expected whole GPUs, found {milli} milli-GPU"


def _of_groups(request: Request) -> Iterator[_Fault]:
    if not request.also:
        return
    if request.tasks:
        yield ("groups", "expected nodes, found tasks with groups; give the number of nodes of each kind")
    if len(request.kinds) > KINDS_MAX:
        yield ("groups", f"expected at most {KINDS_MAX - 1}, found {len(request.also)}")
    for at, kind in enumerate(request.also):
        if _only_kind(kind) != kind:
            yield (f"groups[{at}]", "expected nodes, amounts, GPUs and a selector of its own, and nothing else")


def _only_kind(kind: Request) -> Request:
    """Return the request without the fields that are set once for all kinds."""
    return Request(
        nodes=kind.nodes,
        gpu_milli=kind.gpu_milli,
        cpu_milli=kind.cpu_milli,
        memory_mib=kind.memory_mib,
        shm_mib=kind.shm_mib,
        selector=kind.selector,
        gpu_memory_mib=kind.gpu_memory_mib,
        gpu_parts=kind.gpu_parts,
        compute_capability=kind.compute_capability,
        profile=kind.profile,
        replicas=kind.replicas,
        nics=kind.nics,
    )


def _of_place(request: Request) -> Iterator[_Fault]:
    """Tolerations, topology and packing, and the bytes of all texts."""
    yield from _texts("tolerations", request.tolerations, lambda text: taints.parse_toleration(text).text)
    for field, levels in (("topology.require", request.require), ("topology.prefer", request.prefer)):
        yield from _texts(field, levels, _level)
    if request.packing not in ("", *PACKINGS):
        yield ("placement", f'expected {" or ".join(PACKINGS)}, found "{request.packing[:40]}"')
    texts = [text for kind in request.kinds for text in kind.selector] + list(request.tolerations)
    if (size := sum(len(text.encode()) for text in texts)) > SELECTOR_BYTES_MAX:
        yield ("nodeSelector", f"expected labels and tolerations of at most {SELECTOR_BYTES_MAX} bytes, found {size}")


def _level(text: str) -> str:
    if text not in TOPOLOGY_LEVELS:
        raise ValueError(f'expected one of {", ".join(TOPOLOGY_LEVELS)}, found "{text[:40]}"')
    return text


def _texts(field: str, texts: tuple[str, ...], canonical: Callable[[str], str]) -> Iterator[_Fault]:
    """Yield a fault unless the texts are canonical, in order and without repeats, so that equal requests have equal
    texts.
    """
    if tuple(sorted(set(texts))) != texts:
        yield (field, "expected each once and in order")
    for text in texts:
        try:
            if canonical(text) != text:
                yield (field, f'expected "{canonical(text)[:80]}", found "{text[:80]}"')
        except ValueError as error:
            yield (field, str(error))


def gpus(kind: Request) -> str:
    """The GPUs of a unit: "8 GPUs", "0.500 GPUs", "2 MIG instances 3g.20gb", "1 shared GPU"; "" for none."""
    several = "" if kind.gpu_parts == 1 else "s"
    if kind.profile:
        return f"{kind.gpu_parts} MIG instance{several} {kind.profile}"
    if kind.replicas:
        return f"{kind.gpu_parts} shared GPU{several}"
    return counted("gpu", kind.gpu_milli) if kind.gpu_milli else ""


def size(request: Request) -> str:
    """ "4 GPUs", "2 nodes x 8 GPUs", "2 to 8 nodes x 1 GPU", "16 tasks x 1 GPU"; kinds are joined by "and"."""
    first = _times(request, "task" if request.tasks else "node")
    return " and ".join([first, *(_times(kind, "node", one="1 node x ") for kind in request.also)])


def _times(kind: Request, unit: str, one: str = "") -> str:
    each = gpus(kind) or counted("cpu", kind.cpu_milli)
    return f"{_count(kind)} {unit}s x {each}" if kind.nodes > 1 else one + each


def needs(request: Request) -> str:
    """ "8 GPUs on each of 2 nodes", "1 GPU for each of 16 tasks"; of a kind without GPUs its CPUs and memory."""
    return " and ".join(_needs(kind, tasks=request.tasks) for kind in request.kinds)


def _needs(kind: Request, *, tasks: bool) -> str:
    amount = gpus(kind) or f"{counted('cpu', kind.cpu_milli)} and {counted('memory', kind.memory_mib)}"
    return f"{amount} {places(kind, tasks=tasks)}"


def places(kind: Request, *, tasks: bool) -> str:
    """Return the place of the request in words: "on one node", "on each of 2 nodes", "for each of 16 tasks"."""
    unit, word = ("task", "for") if tasks else ("node", "on")
    return f"{word} each of {_count(kind)} {unit}s" if kind.nodes > 1 else f"{word} one {unit}"


def _count(kind: Request) -> str:
    return f"{kind.nodes_min} to {kind.nodes}" if kind.nodes_min else str(kind.nodes)
