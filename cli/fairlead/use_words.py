"""Texts on the present GPU use of running jobs for `fairlead top`: "-" means unknown. Pure."""

from collections.abc import Callable, Mapping, Sequence

from fairlead import columns
from fairlead.render import Column
from fairlead_schemas.http.api import Job
from fairlead_schemas.queries.telemetry import JobUse

UNKNOWN = "-"
_KIB = 1024
#: Mark of a job with GPUs that send no samples now: the figures cover its other GPUs.
PART = "*"


def table_columns(uses: Mapping[str, JobUse]) -> list[Column]:
    """Return the columns of `fairlead top`: a job's row with its measurements."""

    def told(words: Callable[[JobUse], str]) -> Callable[[Job], str]:
        def text(job: Job) -> str:
            use = uses.get(job.id)
            said = words(use) if use is not None and use.measured else UNKNOWN
            return said if use is None or said == UNKNOWN or use.measured == use.gpus else f"{said}{PART}"

        return text

    known = {column.head: column for column in columns.JOBS if not column.wide}
    return [
        *(known[head] for head in ("ID", "NAME", "QUEUE", "USER", "STATE", "GPUS")),
        Column("GPU%", told(utilization), right=True), Column("GPU-MEM", told(memory), right=True),
        Column("POWER", told(power), right=True), *(known[head] for head in ("TIME", "NODES", "WHY")),
    ]  # fmt: skip


def utilization(use: JobUse) -> str:
    """The mean over its GPUs: "87"."""
    return UNKNOWN if use.utilization_pct is None else f"{use.utilization_pct:.0f}"


def memory(use: JobUse) -> str:
    """All of its GPUs together: "384Gi", "700Mi"."""
    if use.memory_used_mib is None:
        return UNKNOWN
    gib = use.memory_used_mib / _KIB
    return f"{use.memory_used_mib}Mi" if gib < 1 else f"{gib:.1f}Gi" if gib < 10 else f"{gib:.0f}Gi"


def power(use: JobUse) -> str:
    """All of its GPUs together: "3.1kW", "250W"."""
    if use.power_mw is None:
        return UNKNOWN
    watts = use.power_mw / 1000
    return f"{watts:.0f}W" if watts < 1000 else f"{watts / 1000:.1f}kW"


def remarks(jobs: Sequence[Job], uses: Mapping[str, JobUse]) -> list[str]:
    """Return remarks for below the table: jobs with some of their GPUs unmeasured, and simulated measurements."""
    partly = [use for job in jobs if (use := uses.get(job.id)) is not None and 0 < use.measured < use.gpus]
    said = [f"{PART} of job {use.job} only {use.measured} of {use.gpus} GPUs were heard of lately" for use in partly]
    if any(use.simulated for use in uses.values()):
        said.append("GPU%, GPU-MEM and POWER of simulated GPUs are played")
    return said
