"""Callers: the gateway's knowledge of a caller, passed to the services that answer. This module decides nothing.

Further parts:
- SQL requests to the warehouse and their answers: between gateway and telemetry service, and to people;
- a job over time: what was measured of its GPUs, in equal steps;
- GPU time and its cost: the answer of GET /v1/usage and of the telemetry service's verb `usage`.

An answer is JSON. If CSV or Arrow was requested, it is one line of JSON (an `SqlHead`, or {"error": …}), a line
break, and the bytes.

The answer of GET /v1/jobs/{id}/metrics, and of telemetry's `metrics`.

Present GPU use of running jobs, by the newest samples. The answer of GET /v1/use, and of telemetry's `use`.

Exact amounts are milli-GPU times nanoseconds, as integers: 3,600,000,000,000,000 is one GPU-hour (`GPU_HOUR`).
Readers of JSON that know floats only (JavaScript, jq) take `gpu_hours`.
"""

from typing import Annotated, Any, Literal, get_args

import msgspec

from fairlead_schemas.units.timestamps import HOUR_NS

#: member: own jobs and those of own projects | auditor: reads everything | admin: everything.
type Role = Literal["member", "auditor", "admin"]
ROLES: tuple[Role, ...] = get_args(Role.__value__)


class RowScope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Part of the warehouse's rows: those of jobs in these queues (with all queues below), of these projects, and these jobs."""

    queues: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()


