"""Proposals to waiting jobs are tried: done exactly as proposed, they start the job."""

import re
from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest

from fairlead_queue.core import QueueCore
from fairlead_queue.explain.dry_run import dry_run
from fairlead_queue.explain.explain import explain
from fairlead_queue.waiting.pending import Array
from fairlead_schemas.http.api import SuggestedChange
from fairlead_schemas.queuefile.settings import MODEL_LABEL, Budget, QueueSettings
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import QueueWorld, request
from tests.queue.sentences import sentences
from tests.queue.spending import use

GPUS_PER_NODE = 8


def changes(world: QueueWorld, job: str, kind: str) -> list[SuggestedChange]:
    """Return the proposals of one kind; the query changes nothing."""
    before = world.core.snapshot()
    told = explain(world.state, world.state.jobs[job])
    assert world.core.snapshot() == before
    asked = world.state.jobs[job].lane.request_class.request
    return [change for change in sentences(asked, told) if change.kind == kind]


def messages(world: QueueWorld, job: str, kind: str) -> list[str]:
    return [change.message for change in changes(world, job, kind)]


def a_world(**queues: dict[str, Any]) -> QueueWorld:
    """Two nodes of 8 GPUs and 64 CPUs, and these queues."""
    world = QueueWorld(careful=False)
    world.node(gpus=8)
    world.node("n2", gpus=8)
    world.tree(**queues)
    return world


def test_limits_of_parent_queues_are_raised_too() -> None:
    """A parent's limit that also blocks the job is named with the queue's own maximum, or alone."""
    world = a_world(team={"maximum": {"gpu": 12_000}}, team__own={"maximum": {"gpu": 8000}})
    world.run(world.submit(8, queue="team/own"))
    waits = world.submit(8, queue="team/own")
    assert messages(world, waits, "quota") == [
        "could start now if team/own might hold 16 GPUs and team might hold 16 GPUs"
    ]
    # What is given back below is given back above.
    assert messages(world, waits, "wait") == ["starts when 8 GPUs of team/own are given back"]


def test_every_resource_that_is_short_is_named() -> None:
    """GPUs alone would not do where CPUs are at their limit, too."""
    world = a_world(team={"maximum": {"gpu": 8000, "cpu": 10_000}})
    world.run(world.submit(queue="team", request=request(8, cpu=8)))
    waits = world.submit(queue="team", request=request(4, cpu=8))
    assert messages(world, waits, "wait") == ["starts when 4 GPUs and 6 CPUs of team are given back"]
    assert messages(world, waits, "quota") == ["could start now if team might hold 12 GPUs and team might hold 16 CPUs"]


def test_jobs_ahead_take_freed_capacity_first() -> None:
    """The second in line is given the amount that both need."""
    world = a_world(team={"maximum": {"gpu": 4000}})
    world.run(world.submit(4, queue="team"))
    first, second = world.submit(4, queue="team"), world.submit(2, queue="team")
    assert messages(world, first, "quota") == ["could start now if team might hold 8 GPUs"]
    assert messages(world, second, "wait") == ["starts when 2 GPUs of team are left by the job before it"]
    assert messages(world, second, "quota") == ["could start now if team might hold 10 GPUs, with the job before it"]


def test_jobs_ahead_at_two_limits_are_counted_once() -> None:
    """For each limit the amount is what the job itself needs; the pool, which they fill by then, is not named."""
    world = a_world(team={"maximum": {"gpu": 12_000}}, team__own={"maximum": {"gpu": 8000}})
    world.run(world.submit(8, queue="team/own"))
    world.submit(8, queue="team/own")
    assert messages(world, world.submit(8, queue="team/own"), "wait") == [
        "starts when 8 GPUs of team/own and 8 GPUs of team are left by the job before it"
    ]


def test_an_open_offer_does_not_block_itself() -> None:
    """Its queue is full of the job itself, which fits nowhere: a smaller request would."""
    world = a_world(team={"maximum": {"gpu": 8000}}, other={})
    world.run(world.submit(5, queue="other"), world.submit(5, queue="other"))
    waits = world.submit(8, queue="team")
    world.refuse(waits)
    assert world.of(waits) == "offered"
    assert messages(world, waits, "smaller") == ["could start now with 6 GPUs instead of 8"]


def test_capacity_kept_for_others_is_not_freed_by_a_borrowers_end() -> None:
    """A run of a queue that keeps its guarantee may end, and still nothing more is left for its sibling."""
    world = a_world(
        team={"maximum": {"gpu": 6000}}, team__own={}, team__keeps={"guaranteed": {"gpu": 3000}, "lending": {"gpu": 0}}
    )
    world.run(world.submit(1, queue="team/keeps"))
    world.run(world.submit(1, queue="team/own"))
    assert messages(world, world.submit(3, queue="team/own"), "wait") == [
        "starts when 1 GPU more of team is left to lend"
    ]


