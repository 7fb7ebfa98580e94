"""Time that `fairlead run -- true` takes beyond the start of the command and the job itself, on an idle stack.

The start of the command, with the submit, is that of `fairlead submit -- true`, measured in turn. The job's own time is from its submit to its
end in the log.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.stack import Stack
from bench.table import Row
from fairlead_schemas.units.timestamps import parse_rfc3339

RUNS = 9
BEYOND_MS = 60


def row() -> Row:
    """Measure both command lines in turn."""
    with Stack() as stack:
        stack.control_plane(telemetry=False)
        stack.agent()
        stack.wait_nodes(1)
        environment = {**os.environ, "FAIRLEAD_URL": f"http://127.0.0.1:{stack.port}", "FAIRLEAD_USER": "bench"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile all modules again
        taken = [_round(stack, environment) for _ in range(RUNS + 1)][1:]  # the first compiles
    beyond = statistics.median(run - submit - job for submit, run, job in taken)
    submit, run, job = (statistics.median(column) for column in zip(*taken, strict=True))
    measured = f"{beyond:.0f} ms"
    medians = f"medians: run {run:.0f} ms, submit {submit:.0f} ms, job {job:.0f} ms"
    what = f"`fairlead run -- true` beyond `fairlead submit -- true` and the job, median of {RUNS}"
    return Row(what, measured, f"≤ {BEYOND_MS} ms", beyond <= BEYOND_MS, medians)


def _round(stack: Stack, environment: dict[str, str]) -> tuple[float, float, float]:
    """Return the ms of a submit, of a run, and of the run's job."""
    submit_ms = _timed("submit", environment)
    stack.wait(lambda: not _open_jobs(stack), "queue")
    run_ms = _timed("run", environment)
    job = _jobs(stack, "?limit=1")[0]
    began_ns, ended_ns = (parse_rfc3339(job[name]) for name in ("submitted_at", "ended_at"))
    return submit_ms, run_ms, (ended_ns - began_ns) / 1e6


def _timed(verb: str, environment: dict[str, str]) -> float:
    """Return the ms of one command line."""
    line = [str(Path(sys.executable).with_name("fairlead")), verb, "--", "true"]
    began_s = time.perf_counter()
    subprocess.run(line, env=environment, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - began_s) * 1000


def _open_jobs(stack: Stack) -> list[Any]:
    return [job for job in _jobs(stack, "?limit=5") if job["ended_at"] is None]


def _jobs(stack: Stack, query: str) -> list[Any]:
    items = stack.get(f"/v1/jobs{query}")["items"]
    assert isinstance(items, list)
    return items
