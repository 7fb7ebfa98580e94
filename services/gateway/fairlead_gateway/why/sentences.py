"""Cause of a refusal in words: a sentence, its numbers, and the next step. Pure.

Amounts in sentences and in evidence (what is counted: `fairlead_schemas.queuefile.amounts`). Pure.
"""

from typing import NamedTuple

from fairlead_schemas.queuefile.amounts import counted, is_are
from fairlead_schemas.wire.resource_requests import gpus
from fairlead_schemas.wire.resources import Request

Detail = dict[str, int | str]
#: Inside a node: how a sentence says it.
TOGETHER = {
    "nvlink": "connected by NVLink",
    "switch": "under one PCIe switch",
    "numa": "on one NUMA node",
    "socket": "on one socket",
}


class CauseMessage(NamedTuple):
    """A cause in a sentence, its numbers, and the next step ("": waiting is)."""

    message: str
    detail: Detail = {}
    next: str = ""
    #: True where waiting alone does not end it.
    lasting: bool = False


NO_CAUSE = CauseMessage("")


def unit_of(asked: Request) -> str:
    """ "2 GPUs and 1 CPU"."""
    cpus = counted("cpu", asked.cpu_milli) if asked.cpu_milli else ""
    return " and ".join(each for each in (gpus(asked), cpus) if each)


#: What a number of each resource is called in evidence, unit last.
_UNITS = {"gpu": "gpu_milli", "cpu": "cpu_milli", "memory": "memory_mib"}


def given_back(resource: str, amount: int, whose: str) -> str:
    """ "starts when 4 GPUs of research are given back"."""
    return f"starts when {counted(resource, amount)} of {whose} {is_are(resource, amount)} given back"


def numbers(resource: str, **amounts: int) -> dict[str, int | str]:
    """Evidence: `numbers("gpu", held=6000) == {"resource": "gpu", "held_gpu_milli": 6000}`."""
    unit = _UNITS.get(resource, "gpu_milli")
    return {"resource": resource, **{f"{name}_{unit}": amount for name, amount in amounts.items()}}


def name_list(names: "tuple[str, ...] | list[str]", most: int = 4) -> str:
    """Names in a sentence, cut: "700, 701 and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
