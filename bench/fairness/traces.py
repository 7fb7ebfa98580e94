"""Public traces as loads of `fairlead_replay.virtual`; tests/data/README.md says where they come from.

Seconds become nanoseconds; nothing is cut, scaled or left out.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fairlead_replay.virtual.load import TraceJob, request_of
from fairlead_schemas.units.timestamps import SECOND_NS

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "traces"
#: Microsoft's virtual clusters, each a queue of that name.
PHILLY = ("0e4a51", "2869ce", "7f04ca", "ee9e8c")
#: What Shockwave's jobs are played with: slices, and what each start loses.
SLICE_S, RESTART_S = 120, 10


class Published(NamedTuple):
    """Row that the Shockwave project stored for its trace on 32 GPUs."""

    policy: str
    makespan_s: float
    mean_jct_s: float
    in_use: float
    above_1: float
    worst: float


def philly(first_days: int | None = None) -> list[TraceJob]:
    """4,091 jobs of four virtual clusters, each from its own first job on, in the order of their submits."""
    jobs: list[TraceJob] = []
    for queue in PHILLY:
        for row in _rows(f"philly_vc_{queue}.csv"):
            submit_s, work_s = int(float(row["submit_s"])), int(float(row["duration_s"]))
            if first_days is None or submit_s < first_days * 86_400:
                jobs.append(TraceJob(queue, submit_s * SECOND_NS, work_s * SECOND_NS, request_of(int(row["num_gpus"]))))
    return sorted(jobs, key=lambda job: job.submit_ns)


def shockwave() -> list[TraceJob]:
    """120 jobs in queue "jobs". A job states the time that it needs if it has to start again after every slice."""
    jobs: list[TraceJob] = []
    for row in _rows("shockwave_tacc32_120.csv"):
        work_s = int(row["duration_s"])
        starts = 1 + -(-work_s // (SLICE_S - RESTART_S))
        jobs.append(
            TraceJob(
                "jobs",
                int(row["submit_s"]) * SECOND_NS,
                work_s * SECOND_NS,
                request_of(int(row["num_gpus"])),
                declared_ns=(work_s + starts * RESTART_S) * SECOND_NS,
                slice_ns=SLICE_S * SECOND_NS,
            )
        )
    return jobs


def shockwave_published() -> list[Published]:
    """Return the published rows as stored, in their order."""
    return [
        Published(
            row["policy"],
            float(row["makespan_s"]),
            float(row["avg_jct_s"]),
            float(row["cluster_util"]),
            float(row["share_of_jobs_ftf_above_1"]),
            float(row["worst_ftf"]),
        )
        for row in _rows("shockwave_tacc32_published.csv")
    ]


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (FOLDER / name).open(newline="") as file:
        yield from csv.DictReader(file)
