"""Amounts, prices and durations of a queue file in words: both ways, exactly.

"nvidia.com/gpu: 16" is {"gpu": 16000}, "nvidia.com/gpu:<model>" counts the GPUs of one model, "cpu" and "memory" are in
Kubernetes' words. Whole files and settings: `parse.py` reads them, `settings_format.py` writes them.
"""

import re
from typing import Any

from fairlead_schemas.queuefile.settings import ANY_USER, GPU_CLASS_PREFIX, GPU_HOUR_MILLI_S, Amounts, gpu_class
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.quantities import (
    MILLI,
    QuantityError,
    format_memory,
    format_milli,
    parse_cpu,
    parse_gpu,
    parse_memory,
    thousandths,
)
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.units.timestamps import DAY_NS, HOUR_NS, MILLISECOND_NS, MINUTE_NS, SECOND_NS
from fairlead_schemas.units.validation import ErrorCollector, shown

#: Numbers may stand as such; YAML keeps "0.5" as text, so that it is read exactly.
type Quantity = str | int | float

GPU_WORD = "nvidia.com/gpu"
#: How the file calls everybody who is not named in `users`.
DEFAULT_USER = "default"
#: {resource: unit of its amounts, last in the name of a number of evidence}: {"held_gpu_milli": 6000}.
EVIDENCE_UNITS = {"gpu": "gpu_milli", "cpu": "cpu_milli", "memory": "memory_mib"}
RESOURCES_MAX = 100
USERS_MAX = 1000

_MODEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z", re.ASCII)
_THOUSANDTHS = re.compile(r"(\d{1,9})(?:\.(\d{1,3}))?\Z", re.ASCII)
_UNITS = (("d", DAY_NS), ("h", HOUR_NS), ("m", MINUTE_NS), ("s", SECOND_NS), ("ms", MILLISECOND_NS))


def read_amounts(reading: ErrorCollector, value: Any, at: str) -> Amounts:
    """{resource: amount} in the log's integers, from {word: quantity}."""
    amounts: Amounts = {}
    for word, quantity, path in reading.entries(value, at):
        resource = _resource(word)
        if resource is None:
            known = f'{GPU_WORD}, "{GPU_WORD}:<model>", cpu, memory'
            meant = did_you_mean(word, (GPU_WORD, "cpu", "memory"))
            reading.wrong(path, f"unknown resource; expected one of {known}{meant}")
            continue
        parse = {"cpu": parse_cpu, "memory": parse_memory}.get(resource, parse_gpu)
        amounts[resource] = reading.amount(parse, quantity, path)
    if len(amounts) > RESOURCES_MAX:
        reading.wrong(at, f"expected at most {RESOURCES_MAX} resources, found {len(amounts)}")
    return amounts


def _resource(word: str) -> str | None:
    if word in ("cpu", "memory"):
        return word
    if word == GPU_WORD:
        return "gpu"
    model = word.removeprefix(f"{GPU_WORD}:")
    return gpu_class(model) if model != word and _MODEL.match(model) else None


def is_model(text: str) -> bool:
    """True for what the node label nvidia.com/gpu.product can say."""
    return _MODEL.match(text) is not None


def resource_word(resource: str) -> str:
    """`resource_word("gpu:NVIDIA-L40S") == "nvidia.com/gpu:NVIDIA-L40S"`."""
    if resource == "gpu" or resource.startswith(GPU_CLASS_PREFIX):
        return f"nvidia.com/{resource}"
    return resource


def amount_word(resource: str, amount: int) -> str | int:
    """Return one amount in the form of the file: 16 GPUs are 16, 1500 milli-CPU "1500m", 65536 MiB "64Gi"."""
    if resource == "memory":
        return format_memory(amount)
    if amount % MILLI == 0:
        return amount // MILLI
    return f"{amount}m" if resource == "cpu" else format_milli(amount)


def number(resource: str, amount: int) -> str:
    """The amount in a sentence that names what it counts elsewhere: "8", "0.500", "64Gi"."""
    return format_memory(amount) if resource == "memory" else format_milli(amount)


def counted(resource: str, amount: int) -> str:
    """An amount in a sentence: "1 GPU", "8 NVIDIA-L40S GPUs", "32 CPUs", "64Gi of memory"."""
    if resource == "memory":
        return f"{number(resource, amount)} of memory"
    kind = "CPU" if resource == "cpu" else "GPU"
    model = f"{resource.removeprefix(GPU_CLASS_PREFIX)} " if resource.startswith(GPU_CLASS_PREFIX) else ""
    return f"{number(resource, amount)} {model}{kind}{'' if amount == MILLI else 's'}"


def is_are(resource: str, amount: int) -> str:
    """The verb of a counted amount: "1 GPU is", "64Gi of memory is", "4 GPUs are"."""
    return "is" if resource == "memory" or amount == MILLI else "are"


def amount_words(amounts: Amounts) -> dict[str, str | int]:
    """The inverse of `read_amounts`."""
    return {resource_word(resource): amount_word(resource, amount) for resource, amount in sorted(amounts.items())}


def read_users(reading: ErrorCollector, value: Any, at: str) -> dict[str, Amounts]:
    """Return {user: the most that they may hold}. A user without amounts has no limit, whatever limit all
    others have.
    """
    users: dict[str, Amounts] = {}
    for user, amounts, path in reading.entries(value, at):
        if not is_token(user):
            reading.wrong(path, f'expected a user (1 to 63 of a-z 0-9 _ -) or "{DEFAULT_USER}", found {shown(user)}')
        users[ANY_USER if user == DEFAULT_USER else user] = read_amounts(reading, amounts, path)
    if len(users) > USERS_MAX:
        reading.wrong(at, f"expected at most {USERS_MAX} users, found {len(users)}")
    return users


def user_words(users: dict[str, Amounts]) -> dict[str, dict[str, str | int]]:
    """The inverse of `read_users`."""
    return {DEFAULT_USER if user == ANY_USER else user: amount_words(one) for user, one in sorted(users.items())}


def parse_price(text: str) -> int:
    """Thousandths of "2.5". Raises QuantityError."""
    match = _THOUSANDTHS.match(text.strip())
    if match is None:
        raise QuantityError(f'expected a number from 0 on with at most three decimals such as 2.5, found "{text}"')
    return thousandths(match[1], match[2])


def parse_gpu_hours(text: str) -> int:
    """milli-GPU-seconds of "1000" GPU-hours. Raises QuantityError."""
    price = parse_price(text)
    if not price:
        raise QuantityError(f'expected more than 0 GPU-hours, found "{text}"')
    return price * (GPU_HOUR_MILLI_S // MILLI)


def thousandths_word(amount: int) -> int | float:
    """The inverse of `parse_price`."""
    return amount // MILLI if amount % MILLI == 0 else amount / MILLI


def gpu_hours_word(gpu_milli_s: int) -> int | float:
    """GPU-hours, to the thousandth: the inverse of `parse_gpu_hours`."""
    return thousandths_word(gpu_milli_s * MILLI // GPU_HOUR_MILLI_S)


def duration_word(ns: int) -> str:
    """A duration, exact to the millisecond: `duration_word(5_400 * SECOND_NS) == "1h 30m"`."""
    parts: list[str] = []
    for unit, size in _UNITS:
        if ns >= size:
            parts.append(f"{ns // size}{unit}")
            ns %= size
    return " ".join(parts) or "0s"