def test_a_limit_on_borrowing_is_named_as_such() -> None:
    """Raising a maximum that is not the limit would start nothing."""
    world = a_world(team={"guaranteed": {"gpu": 4000}, "borrowing": {"gpu": 2000}, "maximum": {"gpu": 7000}})
    world.run(world.submit(6, queue="team"))
    assert messages(world, world.submit(1, queue="team"), "quota") == ["could start now if team might borrow 3 GPUs"]
    assert messages(world, world.submit(2, queue="team", priority=90), "quota") == [
        "could start now if team might hold 8 GPUs and borrow 4 GPUs"
    ]


def test_no_other_queue_is_named_that_would_refuse_the_move_or_keep_it_waiting() -> None:
    """One whose budget is spent, one that counts GPUs by model, and any at all for an array that has begun."""
    world = a_world(
        team={"maximum": {"gpu": 2000}},
        poor={"budget": Budget(gpu_milli_s=1)},
        exact={"maximum": {"gpu:A100": 8000}},
    )
    use(world, 1, 1, "poor")
    world.run(world.submit(1, queue="team"))
    waits = world.submit(2, queue="team")
    assert [change.queue for change in changes(world, waits, "other_queue")] == ["default"]
    model = world.submit(queue="team", request=request(2, model="A100"))
    assert MODEL_LABEL in world.state.jobs[model].lane.request_class.request.selector[0]
    array = world.state.jobs[world.submit(1, queue="team", array=(0, 3))]
    world.settle()
    assert isinstance(array, Array) and array.live, "one of it has begun"
    assert changes(world, array.id, "other_queue") == []


def test_a_users_part_of_a_queue_is_named_as_such() -> None:
    """By the queue's path and the user's name, not by the internal name in the tree."""
    world = a_world(team={"users": {"*": {"gpu": 2000}}})
    world.run(world.submit(1, queue="team"))
    (own,) = dry_run(world.state, world.submission(1, queue="team"), world.now).quota
    assert (own.queue, own.user, own.used, own.after, own.maximum) == ("team", "ada", 1000, 2000, 2000)


# ---------------------------------------------------------------------------------------- any tree


