"""Admission: queues, sizes, idempotency, and invalid commands."""

from typing import Any

import pytest

from fairlead_bus.core import UNDECODABLE_CHARS_MAX
from fairlead_queue.limits import FINISHED_JOBS_MAX, KEYS_MAX, RETIRE_CHUNK
from fairlead_schemas.queuefile.settings import QueueEntry, QueueSettings
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request
from tests.kit.queue_world import QueueWorld, kinds, request


def rejection(world: QueueWorld, **more: Any) -> ev.JobRejected:
    """The refusal of a submit; nothing else may happen."""
    before = world.core.snapshot()
    (event,) = world.ask(world.submission(**more))
    assert isinstance(event, ev.JobRejected)
    assert world.core.snapshot() == before
    return event


def test_an_unknown_queue_is_refused_with_the_known_ones() -> None:
    """The field is named, and what could have been meant."""
    world = QueueWorld()
    world.quota("research/vision", 8)
    refused = rejection(world, queue="reserch", id="c-9")
    assert (refused.code, refused.field, refused.command, refused.user) == ("unknown_queue", "queue", "c-9", "ada")
    assert (
        refused.message
        == 'no queue "reserch"; expected one of: default, research/vision; did you mean research/vision?'
    )
    meant = rejection(world, queue="reserch/vision")
    assert meant.message.endswith("expected one of: default, research/vision; did you mean research/vision?")


def test_a_refused_submit_says_what_was_wanted() -> None:
    """Refused demand stays in the log, so that a replay under other limits can count it; the bytes of the largest one fit its commit."""
    world = QueueWorld()
    world.quota("research", 8)
    wanted = request(4)
    refused = rejection(world, queue="reserch", request=wanted, total_ns=7, array=(0, 3), project="llm")
    assert (refused.queue, refused.request, refused.total_ns) == ("reserch", wanted, 7)
    assert (refused.array, refused.project) == ((0, 3), "llm")


def test_a_refused_command_says_what_it_was_about() -> None:
    """The type of the command and the job that it names, cut to a bounded length."""
    world = QueueWorld()
    for job in ("9", "x" * 500):
        (event,) = world.ask(cmd.CancelJob(id="c-1", user="ada", job=job))
        assert isinstance(event, ev.CommandRejected)
        assert (event.verb, event.about) == ("CancelJob", job[:80])


def test_a_queue_can_be_used_by_the_next_command_of_the_message() -> None:
    """Configured and submitted to in one message; the offer follows one cycle later."""
    world = QueueWorld()
    configure = cmd.ApplyQueues(id="a", queues=(QueueEntry(path="new", settings=QueueSettings()),))
    decided = world.ask(configure, world.submission(queue="new"))
    assert kinds(decided) == ["QueueConfigured", "QueuesApplied", "JobSubmitted"]
    assert kinds(world.settle()) == ["JobOffered"]


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        (request(9), "resources.nvidia.com/gpu", "asks for 9 GPUs per node; the largest node has 8"),
        (request(0, cpu=129), "resources.cpu", "asks for 129 CPUs per node; the largest node has 128"),
        (request(0, memory_mib=2**21), "resources.memory", "asks for 2Ti of memory per node; the largest node has 1Ti"),
        (request(8, cpu=128), "resources", "asks for 8 GPUs, 128 CPUs and 1Gi per node; no single node has all of it"),
    ],
)
def test_more_than_any_node_has_is_refused_with_the_numbers(asked: Request, field: str, words: str) -> None:
    """It could never run; the refusal names the first amount that is too large."""
    world = QueueWorld()
    world.node("gpus", gpus=8, cpu=64, memory_mib=2**19)
    world.node("cpus", gpus=0, cpu=128, memory_mib=2**20)
    refused = rejection(world, request=asked)
    assert (refused.code, refused.field, refused.message) == ("larger_than_any_node", field, words)


def test_more_than_the_cluster_has_now_is_accepted() -> None:
    """A gang of more nodes than there are, or anything while no node is known, waits."""
    world = QueueWorld()
    assert world.of(world.submit(64)) == "offered"
    world.node(gpus=8)
    assert world.of(world.submit(request=request(8, nodes=100))) == "offered"


def test_a_lost_node_still_counts() -> None:
    """It may come back; jobs that fit it are not refused meanwhile."""
    world = QueueWorld()
    world.node(gpus=8)
    world.says(ev.NodeLost(cause="clock", node="n1", silent_ns=1))
    assert world.of(world.submit(8)) == "offered"


def test_a_removed_node_does_not_count() -> None:
    """A request that only this node could hold is refused."""
    world = QueueWorld()
    world.node("n1", gpus=8)
    world.node("n2", gpus=4)
    world.says(ev.NodeRemoved(cause="cmd:1", node="n1"))
    [rejected] = world.ask(world.submission(8))
    assert isinstance(rejected, ev.JobRejected)


