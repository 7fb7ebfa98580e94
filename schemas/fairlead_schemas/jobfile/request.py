"""Request of a job file, as a `Request`: units, amounts, GPUs, and their permitted places; and the words for GPUs in a job
file: how many, what part of one, and what each must be.

Only the words are read here; `wire/resource_requests.py` decides if the request can be placed at all. An unreadable word is
noted at its field and replaced by a harmless value, so that each mistake is named once.

A unit's GPUs are of one kind: whole ones or a share of one (`nvidia.com/gpu: 8`, `"0.5"`), MIG instances
(`nvidia.com/mig-3g.20gb: 2`), or replicas of GPUs that their node slices by time (`nvidia.com/gpu.shared: 1`).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from fairlead_schemas.jobfile.job_spec import GpuWanted, GroupWords, JobSpec, NodesRange, TolerationWords
from fairlead_schemas.queuefile.settings import MODEL_LABEL
from fairlead_schemas.units import quantities, selectors, taints
from fairlead_schemas.units.hardware import MIG_PREFIX, TOPOLOGY_LEVELS, is_profile, profile_milli, profile_of
from fairlead_schemas.units.quantities import GPUS_MAX, MILLI, QuantityError, parse_cpu, parse_gpu
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.units.validation import ErrorCollector, shown
from fairlead_schemas.wire.resource_requests import GPU, SHARED
from fairlead_schemas.wire.resources import Request

ECC_LABEL = "fairlead/ecc"
DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"
CUDA_LABEL = "nvidia.com/cuda.runtime-version.full"
#: A product's full name, as GPU feature discovery labels nodes with it, begins so.
PRODUCT_PREFIX = "NVIDIA-"

_CAPABILITY = re.compile(r"(?:>=\s*)?(\d{1,2})\.(\d)\Z", re.ASCII)
_VERSION = re.compile(r"(>=|<=|>|<|==|=)?\s*(\d{1,9}(?:\.\d{1,9}){0,4})\Z", re.ASCII)


class UnitGpus(NamedTuple):
    """A unit's GPUs, in the words of `Request`."""

    milli: int = 0
    parts: int = 0
    profile: str = ""
    replicas: bool = False


def is_gpu(resource: str) -> bool:
    """True for a resource that asks for GPUs or parts of them."""
    return resource in (GPU, SHARED) or resource.startswith(MIG_PREFIX)


def gpus_of(resources: Mapping[str, str | int], path: str, reading: ErrorCollector) -> UnitGpus:
    """The GPUs among a unit's resources. `path`: of the resources with its dot, or of the one word for them."""
    named = [key for key in resources if is_gpu(key)]
    if not named:
        return UnitGpus()
    at = path + named[0] if path.endswith(".") else path
    if len(named) > 1:
        reading.wrong(path + named[1], f"expected one kind of GPU for each node or task, found {', '.join(named[:4])}")
        return UnitGpus()
    try:
        return _read_gpus(named[0], resources[named[0]])
    except QuantityError as error:
        reading.wrong(at, str(error))
        return UnitGpus()


def _read_gpus(resource: str, value: str | int) -> UnitGpus:
    """Raises QuantityError."""
    if resource == GPU:
        milli = _milli(value)
        return UnitGpus(milli, int(0 < milli < MILLI))
    count = parse_gpu(value) // MILLI
    if resource == SHARED:
        return UnitGpus(0, count, replicas=count > 0)  # what a replica is charged as, its pool says
    profile = profile_of(resource) or ""
    if not is_profile(profile):
        raise QuantityError(
            f'expected a profile such as {MIG_PREFIX}3g.20gb or {MIG_PREFIX}1g.5gb.me, found "{resource[:60]}"'
        )
    return UnitGpus(count * profile_milli(profile), count, profile) if count else UnitGpus()


def _milli(value: str | int) -> int:
    """milli-GPU from whole GPUs, or from a share of one: "0.5", "500m". Raises QuantityError."""
    text = str(value).strip()
    if "." not in text and not text.endswith("m"):
        return parse_gpu(text)
    expected = f'expected whole GPUs such as 8, or a share of one such as "0.5" or "500m", found "{text[:40]}"'
    try:
        milli = parse_cpu(text)  # CPUs are written the same way
    except QuantityError:
        raise QuantityError(expected) from None
    if milli > MILLI and milli % MILLI:
        raise QuantityError(f"{expected}; a share is of one GPU")
    if milli > GPUS_MAX * MILLI:
        raise QuantityError(f'expected at most {GPUS_MAX} GPUs, found "{text[:40]}"')
    return milli