class QueryCaller(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """QueryCaller of the API, with role and visible rows."""

    user: str
    role: Role
    #: Projects whose jobs a member sees in addition to the member's own jobs.
    projects: tuple[str, ...] = ()
    #: Queues whose jobs a member sees, with all queues below.
    queues: tuple[str, ...] = ()
    #: Only rows that are in this part, too: a token's own limit. None: no limit.
    within: RowScope | None = None
    #: False for a member who may not read all nodes and queues: totals over everybody are left out, too.
    totals: bool = True

    @property
    def sees_all(self) -> bool:
        """True where nothing is kept from this one."""
        return self.role != "member"


#: QueryCaller of a gateway that has no configured identities, as on a local stack.
ANONYMOUS_ADMIN = QueryCaller(user="anonymous-admin", role="admin")


type SqlFormat = Literal["json", "csv", "arrow"]
SQL_FORMATS: tuple[SqlFormat, ...] = get_args(SqlFormat.__value__)
#: As HTTP names them. Arrow is its IPC stream.
MEDIA_TYPES: dict[SqlFormat, str] = {
    "json": "application/json",
    "csv": "text/csv",
    "arrow": "application/vnd.apache.arrow.stream",
}
#: Rows that one answer has at most.
ROWS_MAX = 10_000


#: {column of the table `start_estimates`: its type}. The ledger is folded by another process, so its rows come with the query.
START_ESTIMATES = {
    "job": "VARCHAR",
    "user": "VARCHAR",
    "queue": "VARCHAR",
    "pool": "VARCHAR",
    "sequence": "BIGINT",
    "at": "TIMESTAMP_NS",
    "basis": "VARCHAR",
    "futures": "INTEGER",
    "at_once": "BOOLEAN",
    "unknown": "VARCHAR",
    "from_at": "TIMESTAMP_NS",
    "middle_at": "TIMESTAMP_NS",
    "to_at": "TIMESTAMP_NS",
    "outcome": "VARCHAR",
    "over_at": "TIMESTAMP_NS",
    "held": "BOOLEAN",
    "nodes": "VARCHAR[]",
    "got": "VARCHAR[]",
    "loss": "DOUBLE",
}


class SqlRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Request of rpc("telemetry", "sql")."""

    caller: QueryCaller
    query: str
    limit: int = ROWS_MAX
    format: SqlFormat = "json"
    #: Seconds that it may take, at most the service's limit. None means that limit.
    timeout_s: float | None = None
    #: Chosen by who asks, so that it can be cancelled by it; "": it cannot.
    id: str = ""
    #: {principal: login name}: rows of the table `people` of this one query. The warehouse has no names.
    people: dict[str, str] = {}
    #: Rows of the table `start_estimates` of this one query, in the order of START_ESTIMATES.
    start_estimates: list[list[Any]] = []


class SqlCancel(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Request of rpc("telemetry", "sql_cancel"). Only the user of the query, or an admin, may cancel."""

    caller: QueryCaller
    id: str


class SqlHead(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Head of an answer, without its rows."""

    #: [{"name", "type"}], types as DuckDB calls them.
    columns: list[dict[str, str]]
    #: The log sequence that it is true for.
    sequence: int
    truncated: bool
    elapsed_ms: float
    #: Of a truncated answer: what it was cut at.
    cut: str = ""
    #: Rows of the caller's own that the tables which were asked do not have.
    left_out: str = ""


class JobMetricsRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Request of rpc("telemetry", "metrics").

    A value of 0 means: the newest attempt; its begin; its end, or now; a suitable step.
    """

    caller: QueryCaller
    job: str
    attempt: int = 0
    from_ns: int = 0
    to_ns: int = 0
    step_s: int = 0


class GpuSeries(msgspec.Struct, kw_only=True):
    """Series of one GPU of the run. All lists have a place for every step; null: nothing was measured then."""

    node: str
    uuid: str
    samples: list[int]
    #: Means over the samples, and the greatest.
    utilization_pct: list[float | None]
    utilization_pct_max: list[int | None]
    memory_used_mib: list[float | None]
    power_mw: list[float | None]


class JobMetrics(msgspec.Struct, kw_only=True):
    """Metrics of one attempt from `from_ns` (Unix ns), `steps` steps of `step_s` seconds each."""

    job: str
    attempt: int
    #: Of the log: up to there it is known what the run held.
    sequence: int
    from_ns: int
    step_s: int
    steps: int
    #: What they are made of: samples, or their sums per minutes or hours (with the newest from what is finer).
    source: str
    #: Share of the steps, over all GPUs, of which there are samples.
    measured_pct: float
    #: True where the GPUs are played.
    simulated: bool
    #: In the order of ranks.
    gpus: list[GpuSeries]


#: Jobs that one answer tells of.
JOBS_MAX = 500


class JobUseRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Request of rpc("telemetry", "use"), with the jobs in question."""

    caller: QueryCaller
    jobs: Annotated[list[str], msgspec.Meta(max_length=JOBS_MAX)]
    #: The log sequence to answer for, by the samples up to its time; 0: now.
    at: int = 0


class JobUse(msgspec.Struct, kw_only=True):
    """GPU use of one run. A null value is unknown: no sample of its GPUs is new enough, its driver does not report the
    value, or only part of a GPU is its own.
    """

    job: str
    attempt: int
    #: GPUs and MIG instances that it holds, and of how many of them the numbers below are.
    gpus: int
    measured: int
    #: The mean over them, what they have in use together, and what they draw together.
    utilization_pct: float | None
    memory_used_mib: int | None
    power_mw: int | None
    #: When the oldest of the samples was taken (Unix ns, the node's clock); null: there is none.
    at_ns: int | None
    #: True where any of the GPUs is played.
    simulated: bool


class JobUses(msgspec.Struct, kw_only=True):
    """GPU use of the requested jobs that hold GPUs and that the caller may see."""

    #: Of the log: up to there it is known what runs hold.
    sequence: int
    items: list[JobUse]


type By = Literal["user", "queue", "project", "job", "attempt", "model", "pool"]
BYS: tuple[By, ...] = get_args(By.__value__)
#: milli-GPU times ns in one GPU-hour.
GPU_HOUR_MILLI_NS = 1000 * HOUR_NS


class UsageLine(msgspec.Struct, kw_only=True):
    """Charge of one user (queue, project, job, attempt, model, pool) for one model at one price."""

    key: str
    model: str
    from_ns: int  # when the time begins, or a new price of the model; Unix ns
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
    #: Login name of the user whose line it is, as of the answer. The warehouse and the log have ids alone.
    name: str = ""


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
    """The bill of a calendar month of UTC, or of any other time, as of a moment: what runs then counts up to it."""

    month: str  # "2026-11"; of another time its begin and end, "2026-11-02T00:00:00Z/2026-11-09T00:00:00Z"
    by: By
    sequence: int  # of the log, up to which events are counted
    as_of_ns: int  # the placer's clock there; Unix ns
    is_final: bool  # the time is over by that clock: no figure here can change
    lines: list[UsageLine]
    gpu_hours: float
    charged: int
    held: int
    totals: dict[str, str]  # {currency: sum of the lines' amounts}
    unpriced: list[str]  # models that were used and have no price
    #: The time that it covers, Unix ns, without its end; 0 in statements of earlier releases, which have a month.
    begin_ns: int = 0
    end_ns: int = 0
    #: Up to now; None once the time is over.
    estimate: UsageEstimate | None = None
    #: Sums of the lines'.
    measured: int | None = None
    used: int | None = None
