"""On logs of whole simulated clusters (lost nodes, preemption, retries, moves between queues, shares, MIG, gangs, elastic jobs,
several kinds of nodes) three say the same of GPU time: the telemetry service, the recount, and the queue, which counts it for budgets."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from fairlead_queue.core import QueueCore
from fairlead_replay.sim.seeds import people_of, quiet
from fairlead_schemas.wire.commit import decode_commit
from fairlead_telemetry.usage.meter import METERED, Meter
from fairlead_telemetry.usage.statement import month_at
from tests.telemetry.simulated import log_of
from tests.telemetry.usage.logs import caught_up, costs_that_differ, disagreements, statements, stepped, warehouse_of

PRICES = """model,per_gpu_hour,currency,valid_from
sim,1.234567,EUR,2020-01-01
*,2,USD,1969-01-01
"""
WORLDS = [(seed, kind) for kind in ("particular restless", "particular operators", "restless") for seed in (1, 7, 23)]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "kind"), WORLDS)
def test_all_say_the_same(seed: int, kind: str, tmp_path: Path) -> None:
    """After every commit what is charged now is what the queue counts now; in the end and in the middle of the log, with
    much still running, the bills are equal to the nanosecond."""
    quiet()
    people = people_of(operators="operators" in kind, restless="restless" in kind, particular="particular" in kind)
    log = log_of(seed, people)
    queue, meter, placements = QueueCore(), Meter(), 0
    for stored in log:
        commit = decode_commit(stored.payload)
        queue.evolve(stored.sequence, commit)
        if commit.writer == "placer" and commit.events:
            meter.pass_time(commit.at_ns)
        for event in commit.events:
            if isinstance(event, METERED):
                meter.take(stored.sequence, event)  # type: ignore[arg-type] -- one of METERED
        counted = Counter[str]()
        for job in queue.state.jobs.values():
            counted[job.lane.leaf.queue.path] += getattr(job, "price", 0)
        charged = Counter[str]()
        for stay in meter.open:
            if stay.end_ns is None:
                charged[stay.queue] += stay.charged_milli * stay.weight
        assert +charged == +counted, f"at {stored.sequence}"
        placements += len(meter.over)
    assert placements
    for part in (log[: len(log) // 2], log):
        warehouse = warehouse_of(tmp_path / str(len(part)), part)
        usage = caught_up(warehouse, step=100)
        told = statements(usage, [month_at(usage.as_of_ns).name], PRICES)
        assert all(each.charged for each in told)
        assert disagreements(part, told, PRICES) == []
        assert costs_that_differ(warehouse, usage, told, PRICES) == []
        warehouse.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 9, 31])
def test_clocks_that_step_by_hours_change_no_rule(seed: int, tmp_path: Path) -> None:
    """Nothing is negative, what runs on one GPU never overlaps, and the recount agrees to the nanosecond."""
    quiet()
    log = stepped(log_of(seed, people_of(restless=True)), Random(seed))
    times = [
        commit.at_ns for commit in map(decode_commit, (stored.payload for stored in log)) if commit.writer == "placer"
    ]
    assert times != sorted(times), "no clock of this log steps back"
    warehouse = warehouse_of(tmp_path, log)
    usage = caught_up(warehouse, step=64)
    assert warehouse.rows("SELECT count(*) FROM gpu_usage WHERE end_ns < begin_ns OR back_ns < begin_ns") == [(0,)]
    [(first,)] = warehouse.rows("SELECT min(begin_ns) FROM gpu_usage")
    months = sorted({month_at(first).name, month_at(usage.as_of_ns).name})
    assert disagreements(log, statements(usage, months, PRICES), PRICES) == []
    elapsed = usage.as_of_ns - first
    gpus = warehouse.rows(
        "SELECT node, sum(held_milli * (coalesce(back_ns, ?) - begin_ns)::HUGEINT) FROM gpu_usage GROUP BY node",
        [usage.as_of_ns],
    )
    assert elapsed > 0 and all(
        0 <= held <= 4000 * elapsed for _, held in gpus
    )  # a simulated machine has 4 GPUs at most
    warehouse.close()
