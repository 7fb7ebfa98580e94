"""Refusals of changes whose sender saw an older state than the present one."""

from typing import Any

import pytest

from fairlead_queue.snapshot import dump, load
from fairlead_schemas.queuefile.settings import PoolEntry, PoolSettings, QueueEntry, QueueRemoval, QueueSettings
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import QueueWorld
from tests.queue.lines import closed


def update(world: QueueWorld, job: str, seen: int | None, **changes: Any) -> cmd.UpdateJob:
    """Return a change by a user who saw the job at a sequence."""
    return cmd.UpdateJob(id=world._id(), user="bob", job=job, unchanged_since=seen, **changes)


def applying(world: QueueWorld, seen: int | None, *paths: str, **more: Any) -> cmd.ApplyQueues:
    """Return a change of queues by a user who saw them at a sequence."""
    queues = tuple(QueueEntry(path=path, settings=QueueSettings(weight=world.asked + 2)) for path in paths)
    return cmd.ApplyQueues(id=world._id(), user="bob", queues=queues, unchanged_since=seen, **more)


def answer_to(world: QueueWorld, command: cmd.ApplyQueues) -> str:
    """Send a change of queues and return the code of its refusal; "" where it was carried out."""
    return code(next(each for each in world.ask(command) if isinstance(each, ev.QueuesApplied | ev.CommandRejected)))


def code(answer: Any) -> str:
    """Return the code of a refusal; "" for a command that was carried out."""
    return answer.code if isinstance(answer, ev.CommandRejected) else ""


def test_the_second_of_two_who_saw_the_same_changes_nothing() -> None:
    """In one commit as well as in two."""
    world = QueueWorld()
    job = world.submit(queue=closed(world))
    seen = len(world.log)
    assert code(world.one(update(world, job, seen, priority=60))) == ""
    late = world.one(update(world, job, seen, priority=70))
    assert code(late) == "changed_since" and f"at sequence {world.state.jobs[job].changed_seq}" in late.message
    seen = len(world.log)
    answers = world.ask(update(world, job, seen, priority=80), update(world, job, seen, priority=90))
    assert [code(each) for each in answers if each.cause.startswith("cmd:")] == ["", "changed_since"]
    assert [each.priority for each in world.said(ev.JobUpdated)] == [60, 80]


@pytest.mark.parametrize("change", ["hold", "release", "move", "update"])
def test_every_change_by_a_person_counts_and_a_start_does_not(change: str) -> None:
    """A snapshot keeps it."""
    world = QueueWorld()
    path = closed(world)
    job = world.submit(queue=path)
    if change == "release":
        world.hold(job)
    seen = len(world.log)
    if change == "move":
        world.configure("other")
        world.move(job, "other")
    elif change == "update":
        world.one(update(world, job, None, name="new"))
    else:
        getattr(world, change)(job)
    world.restart()
    assert code(world.one(update(world, job, seen, priority=60))) == "changed_since"
    other = world.submit()
    seen = len(world.log)
    world.run(other)
    assert code(world.one(update(world, other, seen, priority=60))) == ""


def test_queues_that_a_change_does_not_name_do_not_count() -> None:
    """Unless it prunes: then all of them do."""
    world = QueueWorld()
    world.tree(a={}, b={})
    seen = len(world.log)
    world.configure("b", weight=3)
    assert answer_to(world, applying(world, seen, "a")) == ""
    assert answer_to(world, applying(world, seen, "b")) == "changed_since"
    assert world.said(ev.CommandRejected)[-1].message.startswith("queues.b has changed at sequence")
    assert answer_to(world, applying(world, len(world.log), "a", "b")) == ""
    seen = len(world.log)
    world.configure("c")
    assert answer_to(world, applying(world, seen, "a", "b", prune=True)) == "changed_since"


def test_removed_queues_and_changed_pools_count() -> None:
    """A file does not restore a queue that was removed meanwhile."""
    world = QueueWorld()
    world.tree(a={}, b={})
    seen = len(world.log)
    world.remove("b")
    assert answer_to(world, applying(world, seen, "b")) == "changed_since"
    assert answer_to(world, applying(world, seen, "a", remove=(QueueRemoval(path="b"),))) == "changed_since"
    seen = len(world.log)
    world.pool("l40s", packing="spread")
    pools = (PoolEntry(pool="l40s", settings=PoolSettings()),)
    assert answer_to(world, applying(world, seen, pools=pools)) == "changed_since"
    assert answer_to(world, applying(world, len(world.log), pools=pools)) == ""


def test_two_files_in_one_commit() -> None:
    """The second is refused where it names what the first changes."""
    world = QueueWorld()
    world.tree(a={}, b={})
    seen = len(world.log)
    answers = world.ask(applying(world, seen, "a"), applying(world, seen, "a"), applying(world, seen, "b"))
    assert [code(each) for each in answers if isinstance(each, ev.QueuesApplied | ev.CommandRejected)] == [
        "",
        "changed_since",
        "",
    ]
    assert dump(load(dump(world.state))) == dump(world.state)