def capability(text: str, at: str, reading: ErrorCollector) -> int:
    """Least compute capability times ten; 0 for any."""
    if not text:
        return 0
    match = _CAPABILITY.match(text.strip())
    if match is None:
        reading.wrong(at, f'expected a least version such as ">=8.0", found "{text[:40]}"')
        return 0
    return int(match[1]) * 10 + int(match[2])


def requirements(wanted: GpuWanted, path: str, reading: ErrorCollector) -> Iterator[str]:
    """Yield the requirements on a node's labels that follow from the wanted GPUs. Mistakes are noted in `reading`."""

    def read(at: str, make: Callable[[], str]) -> Iterator[str]:
        try:
            yield make()
        except ValueError as error:
            reading.wrong(f"{path}.{at}", str(error))

    if wanted.model != "":
        yield from read("model", lambda: _model(wanted.model))
    if wanted.ecc:
        yield f"{ECC_LABEL}=on"
    if wanted.driver:
        yield from read("driver", lambda: _version(DRIVER_LABEL, wanted.driver, ">=550.54"))
    if wanted.cuda:
        yield from read("cuda", lambda: _version(CUDA_LABEL, wanted.cuda, ">=12.4"))


def _model(model: str | list[str]) -> str:
    """Full names as Kubernetes compares them, so that quotas of a model see which is meant; else words of the name."""
    names = sorted({name.strip() for name in ([model] if isinstance(model, str) else model)})
    bad = [name for name in names if not name or set(name) & set("|(),")]
    if bad or not names:
        raise ValueError(
            f'expected a model such as "A100" or "NVIDIA-A100-SXM4-80GB", found {shown(bad[0] if bad else [])}'
        )
    if not all(name.upper().startswith(PRODUCT_PREFIX) for name in names):
        return selectors.parse(f"{MODEL_LABEL}~{'|'.join(names)}").text
    return (
        selectors.equal(MODEL_LABEL, names[0])
        if len(names) == 1
        else selectors.parse(f"{MODEL_LABEL} in ({','.join(names)})").text
    )


def _version(label: str, text: str, example: str) -> str:
    match = _VERSION.match(text.strip())
    if match is None:
        raise ValueError(f'expected a version such as "{example}", found "{text[:40]}"')
    operator = {None: ">=", "==": "="}.get(match[1], match[1])
    return selectors.parse(f"{label}{operator}{match[2]}").text


DEFAULT_CPU_MILLI = 1000
DEFAULT_MEMORY_MIB = 1024
NIC = "rdma/hca"
ANY_GPU = GpuWanted()

_RANGE = re.compile(r"(\d{1,7})(?:\s*-\s*(\d{1,7}))?\Z", re.ASCII)


def request_of(spec: JobSpec, reading: ErrorCollector) -> Request:
    """The request of one attempt. Notes every word that cannot be read."""
    nodes, least = _nodes(spec, reading)
    first = _unit(spec, nodes, "", reading, _per_task(spec, reading))
    return msgspec.structs.replace(
        first,
        nodes_min=least,
        tasks=spec.tasks is not None,
        exclusive=spec.exclusive,
        packing=spec.placement,
        tolerations=_tolerations(spec.tolerations, reading) if spec.tolerations else (),
        require=_levels("topology.require", spec.topology.require, reading) if spec.topology.require != "" else (),
        prefer=_levels("topology.prefer", spec.topology.prefer, reading) if spec.topology.prefer != "" else (),
        also=tuple(_unit(group, group.nodes, f"groups[{at}].", reading) for at, group in enumerate(spec.groups)),
    )


# ---------------------------------------------------------------------------- units


def _nodes(spec: JobSpec, reading: ErrorCollector) -> tuple[int, int]:
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


def _per_task(spec: JobSpec, reading: ErrorCollector) -> int | str | None:
    """`gpusPerTask`, unless it makes no sense here."""
    if spec.gpusPerTask is None:
        return None
    if spec.tasks is None:
        reading.wrong("gpusPerTask", "expected tasks with it; for GPUs of a node: resources.nvidia.com/gpu")
        return None
    if named := next((key for key in spec.resources if is_gpu(key)), ""):
        message = f"expected gpusPerTask or resources.{named}, found both; what resources names is of each task"
        reading.wrong("gpusPerTask", message)
        return None
    return spec.gpusPerTask


# ---------------------------------------------------------------------------- amounts


