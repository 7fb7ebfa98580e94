"""The check of CPU against another revision: what counts, when it fails, and what it does without a revision."""

import subprocess
import sys
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from bench import fixed_loads, regression
from bench.regression import LoadsFailed, NoBaseline, Pair, changes, table


def pairs(*ratios: float) -> list[Pair]:
    return [({"queue": 2.0}, {"queue": 2.0 * ratio}) for ratio in ratios]


def test_the_median_of_the_pairs_counts() -> None:
    """One slow process of five changes nothing."""
    (found,) = changes(pairs(1.0, 1.9, 1.02, 0.98, 1.01))
    assert (found.load, found.before_s) == ("queue", 2.0)
    assert found.here_s == pytest.approx(2.02)
    assert found.ratios == pytest.approx([0.98, 1.0, 1.01, 1.02, 1.9])
    assert found.percent == pytest.approx(1)
    assert "  ok   queue: 2.000 → 2.020 s, +1.0 % (-2.0 to +90.0 %)" in table([found], "v1", 10)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[Pair]]:
    """Measurements in place of processes: each call of `measure` takes the next."""
    left: list[list[Pair]] = []
    monkeypatch.setattr(regression, "measure", lambda tree, count: left.pop(0))
    monkeypatch.setattr(regression, "BASELINE", tmp_path / "baseline")
    return left


def test_more_cpu_than_allowed_fails_once_it_is_measured_again(
    played: list[list[Pair]], capsys: pytest.CaptureFixture[str]
) -> None:
    """12 % more in all pairs. What is slow in the first pairs only does not fail."""
    played += [pairs(1.12, 1.13, 1.11), pairs(1.12, 1.14, 1.12)]
    assert regression.main(["HEAD"]) == 1
    assert "MISS queue: 2.000 → 2.240 s, +12.0 %" in capsys.readouterr().out
    played += [pairs(1.12, 1.13, 1.11), pairs(1.0, 1.01, 0.99, 1.0, 1.0)]
    assert regression.main(["HEAD"]) == 0
    played += [pairs(1.09, 1.2, 1.08)]
    assert regression.main(["HEAD"]) == 0
    assert not played


def test_a_missing_revision_is_stated(played: list[list[Pair]], capsys: pytest.CaptureFixture[str]) -> None:
    """A shallow clone is no failure; neither is a baseline that names nothing."""
    assert regression.main(["0123456789012345678901234567890123456789"]) == 0
    assert "not compared: revision 0123456789012345678901234567890123456789 is not in this repository" in (
        capsys.readouterr().out
    )
    if not regression.tag():
        assert regression.main([]) == 0
        assert "baseline names no revision" in capsys.readouterr().out


def test_loads_that_fail_are_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise nothing would be compared from then on, and nothing would show it."""

    def fail(tree: Path, count: int) -> list[Pair]:
        raise LoadsFailed("ImportError: no such name")

    monkeypatch.setattr(regression, "measure", fail)
    assert regression.main(["HEAD"]) == 1
    assert "ImportError: no such name\nthe fixed loads fail here or at HEAD" in capsys.readouterr().out


def test_the_baseline_is_a_tag_or_what_the_file_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In this order."""
    named = tmp_path / "baseline"
    monkeypatch.setattr(regression, "BASELINE", named)
    monkeypatch.setattr(regression, "tag", lambda: "")
    with pytest.raises(NoBaseline):
        regression.baseline()
    named.write_text("0123abc\n")
    assert regression.baseline() == "0123abc"
    monkeypatch.setattr(regression, "tag", lambda: "v0.1.0")
    assert regression.baseline() == "v0.1.0"


def test_each_load_does_the_same_work_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """In small: queue, placing, replay and both cores."""
    for name, small in (
        ("WAITING", 200),
        ("OFFERS", 50),
        ("NODES", 20),
        ("OFFERED", 200),
        ("LIVES", 50),
        ("CROWD", 50),
    ):
        monkeypatch.setattr(fixed_loads, name, small)
    found = fixed_loads.measure(2)
    assert list(found.seconds) == ["queue", "placing", "replay", "cores"]
    assert all(seconds > 0 for seconds in found.seconds.values())
    assert found.product == str(regression.ROOT)


def test_compiled_and_plain_are_never_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has imported an extension module of ours measures nothing."""
    module = ModuleType("fairlead_queue.planted")
    module.__loader__ = ExtensionFileLoader(module.__name__, "planted.so")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(RuntimeError, match=r"found compiled fairlead_queue\.planted"):
        fixed_loads.measure(1)


@pytest.mark.slow
def test_the_loads_run_on_the_product_of_another_tree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The product of that tree is measured and no other; one that does not run them is named."""
    subprocess.run(["git", "worktree", "add", "-q", "--detach", str(tmp_path / "t")], cwd=regression.ROOT, check=True)
    try:
        assert set(regression.run(tmp_path / "t")) == set(fixed_loads.LOADS)
        (tmp_path / "t" / "services/queue/fairlead_queue/core.py").write_text("raise ImportError('planted')\n")
        with pytest.raises(LoadsFailed, match="planted"):
            regression.run(tmp_path / "t")
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tmp_path / "t")], cwd=regression.ROOT, check=True)
