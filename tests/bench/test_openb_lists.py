"""Lists drawn from the openb trace's own: what they hold, and that they are the same for everybody."""

import pytest

from bench.openb import lists as openb_lists
from bench.openb import trace
from bench.openb.lists import LISTS, drawn, kind_of, own_mix

PODS, MACHINES = trace.pods(trace.PODS), trace.machines()


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_drawn_the_same_each_time_and_fits_its_machines(name: str) -> None:
    """As much GPU work as the trace's own, and no pod that fits on no node even of the empty cluster."""
    found = drawn(PODS, MACHINES, LISTS[name])
    assert found == drawn(PODS, MACHINES, LISTS[name])
    asked, own = (sum(pod.total_milli for pod in pods) for pods in (found, PODS))
    assert abs(asked - own) < own / 500
    scan = trace.Scan(MACHINES)
    assert all(scan.fits(pod) for pod in set(found))


def test_a_share_is_raised_to_what_the_name_says() -> None:
    """And the rest keeps its proportions."""
    found = own_mix(drawn(PODS, MACHINES, LISTS["several GPUs: 50 %"]))
    own = own_mix(PODS)
    assert found["several"] == pytest.approx(0.5, abs=0.005)
    assert found["share"] / found["one"] == pytest.approx(own["share"] / own["one"], rel=0.02)


def test_models_are_requested_in_the_given_proportion() -> None:
    """By pods with GPUs alone."""
    found = drawn(PODS, MACHINES, LISTS["models asked for: 20 %"])
    with_gpus = [pod for pod in found if pod.gpu_count]
    assert sum(bool(pod.models) for pod in with_gpus) / len(with_gpus) == pytest.approx(0.2, abs=0.02)
    assert not any(pod.models for pod in found if kind_of(pod) == "cpu")


def test_the_table_has_a_row_per_list() -> None:
    """With differences in points."""
    summary = {"gpu_alloc_pct": {"100": 96.0, "130": 96.2}, "drop_8gpu_pct": 5.0}
    worse = {"gpu_alloc_pct": {"100": 95.0, "130": 95.3}, "drop_8gpu_pct": 8.0}
    policies = [policy for policy, _ in openb_lists.PLAYERS]
    found = {("default", policy): summary if policy == policies[0] else worse for policy in policies}
    assert "| default | 96.0, 96.2 | 95.0, 95.3 | 95.0, 95.3 | +1.0, +0.9 | 5.0, 8.0 % |" in openb_lists.table(
        ["default"], [1], found
    )
