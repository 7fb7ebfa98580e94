"""The rows about the warehouse: how fast events come in, and what questions cost behind a million jobs.

python -m bench.asking [--jobs 1000000]
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import warehouse as storing
from bench.table import Row, percentile
from fairlead_telemetry.queries.answers import find_job
from fairlead_telemetry.warehouse.database import whole_machine
from fairlead_telemetry.warehouse.warehouse import Warehouse

MILLION = 1_000_000
EVENTS_PER_LIFE = 6
EVENTS_PER_COMMIT = 12
ASKED = 15  # times


def rows(jobs: int = MILLION) -> list[Row]:
    """Fill a warehouse with the lives of `jobs` jobs, ask it, and fold it again."""
    with tempfile.TemporaryDirectory() as directory:
        warehouse = Warehouse(Path(directory) / "w")
        events = jobs * EVENTS_PER_LIFE
        made = storing.commits(EVENTS_PER_COMMIT)
        found = [_ingested(min(MILLION, events))]
        storing.fill(warehouse, itertools.islice(made, events // EVENTS_PER_COMMIT))
        found += _asked(warehouse, jobs)
        warehouse.close()
        warehouse = Warehouse(Path(directory) / "w", whole_machine())
        found.append(_folded_anew(warehouse))
        warehouse.close()
    return found


def _ingested(events: int) -> Row:
    payloads = storing.log_of(events, EVENTS_PER_COMMIT)
    events = len(payloads) * EVENTS_PER_COMMIT
    ours = storing.measured(storing.stored, payloads, events)
    part = payloads[: len(payloads) // 10]
    base = storing.measured(storing.decoded, part, len(part) * EVENTS_PER_COMMIT)
    rate = 1e6 / ours["wall_us_per_event"]
    seconds = events * ours["wall_us_per_event"] / 1e6
    return Row(
        f"warehouse: {events:,} events of {events // EVENTS_PER_LIFE:,} jobs stored and folded, {EVENTS_PER_COMMIT} per commit, chain checked",
        f"{rate:,.0f} events/s ({seconds:.1f} s; {ours['cpu_us_per_event']} µs of CPU each)",
        "≥ 100,000/s, ≤ 12 s for 1,000,000",
        rate >= 100_000,
        f"each event decoded in Python, nothing folded: {1e6 / base['wall_us_per_event']:,.0f} events/s ({base['cpu_us_per_event']} µs of CPU)",
    )


def _asked(warehouse: Warehouse, jobs: int) -> list[Row]:
    scan = _ms(lambda: warehouse.rows("SELECT count(*), max(attempt) FROM events"))
    middle = str(jobs // 2)
    questions: list[tuple[str, Callable[[], object], float]] = [
        ("a job by its id", lambda: warehouse.rows("SELECT state, queue, nodes FROM jobs WHERE id = ?", [middle]), 2),
        ("a job's document, from its events", lambda: find_job(warehouse, middle), 10),
        ("gpu_hours_by_user", lambda: warehouse.rows("FROM gpu_hours_by_user"), 200),
    ]
    found: list[Row] = []
    for what, ask, goal_ms in questions:
        took_ms = _ms(ask)
        ceiling = f"one column of all {jobs * EVENTS_PER_LIFE:,} events read once: {scan:.1f} ms"
        found.append(
            Row(
                f"warehouse of {jobs:,} jobs: {what}, median",
                f"{took_ms:.1f} ms",
                f"≤ {goal_ms:g} ms",
                took_ms <= goal_ms,
                ceiling,
            )
        )
    return found


def _folded_anew(warehouse: Warehouse) -> Row:
    began, cpu = time.perf_counter(), time.process_time()
    events = warehouse.rebuild()
    seconds, cpu = (
        (end - begin) * MILLION / events for begin, end in ((began, time.perf_counter()), (cpu, time.process_time()))
    )
    what = f"warehouse: folded tables dropped and folded again from {events:,} stored events, as the command rebuild does it, per 1,000,000"
    return Row(what, f"{seconds:.1f} s", "≤ 12 s", seconds <= 12, f"CPU that it took, over all threads: {cpu:.1f} s")


def _ms(ask: Callable[[], object]) -> float:
    ask()
    took: list[float] = []
    for _ in range(ASKED):
        began = time.perf_counter()
        ask()
        took.append((time.perf_counter() - began) * 1000)
    return percentile(took, 0.5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=MILLION)
    for row in rows(parser.parse_args().jobs):
        print(
            f"  {'ok  ' if row.met else 'MISS'} {row.what}: {row.measured} (goal {row.goal}; {row.ceiling})", flush=True
        )
