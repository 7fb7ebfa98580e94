"""The settings of one queue: their words, read strictly and written back.

`read_queue` turns plain values (of YAML or JSON) into settings in integers and notes every mistake; `queue_words` is
its inverse, defaults left out. Amounts are in `amounts.py`, pools in `read_pool` and `pool_words`.

The settings of one pool: their words, read strictly and written back.

`read_pool` turns plain values (of YAML or JSON) into settings in integers and notes every mistake; `pool_words` is its
inverse, defaults left out.
"""

from collections.abc import Iterable
from typing import Any, Literal, get_args

import msgspec

from fairlead_schemas.queuefile.amounts import (
    GPU_WORD,
    Quantity,
    amount_word,
    amount_words,
    duration_word,
    gpu_hours_word,
    is_model,
    parse_gpu_hours,
    parse_price,
    read_amounts,
    read_users,
    resource_word,
    thousandths_word,
    user_words,
)
from fairlead_schemas.queuefile.settings import (
    DEFAULT_POOL,
    GPU_CLASS_PREFIX,
    QUEUE_PRIORITY_MAX,
    REPLICAS_MAX,
    WEIGHT_MAX,
    Ageing,
    Amounts,
    Budget,
    Packing,
    Period,
    PoolSettings,
    Preemption,
    QueueSettings,
    Reclaim,
    Sharing,
)
from fairlead_schemas.units.ids import PRIORITY_MAX, PROJECT_CHARS_MAX, is_token
from fairlead_schemas.units.quantities import QuantityError, parse_duration
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.units.timestamps import DAY_NS
from fairlead_schemas.units.validation import ErrorCollector, joined, shown

_LESS = "to let others go first, give it a lower priority"

#: Roles that can be granted on a queue: all but admin, which is of the whole cluster.
QueueRole = Literal["viewer", "member", "operator", "queue-admin", "auditor"]
QUEUE_ROLES: tuple[QueueRole, ...] = get_args(QueueRole)
GROUP = "group:"

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
    #: {login name, principal's id or group:NAME: role or roles} on this queue and those below it.
    roles: dict[str, QueueRole | list[QueueRole]] = {}
    queues: "dict[str, QueueWords | None]" = {}


def read_queue(reading: ErrorCollector, fields: dict[str, Any], at: str) -> QueueSettings:
    """Return one queue's settings from its fields (the result of `ErrorCollector.fields`), without those of the queues below."""

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


def read_roles(reading: ErrorCollector, value: Any, at: str) -> tuple[tuple[str, QueueRole], ...]:
    """Return the (subject, role) pairs of a queue's `roles`, sorted."""
    pairs: set[tuple[str, QueueRole]] = set()
    for subject, words, place in reading.entries(value, at):
        if not is_token(subject.removeprefix(GROUP)):
            reading.wrong(place, f"expected a login name, a principal's id or {GROUP}NAME, found {shown(subject)}")
        roles: list[Any] = words if isinstance(words, list) else [words]  # pyright: ignore[reportUnknownVariableType] -- of YAML
        for role in roles:
            if role not in QUEUE_ROLES:
                reading.wrong(
                    place,
                    f"expected {', '.join(QUEUE_ROLES)}, found {shown(role)}{did_you_mean(str(role), QUEUE_ROLES)}",
                )
            else:
                pairs.add((subject, role))
    return tuple(sorted(pairs))


def role_words(pairs: Iterable[tuple[str, QueueRole]]) -> dict[str, Any]:
    """Return the `roles` of a queue as a file has them: the inverse of `read_roles`; {} for none."""
    found: dict[str, list[QueueRole]] = {}
    for subject, role in sorted(pairs):
        found.setdefault(subject, []).append(role)
    roles = {subject: held[0] if len(held) == 1 else held for subject, held in found.items()}
    return {"roles": roles} if roles else {}


def _check_limits(reading: ErrorCollector, settings: QueueSettings, at: str) -> None:
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


def _budget(reading: ErrorCollector, value: Any, at: str) -> Budget | None:
    if value is None:
        return None
    fields = reading.fields(value, BudgetWords, at)
    gpu_milli_s = reading.amount(parse_gpu_hours, fields.get("gpuHours", 1), f"{at}.gpuHours")
    return Budget(
        gpu_milli_s=gpu_milli_s, period=fields.get("period", "month"), when_spent=fields.get("whenSpent", "refuse")
    )


def _preemption(reading: ErrorCollector, value: Any, at: str) -> Preemption:
    fields = reading.fields(value, PreemptionWords, at)
    defaults = PreemptionWords()
    return Preemption(
        reclaim=fields.get("reclaim", defaults.reclaim),
        rebalance=fields.get("rebalance", defaults.rebalance),
        lower_priority=fields.get("lowerPriority", defaults.lowerPriority),
        protect_ns=reading.amount(parse_duration, fields.get("protect", defaults.protect), f"{at}.protect"),
    )


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
            "gpuHours": gpu_hours_word(budget.gpu_milli_s),
            "period": budget.period,
            "whenSpent": budget.when_spent,
        }
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


#: Models with a price, and names in a pool's lists.
PRICES_MAX = 100
NAMES_MAX = 1000
#: Default that `half_life_ns` 0 means.
HALF_LIFE_NS = 7 * DAY_NS
_PERCENT_MAX = 100


class AgeingWords(_Strict, frozen=True, kw_only=True):
    """A waiting job's priority rises by one each time it has waited so long, by `most` at most."""

    every: str | int
    most: int


class SharingWords(_Strict, frozen=True, kw_only=True):
    """Time slicing of the pool's GPUs: replicas of each, and `oneEach`: a job gets at most one on each node."""

    replicas: int
    oneEach: bool = False  # noqa: N815 -- Kubernetes' spelling is the users' spelling


