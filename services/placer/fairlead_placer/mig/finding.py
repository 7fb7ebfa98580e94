"""Lookup of a GPU's model by the product name and memory that its node reports.

Names come from NVML ("NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM4-40GB MIG 1g.5gb") or from GPU feature discovery, which
writes dashes for spaces and adds "-MIG-1g.5gb" under the single strategy and "-SHARED" for time slicing
(NVIDIA/k8s-device-plugin, Apache-2.0). A name alone is not enough: an A100 has 40 or 80 GB.
"""

import re
from typing import NamedTuple

from fairlead_placer.mig.models import MODELS, Model

#: A node reports less than the name says (ECC, reserved pages), by up to this part of it: H100 NVL has 95,830 MiB of 96,256.
MEMORY_OFF_MAX = 16  # one sixteenth

_GIGABYTES = re.compile(r"(\d+)GB?")


class NoMig(NamedTuple):
    """The GPU is not cut, and a sentence that says why."""

    reason: str


class Product(NamedTuple):
    """A product name in its parts."""

    #: Capitals, dashes: "A100-SXM4-40GB".
    name: str
    #: Of the instances, where the name tells (single strategy); else "".
    profile: str


def read_product(text: str) -> Product:
    """The parts of a name as NVML or feature discovery write it. Never fails: what is not known stays in the name."""
    name, _, profile = re.sub(r"[\s_]+", "-", text.strip()).partition("-MIG-")
    name = name.upper().removeprefix("NVIDIA-").removeprefix("TESLA-").removesuffix("-SHARED")
    return Product(name, profile.removesuffix("-SHARED"))


def find_model(product: str, memory_mib: int = 0) -> Model | NoMig:
    """The model of a GPU. `memory_mib`: of the whole GPU as NVML reports it, 0 where that is not known; it is not looked at
    where the name ends in a MIG profile, since feature discovery then reports an instance's memory."""
    known = read_product(product)
    kin = [model for model in MODELS if any(_begins(known.name, start) for start in model.products)]
    if not kin:
        return NoMig(f"no MIG on {product!r}: not a model whose profiles are known")
    if known.profile:
        found = _told_apart([model for model in kin if known.profile in model.profiles], known.name)
        wanted = f"profile {known.profile}"
    elif memory_mib:
        found = [min(kin, key=lambda model: abs(_nominal_mib(model) - memory_mib))]
        found = [m for m in found if abs(_nominal_mib(m) - memory_mib) * MEMORY_OFF_MAX <= _nominal_mib(m)]
        wanted = f"{memory_mib} MiB"
    else:
        found, wanted = _told_apart(kin, known.name), "memory not known"
    if len(found) == 1:
        return found[0]
    if not found:
        return NoMig(f"no MIG on {product!r}, {wanted}: known are {', '.join(model.name for model in kin)}")
    return NoMig(f"no MIG on {product!r}, {wanted}: may be {' or '.join(model.name for model in found)}")


def _begins(name: str, start: str) -> bool:
    return name == start or name.startswith(f"{start}-")


def _told_apart(kin: list[Model], name: str) -> list[Model]:
    """Return the models of the size in the name, or all. GH200 480GB names its processor's memory, which no model has."""
    sizes = {int(match[1]) for part in name.split("-") if (match := _GIGABYTES.fullmatch(part))}
    return [model for model in kin if model.memory_gb in sizes] or kin


def _nominal_mib(model: Model) -> int:
    return model.memory_gb * 1024
