"""The words for GPUs in a job file: how many, what part of one, and what each must be.

A unit's GPUs are of one kind: whole ones or a share of one (`nvidia.com/gpu: 8`, `"0.5"`), MIG instances
(`nvidia.com/mig-3g.20gb: 2`), or replicas of GPUs that their node slices by time (`nvidia.com/gpu.shared: 1`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from fairlead_schemas import selectors
from fairlead_schemas.collecting import Reading, shown
from fairlead_schemas.jobspec import GpuWanted
from fairlead_schemas.migprofiles import MIG_PREFIX, is_profile, profile_milli, profile_of
from fairlead_schemas.quantities import GPUS_MAX, MILLI, QuantityError, parse_cpu, parse_gpu
from fairlead_schemas.queues import MODEL_LABEL
from fairlead_schemas.requestrules import GPU, SHARED

__all__ = ["GPU", "MIG_PREFIX", "SHARED", "Gpus", "capability", "gpus_of", "is_gpu", "requirements"]

ECC_LABEL = "fairlead/ecc"
DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"
CUDA_LABEL = "nvidia.com/cuda.runtime-version.full"
#: A product's full name, as GPU feature discovery labels nodes with it, begins so.
PRODUCT_PREFIX = "NVIDIA-"

_CAPABILITY = re.compile(r"(?:>=\s*)?(\d{1,2})\.(\d)\Z", re.ASCII)
_VERSION = re.compile(r"(>=|<=|>|<|==|=)?\s*(\d{1,9}(?:\.\d{1,9}){0,4})\Z", re.ASCII)


class Gpus(NamedTuple):
    """A unit's GPUs, in the words of `Request`."""

    milli: int = 0
    parts: int = 0
    profile: str = ""
    replicas: bool = False


def is_gpu(resource: str) -> bool:
    """True for a resource that asks for GPUs or parts of them."""
    return resource in (GPU, SHARED) or resource.startswith(MIG_PREFIX)


def gpus_of(resources: Mapping[str, str | int], path: str, reading: Reading) -> Gpus:
    """The GPUs among a unit's resources. `path`: of the resources with its dot, or of the one word for them."""
    named = [key for key in resources if is_gpu(key)]
    if not named:
        return Gpus()
    at = path + named[0] if path.endswith(".") else path
    if len(named) > 1:
        reading.wrong(path + named[1], f"expected one kind of GPU for each node or task, found {', '.join(named[:4])}")
        return Gpus()
    try:
        return _read(named[0], resources[named[0]])
    except QuantityError as error:
        reading.wrong(at, str(error))
        return Gpus()


def _read(resource: str, value: str | int) -> Gpus:
    """Raises QuantityError."""
    if resource == GPU:
        milli = _milli(value)
        return Gpus(milli, int(0 < milli < MILLI))
    count = parse_gpu(value) // MILLI
    if resource == SHARED:
        return Gpus(0, count, replicas=count > 0)  # what a replica is charged as, its pool says
    profile = profile_of(resource) or ""
    if not is_profile(profile):
        raise QuantityError(
            f'expected a profile such as {MIG_PREFIX}3g.20gb or {MIG_PREFIX}1g.5gb.me, found "{resource[:60]}"'
        )
    return Gpus(count * profile_milli(profile), count, profile) if count else Gpus()


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


def capability(text: str, at: str, reading: Reading) -> int:
    """Least compute capability times ten; 0 for any."""
    if not text:
        return 0
    match = _CAPABILITY.match(text.strip())
    if match is None:
        reading.wrong(at, f'expected a least version such as ">=8.0", found "{text[:40]}"')
        return 0
    return int(match[1]) * 10 + int(match[2])


def requirements(wanted: GpuWanted, path: str, reading: Reading) -> Iterator[str]:
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
