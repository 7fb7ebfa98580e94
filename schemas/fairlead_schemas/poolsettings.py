"""The settings of one pool: their words, read strictly and written back.

`read_pool` turns plain values (of YAML or JSON) into settings in integers and notes every mistake; `pool_words` is its
inverse, defaults left out.
"""

from typing import Any

import msgspec

from fairlead_schemas.collecting import Reading, shown
from fairlead_schemas.ids import is_token
from fairlead_schemas.jobspec import PRIORITY_MAX, PROJECT_CHARS_MAX
from fairlead_schemas.quantities import SECOND_NS, QuantityError, parse_duration
from fairlead_schemas.queues import REPLICAS_MAX, Ageing, Packing, PoolSettings, Sharing
from fairlead_schemas.queuewords import Quantity, duration_word, is_model, parse_price, thousandths_word

#: Models with a price, and names in a pool's lists.
PRICES_MAX = 100
NAMES_MAX = 1000
#: What `half_life_ns` 0 stands for.
HALF_LIFE_NS = 7 * 86400 * SECOND_NS
_PERCENT_MAX = 100


class _Strict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


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


def read_pool(reading: Reading, name: str, words: Any, at: str) -> PoolSettings:
    """Return one pool's settings; an empty entry means the defaults."""
    if not is_token(name):
        reading.wrong(at, f"expected a name of 1 to 63 of a-z 0-9 _ -, found {shown(name)}")
    fields = reading.fields({} if words is None else words, PoolWords, at)
    sequencer = fields.get("sequencer", "drf")
    if not is_token(sequencer):
        reading.wrong(f"{at}.sequencer", f'expected a name such as "drf" or "fairshare", found {shown(sequencer)}')
    return PoolSettings(
        sequencer=sequencer, ageing=_ageing(reading, fields.get("ageing"), f"{at}.ageing"),
        patience_ns=reading.quantity(parse_duration, fields.get("patience", "5m"), f"{at}.patience"),
        half_life_ns=_half_life(reading, fields.get("halfLife"), f"{at}.halfLife"),
        past_percent=reading.whole(fields.get("pastPercent", 0), f"{at}.pastPercent", 0, _PERCENT_MAX),
        users=reading.names(
            fields.get("users", []), f"{at}.users", valid=is_token, what="a user (1 to 63 of a-z 0-9 _ -)", most=NAMES_MAX
        ),
        projects=reading.names(
            fields.get("projects", []), f"{at}.projects", valid=_is_project,
            what=f"a project of 1 to {PROJECT_CHARS_MAX} printable characters", most=NAMES_MAX,
        ),
        prices=_prices(reading, fields.get("prices", {}), f"{at}.prices"), defragment=fields.get("defragment", False),
        sharing=_sharing(reading, fields.get("sharing"), f"{at}.sharing"),
        packing=fields.get("packing", PoolSettings().packing),
    )  # fmt: skip


def _is_project(text: str) -> bool:
    return 0 < len(text) <= PROJECT_CHARS_MAX and text.isprintable()


def _ageing(reading: Reading, value: Any, at: str) -> Ageing | None:
    if value is None:
        return None
    fields = reading.fields(value, AgeingWords, at)
    every_ns = reading.quantity(_some_time, fields.get("every", 1), f"{at}.every")
    return Ageing(every_ns=every_ns, most=reading.whole(fields.get("most", 1), f"{at}.most", 1, PRIORITY_MAX))


def _sharing(reading: Reading, value: Any, at: str) -> Sharing | None:
    if value is None:
        return None
    fields = reading.fields(value, SharingWords, at)
    replicas = reading.whole(fields.get("replicas", 2), f"{at}.replicas", 2, REPLICAS_MAX)
    return Sharing(replicas=replicas, one_each=fields.get("oneEach", False))


def _half_life(reading: Reading, value: Any, at: str) -> int:
    """Return the half-life in ns, 0 for the default one. A written value of 0 is a mistake."""
    ns = reading.quantity(_some_time, value, at) if value is not None else 0
    return 0 if ns == HALF_LIFE_NS else ns


def _some_time(text: str) -> int:
    ns = parse_duration(text)
    if not ns:
        raise QuantityError(f'expected more than 0, found "{text}"')
    return ns


def _prices(reading: Reading, value: Any, at: str) -> dict[str, int]:
    prices: dict[str, int] = {}
    for model, price, path in reading.entries(value, at):
        if not is_model(model):
            reading.wrong(path, f"expected a model as in the node label nvidia.com/gpu.product, found {shown(model)}")
        prices[model] = reading.quantity(parse_price, price, path)
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
