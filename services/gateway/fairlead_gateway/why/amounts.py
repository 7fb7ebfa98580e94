"""Amounts in sentences and in evidence (what is counted: `fairlead_schemas.queuefile.amounts`). Pure."""

from fairlead_schemas.queuefile.amounts import counted, is_are

#: What a number of each resource is called in evidence, unit last.
_UNITS = {"gpu": "gpu_milli", "cpu": "cpu_milli", "memory": "memory_mib"}


def given_back(resource: str, amount: int, whose: str) -> str:
    """ "starts when 4 GPUs of research are given back"."""
    return f"starts when {counted(resource, amount)} of {whose} {is_are(resource, amount)} given back"


def numbers(resource: str, **amounts: int) -> dict[str, int | str]:
    """Evidence: `numbers("gpu", held=6000) == {"resource": "gpu", "held_gpu_milli": 6000}`."""
    unit = _UNITS.get(resource, "gpu_milli")
    return {"resource": resource, **{f"{name}_{unit}": amount for name, amount in amounts.items()}}


def these(names: "tuple[str, ...] | list[str]", most: int = 4) -> str:
    """Names in a sentence, cut: "700, 701 and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
