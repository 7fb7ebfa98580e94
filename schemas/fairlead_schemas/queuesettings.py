"""The settings of one queue: their words, read strictly and written back.

`read_queue` turns plain values (of YAML or JSON) into settings in integers and notes every mistake; `queue_words` is
its inverse, defaults left out. Amounts are in `queuewords.py`, pools in `poolsettings.py`.
"""

from typing import Any, Literal

import msgspec

from fairlead_schemas.collecting import Reading, joined, shown
from fairlead_schemas.ids import is_token
from fairlead_schemas.quantities import parse_duration
from fairlead_schemas.queues import (
    DEFAULT_POOL,
    GPU_CLASS_PREFIX,
    QUEUE_PRIORITY_MAX,
    WEIGHT_MAX,
    Amounts,
    Budget,
    Period,
    Preemption,
    QueueSettings,
    Reclaim,
)
from fairlead_schemas.queuewords import (
    GPU_WORD,
    Quantity,
    amount_word,
    amount_words,
    duration_word,
    gpu_hours_word,
    parse_gpu_hours,
    read_amounts,
    read_users,
    resource_word,
    user_words,
)

_LESS = "to let others go first, give it a lower priority"

type WhenSpent = Literal["refuse", "demote"]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class BudgetWords(_Strict, frozen=True, kw_only=True):
    """GPU-hours (weighted by the pool's prices) in each calendar period in UTC."""

    gpuHours: Quantity  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    period: Period = "month"
    whenSpent: WhenSpent = "refuse"  # noqa: N815 -- as above


class PreemptionWords(_Strict, frozen=True, kw_only=True):
    """Rules of preemption in words: the runs that may be asked to yield to a job of this queue, and the protection of
    its own.
    """

    reclaim: Reclaim = "any"
    rebalance: bool = False
    lowerPriority: bool = True  # noqa: N815 -- as above
    protect: str | int = "1m"


class QueueWords(_Strict, frozen=True, kw_only=True):
    """Settings of a queue in words.

    Amounts are such as {nvidia.com/gpu: 16, cpu: "256", memory: 2Ti}; `users`: the most that each may hold,
    "default" for all who are not named; `queues`: the queues below.
    """

    pool: str = ""
    guaranteed: dict[str, Quantity] = {}
    maximum: dict[str, Quantity] = {}
    borrowing: dict[str, Quantity] = {}
    lending: dict[str, Quantity] = {}
    weight: int = 1
    priority: int = 0
    users: dict[str, dict[str, Quantity]] = {}
    budget: BudgetWords | None = None
    preemption: PreemptionWords = PreemptionWords()
    queues: "dict[str, QueueWords | None]" = {}


def read_queue(reading: Reading, fields: dict[str, Any], at: str) -> QueueSettings:
    """Return one queue's settings from its fields (the result of `Reading.fields`), without those of the queues below."""

    def amounts(name: str) -> Amounts:
        return read_amounts(reading, fields.get(name, {}), joined(at, name))

    pool = fields.get("pool", "")
    if pool and not is_token(pool):
        reading.wrong(joined(at, "pool"), f"expected 1 to 63 of a-z 0-9 _ -, found {shown(pool)}")
    settings = QueueSettings(
        pool="" if pool == DEFAULT_POOL else pool, guaranteed=amounts("guaranteed"), maximum=amounts("maximum"), borrowing=amounts("borrowing"),
        lending=amounts("lending"), weight=reading.whole(fields.get("weight", 1), joined(at, "weight"), 1, WEIGHT_MAX, _LESS),
        priority=reading.whole(fields.get("priority", 0), joined(at, "priority"), -QUEUE_PRIORITY_MAX, QUEUE_PRIORITY_MAX),
        users=read_users(reading, fields.get("users", {}), joined(at, "users")),
        budget=_budget(reading, fields.get("budget"), joined(at, "budget")),
        preemption=_preemption(reading, fields.get("preemption", {}), joined(at, "preemption")),
    )  # fmt: skip
    _check_limits(reading, settings, at)
    return settings


