"""Idle spells as tables: a small story event by event, and the logs of simulated clusters against a plain fold."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead_replay.sim import idleness
from fairlead_replay.sim.world import WORK_S
from fairlead_schemas.policies.idle import IdleEvidence, IdleMode
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import decode_commit
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.log_feed import anew, feed
from tests.telemetry.rows import store
from tests.telemetry.simulated import log_of
from tests.telemetry.story import START_NS, Story, of_story, placed, submitted

LOW = (IdleEvidence(signal="gpu", highest=12, mean=3, threshold=50, samples=600),)
HIGH = (IdleEvidence(signal="gpu", highest=700, mean=700, threshold=50, samples=1),)
HOUR = 3600


def of(job: str) -> dict[str, Any]:
    return {"cause": "clock", "job": job, "attempt": 1, "rule": "utilization", "scope": "global"}


def idle(job: str, *, mode: IdleMode = "dry_run", reclaim_at_ns: int = 0) -> ev.JobIdle:
    return ev.JobIdle(**of(job), action="stop", mode=mode, since_ns=START_NS, evidence=LOW, reclaim_at_ns=reclaim_at_ns)


def foreseen(job: str) -> ev.ReclaimSimulated:
    return ev.ReclaimSimulated(**of(job), action="stop", since_ns=START_NS, evidence=LOW)


def story() -> Story:
    """Job 1 (2 GPUs): a dry run's from hour 1 to its end in hour 4, except for an hour; job 2: warned, extended,
    reclaimed."""
    told = Story()
    told.at(0, submitted("1", gpus=2), submitted("2", user="bob"))
    told.at(1, placed("1", n1=2), placed("2", n2=1))
    told.at(2, ev.RunStarted(cause="clock", job="1", attempt=1), ev.RunStarted(cause="clock", job="2", attempt=1))
    told.at(600, idle("1"), idle("2", mode="on_demand", reclaim_at_ns=START_NS + 900 * 10**9))
    told.at(
        700,
        ev.JobExtended(cause="cmd:x", job="2", attempt=1, until_ns=START_NS + 5000 * 10**9, count=1, by="bob"),
        ev.JobActive(cause="clock", job="2", attempt=1, rule="utilization", reason="extended"),
    )
    told.at(HOUR, foreseen("1"))
    told.at(
        2 * HOUR,
        ev.JobActive(cause="clock", job="1", attempt=1, rule="utilization", reason="active", evidence=HIGH),
        idle("2", mode="on_demand", reclaim_at_ns=START_NS + 7500 * 10**9),
    )
    told.at(
        2 * HOUR + 300, ev.ReclaimRequested(**of("2"), action="stop", on_demand=True, since_ns=START_NS, evidence=LOW)
    )
    told.at(3 * HOUR, idle("1"), foreseen("1"))
    told.at(4 * HOUR, ev.RunEnded(cause="clock", job="1", attempt=1, outcome="exited", exit_code=0, released=("n1",)))
    return told


def test_every_idle_spell_is_a_row(tmp_path: Path) -> None:
    """Idle, simulated or reclaimed, withdrawn or ended, each by its own event; the evidence as in the log."""
    warehouse = Warehouse(tmp_path)
    store(warehouse, story())
    found = warehouse.rows(
        "SELECT job, \"user\", mode, gpus, epoch(said_at - TIMESTAMP '2026-01-01')::INTEGER AS said, "
        "epoch(foreseen_at - TIMESTAMP '2026-01-01')::INTEGER, epoch(requested_at - TIMESTAMP '2026-01-01')::INTEGER, on_demand, "
        "epoch(active_at - TIMESTAMP '2026-01-01')::INTEGER, active_reason, epoch(run_ended_at - TIMESTAMP '2026-01-01')::INTEGER "
        "FROM idle ORDER BY job, said"
    )
    assert found == [
        ("1", "ada", "dry_run", 2.0, 600, 3600, None, None, 7200, "active", 14400),
        ("1", "ada", "dry_run", 2.0, 10800, 10800, None, None, None, None, 14400),
        ("2", "bob", "on_demand", 1.0, 600, None, None, None, 700, "extended", None),
        ("2", "bob", "on_demand", 1.0, 7200, None, 7500, True, None, None, None),
    ]
    [(evidence, rose)] = warehouse.rows("SELECT evidence, active_evidence FROM idle WHERE active_reason = 'active'")
    assert json.loads(evidence) == [{"signal": "gpu", "highest": 12, "mean": 3, "threshold": 50, "samples": 600}]
    assert json.loads(rose)[0]["highest"] == 700
    assert warehouse.rows('SELECT job, count, "by" FROM idle_extensions') == [("2", 1, "bob")]
    warehouse.close()


def test_a_dry_runs_savings(tmp_path: Path) -> None:
    """From when it would have acted until the run was active or over, times its GPUs; runs that became active are
    listed."""
    warehouse = Warehouse(tmp_path)
    store(warehouse, story())
    assert warehouse.rows("FROM idle_savings") == [("global", "utilization", "ada", "research", 2, 4.0, 1, 0)]
    warehouse.close()


def test_pieces_make_no_difference(tmp_path: Path) -> None:
    """One commit at a time, a few, or all at once."""
    log = of_story(story())
    whole = anew(tmp_path / "whole", log, [len(log)])
    assert len(whole["idle"]) == 4
    assert anew(tmp_path / "single", log, [1]) == whole
    assert anew(tmp_path / "some", log, [2, 5, 3]) == whole


@pytest.mark.slow
def test_rows_are_those_of_a_plain_fold(tmp_path: Path) -> None:
    """On logs of simulated clusters, until one was foreseen, one asked back and one active again."""
    wanted = {"ReclaimSimulated", "ReclaimRequested", "JobActive"}
    for seed in (seed for seed in range(1, 61) if idleness.plan(seed, WORK_S) is not None):
        log = log_of(seed)
        warehouse = Warehouse(tmp_path / str(seed))
        feed(warehouse, log, [7, 50])
        rows: list[list] = []
        open_: dict[tuple, list] = {}
        for stored in log:
            commit = decode_commit(stored.payload)
            for event in commit.events:
                wanted.discard(type(event).__name__)
                match event:
                    case ev.JobIdle():
                        row = [event.job, event.attempt, event.rule, event.scope, commit.at_ns, None, None, None]
                        open_[event.job, event.attempt, event.rule] = row
                        rows.append(row)
                    case ev.ReclaimSimulated() | ev.ReclaimRequested():
                        place = 5 if isinstance(event, ev.ReclaimSimulated) else 6
                        open_[event.job, event.attempt, event.rule][place] = commit.at_ns
                    case ev.JobActive():
                        open_[event.job, event.attempt, event.rule][7] = event.reason
                    case _:
                        pass
        told = warehouse.rows(
            "SELECT job, attempt, rule, scope, said_ns, foreseen_ns, requested_ns, reason FROM fold.idle ORDER BY place"
        )
        assert [list(row) for row in told] == rows
        warehouse.close()
        if not wanted:
            return
    pytest.fail(f"in none of these worlds was there any {sorted(wanted)}: the test proved nothing")
