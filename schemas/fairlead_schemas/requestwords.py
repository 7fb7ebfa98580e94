"""A request in a sentence: what each node or task of it asks for, and how many of them there are."""

from fairlead_schemas.queuewords import counted
from fairlead_schemas.resources import Request


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