def _check_limits(reading: Reading, settings: QueueSettings, at: str) -> None:
    guaranteed, maximum = settings.guaranteed, settings.maximum
    for resource, amount in guaranteed.items():
        most, word = maximum.get(resource, amount), resource_word(resource)
        if most < amount:
            found = f"found {amount_word(resource, most)}; raise it, or lower guaranteed"
            told = f"expected at least what is guaranteed ({amount_word(resource, amount)})"
            reading.wrong(joined(at, f"maximum.{word}"), f"{told}, {found}")
        elif resource.startswith(GPU_CLASS_PREFIX) and maximum.get("gpu", amount) < amount:
            told = f"expected at most maximum.{GPU_WORD} ({amount_word('gpu', maximum['gpu'])})"
            reading.wrong(joined(at, f"guaranteed.{word}"), f"{told}, found {amount_word(resource, amount)}")
    for resource, amount in settings.lending.items():
        # Where it names none, it has what the queues below are guaranteed together.
        most, word = guaranteed.get(resource, amount), resource_word(resource)
        if amount > most:
            found = f"found {amount_word(resource, amount)}; lower it, or guarantee more"
            told = f"expected at most what is guaranteed ({amount_word(resource, most)})"
            reading.wrong(joined(at, f"lending.{word}"), f"{told}, {found}")


def _budget(reading: Reading, value: Any, at: str) -> Budget | None:
    if value is None:
        return None
    fields = reading.fields(value, BudgetWords, at)
    gpu_milli_s = reading.quantity(parse_gpu_hours, fields.get("gpuHours", 1), f"{at}.gpuHours")
    return Budget(
        gpu_milli_s=gpu_milli_s, period=fields.get("period", "month"), when_spent=fields.get("whenSpent", "refuse")
    )


def _preemption(reading: Reading, value: Any, at: str) -> Preemption:
    fields = reading.fields(value, PreemptionWords, at)
    defaults = PreemptionWords()
    return Preemption(
        reclaim=fields.get("reclaim", defaults.reclaim), rebalance=fields.get("rebalance", defaults.rebalance),
        lower_priority=fields.get("lowerPriority", defaults.lowerPriority),
        protect_ns=reading.quantity(parse_duration, fields.get("protect", defaults.protect), f"{at}.protect"),
    )  # fmt: skip


# --------------------------------------------------------------------------------- settings to words


def queue_words(settings: QueueSettings) -> dict[str, Any]:
    """The inverse of `read_queue`, defaults left out."""
    words: dict[str, Any] = {"pool": settings.pool} if settings.pool else {}
    for name in ("guaranteed", "maximum", "borrowing", "lending"):
        if amounts := getattr(settings, name):
            words[name] = amount_words(amounts)
    if settings.weight != 1:
        words["weight"] = settings.weight
    if settings.priority:
        words["priority"] = settings.priority
    if settings.users:
        words["users"] = user_words(settings.users)
    if settings.budget is not None:
        budget = settings.budget
        words["budget"] = {
            "gpuHours": gpu_hours_word(budget.gpu_milli_s), "period": budget.period, "whenSpent": budget.when_spent,
        }  # fmt: skip
    if preemption := _preemption_words(settings.preemption):
        words["preemption"] = preemption
    return words


def _preemption_words(settings: Preemption) -> dict[str, Any]:
    usual, words = Preemption(), dict[str, Any]()
    if settings.reclaim != usual.reclaim:
        words["reclaim"] = settings.reclaim
    if settings.rebalance != usual.rebalance:
        words["rebalance"] = settings.rebalance
    if settings.lower_priority != usual.lower_priority:
        words["lowerPriority"] = settings.lower_priority
    if settings.protect_ns != usual.protect_ns:
        words["protect"] = duration_word(settings.protect_ns)
    return words
