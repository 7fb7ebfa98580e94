"""GPU time and its cost: the answer of GET /v1/usage and of the telemetry service's verb `usage`.

Exact amounts are milli-GPU times nanoseconds, as integers: 3,600,000,000,000,000 is one GPU-hour (`GPU_HOUR`).
Readers of JSON that know floats only (JavaScript, jq) take `gpu_hours`.
"""

from typing import Literal, get_args

import msgspec

type By = Literal["user", "queue", "project", "job", "attempt", "model", "pool"]
BYS: tuple[By, ...] = get_args(By.__value__)
#: milli-GPU times ns in one GPU-hour.
GPU_HOUR = 1000 * 3600 * 10**9


class UsageLine(msgspec.Struct, kw_only=True):
    """Charge of one user (queue, project, job, attempt, model, pool) for one model at one price."""

    key: str
    model: str
    from_ns: int  # when the month begins, or a new price of the model; Unix ns
    runs: int  # attempts that had GPUs in that time
    gpu_hours: float  # of `charged`, to be read by people
    charged: int  # from placement to the run's end: what is billed, and what budgets of queues count
    held: int  # from placement until the devices came back on evidence
    weighted: int  # `charged` in the unit of budgets: times thousandths of the pool's prices
    per_gpu_hour: str | None = None  # none: the price table has no price for the model then
    currency: str = ""
    amount: str | None = None  # to hundredths of the currency, half up
    #: Measured, not exact: of `held`, the minutes of which there are samples; in these, GPU time by utilisation. None: not looked at.
    measured: int | None = None
    used: int | None = None


class UsageEstimateLine(msgspec.Struct, kw_only=True):
    """An estimate for one line of a statement (same key, model and `from_ns`)."""

    key: str
    model: str
    from_ns: int
    gpu_hours: float
    charged: int


class UsageEstimate(msgspec.Struct, kw_only=True):
    """Estimate of GPU time up to now, if all present runs continue.

    The time is telemetry's clock, which the log does not confirm. An estimate is never billed, audited, or counted
    by budgets; the statement holds the exact figures separately.
    """

    at_ns: int  # Unix ns, never below the statement's `as_of_ns`
    lines: list[UsageEstimateLine]
    gpu_hours: float
    charged: int
    totals: dict[str, str]


class UsageStatement(msgspec.Struct, kw_only=True):
    """The bill of a calendar month of UTC, as of a moment: what runs then counts up to it."""

    month: str  # "2026-11"
    by: By
    sequence: int  # of the log, up to which events are counted
    as_of_ns: int  # the placer's clock there; Unix ns
    is_final: bool  # the month is over by that clock: nothing that is said here can change
    lines: list[UsageLine]
    gpu_hours: float
    charged: int
    held: int
    totals: dict[str, str]  # {currency: sum of the lines' amounts}
    unpriced: list[str]  # models that were used and have no price
    #: Up to now; None once the month is over.
    estimate: UsageEstimate | None = None
    #: Sums of the lines'.
    measured: int | None = None
    used: int | None = None
