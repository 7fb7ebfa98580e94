"""Present GPU use of running jobs, by the newest samples. The answer of GET /v1/use, and of telemetry's `use`."""

from typing import Annotated

import msgspec

from fairlead_schemas.callers import Caller

#: Jobs that one answer tells of.
JOBS_MAX = 500


class JobUseRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Request of rpc("telemetry", "use"), with the jobs in question."""

    caller: Caller
    jobs: Annotated[list[str], msgspec.Meta(max_length=JOBS_MAX)]


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