def _unit(
    words: JobSpec | GroupWords, nodes: int, path: str, reading: ErrorCollector, per_task: int | str | None = None
) -> Request:
    """Return the request of one kind of unit: its amounts, its GPUs and its selector."""
    at, wanted, get = f"{path}resources.", words.gpu, words.resources.get
    for key in words.resources:
        if key not in PLAIN and not is_gpu(key):
            reading.wrong(
                at + key,
                f"unknown resource; expected one of {', '.join(RESOURCE_WORDS)}{did_you_mean(key, RESOURCE_WORDS)}",
            )
    gpus = gpus_of(words.resources, at, reading)
    if per_task is not None:
        gpus = gpus_of({GPU: per_task}, "gpusPerTask", reading)
    # An unreadable value is one error: it breaks no further rule.
    memory = get("memory", DEFAULT_MEMORY_MIB * 2**20)
    memory_mib = reading.amount(quantities.parse_memory, memory, f"{at}memory", quantities.MEMORY_MIB_MAX)
    if "memory" in words.resources and not memory_mib and not reading.has(f"{at}memory"):
        reading.wrong(f"{at}memory", f"expected at least 1Mi, found {shown(memory)}; leave it out for the default")
    return Request(
        nodes=nodes,
        gpu_milli=gpus.milli,
        gpu_parts=gpus.parts,
        profile=gpus.profile,
        replicas=gpus.replicas,
        cpu_milli=reading.amount(quantities.parse_cpu, get("cpu", f"{DEFAULT_CPU_MILLI}m"), f"{at}cpu"),
        memory_mib=memory_mib,
        shm_mib=reading.amount(quantities.parse_memory, get("shm", 0), f"{at}shm"),
        nics=reading.amount(_whole, get(NIC, 0), at + NIC),
        gpu_memory_mib=reading.amount(quantities.parse_memory, wanted.memory, f"{path}gpu.memory"),
        compute_capability=capability(wanted.computeCapability, f"{path}gpu.computeCapability", reading),
        selector=_selector(words, path, reading),
    )


PLAIN = ("cpu", "memory", "shm", NIC)
RESOURCE_WORDS = (GPU, SHARED, f"{MIG_PREFIX}<profile>", *PLAIN)


def _whole(value: str | int) -> int:
    text = str(value).strip()
    if not re.fullmatch(r"\d{1,7}", text, re.ASCII):
        raise quantities.QuantityError(f'expected a whole number such as 1, found "{text[:40]}"')
    return int(text)


# ---------------------------------------------------------------------------- where


def _selector(words: JobSpec | GroupWords, path: str, reading: ErrorCollector) -> tuple[str, ...]:
    """Everything that its nodes' labels must say."""
    if not (words.nodeSelector or words.nodeAffinity) and words.gpu == ANY_GPU:
        return ()
    found: set[str] = set(requirements(words.gpu, f"{path}gpu", reading))
    for key, value in words.nodeSelector.items():
        found.update(_read(reading, f"{path}nodeSelector", selectors.equal, key, value))
    for at, text in enumerate(words.nodeAffinity):
        found.update(_read(reading, f"{path}nodeAffinity[{at}]", _requirement, text))
    return tuple(sorted(found))


def _requirement(text: str) -> str:
    return selectors.parse(text).text


def _tolerations(wanted: Sequence[str | TolerationWords], reading: ErrorCollector) -> tuple[str, ...]:
    found: set[str] = set()
    for at, words in enumerate(wanted):
        found.update(_read(reading, f"tolerations[{at}]", _toleration, words))
    return tuple(sorted(found))


def _toleration(words: str | TolerationWords) -> str:
    """Return the text of a toleration, given as text or in Kubernetes' four fields. Raises TolerationError."""
    if isinstance(words, str):
        return taints.parse_toleration(words).text
    if words.operator not in ("Equal", "Exists"):
        raise taints.TolerationError(f"expected operator Equal or Exists, found {shown(words.operator)}")
    if words.operator == "Exists" and words.value:
        raise taints.TolerationError(f"expected no value with operator Exists, found {shown(words.value)}")
    if words.operator == "Equal" and not words.key:
        raise taints.TolerationError("expected a key, or operator Exists for every taint, found neither")
    value = words.value if words.operator == "Equal" else None
    return taints.check_toleration(taints.Toleration(words.key, value, words.effect)).text


def _read[**P](
    reading: ErrorCollector, at: str, read: Callable[P, str], *args: P.args, **kwargs: P.kwargs
) -> tuple[str, ...]:
    """Return the text in a tuple; empty if it cannot be read, with the mistake noted."""
    try:
        return (read(*args, **kwargs),)
    except ValueError as error:
        reading.wrong(at, str(error))
        return ()


def _levels(at: str, words: str | list[str], reading: ErrorCollector) -> tuple[str, ...]:
    named = [words] if isinstance(words, str) else words
    for word in (word for word in named if word not in TOPOLOGY_LEVELS):
        reading.wrong(at, f"expected one of {', '.join(TOPOLOGY_LEVELS)}, found {shown(word)}")
    return tuple(sorted({word for word in named if word in TOPOLOGY_LEVELS}))
