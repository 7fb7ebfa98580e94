"""Cause of a refusal in words: a sentence, its numbers, and the next step. Pure."""

from typing import NamedTuple

from fairlead_schemas.queuefile.amounts import counted
from fairlead_schemas.wire.resource_requests import gpus
from fairlead_schemas.wire.resources import Request

Detail = dict[str, int | str]
#: Inside a node: how a sentence says it.
TOGETHER = {
    "nvlink": "connected by NVLink", "switch": "under one PCIe switch", "numa": "on one NUMA node", "socket": "on one socket",
}  # fmt: skip


class Told(NamedTuple):
    """A cause in a sentence, its numbers, and the next step ("": waiting is)."""

    message: str
    detail: Detail = {}
    next: str = ""
    #: True where waiting alone does not end it.
    lasting: bool = False


NOTHING = Told("")


def unit_of(asked: Request) -> str:
    """ "2 GPUs and 1 CPU"."""
    cpus = counted("cpu", asked.cpu_milli) if asked.cpu_milli else ""
    return " and ".join(each for each in (gpus(asked), cpus) if each)
