"""The tables of docs/reference/fairness.md, on the first days of their traces."""

import pytest

from bench import table
from bench.fairness import pages as fairness
from bench.fairness import philly, shockwave, traces
from bench.fairness.philly import Variant


def test_traces_are_whole() -> None:
    """As tests/data/README.md counts them."""
    jobs = traces.philly()
    assert [sum(job.queue == queue for job in jobs) for queue in traces.PHILLY] == [1435, 422, 723, 1511]
    assert [job.submit_ns for job in jobs] == sorted(job.submit_ns for job in jobs)
    assert (len(traces.shockwave()), len(traces.shockwave_published())) == (120, 7)


def test_a_queue_alone_on_all_it_needs_does_not_wait() -> None:
    """The reference of each job: its work and its start."""
    jobs = traces.philly(8)
    alone = philly.alone(jobs, 32, "0e4a51")
    assert {jobs[at].queue for at in alone} == {"0e4a51"}
    assert all(jct_ns == jobs[at].work_ns + philly.RESTART_NS for at, jct_ns in alone.items())


def test_jobs_that_fit_no_share_are_left_out() -> None:
    """Two nodes are no share for a job of four."""
    jobs = traces.philly(12)
    alone = philly.alone(jobs, 2, "2869ce")
    assert sorted({jobs[at].request.nodes for at in alone}) == [1]
    assert max(job.request.nodes for job in jobs if job.queue == "2869ce") == 4


def test_rows_of_the_first_days() -> None:
    """On few nodes some jobs wait; no queue exceeds the capacity; guarantees help the queue with the least."""
    jobs = traces.philly(8)
    isolated = philly.alone(jobs, 6, "2869ce") | philly.alone(jobs, 6, "0e4a51")
    fifo, guaranteed = [
        philly.row(jobs, variant, isolated) for variant in (Variant(24, "fifo"), Variant(24, "drf", guaranteed=True))
    ]
    for row in (fifo, guaranteed):
        assert row.mean_wait_s > 0
        assert 0 < row.in_use < 1
        assert 0.25 <= row.jain <= 1
        assert len(philly.cells(row)) == len(philly.HEAD)
    assert guaranteed.least > fifo.least
    assert guaranteed.jain > fifo.jain


def test_the_aim_is_reached() -> None:
    """Worst finish-time fairness and mean completion time, by promises."""
    assert shockwave.met([shockwave.row(shockwave.Variant(shockwave.AIM))])


def test_the_page_has_every_row() -> None:
    """A change of the workload needs a new page: `python -m bench.fairness --write`."""
    firsts = [line.split(" | ")[0].removeprefix("| ") for line in fairness.PAGE.read_text().splitlines()]
    wanted = ["sequencer", *(variant.name for variant in philly.variants(0))] * len(philly.NODES)
    wanted += ["order", *(variant.name for variant in shockwave.VARIANTS)]
    wanted += [row.name for row in shockwave.published()]
    assert [first for first in firsts if first in wanted] == wanted


def test_tables_go_between_their_markers() -> None:
    """And nowhere else; a page without them is refused."""
    page = "before\n<!-- x -->\nold\n<!-- end of x -->\nafter\n"
    filled = table.filled(page, "x", "| new |")
    assert filled == "before\n<!-- x -->\n| new |\n<!-- end of x -->\nafter\n"
    assert table.filled(filled, "x", "| new |") == filled
    with pytest.raises(ValueError, match="end of y"):
        table.filled(page, "y", "")
