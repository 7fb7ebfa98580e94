"""Request of a job file, as a `Request`: units, amounts, GPUs, and their permitted places.

Only the words are read here; `requestrules` decides if the request can be placed at all. An unreadable word is
noted at its field and replaced by a harmless value, so that each mistake is named once.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from fairlead_schemas import gpuwords, quantities, selectors, tolerations
from fairlead_schemas.collecting import Reading, shown
from fairlead_schemas.jobspec import GpuWanted, Group, JobSpec, NodesRange, TolerationWords
from fairlead_schemas.resources import Request
from fairlead_schemas.topology import LEVELS

DEFAULT_CPU_MILLI = 1000
DEFAULT_MEMORY_MIB = 1024
#: Longer quantities are read each time, so that nobody can fill the memory with them.
REMEMBERED_CHARS_MAX = 32
NIC = "rdma/hca"
ANY_GPU = GpuWanted()

_RANGE = re.compile(r"(\d{1,7})(?:\s*-\s*(\d{1,7}))?\Z", re.ASCII)


def request_of(spec: JobSpec, reading: Reading) -> Request:
    """The request of one attempt. Notes every word that cannot be read."""
    nodes, least = _nodes(spec, reading)
    first = _unit(spec, nodes, "", reading, _per_task(spec, reading))
    return msgspec.structs.replace(
        first, nodes_min=least, tasks=spec.tasks is not None, exclusive=spec.exclusive, packing=spec.placement,
        tolerations=_tolerations(spec.tolerations, reading) if spec.tolerations else (),
        require=_levels("topology.require", spec.topology.require, reading) if spec.topology.require != "" else (),
        prefer=_levels("topology.prefer", spec.topology.prefer, reading) if spec.topology.prefer != "" else (),
        also=tuple(_unit(group, group.nodes, f"groups[{at}].", reading) for at, group in enumerate(spec.groups)),
    )  # fmt: skip


# ---------------------------------------------------------------------------- units


def _nodes(spec: JobSpec, reading: Reading) -> tuple[int, int]:
    """(units, fewest that it starts with: 0 for all of them)."""
    if spec.tasks is not None:
        if spec.nodes != 1:
            message = f"expected nodes or tasks, found both ({_range_text(spec.nodes)} and {spec.tasks})"
            reading.wrong("tasks", f"{message}; tasks lie on as many nodes as they need, nodes are whole units")
        return spec.tasks, 0
    if isinstance(spec.nodes, int):
        return spec.nodes, 0
    if isinstance(spec.nodes, NodesRange):
        least, most = spec.nodes.min, spec.nodes.max
    else:
        match = _RANGE.match(spec.nodes.strip())
        if match is None:
            reading.wrong("nodes", f'expected a number such as 4 or a range such as "2-8", found {shown(spec.nodes)}')
            return 1, 0
        if match[2] is None:
            return int(match[1]), 0
        least, most = int(match[1]), int(match[2])
    if not 1 <= least <= most:
        found = _range_text(spec.nodes)
        reading.wrong("nodes", f'expected 1 or more at least, and no more than at most, such as "2-8", found "{found}"')
        return 1, 0
    return most, least if least < most else 0


def _range_text(nodes: int | str | NodesRange) -> str:
    return f"{nodes.min}-{nodes.max}" if isinstance(nodes, NodesRange) else str(nodes)[:40]


def _per_task(spec: JobSpec, reading: Reading) -> int | str | None:
    """`gpusPerTask`, unless it makes no sense here."""
    if spec.gpusPerTask is None:
        return None
    if spec.tasks is None:
        reading.wrong("gpusPerTask", "expected tasks beside it; for GPUs of a node: resources.nvidia.com/gpu")
        return None
    if named := next((key for key in spec.resources if gpuwords.is_gpu(key)), ""):
        message = f"expected gpusPerTask or resources.{named}, found both; what resources names is of each task"
        reading.wrong("gpusPerTask", message)
        return None
    return spec.gpusPerTask


# ---------------------------------------------------------------------------- amounts


def _unit(
    words: JobSpec | Group, nodes: int, path: str, reading: Reading, per_task: int | str | None = None
) -> Request:
    """Return the request of one kind of unit: its amounts, its GPUs and its selector."""
    at, wanted, get = f"{path}resources.", words.gpu, words.resources.get
    for key in words.resources:
        if key not in PLAIN and not gpuwords.is_gpu(key):
            reading.wrong(at + key, f"unknown resource; expected one of {', '.join(RESOURCE_WORDS)}")
    gpus = gpuwords.gpus_of(words.resources, at, reading)
    if per_task is not None:
        gpus = gpuwords.gpus_of({gpuwords.GPU: per_task}, "gpusPerTask", reading)
    # What cannot be read is one error: it breaks no rule besides.
    memory = get("memory", DEFAULT_MEMORY_MIB * 2**20)
    memory_mib = amount(reading, f"{at}memory", quantities.parse_memory, memory, quantities.MEMORY_MIB_MAX)
    if "memory" in words.resources and not memory_mib and not reading.has(f"{at}memory"):
        reading.wrong(f"{at}memory", f"expected at least 1Mi, found {shown(memory)}; leave it out for the default")
    return Request(
        nodes=nodes, gpu_milli=gpus.milli, gpu_parts=gpus.parts, profile=gpus.profile, replicas=gpus.replicas,
        cpu_milli=amount(reading, f"{at}cpu", quantities.parse_cpu, get("cpu", f"{DEFAULT_CPU_MILLI}m")),
        memory_mib=memory_mib, shm_mib=amount(reading, f"{at}shm", quantities.parse_memory, get("shm", 0)),
        nics=amount(reading, at + NIC, _whole, get(NIC, 0)),
        gpu_memory_mib=amount(reading, f"{path}gpu.memory", quantities.parse_memory, wanted.memory),
        compute_capability=gpuwords.capability(wanted.computeCapability, f"{path}gpu.computeCapability", reading),
        selector=_selector(words, path, reading),
    )  # fmt: skip


PLAIN = ("cpu", "memory", "shm", NIC)
RESOURCE_WORDS = (gpuwords.GPU, gpuwords.SHARED, f"{gpuwords.MIG_PREFIX}<profile>", *PLAIN)


def _whole(value: str | int) -> int:
    text = str(value).strip()
    if not re.fullmatch(r"\d{1,7}", text, re.ASCII):
        raise quantities.QuantityError(f'expected a whole number such as 1, found "{text[:40]}"')
    return int(text)


@lru_cache(4096)
def _remembered(parse: Callable[[str | int], int], value: str | int) -> int:
    """A cluster's jobs write the same few quantities; reading one costs as much as decoding a small job."""
    return parse(value)


