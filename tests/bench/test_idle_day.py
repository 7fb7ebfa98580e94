"""Simulated day of idle policies: no active run is reclaimed, and the idle time that remains is printed."""

from pathlib import Path

import pytest

from bench.idle_day import GPU_ALONE, SEVERAL_SIGNALS, DayResult, DeviceProfile, load, play, table

PROFILES = Path(__file__).parents[1] / "data/idle"
#: Alive all day, each in a way that its GPU does not show.
ALIVE = ("badly_coded_simulation", "input_bound_training", "spiky_inference", "typing_session")


def some(*names: str) -> dict[str, DeviceProfile]:
    return {name: profile for name, profile in load(PROFILES).items() if name in names}


def reclaimed(result: DayResult) -> set[str]:
    return {row.script.profile.name for row in result.rows if row.reclaimed_by}


@pytest.mark.slow
def test_an_active_run_is_never_reclaimed() -> None:
    """Low GPU use with busy CPU and network, spikes or typing: no notice. The notebook is reclaimed after its owner has left."""
    result = play(some(*ALIVE, "notebook_left_in_the_evening"), SEVERAL_SIGNALS, seed=1)
    print(table("several signals", result))
    assert result.false_positives == 0
    assert [row.notified for row in result.rows if row.script.profile.name in ALIVE] == [0] * 15
    assert reclaimed(result) == {"notebook_left_in_the_evening"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_day_has_no_false_positives(seed: int) -> None:
    """Holds at every scope and for every rule, and each rule reclaims a run that the others do not."""
    result = play(load(PROFILES), SEVERAL_SIGNALS, seed)
    print(table(f"several signals, seed {seed}", result))
    assert result.false_positives == 0
    assert sum(row.cut_off_ns for row in result.rows) == 0
    assert reclaimed(result).isdisjoint((*ALIVE, "steady_training"))
    rules = {row.reclaimed_by.split()[0] for row in result.rows if row.reclaimed_by}
    assert rules == {"utilization", "interaction", "lifetime"}
    assert any(row.extended for row in result.rows)
    dry = [row for row in result.rows if row.script.user == "lee"]
    assert any(row.foreseen for row in dry)
    assert not any(row.reclaimed_by for row in dry)


@pytest.mark.slow
def test_a_policy_by_gpu_use_alone_reclaims_active_runs() -> None:
    """Under "below 5 % for 10 minutes" the same day reclaims active runs: the day tells the policies apart."""
    result = play(load(PROFILES), GPU_ALONE, seed=1)
    print(table("the GPU alone", result))
    assert {row.script.profile.name for row in result.rows if row.was_active} >= set(ALIVE)


def test_a_malformed_profile_is_refused_by_file_and_column(tmp_path: Path) -> None:
    """The error names the file, the columns and what was expected."""
    with pytest.raises(ValueError, match="expected tables"):
        load(tmp_path)
    (tmp_path / "bad.csv").write_text("second,gpu_pct\n0,x\n")
    with pytest.raises(ValueError, match=r"bad\.csv: expected whole numbers in the columns second"):
        load(tmp_path)
    (tmp_path / "bad.csv").write_text((PROFILES / "steady_training.csv").read_text().replace("3540", "0"))
    with pytest.raises(ValueError, match="rise from 0"):
        load(tmp_path)
