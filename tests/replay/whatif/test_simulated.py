"""Logs of simulated worlds, which the services themselves wrote: the recorded policy played again comes near them."""

import pytest

from bench.whatif import KINDS, lines, log_of, replayed, row_of
from fairlead_replay.sim import seeds


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """Services of a world log what happens to them."""
    seeds.quiet()


@pytest.mark.slow
def test_worlds_without_faults_start_their_jobs_when_they_did() -> None:
    """95 % of first starts within a second, and 98 % of ends as they were."""
    row = row_of("calm", [replayed(seed, "calm") for seed in range(1, 7)])
    assert row.is_met, "".join(lines(row))
    assert row.starts > 80


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS[1:])
def test_worlds_with_faults_are_played_to_their_end(kind: str) -> None:
    """No world crashes the engine, and jobs end as they did."""
    row = row_of(kind, [replayed(seed, kind) for seed in range(1, 4)])
    assert not row.crashed, "".join(lines(row))
    assert row.ends_equal >= 0.9, "".join(lines(row))


@pytest.mark.slow
def test_a_world_of_a_seed_is_one_log() -> None:
    """Its bench is repeatable."""
    assert log_of(2, "calm") == log_of(2, "calm")