class PoolWords(_Strict, frozen=True, kw_only=True):
    """Settings of a pool in words. Durations are such as "5m" or "7d"; `prices`: the factor of a model's GPU in
    budgets (others: 1).
    """

    sequencer: str = "drf"
    ageing: AgeingWords | None = None
    patience: str | int = "5m"
    halfLife: str | int = "7d"  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    pastPercent: int = 0  # noqa: N815 -- as above
    users: list[str] = []
    projects: list[str] = []
    prices: dict[str, Quantity] = {}
    sharing: SharingWords | None = None
    defragment: bool = False
    packing: Packing = "fragmentation"


def read_pool(reading: ErrorCollector, name: str, words: Any, at: str) -> PoolSettings:
    """Return one pool's settings; an empty entry means the defaults."""
    if not is_token(name):
        reading.wrong(at, f"expected a name of 1 to 63 of a-z 0-9 _ -, found {shown(name)}")
    fields = reading.fields({} if words is None else words, PoolWords, at)
    sequencer = fields.get("sequencer", "drf")
    if not is_token(sequencer):
        reading.wrong(f"{at}.sequencer", f'expected a name such as "drf" or "fairshare", found {shown(sequencer)}')
    return PoolSettings(
        sequencer=sequencer,
        ageing=_ageing(reading, fields.get("ageing"), f"{at}.ageing"),
        patience_ns=reading.amount(parse_duration, fields.get("patience", "5m"), f"{at}.patience"),
        half_life_ns=_half_life(reading, fields.get("halfLife"), f"{at}.halfLife"),
        past_percent=reading.whole(fields.get("pastPercent", 0), f"{at}.pastPercent", 0, _PERCENT_MAX),
        users=reading.names(
            fields.get("users", []),
            f"{at}.users",
            valid=is_token,
            what="a user (1 to 63 of a-z 0-9 _ -)",
            most=NAMES_MAX,
        ),
        projects=reading.names(
            fields.get("projects", []),
            f"{at}.projects",
            valid=_is_project,
            what=f"a project of 1 to {PROJECT_CHARS_MAX} printable characters",
            most=NAMES_MAX,
        ),
        prices=_prices(reading, fields.get("prices", {}), f"{at}.prices"),
        defragment=fields.get("defragment", False),
        sharing=_sharing(reading, fields.get("sharing"), f"{at}.sharing"),
        packing=fields.get("packing", PoolSettings().packing),
    )


def _is_project(text: str) -> bool:
    return 0 < len(text) <= PROJECT_CHARS_MAX and text.isprintable()


def _ageing(reading: ErrorCollector, value: Any, at: str) -> Ageing | None:
    if value is None:
        return None
    fields = reading.fields(value, AgeingWords, at)
    every_ns = reading.amount(_some_time, fields.get("every", 1), f"{at}.every")
    return Ageing(every_ns=every_ns, most=reading.whole(fields.get("most", 1), f"{at}.most", 1, PRIORITY_MAX))


def _sharing(reading: ErrorCollector, value: Any, at: str) -> Sharing | None:
    if value is None:
        return None
    fields = reading.fields(value, SharingWords, at)
    replicas = reading.whole(fields.get("replicas", 2), f"{at}.replicas", 2, REPLICAS_MAX)
    return Sharing(replicas=replicas, one_each=fields.get("oneEach", False))


def _half_life(reading: ErrorCollector, value: Any, at: str) -> int:
    """Return the half-life in ns, 0 for the default one. A written value of 0 is a mistake."""
    ns = reading.amount(_some_time, value, at) if value is not None else 0
    return 0 if ns == HALF_LIFE_NS else ns


def _some_time(text: str) -> int:
    ns = parse_duration(text)
    if not ns:
        raise QuantityError(f'expected more than 0, found "{text}"')
    return ns


def _prices(reading: ErrorCollector, value: Any, at: str) -> dict[str, int]:
    prices: dict[str, int] = {}
    for model, price, path in reading.entries(value, at):
        if not is_model(model):
            reading.wrong(path, f"expected a model as in the node label nvidia.com/gpu.product, found {shown(model)}")
        prices[model] = reading.amount(parse_price, price, path)
    if len(prices) > PRICES_MAX:
        reading.wrong(at, f"expected at most {PRICES_MAX} models, found {len(prices)}")
    return prices


def pool_words(settings: PoolSettings) -> dict[str, Any]:
    """Return the words of a pool's settings, the inverse of `read_pool`. Defaults are left out, except the sequencer."""
    words: dict[str, Any] = {"sequencer": settings.sequencer}
    if settings.ageing is not None:
        words["ageing"] = {"every": duration_word(settings.ageing.every_ns), "most": settings.ageing.most}
    if settings.patience_ns != PoolSettings().patience_ns:
        words["patience"] = duration_word(settings.patience_ns)
    if settings.half_life_ns:
        words["halfLife"] = duration_word(settings.half_life_ns)
    if settings.past_percent:
        words["pastPercent"] = settings.past_percent
    for name in ("users", "projects"):
        if names := getattr(settings, name):
            words[name] = list(names)
    if settings.prices:
        words["prices"] = {model: thousandths_word(price) for model, price in sorted(settings.prices.items())}
    if settings.sharing is not None:
        words["sharing"] = {"replicas": settings.sharing.replicas}
        if settings.sharing.one_each:
            words["sharing"]["oneEach"] = True
    if settings.defragment:
        words["defragment"] = True
    if settings.packing != PoolSettings().packing:
        words["packing"] = settings.packing
    return words
