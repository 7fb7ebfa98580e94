"""A seeded day on scripted devices: no active run is ever reclaimed, and runs that stay idle are printed."""

from pathlib import Path

import pytest

from fairlead_replay.sim.idle_day import GPU_ALONE, SEVERAL_SIGNALS, DayResult, DeviceProfile, load, play, table

PROFILES = Path(__file__).parents[2] / "data/idle"
#: Alive all day, each in a way that its GPU does not show.
ALIVE = ("badly_coded_simulation", "input_bound_training", "spiky_inference", "typing_session")


def some(*names: str) -> dict[str, DeviceProfile]:
    return {name: profile for name, profile in load(PROFILES).items() if name in names}


def reclaimed(result: DayResult) -> set[str]:
    return {row.wish.profile.name for row in result.rows if row.reclaimed_by}


@pytest.mark.slow
def test_an_active_run_is_never_stopped() -> None:
    """Low GPU but high CPU and network, spikes, a user at the terminal: no idle decision; the notebook ends after its
    owner has left."""
    result = play(some(*ALIVE, "notebook_left_in_the_evening"), SEVERAL_SIGNALS, seed=1)
    print(table("several signals", result))
    assert result.false_positives == 0
    assert [row.told for row in result.rows if row.wish.profile.name in ALIVE] == [0] * 15
    assert reclaimed(result) == {"notebook_left_in_the_evening"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_day_has_no_false_positives(seed: int) -> None:
    """At every scope and by every rule; and each rule ends something that the others leave."""
    result = play(load(PROFILES), SEVERAL_SIGNALS, seed)
    print(table(f"several signals, seed {seed}", result))
    assert result.false_positives == 0
    assert sum(row.cut_off_ns for row in result.rows) == 0
    assert reclaimed(result).isdisjoint((*ALIVE, "steady_training"))
    rules = {row.reclaimed_by.split()[0] for row in result.rows if row.reclaimed_by}
    assert rules == {"utilization", "interaction", "lifetime"}
    assert any(row.extended for row in result.rows)
    dry = [row for row in result.rows if row.wish.user == "lee"]
    assert any(row.foreseen for row in dry)
    assert not any(row.reclaimed_by for row in dry)


@pytest.mark.slow
def test_the_gpu_alone_would_not_do() -> None:
    """The same day by "below 5 % for 10 minutes" ends work that is alive: the day can tell."""
    result = play(load(PROFILES), GPU_ALONE, seed=1)
    print(table("the GPU alone", result))
    assert {row.wish.profile.name for row in result.rows if row.was_alive} >= set(ALIVE)


def test_a_table_that_is_none_is_refused_by_its_name(tmp_path: Path) -> None:
    """The file, the columns, what to do."""
    with pytest.raises(ValueError, match="expected tables"):
        load(tmp_path)
    (tmp_path / "bad.csv").write_text("second,gpu_pct\n0,x\n")
    with pytest.raises(ValueError, match=r"bad\.csv: expected whole numbers in the columns second"):
        load(tmp_path)
    (tmp_path / "bad.csv").write_text((PROFILES / "steady_training.csv").read_text().replace("3540", "0"))
    with pytest.raises(ValueError, match="rise from 0"):
        load(tmp_path)