def _tree(random: Random) -> dict[str, dict[str, Any]]:
    """Two teams of two queues, limited at random."""

    def limits() -> dict[str, Any]:
        found: dict[str, Any] = {}
        if random.random() < 0.6:
            found["maximum"] = {"gpu": random.randint(1, 12) * 1000}
        if random.random() < 0.3:
            found.setdefault("maximum", {})["cpu"] = random.randint(2, 24) * 1000
        if random.random() < 0.3:
            guaranteed = random.randint(1, min(4, found.get("maximum", {}).get("gpu", 4000) // 1000)) * 1000
            found["guaranteed"] = {"gpu": guaranteed}
            if random.random() < 0.5:
                found["borrowing"] = {"gpu": random.randint(0, 4) * 1000}
            if random.random() < 0.4:
                found["lending"] = {"gpu": random.randint(0, guaranteed // 1000) * 1000}
        return found

    tree: dict[str, dict[str, Any]] = {"shared": limits()}
    for team in ("a", "b"):
        tree[team] = {key: value for key, value in limits().items() if key == "maximum"}
        for name in ("x", "y"):
            own = limits()
            if random.random() < 0.2:
                own["users"] = {"*": {"gpu": random.randint(1, 4) * 1000}}
            tree[f"{team}__{name}"] = own
    return tree


def _busy_world(seed: int) -> QueueWorld | None:
    """Random queues with random jobs, of which all that may run; None where the tree is refused."""
    random = Random(seed)
    world = QueueWorld(careful=False)
    for n in range(3):
        world.node(f"n{n}", gpus=GPUS_PER_NODE)
    if not hasattr(world.tree(**_tree(random)), "configured"):
        return None
    leaves = ["a/x", "a/y", "b/x", "b/y", "shared", "default"]
    for _ in range(random.randint(6, 16)):
        world.submit(
            queue=random.choice(leaves),
            user=random.choice(("ada", "bob")),
            priority=random.choice((50, 50, 60)),
            request=request(random.randint(1, 4), cpu=random.randint(1, 6)),
        )
        world.settle()
        for job in [job for job in world.state.jobs.values() if job.open]:
            pool = job.lane.request_class.pool
            if all(used <= most for used, most in zip(pool.tree.root.usage, pool.tree.capacity, strict=True)):
                world.run(job.id)
            else:
                world.refuse(job.id)
    world.settle()
    return world


def _copy(world: QueueWorld) -> QueueWorld:
    """The same world once more."""
    again = QueueWorld(careful=False)
    again.core, again.now, again.asked = QueueCore.restore(world.core.snapshot()), world.now, world.asked
    again.log = list(world.log)
    return again


def _give_back(world: QueueWorld, message: str) -> bool:
    """Runs end until as much of one resource is free as "starts when 3 GPUs of ada in a/x are given back" says."""
    found = re.fullmatch(r"starts when (\d+) (GPU|CPU)s? of (?:(\w+) in )?(\S+) (?:is|are) given back", message)
    if found is None or any(job.open for job in world.state.jobs.values()):
        return False  # offers that wait for a place have a claim on what comes free
    left, user, queue = int(found[1]) * 1000, found[3], found[4]
    for job in list(world.state.jobs.values()):
        leaf, asked = job.lane.leaf, job.lane.request_class.request
        path = leaf.queue.path
        if job.state == "running" and left > 0 and f"{path}/".startswith(f"{queue}/") and user in (None, job.user):
            left -= asked.gpu_milli if found[2] == "GPU" else asked.cpu_milli
            world.end(job.id)
    return left <= 0


def _raise(world: QueueWorld, message: str) -> None:
    """Do what "could start now if a/x might hold 8 GPUs and borrow 3 GPUs and a might hold 9 CPUs" says."""
    queue = ""
    for named, verb, amount, unit in re.findall(r"(?:(\S+) might )?(hold|borrow) (\d+) (GPU|CPU)s?", message):
        queue = named or queue
        settings: QueueSettings = world.state.queues[queue].settings
        field, resource = "maximum" if verb == "hold" else "borrowing", unit.lower()
        changed = {**getattr(settings, field), resource: int(amount) * 1000}
        answer = world.configure(queue, **msgspec.structs.asdict(msgspec.structs.replace(settings, **{field: changed})))
        assert hasattr(answer, "configured"), answer


@pytest.mark.slow
def test_random_worlds_propose_changes_of_every_kind() -> None:
    """The worlds of the test below have waiting jobs, and the proposals that it tries."""
    worlds = [world for seed in range(60) if (world := _busy_world(seed)) is not None]
    kinds = Counter(
        change.kind
        for world in worlds
        for job in world.state.jobs.values()
        if job.wait == "line"
        for change in explain(world.state, job).changes
    )
    assert len(worlds) >= 30
    assert kinds.keys() >= {"other_queue", "smaller", "quota", "wait"}
    assert kinds.total() >= 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_every_proposed_change_starts_the_job(seed: int) -> None:
    """Random trees, full of random jobs: after a move, a smaller request, raised limits, or the release that is
    proposed, each waiting job is offered."""
    busy = _busy_world(seed)
    if busy is None:
        return
    for id_ in [job.id for job in busy.state.jobs.values() if job.wait == "line"]:
        waits = busy.state.jobs[id_]
        for change in sentences(waits.lane.request_class.request, explain(busy.state, waits)):
            world, tried = _copy(busy), id_
            job = world.state.jobs[id_]
            asked, user, queue = job.lane.request_class.request, job.user, job.lane.leaf.queue.path
            match change.kind:
                case "other_queue":
                    world.move(id_, change.queue)
                case "smaller":
                    tried = world.submit(
                        queue=queue, user=user, request=msgspec.structs.replace(asked, gpu_milli=change.amount)
                    )
                case "quota":
                    _raise(world, change.message)
                case _ if not _give_back(world, change.message):
                    continue
            others = [event for event in world.pass_time() if isinstance(event, ev.JobOffered)]
            # Whoever gives something back may be the next to whom it is due.
            taken = change.kind == "wait" and others
            assert world.of(tried) == "offered" or taken, f"job {id_}: {change.message}"


@pytest.mark.parametrize("seed", range(60))
def test_a_dry_run_predicts_the_submit(seed: int) -> None:
    """The submitted job waits or is offered as predicted, and the predicted quota is charged."""
    busy = _busy_world(seed)
    if busy is None:
        return
    random = Random(seed)
    for _ in range(8):
        world = _copy(busy)
        queue = random.choice(["a/x", "a/y", "b/x", "b/y", "a", "nope", "shared", "default"])
        asked = request(random.randint(1, 9), cpu=random.randint(1, 6))
        submission = world.submission(queue=queue, user=random.choice(("ada", "bob")), request=asked)
        told = dry_run(world.state, submission, world.now)
        (answer,) = [e for e in world.ask(submission) if isinstance(e, ev.JobSubmitted | ev.JobRejected)]
        assert told.code == (answer.code if isinstance(answer, ev.JobRejected) else "")
        if isinstance(answer, ev.JobRejected):
            assert (told.message, told.field) == (answer.message, answer.field)
            continue
        world.settle()
        assert told.waits is not None
        offered = world.of(answer.job) == "offered"
        assert offered == (told.waits.reason in ("next", "place")), told.waits
        for one in told.quota if offered else ():
            assert one.user or world.charged(one.queue, one.resource) == one.after
