"""The views and the queue fold the same log, written apart: on logs of whole simulated clusters they must agree."""

from collections.abc import Iterable
from typing import Any

import pytest

from fairlead_gateway.routes.documents import job_document, used
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queue_documents import queue_documents
from fairlead_gateway.views.rows import JobRow
from fairlead_queue.core import QueueCore
from fairlead_queue.fairness.waiting_line import priority_of
from fairlead_queue.waiting.pending import Array, LiveJob
from fairlead_replay.sim.bus import FaultyBus
from fairlead_replay.sim.people import Restless
from fairlead_replay.sim.workload import People
from fairlead_replay.sim.world import Parts, run_seed
from fairlead_schemas.queuefile.settings import RESOURCES
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import decode_commit

#: A world takes some seconds of CPU here: what a simulated log can contain is tried by the simulator's own tests.
SEEDS = 12


def log_of(seed: int, people: type[People]) -> list[bytes]:
    """The whole log of a simulated world."""
    hubs: list[Any] = []

    class Seen(FaultyBus):
        def __init__(self, hub: Any, *more: Any) -> None:
            hubs.append(hub)
            super().__init__(hub, *more)

    outcome = run_seed(seed, parts=Parts(bus=Seen, people=people))
    assert outcome.violation is None
    return [message.payload for message in hubs[0].streams[subjects.LOG].messages]


def seen_by_queue(job: LiveJob, now_ns: int) -> tuple[Any, ...]:
    """Return the facts of a job that queue and views share, as the queue has them."""
    running_ns = now_ns - job.started_ns if job.started_ns else 0
    unborn = job.unborn if isinstance(job, Array) else None
    return (
        job.state,
        job.lane.leaf.queue.path,
        job.user,
        max(1, job.attempt),
        priority_of(job.order),
        job.aged,
        unborn,
        0 if unborn is not None else job.used_ns + running_ns,
    )


def seen_by_views(views: Views, job: str) -> tuple[Any, ...]:
    """The same, as the views have it."""
    row = views.jobs.rows[job]
    unborn = row.elements["waiting"] if row.elements is not None else None
    return (
        row.state,
        row.queue,
        row.user,
        row.attempt,
        row.priority,
        row.aged,
        unborn,
        0 if unborn is not None else used(row, views.at_ns),
    )


def every_job_has_a_reason(views: Views, rows: Iterable[JobRow]) -> None:
    """Check the reason of each job, as a user gets it."""
    for row in rows:
        assert job_document(views, row, views.at_ns, count_ahead=True).reason is not None, (views.sequence, row.id)


@pytest.mark.slow
@pytest.mark.parametrize("people", [People, Restless])
@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_both_say_the_same_after_every_commit(seed: int, people: type[People]) -> None:
    """State, queue, attempt, priority and time used of every live job, what every queue is charged and uses, and which
    there are; every job has a reason, and a restart changes nothing."""
    core, views = QueueCore(), Views()
    ended = set[str]()  # what has ended has been looked at then, and is once more when all is over
    for sequence, payload in enumerate(log_of(seed, people), 1):
        commit = decode_commit(payload)
        core.evolve(sequence, commit)
        views.fold(sequence, commit)
        state = core.state
        for job in state.jobs.values():
            assert seen_by_views(views, job.id) == seen_by_queue(job, views.at_ns), (sequence, job.id)
        assert [row.path for row in views.queues.existing()] == sorted(state.queues)
        for path, queue in state.queues.items():
            charged = dict(zip(queue.pool.resources, queue.node.usage, strict=True))
            shown, used = views.queues.rows[path].charged, views.queues.rows[path].used
            assert {r: shown.get(r, 0) for r in RESOURCES} == {r: charged[r] for r in RESOURCES}, (sequence, path)
            below = [job for job in queue.pool.offers.values() if queue.node in job.lane.leaf.node.up()]
            for at, resource in enumerate(queue.pool.resources[: len(RESOURCES)]):
                open_ = sum(job.lane.request_class.need[at] for job in below)
                assert used.get(resource, 0) == charged[resource] - open_, (sequence, path, resource)
        every_job_has_a_reason(views, [row for row in views.jobs.rows.values() if row.id not in ended])
        ended |= views.jobs.rows.keys() - state.jobs.keys()
    every_job_has_a_reason(views, views.jobs.rows.values())
    restored = Views.restore(views.snapshot())
    assert restored is not None and restored.snapshot() == views.snapshot()
    assert queue_documents(restored, restored.queues.existing()) == queue_documents(views, views.queues.existing())
