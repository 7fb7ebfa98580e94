"""Rows of two revisions side by side: how figures are read, and which way is better."""

import pytest

from bench.compare import ROOT, Figure, figures, python_path, table

OUTPUT = """2 cores
  ok   submits in lists of 1,000: 21,421 jobs/s (goal ≥ 30,000/s; as above) [CPU 1,070 µs a job: gateway 1,000, nats 70]
  MISS idle cluster, HTTP request → process running: p50 6.7 ms, p99 16.4 ms (goal p50 ≤ 10 ms; awaited appends: 1.9 ms)
  ok   memory of a waiting job: 689 B (goal < 1,536 B; the whole process: 124 MiB)
  ok   placement, whole GPUs: 32,793/s, 3.34 naive scans (goal ≥ 50,000/s, or 2.94 naive scans of the same run; met)
  ok   replay of the live log: 242,316 events/s (goal ≥ 200,000/s; undecoded: 3,397,088 events/s) [CPU 4.1 µs an event]
| what | measured |
"""


def test_the_first_figure_of_each_row_is_read() -> None:
    """With its direction: a rate is better when it is more, time and memory when they are less."""
    assert figures(OUTPUT) == {
        "submits in lists of 1,000": Figure(21421, True),
        "submits in lists of 1,000: CPU µs a job": Figure(1070, False),
        "idle cluster, HTTP request → process running": Figure(6.7, False),
        "memory of a waiting job": Figure(689, False),
        "placement, whole GPUs": Figure(3.34, True),
        "replay of the live log": Figure(242316, True),
        "replay of the live log: CPU µs an event": Figure(4.1, False),
    }


@pytest.mark.parametrize(
    ("before", "after", "gain"),
    [
        (Figure(100, True), Figure(110, True), 1.1),
        (Figure(100, True), Figure(90, True), 0.9),
        (Figure(10, False), Figure(8, False), 1.25),
        (Figure(10, False), Figure(12.5, False), 0.8),
    ],
)
def test_better_is_above_one_whichever_way_a_row_counts(before: Figure, after: Figure, gain: float) -> None:
    """A reader need not know whether a row is a rate."""
    assert after.gain(before) == pytest.approx(gain)


def test_the_table_has_the_median_of_pairs() -> None:
    """And the least and the most, which say how noisy the machine was; rows that are new are named as such."""
    pairs = [
        ({"a": Figure(100, True)}, {"a": Figure(value, True), "b": Figure(1, False)}) for value in (103.0, 90.0, 101.0)
    ]
    told = table(pairs, "HEAD~1")
    assert "| a | 100 | 101 | +1.0 % | -10.0, +3.0 % |" in told
    assert "| b | – | 1 | not measured there | |" in told


def test_every_import_package_of_a_tree_is_on_the_path() -> None:
    """As its pyproject.toml lists them, so that no package of another tree takes its place."""
    folders = python_path(ROOT).split(":")
    assert str(ROOT / "services/queue") in folders
    assert str(ROOT / "schemas") in folders
    assert len(folders) == len(set(folders))
