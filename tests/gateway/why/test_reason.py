"""Reasons of a job's state: each code from a log that leads to it, with its sentence and its numbers."""

from typing import get_args

import pytest

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import PlacementRefusal
from fairlead_gateway.why import causes, limits
from fairlead_gateway.why.dominant_reason import reason_of
from fairlead_gateway.why.free_resources import JobPool
from fairlead_gateway.why.placement import over_nodes
from fairlead_schemas.policies.partitions import OnPartition
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.events import DeferReason
from fairlead_schemas.wire.placement_causes import CAUSES, in_words
from fairlead_schemas.wire.resource_requests import needs
from fairlead_schemas.wire.resources import Request
from tests.gateway.logbook import (
    START_NS,
    Logbook,
    ended,
    joined,
    offered,
    placed,
    quota,
    started,
    submitted,
    unplaceable,
)

LOST = ev.NodeLost(cause="clock", node="n1", silent_ns=120 * SECOND_NS)
IN_AN_HOUR_NS = START_NS + 3600 * SECOND_NS

#: (name, events, code, what the sentence must hold, what the detail must hold)
TABLE: list[tuple[str, list[ev.Event], str, str, dict[str, int | str]]] = [
    ("held", [submitted(), ev.JobHeld(cause="cmd:h", job="1", by="bob")], "held", "held by bob", {"by": "bob"}),
    (
        "its node is silent, and it is strict",
        [joined("n1"), submitted(on_partition=OnPartition(replace_after_ns=-1)), offered(), placed(), started(), LOST],
        "node_silent", "strict: it is not started elsewhere before its node or an admin confirms that it has ended there",
        {"node": "n1", "strict": 1, "next": "fairlead declare-dead n1, once you have seen that nothing runs there"},
    ),
    (
        "its node is silent, and it waits longer",
        [joined("n1"), submitted(on_partition=OnPartition(replace_after_ns=3600 * SECOND_NS)), offered(), placed(), LOST],
        "node_silent", "it is started elsewhere at 2026-01-01T00:58:05.000Z at the earliest", {"strict": 0},
    ),
    (
        "its node is declared dead",
        [joined("n1"), submitted(), offered(), placed(), started(), LOST, ev.NodeDeclaredDead(cause="c", node="n1")],
        "running", "runs on n1", {},
    ),
    ("scheduled", [submitted(start_at_ns=IN_AN_HOUR_NS)], "scheduled", "not to start before 2026-01-01T01:00:00.000Z", {"seconds_left": 3598}),
    (
        "released before its start time",
        [submitted(start_at_ns=IN_AN_HOUR_NS), ev.JobHeld(cause="c", job="1"), ev.JobReleased(cause="c", job="1")],
        "scheduled", "not to start before", {},
    ),
    (
        "a maximum of which the queue has said nothing yet", [quota(8), submitted("9", 6), offered("9"), submitted(gpus=4)],
        "maximum", "queue default is at 6 of 8 GPUs; this needs 4", {"held_gpu_milli": 6000, "needed_gpu_milli": 4000},
    ),
    (
        "larger than the maximum", [quota(8), submitted(gpus=16)], "larger_than_queue",
        "asks for 16 GPUs; queue default may hold 8 at most", {"ceiling_gpu_milli": 8000},
    ),
    (
        "a gang without a place", [submitted(gpus=8, nodes=2), offered(), unplaceable(free_gpus=3, cordoned=1)], "no_place",
        "needs 8 GPUs on each of 2 nodes; of 4 nodes 3 lack free GPUs, 1 is cordoned", {"nodes.free_gpus": 3, "decided_for": "1"},
    ),
    (
        "the class was refused for another",
        [submitted("9", 8), offered("9"), unplaceable("9", nodes=1, free_gpus=1), submitted(gpus=8)], "no_place",
        "needs 8 GPUs on one node; of 1 node 1 lacks free GPUs", {"decided_for": "9"},
    ),
    (
        "a gang of which some fit", [submitted(gpus=8, nodes=3), offered(), unplaceable(fitting=1, free_gpus=3)], "no_place",
        "3 lack free GPUs, 1 could take part", {"fitting": 1},
    ),
    ("no nodes", [submitted(gpus=0), offered(), unplaceable(nodes=0, total=0)], "no_place", "the cluster has no nodes", {}),
    (
        "larger than the cluster", [submitted(gpus=8, nodes=8), offered(), unplaceable(free_gpus=4)], "larger_than_cluster",
        "asks for 64 GPUs in all; the cluster has 32", {"gpu_milli_total": 32000},
    ),
    (
        "its turn has not come", [submitted("8"), submitted("9"), submitted(), offered("8"), offered("9", 2), offered("1", 3)],
        "waiting_turn", "2 jobs are ahead of it", {"ahead": 2},
    ),
    (
        "behind higher priority", [submitted(priority=1), submitted("2", priority=90), submitted("3", priority=1)], "waiting_turn",
        "1 job is ahead of it", {"ahead": 1},
    ),
    (
        "between attempts",
        [joined(), submitted(), offered(), placed(), started(), ended(code=None, outcome="node_lost"),
         ev.JobRequeued(cause="x", job="1", attempt=2, reason="node_lost", not_before_ns=IN_AN_HOUR_NS)],
        "backoff", "attempt 2 not before 2026-01-01T01:00:00.000Z (the one before ended: node_lost)", {"attempt": 2},
    ),
    ("placed", [joined(), submitted(), offered(), placed()], "placed", "has its place on n1 since 2026-01-01T00:00:04.000Z", {"nodes": 1}),
    ("running", [joined(), submitted(), offered(), placed(), started()], "running", "runs on n1 since 2026-01-01T00:00:05.000Z", {}),
    (
        "stopping", [submitted(), offered(), ev.JobStopRequested(cause="c", job="1", attempt=1, reason="cancelled", by="bob")],
        "stopping", "cancelled by bob; it is being stopped", {"by": "bob"},
    ),
    (
        "out of time", [joined(), submitted(), offered(), placed(), started(), ev.JobStopRequested(cause="clock", job="1", attempt=1, reason="time_limit")],
        "stopping", "its time is up", {"reason": "time_limit"},
    ),
    (
        "succeeded", [joined(), submitted(), offered(), placed(), started(), ended(), ev.JobSucceeded(cause="x", job="1")],
        "succeeded", "ended with exit code 0 at 2026-01-01T00:00:07.000Z", {},
    ),
    (
        "failed by exit code", [joined(), submitted(), offered(), placed(), ended(code=3), ev.JobFailed(cause="x", job="1", reason="exit_code", exit_code=3)],
        "failed", "ended with exit code 3", {"exit_code": 3, "next": "fairlead logs 1"},
    ),
    (
        "failed by signal",
        [joined(), submitted(), offered(), placed(), ended(code=None, signal=9), ev.JobFailed(cause="x", job="1", reason="exit_code", signal=9, message="out of memory")],
        "failed", "was ended by signal 9 at 2026-01-01T00:00:06.000Z: out of memory", {"signal": 9},
    ),
    (
        "failed to start",
        [joined(), submitted(), offered(), placed(), ended(code=None, outcome="start_failed"), ev.JobFailed(cause="x", job="1", reason="start_failed", message="no such file")],
        "failed", "it could not be started", {"reason": "start_failed"},
    ),
    (
        "stopped for the memory of others",
        [joined(), submitted(), offered(), placed(), ended(code=None, outcome="gpu_memory"), ev.JobFailed(cause="x", job="1", reason="gpu_memory", message="used 9,812 MiB of its 5,000 MiB share of g for 12 s")],
        "failed", "failed: it was stopped for using more GPU memory than its share at 2026-01-01T00:00:06.000Z: used 9,812 MiB of its 5,000 MiB share of g for 12 s", {"reason": "gpu_memory"},
    ),
    (
        "killed at its memory limit",
        [joined(), submitted(), offered(), placed(), ended(code=None, outcome="oom", signal=9), ev.JobFailed(cause="x", job="1", reason="oom", signal=9, message="killed: over its memory limit")],
        "failed", "failed: it was killed for exceeding its memory limit", {"reason": "oom"},
    ),
    ("cancelled", [submitted(), ev.JobCancelled(cause="c", job="1", by="bob")], "cancelled", "was cancelled by bob at", {"by": "bob"}),
    (
        "an array at work", [submitted(array=(0, 1)), offered("1_0"), offered("1_1", 2)], "elements",
        "all elements have had their turn: 2 offered", {"offered": 2},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "code", "message", "detail"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_why(events: list[ev.Event], code: str, message: str, detail: dict[str, int | str]) -> None:
    """The one dominant reason, its sentence and its numbers."""
    book = Logbook()
    for event in events:
        book.write(event)
    reason = reason_of(book.views, book.views.jobs.rows["1"], START_NS + 2 * SECOND_NS)
    assert (reason.code, message in reason.message) == (code, True), reason
    assert {key: reason.detail.get(key) for key in detail} == detail
    assert code in {"succeeded", "cancelled", "elements"} or reason.detail["next"]


def test_a_cause_with_numbers_is_one_that_the_placer_has() -> None:
    """An entry under a name that the placer never counts would explain nothing."""
    assert set(causes._EXPLAINED) <= set(CAUSES)


def test_every_reason_of_the_queue_has_its_sentence() -> None:
    """A reason that the queue may record needs an entry; a job that waits for its turn only is worded with the jobs ahead."""
    assert set(limits._REASONS) == set(get_args(DeferReason)) - {"turn"}


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_of_the_placer_has_a_sentence(cause: str) -> None:
    """For one node and for several; none is shown as the log spells it."""
    one, several = in_words({cause: 1}), in_words({cause: 2})
    assert one.startswith("1 ") and several.startswith("2 ") and one[2:] != several[2:]
    assert f" by {cause.replace('_', ' ')}" not in one


def test_nodes_of_a_pool_are_not_the_cluster() -> None:
    """A job of a pool is refused by the nodes of that pool."""
    request = Request(nodes=2, gpu_milli=0, cpu_milli=1000, memory_mib=2048, pool="l40s")
    refusal = PlacementRefusal(request, "1", 1, 1, 1, {}, 0, 0, 0, 0)
    assert over_nodes(JobPool(Views(), request), refusal) == "pool l40s has no nodes"
    assert needs(request) == "1 CPU and 2Gi of memory on each of 2 nodes"


def test_a_refusal_ends_with_the_next_placement_of_its_class() -> None:
    """Once one of the class was placed, the others wait for their turn, not for a place."""
    book = Logbook()
    for event in (
        joined(),
        submitted("1", 8),
        submitted("2", 8),
        offered("1"),
        unplaceable("1", free_gpus=1),
        placed("1", gpus=8),
    ):
        book.write(event)
    assert reason_of(book.views, book.views.jobs.rows["2"], START_NS).code == "waiting_turn"
