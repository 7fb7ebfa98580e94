"""Amounts in words: `counted("gpu", 8000) == "8 GPUs"`. Pure."""

from fairlead_schemas.quantities import MILLI, format_memory, format_milli
from fairlead_schemas.queues import GPU_CLASS_PREFIX

#: What a number of each resource is called in evidence, unit last.
_UNITS = {"gpu": "gpu_milli", "cpu": "cpu_milli", "memory": "memory_mib"}


def bare(resource: str, amount: int) -> str:
    """The number alone: `bare("cpu", 500) == "0.500"`."""
    return format_memory(amount) if resource == "memory" else format_milli(amount)


def counted(resource: str, amount: int) -> str:
    """The number and what it counts: "1 GPU", "8 NVIDIA-L40S GPUs", "32 CPUs", "64Gi of memory"."""
    if resource == "memory":
        return f"{bare(resource, amount)} of memory"
    kind = "CPU" if resource == "cpu" else "GPU"
    model = f"{resource.removeprefix(GPU_CLASS_PREFIX)} " if resource.startswith(GPU_CLASS_PREFIX) else ""
    return f"{bare(resource, amount)} {model}{kind}{'' if amount == MILLI else 's'}"


def given_back(resource: str, amount: int, whose: str) -> str:
    """ "starts when 4 GPUs of research are given back"."""
    verb = "is" if resource == "memory" or amount == MILLI else "are"
    return f"starts when {counted(resource, amount)} of {whose} {verb} given back"


def numbers(resource: str, **amounts: int) -> dict[str, int | str]:
    """Evidence: `numbers("gpu", held=6000) == {"resource": "gpu", "held_gpu_milli": 6000}`."""
    unit = _UNITS.get(resource, "gpu_milli")
    return {"resource": resource, **{f"{name}_{unit}": amount for name, amount in amounts.items()}}


def these(names: "tuple[str, ...] | list[str]", most: int = 4) -> str:
    """Names in a sentence, cut: "700, 701 and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
