"""The made load is the published one, the model keeps to its rules, and the log is counted as it says."""

from collections import Counter

import msgspec
import pytest

from bench.kueue.load import job_file, queue_file
from bench.kueue.model import VARIANTS, Outcome, Rules, outcome
from bench.kueue.schedule import QUEUES, SIZES, Arrival, least_ms, schedule
from bench.kueue.tally import Tally
from fairlead_schemas.jobfile import job_spec, resolve
from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.events import EventBase, JobRequeued, JobSubmitted, RunStarted
from fairlead_schemas.wire.resources import Request
from tests.kit.commits import commit_of

ALL_YIELD_AT_ONCE = Rules(ask_after_ms=0)


def test_schedule_is_the_published_load() -> None:
    """15,000 jobs, each queue the same three classes, the last one after 60 s, 66 s of work for the quota."""
    arrivals = schedule()
    assert len(arrivals) == 15_000
    assert dict.fromkeys({a.queue for a in arrivals}, 500) == Counter(a.queue for a in arrivals)
    for size in SIZES:
        times = [a.at_ms for a in arrivals if a.units == size.units and a.queue == "c5/q6"]
        assert times == [size.every_ms * number for number in range(1, size.jobs + 1)]
    assert arrivals == sorted(arrivals, key=lambda a: a.at_ms)
    assert (arrivals[0].at_ms, arrivals[-1].at_ms) == (100, 60_000)
    assert least_ms(arrivals) == 66_000


def test_every_arrival_is_a_job_that_the_api_takes() -> None:
    """The job files decode, and ask for what the arrival says."""
    arrivals = schedule()[:100]
    assert len(arrivals) == 100
    for arrival in arrivals:
        body = msgspec.json.encode(job_file(arrival))
        command = resolve.resolve(job_spec.decode_job(body), command_id="1", user="bench")
        asked = (command.queue, command.request.cpu_milli, command.priority)
        assert (arrival.queue, arrival.units * 1000, arrival.priority) == asked


def test_queue_file_names_every_queue_of_the_schedule() -> None:
    """Jobs are submitted to the queues of the applied file."""
    cohorts = queue_file()["queues"]
    assert isinstance(cohorts, dict)
    assert {f"{cohort}/{queue}" for cohort in cohorts for queue in cohorts[cohort]["queues"]} == {
        a.queue for a in schedule()
    }


@pytest.mark.parametrize("rules", VARIANTS.values(), ids=VARIANTS)
def test_the_model_ends_every_job_and_never_before_the_work_allows(rules: Rules) -> None:
    """The first eighth of the load ends under every rule; the model itself holds that quota is never exceeded."""
    arrivals = [a for a in schedule(cohorts=1) if a.at_ms <= 7500]
    found = outcome(arrivals, rules)
    assert found.took_ms + arrivals[0].at_ms >= least_ms(arrivals)
    assert list(found.waits_ms) == [1, 5, 20]


def test_a_higher_priority_preempts_a_lower_one_in_its_queue() -> None:
    """The victim loses its work, and runs again from the beginning once there is room."""
    few = [*lots(fill(0)), *others(), at(100, 20, 1000, priority=200)]
    expected = Outcome(took_ms=1100, yielded=4, lost=4 * 5 * 100, waits_ms={5: 0, 20: 0})
    assert expected == outcome(few, ALL_YIELD_AT_ONCE)


def test_no_run_is_preempted_before_the_patience_is_over() -> None:
    """With a second's patience the same job waits for the half second that the others still need."""
    few = [*lots(fill(0)), *others(), at(100, 20, 1000, priority=200)]
    assert Outcome(took_ms=1500, yielded=0, lost=0, waits_ms={5: 0, 20: 400}) == outcome(few, Rules())


def test_a_queue_gets_its_guarantee_back_from_borrowers() -> None:
    """A job within its guarantee preempts a run, of whatever priority, of a queue beyond its own."""
    borrowed = [at(0, 20, 1000, priority=200, queue="c1/q1") for _ in range(QUEUES)]
    mine = at(100, 20, 500, priority=50, queue="c1/q2")
    found = outcome([*borrowed, mine], ALL_YIELD_AT_ONCE)
    assert (found.yielded, found.lost, found.waits_ms[20]) == (1, 20 * 100, 0)
    assert outcome([*borrowed, mine], Rules(reclaim=False, ask_after_ms=0)).yielded == 0


def test_a_claim_keeps_room_that_smaller_jobs_would_fill() -> None:
    """Small jobs that come all the time pass by a large one for as long as nothing is kept for it."""
    stream = [at(ms, 1, 200, queue=f"c1/q{number}") for ms in range(0, 4000, 5) for number in range(2, QUEUES + 1)]
    arrivals = sorted([*stream, at(500, 20, 1000, priority=200)], key=lambda a: a.at_ms)
    alone = Rules(lower=False, reclaim=False, claim_after_ms=None)
    assert outcome(arrivals, alone).waits_ms[20] > 3000
    assert outcome(arrivals, alone._replace(claim_after_ms=0)).waits_ms[20] <= 200


def test_tally_counts_the_first_start_only_and_preempted_runs() -> None:
    """A job that yields has waited until it first ran; other attempts are no waits."""
    tally = Tally()
    request = Request(cpu_milli=5000, memory_mib=1)
    submitted = JobSubmitted(
        cause="cmd:1", job="1", name="sleep", queue="c1/q1", user="bench", request=request, spec=msgspec.Raw(b"{}")
    )
    tally.take(commit(1_000_000_000, submitted))
    tally.take(commit(3_500_000_000, RunStarted(cause="clock", job="1", attempt=1)))
    tally.take(commit(4_000_000_000, JobRequeued(cause="clock", job="1", attempt=2, reason="preempted")))
    tally.take(commit(9_000_000_000, RunStarted(cause="clock", job="1", attempt=2)))
    assert (tally.mean_wait_s(5), tally.mean_wait_s(20), tally.preempted) == (2.5, 0.0, 1)


def at(at_ms: int, units: int, duration_ms: int, *, priority: int = 50, queue: str = "c1/q1") -> Arrival:
    return Arrival(at_ms, queue, units, duration_ms, priority)


def fill(at_ms: int, *, queue: str = "c1/q1") -> Arrival:
    return at(at_ms, 5, 500, priority=100, queue=queue)


def lots(arrival: Arrival) -> list[Arrival]:
    """Four of 5 units: a queue's guarantee."""
    return [arrival] * 4


def others() -> list[Arrival]:
    """The guarantees of the other queues, in use all along."""
    return [run for queue in range(2, QUEUES + 1) for run in lots(fill(0, queue=f"c1/q{queue}"))]


def commit(at_ns: int, event: EventBase) -> Commit:
    return commit_of([event], at_ns=at_ns)  # type: ignore[list-item] -- one of the log's events
