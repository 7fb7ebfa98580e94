"""A job over time: what was measured of its GPUs, in equal steps. The answer of GET /v1/jobs/{id}/metrics, and of telemetry's `metrics`."""

import msgspec

from fairlead_schemas.callers import Caller


class JobMetricsRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Request of rpc("telemetry", "metrics").

    A value of 0 means: the newest attempt; its begin; its end, or now; a suitable step.
    """

    caller: Caller
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
