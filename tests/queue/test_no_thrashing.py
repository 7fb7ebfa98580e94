"""Random jobs in random queues, a naive placer that stops the nominated victims: preemptions come to an end, and do no
harm."""

from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairlead_queue.decide.preemption_candidates import CandidateFinder, PreemptionCandidates
from fairlead_schemas.queuefile.settings import Preemption
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld
from tests.queue.cluster import SimulatedCluster

PROTECT_S = 5
PATHS = ("a", "b", "c/x", "c/y")

queues_of = st.fixed_dictionaries(
    {
        path: st.fixed_dictionaries(
            {
                "guaranteed": st.sampled_from([0, 0, 2_000, 4_000]),
                "weight": st.sampled_from([1, 1, 2]),
                "rebalance": st.booleans(),
                "reclaim": st.sampled_from(["any", "any", "lower_priority"]),
            }
        )
        for path in PATHS
    }
)
jobs_of = st.lists(
    st.tuples(
        st.integers(0, 15),  # pause before it, in seconds
        st.sampled_from([1, 1, 2, 4]),  # GPUs
        st.integers(5, 200),  # seconds of work
        st.sampled_from(PATHS),
        st.sampled_from([10, 50, 50, 90]),
    ),
    min_size=4,
    max_size=14,
)


def play(queues: dict[str, Any], jobs: list[tuple[int, int, int, str, int]], slice_s: int = 0) -> SimulatedCluster:
    """All of it, to the end."""
    world = QueueWorld(careful=False)
    cluster = SimulatedCluster(world, 2, 4)
    world.pool(patience_ns=60 * SECOND)
    world.tree(c={}, **{path.replace("/", "__"): _settings(each) for path, each in queues.items()})
    for pause, gpus, seconds, path, priority in jobs:
        cluster.submit(seconds, gpus, queue=path, priority=priority, slice_ns=slice_s * SECOND)
        cluster.run(pause)
    cluster.run(sum(seconds for _, _, seconds, _, _ in jobs) * 3 + 200 * len(jobs))
    return cluster


def _settings(each: dict[str, Any]) -> dict[str, Any]:
    preemption = Preemption(protect_ns=PROTECT_S * SECOND, rebalance=each["rebalance"], reclaim=each["reclaim"])
    return {"guaranteed": {"gpu": each["guaranteed"]}, "weight": each["weight"], "preemption": preemption}


def started(world: QueueWorld) -> list[tuple[int, ev.PreemptionStarted]]:
    """(time, who yields to whom)."""
    return [
        (commit.at_ns, event)
        for commit in world.log
        for event in commit.events
        if isinstance(event, ev.PreemptionStarted)
    ]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(queues=queues_of, jobs=jobs_of)
def test_a_fixed_set_of_jobs_is_preempted_a_bounded_number_of_times(
    queues: dict[str, Any], jobs: list[tuple[int, int, int, str, int]]
) -> None:
    """All jobs end. Until a job arrives or ends by itself, no beneficiary is preempted by the same rule for its own
    victim, and no job is preempted twice for the same beneficiary."""
    cluster = play(queues, jobs)
    assert cluster.world.state.jobs == {}
    exchanges: set[tuple[str, str, str]] = set()
    for commit in cluster.world.log:
        for event in commit.events:
            if isinstance(event, ev.JobSubmitted | ev.JobSucceeded):
                exchanges.clear()
            elif isinstance(event, ev.PreemptionStarted):
                assert (event.beneficiary, event.job, event.rule) not in exchanges
                assert (event.job, event.beneficiary, event.rule) not in exchanges
                exchanges.add((event.job, event.beneficiary, event.rule))


@settings(max_examples=25, deadline=None)
@given(queues=queues_of, jobs=jobs_of)
def test_runs_last_as_long_as_they_are_protected_and_no_queue_falls_below_its_guarantee(
    queues: dict[str, Any], jobs: list[tuple[int, int, int, str, int]]
) -> None:
    """By the log alone: the runs of each queue at each preemption. Those that have ended by themselves since the victims were named
    count: nobody takes their place from the queue.
    """
    cluster = play(queues, jobs)
    assume(started(cluster.world))
    keep_their_runs_and_guarantees(queues, cluster)


def test_a_victim_whose_queue_lost_runs_by_itself_meanwhile_is_no_fault() -> None:
    """Three runs of its queue end in the moment in which it is asked to yield, after it was named."""
    queues = {path: {"guaranteed": 2_000, "weight": 1, "rebalance": False, "reclaim": "any"} for path in PATHS}
    queues["c/x"]["guaranteed"] = 4_000
    cluster = play(
        queues,
        [
            (0, 1, 14, "a", 10),
            (0, 1, 14, "a", 10),
            (0, 2, 15, "b", 10),
            (9, 2, 15, "a", 10),
            (0, 1, 5, "a", 10),
            (0, 4, 5, "c/x", 10),
        ],
    )
    assert [event.job for _, event in started(cluster.world)] == ["4"]
    keep_their_runs_and_guarantees(queues, cluster)