def amount(reading: Reading, at: str, parse: Callable[[str | int], int], value: str | int, otherwise: int = 0) -> int:
    """A quantity; `otherwise` where it cannot be read, which is noted."""
    try:
        if isinstance(value, int) or len(value) <= REMEMBERED_CHARS_MAX:
            return _remembered(parse, value)
        return parse(value)
    except quantities.QuantityError as error:
        reading.wrong(at, str(error))
        return otherwise


# ---------------------------------------------------------------------------- where


def _selector(words: JobSpec | Group, path: str, reading: Reading) -> tuple[str, ...]:
    """Everything that its nodes' labels must say."""
    if not (words.nodeSelector or words.nodeAffinity) and words.gpu == ANY_GPU:
        return ()
    found: set[str] = set(gpuwords.requirements(words.gpu, f"{path}gpu", reading))
    for key, value in words.nodeSelector.items():
        found.update(_read(reading, f"{path}nodeSelector", selectors.equal, key, value))
    for at, text in enumerate(words.nodeAffinity):
        found.update(_read(reading, f"{path}nodeAffinity[{at}]", _requirement, text))
    return tuple(sorted(found))


def _requirement(text: str) -> str:
    return selectors.parse(text).text


def _tolerations(wanted: Sequence[str | TolerationWords], reading: Reading) -> tuple[str, ...]:
    found: set[str] = set()
    for at, words in enumerate(wanted):
        found.update(_read(reading, f"tolerations[{at}]", _toleration, words))
    return tuple(sorted(found))


def _toleration(words: str | TolerationWords) -> str:
    """Return the text of a toleration, given as text or in Kubernetes' four fields. Raises TolerationError."""
    if isinstance(words, str):
        return tolerations.parse(words).text
    if words.operator not in ("Equal", "Exists"):
        raise tolerations.TolerationError(f"expected operator Equal or Exists, found {shown(words.operator)}")
    if words.operator == "Exists" and words.value:
        raise tolerations.TolerationError(f"expected no value beside operator Exists, found {shown(words.value)}")
    if words.operator == "Equal" and not words.key:
        raise tolerations.TolerationError("expected a key, or operator Exists for every taint, found neither")
    value = words.value if words.operator == "Equal" else None
    return tolerations.checked(tolerations.Toleration(words.key, value, words.effect)).text


def _read[**P](reading: Reading, at: str, read: Callable[P, str], *args: P.args, **kwargs: P.kwargs) -> tuple[str, ...]:
    """Return the text in a tuple; empty if it cannot be read, with the mistake noted."""
    try:
        return (read(*args, **kwargs),)
    except ValueError as error:
        reading.wrong(at, str(error))
        return ()


def _levels(at: str, words: str | list[str], reading: Reading) -> tuple[str, ...]:
    named = [words] if isinstance(words, str) else words
    for word in (word for word in named if word not in LEVELS):
        reading.wrong(at, f"expected one of {', '.join(LEVELS)}, found {shown(word)}")
    return tuple(sorted({word for word in named if word in LEVELS}))