def test_a_changed_node_counts_as_it_is_now() -> None:
    """A GPU was taken out: what needs it is refused from here on."""
    world = QueueWorld()
    world.node(gpus=8)
    world.node(gpus=7)
    assert rejection(world, request=request(8)).code == "larger_than_any_node"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"priority": 1001}, "priority"),
        ({"priority": -1}, "priority"),
        ({"retries": 101}, "retries.max"),
        ({"array": (0, 100_000)}, "array"),
        ({"array": (5, 4)}, "array"),
        ({"total_ns": -1}, "time.total"),
        ({"request": Request(nodes=0)}, "nodes"),
        ({"request": Request(gpu_milli=-1)}, "resources.nvidia.com/gpu"),
    ],
)
def test_numbers_out_of_range_are_refused(more: dict[str, object], field: str) -> None:
    """Commands do not only come from the gateway; ranks and sums must stay 64-bit integers."""
    refused = rejection(QueueWorld(), **more)
    assert (refused.code, refused.field) == ("invalid", field)


def test_a_repeated_idempotency_key_returns_the_first_job() -> None:
    """Same key, same content: one job, in the same message or a later one."""
    world = QueueWorld()
    first, again, _ = world.ask(world.submission(key="k", digest="d"), world.submission(key="k", digest="d", id="b"))
    assert again == ev.CommandRepeated(cause="cmd:b", command="b", job=first.job)
    (later,) = world.ask(world.submission(key="k", digest="d", id="c"))
    assert later == ev.CommandRepeated(cause="cmd:c", command="c", job=first.job)


def test_a_key_with_another_content_is_a_conflict() -> None:
    """Neither job is silently the other."""
    world = QueueWorld()
    world.submit(key="k", digest="d")
    refused = rejection(world, key="k", digest="e")
    assert (refused.code, "job 1" in refused.message) == ("idempotency_conflict", True)


def test_a_refused_submit_does_not_use_up_its_key() -> None:
    """Mended, it may be sent again under the same key."""
    world = QueueWorld()
    rejection(world, key="k", digest="d", queue="nowhere")
    world.submit(key="k", digest="e")


def test_the_oldest_key_is_forgotten_at_the_bound() -> None:
    """Memory does not grow with submits; a newer key is still known."""
    world = QueueWorld(careful=False)
    for number in range(KEYS_MAX + 1):
        world.state.remember_key(f"k{number}", "1", "d")
    assert len(world.state.keys) == KEYS_MAX
    assert kinds(world.ask(world.submission(key="k1", digest="d"))) == ["CommandRepeated"]
    assert "JobSubmitted" in kinds(world.ask(world.submission(key="k0", digest="d")))


def test_a_command_that_cannot_be_decoded_is_recorded_and_the_rest_goes_on() -> None:
    """Rejected with its digest; its neighbours are decided."""
    world = QueueWorld()
    poison = cmd.Undecodable(digest="ab" * 32, message="x" * 9000)
    rejected, submitted, _ = world.ask(poison, world.submission())
    assert (rejected.code, rejected.command, rejected.digest) == ("undecodable", "", "ab" * 32)
    assert rejected.cause == "cmd:abababababababab"
    assert len(rejected.message) == UNDECODABLE_CHARS_MAX
    assert isinstance(submitted, ev.JobSubmitted)


def test_a_bad_queue_setting_is_rejected() -> None:
    """A path that is none, a quota below zero."""
    world = QueueWorld()
    assert world.quota("No Such", 1).code == "invalid"
    assert world.quota("fine", -1).code == "invalid"


def test_finished_jobs_are_retired_oldest_first() -> None:
    """State keeps the last ten thousand or so, in chunks; a retired job is not found."""
    world = QueueWorld(careful=False)
    while len(world.state.finished) <= FINISHED_JOBS_MAX:
        world.ask(*(world.submission() for _ in range(200)))
        world.settle()
        jobs = world.offered()
        world.run(*jobs)
        for job in jobs:
            world.end(job)
        world.step()
    retired = next(event for event in world.settle() if isinstance(event, ev.JobsRetired))
    assert retired.jobs == tuple(str(number) for number in range(1, RETIRE_CHUNK + 1))
    assert world.cancel("1").code == "not_found"
    assert world.cancel(str(RETIRE_CHUNK + 1)).code == "conflict"


def test_a_full_message_fits_one_commit() -> None:
    """400 commands are answered in one commit within both bounds, with as many offers as fit."""
    world = QueueWorld()
    world.ask(*(world.submission(array=(0, 1)) for _ in range(400)))
    events = world.settle()
    assert kinds(events).count("JobOffered") == 800


def test_messages_from_elsewhere_cannot_burst_a_commit() -> None:
    """Runs that end with long messages of wide characters, and a message of nothing but poison: within both bounds."""
    world = QueueWorld(careful=False)
    jobs = [world.submit() for _ in range(500)]
    world.place(*jobs)
    for job in jobs:
        world.end(job, 1, message="\U0001f4a5" * 500)
    poison = [cmd.Undecodable(digest="ab" * 32, message="\u00e9" * 9000) for _ in range(400)]
    world.ask(*poison)
    world.settle()
    assert set(world.state.finished.values()) == {"failed"}
    assert len(world.state.finished) == 500
