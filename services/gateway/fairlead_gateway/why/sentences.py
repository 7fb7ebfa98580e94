"""Parts of sentences, and numbers of evidence (amounts: `fairlead_schemas.queuefile.amounts`). Pure."""

from collections.abc import Sequence

from fairlead_schemas.queuefile.amounts import EVIDENCE_UNITS, counted, is_are

Detail = dict[str, int | str]


def several(count: int, noun: str) -> str:
    """ "1 node", "3 nodes"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def name_list(names: Sequence[str], most: int = 4) -> str:
    """Names in a sentence, cut: "700, 701 and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


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