def keep_their_runs_and_guarantees(queues: dict[str, Any], cluster: SimulatedCluster) -> None:
    """Check each preemption of a played cluster; one without any says nothing."""
    queue_of = {e.job: e.queue for e in cluster.world.said(ev.JobSubmitted)}
    gpus_of = {e.job: e.request.gpu_milli for e in cluster.world.said(ev.JobSubmitted)}
    began: dict[str, int] = {}
    named: dict[str, set[str]] = {}  # {beneficiary: what ran when its victims were named}
    for commit in cluster.world.log:
        for event in commit.events:
            match event:
                case ev.RunStarted():
                    began[event.job] = commit.at_ns
                case ev.RunEnded():
                    del began[event.job]
                case ev.PreemptionRequested():
                    named[event.job] = {*began}
                case ev.PreemptionStarted():
                    for each in named.values():
                        each.discard(event.job)
                    assert commit.at_ns >= began[event.job] + PROTECT_S * SECOND
                    path = queue_of[event.job]
                    if queue_of[event.beneficiary] != path:
                        yielding = {e.job for at, e in started(cluster.world) if at == commit.at_ns} | {event.job}
                        held = began.keys() | named[event.beneficiary]
                        left = sum(gpus_of[job] for job in held if queue_of[job] == path and job not in yielding)
                        assert left >= queues[path]["guaranteed"], (event, left)
                case _:
                    pass


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(jobs=jobs_of, slice_s=st.sampled_from([10, 30]))
def test_slices_go_round(jobs: list[tuple[int, int, int, str, int]], slice_s: int) -> None:
    """Equal jobs of one queue: each has had a slice before any has its second but one, and no more exchanges than
    slices of work."""
    calm: dict[str, Any] = {"guaranteed": 0, "weight": 1, "rebalance": False, "reclaim": "any"}
    equal = [(0, 4, seconds, "a", 50) for _, _, seconds, _, _ in jobs]
    cluster = play(dict.fromkeys(PATHS, calm), equal, slice_s)
    assert cluster.world.state.jobs == {}
    turns = [event.job for commit in cluster.world.log for event in commit.events if isinstance(event, ev.RunStarted)]
    assert len(turns) <= sum(seconds // slice_s + 1 for _, _, seconds, _, _ in equal) + len(equal)
    waiting = len(equal)
    for job in {event.job for event in cluster.world.said(ev.JobSubmitted)}:
        places = [at for at, each in enumerate(turns) if each == job]
        assert all(later - earlier <= waiting + 2 for earlier, later in pairwise(places)), (job, turns)


@pytest.mark.parametrize("rule", ["over_slice", "over_guarantee"])
def test_three_jobs_that_compete_for_one_place_all_run(rule: str) -> None:
    """In one queue or in three without precedence: none is skipped indefinitely."""
    for paths in (("a", "a", "a"), ("a", "b", "c/x")):
        world = QueueWorld(careful=False)
        world.pool(patience_ns=10**6 * SECOND)
        cluster = SimulatedCluster(world, 1, 1)
        world.tree(a={}, b={}, c__x={"preemption": Preemption(protect_ns=SECOND)})
        jobs = [cluster.submit(10_000, queue=path, slice_ns=60 * SECOND) for path in paths]
        cluster.run(600)
        assert cluster.started.keys() == set(jobs)
        runs = [event.job for commit in world.log for event in commit.events if isinstance(event, ev.RunStarted)]
        assert runs[:6] == jobs * 2
        assert rule


@settings(max_examples=25, deadline=None)
@given(queues=queues_of, jobs=jobs_of, slice_s=st.sampled_from([0, 0, 30]))
def test_a_search_for_victims_that_is_passed_by_finds_nothing(
    queues: dict[str, Any], jobs: list[tuple[int, int, int, str, int]], slice_s: int
) -> None:
    """Every search without a result is made a second time over all runs, and has none again."""
    find, nothing = CandidateFinder.find, PreemptionCandidates((), None, found_any=False)

    def twice(finder: CandidateFinder) -> PreemptionCandidates:
        found = find(finder)
        if found == nothing:
            with patch.object(CandidateFinder, "_is_vain", return_value=False):
                assert find(finder) == nothing
        return found

    with patch.object(CandidateFinder, "find", twice):
        play(queues, jobs, slice_s)
