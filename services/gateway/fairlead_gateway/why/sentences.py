"""The one shape of a reason, parts of its sentences, and numbers of evidence (amounts: `fairlead_schemas.queuefile.amounts`).
Pure.
"""

from collections.abc import Sequence

from fairlead_schemas.http.api import Reason
from fairlead_schemas.queuefile.amounts import EVIDENCE_UNITS, counted, is_are

Detail = dict[str, int | str]


def reason(code: str, message: str, then: str = "", /, **evidence: int | str | None) -> Reason:
    """Return a reason with its evidence in numbers, without the names that have None or "", and its next step."""
    detail: Detail = {name: value for name, value in evidence.items() if value is not None and value != ""}
    return Reason(code=code, message=message, detail=detail | ({"next": then} if then else {}))


def several(count: int, noun: str) -> str:
    """ "1 node", "3 nodes"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def name_list(names: Sequence[str], most: int = 4) -> str:
    """Names in a sentence, cut: "700, 701 and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def is_one(names: Sequence[str], verb: str = "is", plural: str = "are") -> str:
    """Return the verb after the names: "n1 is", "n1, n2 are"."""
    return verb if len(names) == 1 else plural


def job_list(jobs: Sequence[str]) -> str:
    """ "job 7", "jobs 7, 9"."""
    return f"job{'' if len(jobs) == 1 else 's'} {name_list(jobs)}"


def given_back(resource: str, amount: int, whose: str) -> str:
    """ "4 GPUs of research are given back"."""
    return f"{counted(resource, amount)} of {whose} {is_are(resource, amount)} given back"


def numbers(resource: str, **amounts: int) -> Detail:
    """Evidence: `numbers("gpu", held=6000) == {"resource": "gpu", "held_gpu_milli": 6000}`."""
    unit = EVIDENCE_UNITS.get(resource, "gpu_milli")
    return {"resource": resource, **{f"{name}_{unit}": amount for name, amount in amounts.items()}}
