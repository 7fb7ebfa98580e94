"""Queues and pools are changed as a whole or not at all, and what is wrong is named with its path and what to do."""

from typing import Any

import pytest

from fairlead_schemas.queuefile.settings import (
    CHANGES_MAX,
    Budget,
    PoolEntry,
    PoolSettings,
    QueueEntry,
    QueueRemoval,
    QueueSettings,
)
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, kinds


def queue(path: str, **settings: Any) -> QueueEntry:
    """A queue and its settings."""
    return QueueEntry(path=path, settings=QueueSettings(**settings))


def world_of_teams() -> QueueWorld:
    """org (16 guaranteed) with two teams, one of which has a waiting and a running job; a second pool."""
    world = QueueWorld()
    world.tree(
        org={"guaranteed": {"gpu": 16_000}},
        org__vision={"guaranteed": {"gpu": 8_000}, "maximum": {"gpu": 8_000}},
        org__speech={},
        shared={"users": {"*": {"gpu": 4_000}}},
    )
    world.apply(pools=(PoolEntry(pool="l40s", settings=PoolSettings()),), queues=(queue("inference", pool="l40s"),))
    world.run(world.submit(8, queue="org/vision"))
    world.submit(1, queue="org/vision")
    world.submit(8, queue="shared")
    return world


def change(*queues: QueueEntry, remove: tuple[QueueRemoval, ...] = (), **more: Any) -> dict[str, Any]:
    return {"queues": queues, "remove": remove, **more}


