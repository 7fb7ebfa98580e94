"""The rows about 10,000,000 samples: what averages of jobs and a day of one job cost, and the file that a member's SQL runs over.

python -m bench.measured [--samples 10000000]

The samples are made up: nodes of 8 GPUs, one sample per GPU and second. On the first node one job runs the whole day, on the others one
after another, an hour each. They are rolled up by the service's own code. Questions are asked as people's are: by the worker's own code, over
a copy, with one thread and 256 MB of memory; the baseline asks the samples themselves for what the sums per minute and hour answer.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.table import Row, percentile
from fairlead_schemas.units.timestamps import MINUTE_NS, SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit, commit_hash, decode_envelope, encode_commit
from fairlead_schemas.wire.resources import Request
from fairlead_telemetry.samples.intake import SampleIntake
from fairlead_telemetry.sql.member_copy import MemberScope, write_member_copy
from fairlead_telemetry.sql.worker import QueryWorker
from fairlead_telemetry.sql.worker_process import WorkerQuery
from fairlead_telemetry.warehouse.warehouse import CommitBytes, Warehouse

TEN_MILLION = 10_000_000
DAY_S = 86_400
HOUR_S = 3_600
GPUS = 8  # of a node
USERS = 20
START_NS = 1_767_225_600 * SECOND_NS  # 2026-01-01T00:00:00Z
ASKED = 11  # times
GOAL_MS = 50

#: One hour of all nodes. A GPU's use waves over the day; which job has the node, `_jobs` says in the same way.
_HOUR = f"""
INSERT INTO measured.samples BY NAME
SELECT make_timestamp(at_ns // 1000) AS time, '' AS parent, 'n' || node AS node, 'a' AS incarnation, second AS n,
  'GPU-' || node || '-' || gpu AS uuid, CASE WHEN node = 0 THEN '1' ELSE (node * 100 + second // {HOUR_S})::VARCHAR END || '.1' AS run,
  (50 + 45 * sin(second / 700 + gpu))::INTEGER AS utilization_pct, (20000 + (second * (gpu + 7)) % 60000)::BIGINT AS memory_used_mib,
  (300000 + (second * 37) % 300000)::BIGINT AS power_mw, (50 + second % 20)::INTEGER AS temperature_c, 1800 AS sm_clock_mhz, true AS simulated
FROM (SELECT second, node, gpu, {START_NS} + second * {SECOND_NS} AS at_ns
  FROM range(?, ?) s(second), range(?) m(node), range({GPUS}) g(gpu))"""

_EFFICIENCY = "SELECT job, utilization_pct, power_mw FROM job_efficiency ORDER BY job"
_AVERAGES = (
    "SELECT split_part(run, '.', 1) AS job, avg(utilization_pct), avg(power_mw) FROM samples GROUP BY 1 ORDER BY 1"
)
_DAY = """SELECT uuid, time_bucket(INTERVAL 10 MINUTE, time) AS slot, avg(utilization_pct), max(utilization_pct_max)
FROM samples_1m WHERE run = '1.1' GROUP BY ALL ORDER BY ALL"""
_DAY_OF_SAMPLES = """SELECT uuid, time_bucket(INTERVAL 10 MINUTE, time) AS slot, avg(utilization_pct), max(utilization_pct)
FROM samples WHERE run = '1.1' GROUP BY ALL ORDER BY ALL"""


def rows(samples: int = TEN_MILLION, seconds: int = DAY_S) -> list[Row]:
    """Fill a warehouse with at least so many samples of so many seconds, and ask it."""
    nodes = max(2, -(-samples // (seconds * GPUS)))
    with tempfile.TemporaryDirectory() as directory:
        warehouse = Warehouse(Path(directory) / "w")
        _fill(warehouse, nodes, seconds)
        count = warehouse.rows("SELECT count(*) FROM samples")[0][0]
        copy = Path(directory) / "copy.duckdb"
        warehouse.copy_to(copy)
        warehouse.close()
        jobs = 1 + (nodes - 1) * -(-seconds // HOUR_S)
        found = [
            _compared(copy, f"averages of each of {jobs} jobs", _EFFICIENCY, _AVERAGES, count),
            _compared(
                copy, "a day of one job's 8 GPUs, mean and most of every 10 minutes", _DAY, _DAY_OF_SAMPLES, count
            ),
        ]
        return [*found, _carved(copy, Path(directory), count)]


def _fill(warehouse: Warehouse, nodes: int, seconds: int) -> None:
    commits = list(_commits(nodes, seconds))
    warehouse.store(commits, {}, "bench", SampleIntake([], [], {}))
    for first in range(0, seconds, HOUR_S):
        warehouse.rows(_HOUR, [first, min(first + HOUR_S, seconds), nodes])
    minute = START_NS // MINUTE_NS
    warehouse.rows("INSERT INTO rolled.stale_minutes FROM range(?, ?)", [minute, minute + -(-seconds // 60)])
    warehouse.roll_up(START_NS + 2 * DAY_S * SECOND_NS)


def _commits(nodes: int, seconds: int) -> Iterator[CommitBytes]:
    """The life of every job in one commit. (All under one writer: what is asked does not depend on it.)"""
    jobs = [("1", 0, seconds)]
    jobs += [
        (str(node * 100 + hour), node, HOUR_S) for node in range(1, nodes) for hour in range(-(-seconds // HOUR_S))
    ]
    prev = GENESIS
    for n, (job, node, _) in enumerate(jobs, 1):
        body = list(_life(job, f"n{node}", f"u{n % USERS}"))
        at_ns = START_NS + n * 10**6
        payload = encode_commit(
            Commit(v=VERSION, writer="queue", n=n, basis=n - 1, at_ns=at_ns, cursors={}, prev=prev, events=body)
        )
        prev = commit_hash(payload)
        yield CommitBytes.of(n, decode_envelope(payload))


def _life(job: str, node: str, user: str) -> Iterator[ev.Event]:
    gpus = tuple(f"GPU-{node[1:]}-{gpu}" for gpu in range(GPUS))
    request, spec = Request(gpu_milli=GPUS * 1000), msgspec.Raw(b'{"command":["true"]}')
    yield ev.JobSubmitted(cause="cmd:1", job=job, name="train", queue="research", user=user, request=request, spec=spec)
    yield ev.JobOffered(cause="1.0", job=job, attempt=1, rank=1)
    yield ev.JobPlaced(cause="1.0", job=job, attempt=1, parts=(ev.Part(node=node, gpus=gpus),))
    yield ev.RunStarted(cause="1.0", job=job, attempt=1)


def _compared(copy: Path, what: str, ask: str, baseline: str, count: int) -> Row:
    desk = QueryWorker()
    took_ms, there = _ms(desk, copy, ask)
    raw_ms, wanted = _ms(desk, copy, baseline, times=3)
    desk.close()
    if not there or there != wanted:
        raise SystemExit(f"{what}: {there} rows, and {wanted} from the samples themselves")
    return Row(
        f"{count:,} samples: {what} ({there} rows), median",
        f"{took_ms:.1f} ms",
        f"≤ {GOAL_MS} ms",
        took_ms <= GOAL_MS,
        f"the same from the samples themselves: {raw_ms:.0f} ms",
    )


def _ms(desk: QueryWorker, copy: Path, query: str, times: int = ASKED) -> tuple[float, int]:
    """Median time of an answer, and how many rows it has."""
    took: list[float] = []
    answer = b""
    for number in range(1, times + 2):  # the first one opens the copy
        began = time.perf_counter()
        answer = desk.answer(WorkerQuery(number, str(copy), query, 10_000, 60.0))
        took.append((time.perf_counter() - began) * 1000)
    found = msgspec.json.decode(answer)
    if "error" in found:
        raise SystemExit(f"{query}: {found['error']}")
    return percentile(took[1:], 0.5), len(found["rows"])


def _carved(copy: Path, directory: Path, count: int) -> Row:
    """Measure the making of a member's own file, and one query on it."""
    path = directory / "part" / "warehouse.duckdb"
    path.parent.mkdir()
    began = time.perf_counter()
    write_member_copy(copy, path, MemberScope("u2", ()))
    seconds = time.perf_counter() - began
    desk = QueryWorker()
    took_ms, _ = _ms(desk, path, _EFFICIENCY)
    found = msgspec.json.decode(desk.answer(WorkerQuery(99, str(path), "SELECT count(*) FROM samples", 1, 60.0)))
    desk.close()
    return Row(
        f"{count:,} samples: the file of a member who sees {found['rows'][0][0]:,} of them is made",
        f"{seconds:.2f} s",
        "none",
        True,
        f"averages of own jobs, asked of it: {took_ms:.1f} ms",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=TEN_MILLION)
    for row in rows(parser.parse_args().samples):
        print(
            f"  {'ok  ' if row.met else 'MISS'} {row.what}: {row.measured} (goal {row.goal}; {row.ceiling})", flush=True
        )