#: As `world_of_teams` has them.
ALL = (
    queue("default"),
    queue("org", guaranteed={"gpu": 16_000}),
    queue("org/speech"),
    queue("shared", users={"*": {"gpu": 4_000}}),
    queue("org/vision", guaranteed={"gpu": 8_000}, maximum={"gpu": 8_000}),
    queue("inference", pool="l40s"),
)

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("children's guarantees above the parent's", change(queue("org/speech", guaranteed={"gpu": 8_001})),
     "queues.org.guaranteed.nvidia.com/gpu: the queues below are guaranteed 16.001 together, it has 16; raise it or lower theirs"),
    ("maximum below the guarantee", change(queue("org/vision", guaranteed={"gpu": 8_000}, maximum={"gpu": 7_000})),
     "queues.org/vision.maximum.nvidia.com/gpu: expected at least the guarantee (8), found 7; raise it or guarantee less"),
    ("maximum below what those below are guaranteed", change(queue("a", maximum={"gpu": 1}), queue("a/b", guaranteed={"gpu": 2})),
     "queues.a.maximum.nvidia.com/gpu: expected at least what the queues below are guaranteed together (0.002), found 0.001; raise it or guarantee less"),
    ("models guaranteed below beyond the maximum", change(queue("a", maximum={"gpu": 7000}), queue("a/b", guaranteed={"gpu:X": 4000, "gpu:Y": 4000})),
     "queues.a.maximum.nvidia.com/gpu: expected at least what is guaranteed of all models together (8), found 7; raise it or guarantee less"),
    ("an empty queue whose jobs would go nowhere", change(remove=(QueueRemoval(path="org/speech", move_to="nope"),)),
     "queues.org/speech: jobs can be moved to a queue with none below it; nope is none"),
    ("lending above the guarantee", change(queue("a", guaranteed={"gpu": 4}, lending={"gpu": 5})),
     "queues.a.lending.nvidia.com/gpu: expected at most the guarantee (0.004), found 0.005; raise the guarantee or lend less"),
    ("lending without a guarantee", change(queue("a", lending={"gpu": 5})),
     "queues.a.lending.nvidia.com/gpu: expected at most the guarantee (0), found 0.005; raise the guarantee or lend less"),
    ("weight 0", change(queue("a", weight=0)),
     "queues.a.weight: expected 1 to 1000000, found 0; to let others go first, give it a lower priority"),
    ("priority", change(queue("a", priority=1001)), "queues.a.priority: expected -1000 to 1000, found 1001"),
    ("negative amount", change(queue("a", maximum={"gpu": -1})),
     f"queues.a.maximum.nvidia.com/gpu: expected 0 to {1 << 45}, found -1"),
    ("negative amount of a user", change(queue("a", users={"ada": {"cpu": -1}})),
     f"queues.a.users.ada.cpu: expected 0 to {1 << 45}, found -1"),
    ("unknown resource", change(queue("a", borrowing={"gpus": 1})),
     'queues.a.borrowing: expected gpu, gpu:<model>, cpu or memory, found "gpus"'),
    ("bad path", change(queue("a//b")), 'queues.a//b: expected names of a-z 0-9 _ - joined by "/", at most eight deep'),
    ("no user name", change(queue("a", users={"": {"gpu": 1}})), "queues.a.users: expected user names of 1 to 128 characters"),
    ("no budget", change(queue("a", budget=Budget(gpu_milli_s=0))),
     "queues.a.budget.gpuHours: expected more than 0, found 0"),
    ("no such pool", change(queue("a", pool="h100")), "queues.a.pool: no pool h100; expected one of: default, l40s"),
    ("pool below the top", change(queue("org/vision", pool="l40s")),
     "queues.org/vision.pool: expected default, which org is in, found l40s; leave it out"),
    ("users of an inner queue", change(queue("org", guaranteed={"gpu": 16_000}, users={"*": {"gpu": 1}})),
     "queues.org.users: only a queue with none below it can limit users; move the limits to those below"),
    ("pool changed under jobs", change(queue("shared", pool="l40s", users={"*": {"gpu": 4_000}})),
     "queues.shared.pool: jobs of pool default are in it; it can be changed when they have ended"),
    ("a queue below one with jobs", change(queue("org/vision/small")),
     "queues.org/vision: jobs are in it, so no queue can be put below it; move them first (fairlead move)"),
    ("a queue below one whose users have jobs", change(queue("shared"), queue("shared/a")),
     "queues.shared: jobs are in it, so no queue can be put below it; move them first (fairlead move)"),
    ("named twice", change(queue("a"), queue("a", weight=2)), "queues.a: it is named twice; keep one of them"),
    ("pool named twice", change(pools=(PoolEntry(pool="p", settings=PoolSettings()),) * 2),
     "pools.p: it is named twice; keep one of them"),
    ("configured and removed", change(queue("org/speech"), remove=(QueueRemoval(path="org/speech"),)),
     "queues.org/speech: it is configured and removed at once; do one of them"),
    ("removal of running jobs", change(remove=(QueueRemoval(path="org/vision", move_to="org/speech"),)),
     "queues.org/vision: 1 job of it is offered or runs; wait until all have ended, or cancel them"),
    ("removal of waiting jobs", change(remove=(QueueRemoval(path="shared"),)),
     "queues.shared: 1 job waits in it; name another queue for them (--move-to QUEUE), or cancel all of them"),
    ("removal of an inner queue", change(remove=(QueueRemoval(path="org"),)),
     "queues.org: there are queues below it; remove them too"),
    ("removal of no queue", change(remove=(QueueRemoval(path="nowhere"),)),
     "queues.nowhere: there is no such queue to remove"),
    ("moved to one that goes too", change(remove=(QueueRemoval(path="shared", move_to="org/speech"), QueueRemoval(path="org/speech"))),
     "queues.shared: jobs can be moved to a queue with none below it; org/speech is none"),
    ("moved to none", change(remove=(QueueRemoval(path="shared", move_to="nowhere"),)),
     "queues.shared: jobs can be moved to a queue with none below it; nowhere is none"),
    ("moved to an inner one", change(remove=(QueueRemoval(path="shared", move_to="org"),)),
     "queues.shared: jobs can be moved to a queue with none below it; org is none"),
    ("moved to another pool", change(remove=(QueueRemoval(path="shared", move_to="inference"),)),
     "queues.shared: its jobs are of pool default, inference is of another"),
    ("prune what has jobs", change(queue("org", guaranteed={"gpu": 16_000}), prune=True),
     "queues.org/vision: 1 job of it is offered or runs; wait until all have ended, or cancel them (and 1 more)"),
    ("prune a pool that is used", change(*ALL, prune=True),
     "pools.l40s: queue inference is in it; remove that too, or name the pool"),
    ("too many", change(*(queue(f"q{n}") for n in range(CHANGES_MAX + 1))),
     f"expected at most {CHANGES_MAX} queues and pools in one change, found {CHANGES_MAX + 1}; apply a part of the tree"),
    ("too many with those above", change(*(queue(f"a{n}/b/c/d") for n in range(101))),
     f"expected at most {CHANGES_MAX} queues and pools in one change, found 404; apply a part of the tree"),
    ("pool name", change(pools=(PoolEntry(pool="L 40", settings=PoolSettings()),)), "pools.L 40: expected a name of a-z 0-9 _ -"),
    ("sequencer", change(pools=(PoolEntry(pool="p", settings=PoolSettings(sequencer="best")),)),
     'pools.p.sequencer: expected one of drf, fairshare, fifo, lifo, promised, found "best"'),
    ("past", change(pools=(PoolEntry(pool="p", settings=PoolSettings(past_percent=101)),)),
     "pools.p.pastPercent: expected 0 to 100, found 101"),
    ("price", change(pools=(PoolEntry(pool="p", settings=PoolSettings(prices={"x": -1})),)),
     "pools.p.prices.x: expected 0 to 1000, found -0.001"),
    ("two things", change(queue("a", weight=0, priority=-1001)),
     "queues.a.weight: expected 1 to 1000000, found 0; to let others go first, give it a lower priority (and 1 more)"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "asked", "words"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_bad_change_is_refused_with_one_clear_sentence(what: str, asked: dict[str, Any], words: str) -> None:
    """It names the path, what was expected and what to do, and nothing is applied."""
    world = world_of_teams()
    before = world.core.snapshot()
    answer = world.apply(**asked)
    assert isinstance(answer, ev.CommandRejected)
    code = "conflict" if what == "removal of running jobs" else "invalid"
    assert (answer.code, answer.message) == (code, words)
    assert world.core.snapshot() == before


def test_a_valid_change_is_one_commit_from_the_root_down() -> None:
    """Missing parents are created; unchanged queues are not recorded again; the answer counts."""
    world = QueueWorld()
    events = world.ask(cmd.ApplyQueues(id="a", queues=(queue("a/b/c"), queue("a/b", weight=3)), user="eve"))
    assert [event.path for event in events[:-1]] == ["a", "a/b", "a/b/c"]
    assert events[-1] == ev.QueuesApplied(cause="cmd:a", command="a", configured=3, by="eve")
    again = world.apply(queues=(queue("a/b/c"), queue("a/b", weight=3), queue("a/x")))
    assert (again.configured, again.unchanged) == (1, 2)


def test_changes_of_one_message_build_on_each_other() -> None:
    """Made, filled, put above another, removed: each is looked at as the one before leaves it."""
    world = QueueWorld()
    world.submit(8, queue="default", start_at_ns=world.now + 60 * SECOND)
    events = world.ask(
        cmd.ApplyQueues(id="a", queues=(queue("x"), queue("y"))),
        world.submission(queue="x", id="b"),
        cmd.ApplyQueues(id="c", queues=(queue("x/z"),)),
        cmd.ApplyQueues(id="d", remove=(QueueRemoval(path="y"),)),
        cmd.ApplyQueues(id="e", remove=(QueueRemoval(path="y"),)),
        cmd.ApplyQueues(id="f", remove=(QueueRemoval(path="default", move_to="x"),)),
    )
    answers = {event.cause: event for event in events}
    assert {cause: type(answers[f"cmd:{cause}"]).__name__ for cause in "abcdef"} == {
        "a": "QueuesApplied",
        "b": "JobSubmitted",
        "c": "CommandRejected",
        "d": "QueuesApplied",
        "e": "CommandRejected",
        "f": "QueuesApplied",
    }
    assert answers["cmd:c"].message == "queues.x: jobs are entering it at this moment; send it again"
    assert answers["cmd:e"].message == "queues.y: there is no such queue to remove"
    assert kinds(world.settle()) == ["JobOffered"]
    assert sorted(world.state.queues) == ["x"]


def test_waiting_jobs_move_to_the_named_queue_when_theirs_is_removed() -> None:
    """Queued, held and scheduled jobs alike; they are offered there and count there."""
    world = QueueWorld()
    world.tree(old={"maximum": {"gpu": 0}}, new={"maximum": {"gpu": 2_000}})
    line, held, later = (
        world.submit(2, queue="old"),
        world.submit(queue="old"),
        world.submit(queue="old", start_at_ns=world.now + SECOND),
    )
    world.hold(held)
    assert isinstance(world.remove("old", move_to="new"), ev.QueuesApplied)
    world.settle()
    assert (world.of(line), world.of(held), world.of(later)) == ("offered", "held", "scheduled")
    assert (world.charged("new"), "old" in world.state.queues) == (2_000, False)


def test_prune_removes_all_that_is_not_named() -> None:
    """Queues and pools; the default pool stays."""
    world = QueueWorld()
    world.apply(pools=(PoolEntry(pool="p", settings=PoolSettings()),), queues=(queue("a", pool="p"), queue("b")))
    answer = world.apply(queues=(queue("b"),), prune=True)
    assert (answer.configured, answer.removed, answer.unchanged) == (0, 3, 1)
    assert (sorted(world.state.queues), sorted(world.state.pools)) == (["b"], ["default"])


def test_pruning_keeps_the_parents_of_a_named_queue() -> None:
    """They were created for it and are not in the file: applying it again changes nothing."""
    world = QueueWorld()
    first = world.apply(queues=(queue("a/b/c"), queue("default")), prune=True)
    assert (first.configured, first.removed, first.unchanged) == (3, 0, 1)
    again = world.apply(queues=(queue("a/b/c"), queue("default")), prune=True)
    assert (again.configured, again.removed, again.unchanged) == (0, 0, 2)
    world.configure("a", maximum={"gpu": 8_000})
    world.apply(queues=(queue("a/b/c", weight=2),), prune=True)
    assert sorted(world.state.queues) == ["a", "a/b", "a/b/c"]
    assert world.state.queues["a"].settings.maximum == {"gpu": 8_000}


def test_no_offer_is_made_upon_limits_that_the_same_commit_lowers() -> None:
    """The next decision offers, by the new ones."""
    world = QueueWorld()
    world.quota("q", 8)
    lowered = cmd.ApplyQueues(id="a", queues=(queue("q", maximum={"gpu": 1_000}),))
    events = world.ask(lowered, world.submission(1, queue="q"), world.submission(1, queue="q"))
    assert "JobOffered" not in kinds(events)
    assert kinds(world.settle()) == ["JobOffered"]
    assert world.charged("q") == 1_000


def test_a_quota_below_use_stops_no_run() -> None:
    """Open offers are withdrawn, runs continue, and nothing new is offered until they have ended."""
    world = QueueWorld()
    world.quota("q", 8)
    runs = [world.submit(2, queue="q") for _ in range(2)]
    world.run(*runs)
    offers = [world.submit(1, queue="q") for _ in range(4)]
    assert isinstance(world.quota("q", 2), ev.QueuesApplied)
    withdrawn = world.pass_time()
    assert [(type(e).__name__, e.job) for e in withdrawn] == [("OfferWithdrawn", job) for job in reversed(offers)]
    world.give_back(*offers)
    assert kinds(world.pass_time(60)) == ["JobQueued"] * 4
    world.end(runs[0])
    assert kinds(world.settle()) == ["JobSucceeded"]
    world.end(runs[1])
    assert [e.job for e in world.settle()] == [runs[1], *offers[:2]]


def test_a_queue_of_an_old_log_has_a_quota_of_gpus_and_a_place_in_the_tree() -> None:
    """QueueConfigured with gpu_quota_milli alone; "a/b" existed without "a"."""
    world = QueueWorld()
    world.fold("queue", [ev.QueueConfigured(cause="clock", path="a/b", gpu_quota_milli=2_000)])
    assert world.state.queues["a/b"].settings == QueueSettings(maximum={"gpu": 2_000})
    jobs = [world.submit(1, queue="a/b") for _ in range(3)]
    assert world.offered() == jobs[:2]
    world.fold("queue", [ev.QueueConfigured(cause="clock", path="a/b")])
    world.settle()
    assert world.offered() == jobs


def test_a_top_queue_keeps_its_pool_while_jobs_are_far_below() -> None:
    """The pool is the whole tree's: jobs three levels down keep it."""
    world = QueueWorld()
    world.apply(pools=(PoolEntry(pool="other", settings=PoolSettings()),))
    world.configure("a/b/c/d")
    world.submit(1, queue="a/b/c/d")
    refused = world.configure("a", pool="other")
    assert isinstance(refused, ev.CommandRejected)
    assert "queues.a/b/c/d.pool" in refused.message
