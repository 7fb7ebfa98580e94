"""Jobs that take as many nodes as can be had: charged for the most with the offer, for what they got with the placement."""

from typing import Any

import msgspec

from fairlead_schemas.queuefile.settings import MODEL_LABEL, Preemption
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request
from tests.kit.queue_world import SECOND, QueueWorld, request
from tests.queue.spending import HOUR, at, budget, marks


def elastic(most: int, least: int, gpus: int = 1, **more: Any) -> Request:
    """So many nodes at most and at least, of so many GPUs each."""
    return msgspec.structs.replace(request(gpus, nodes=most, **more), nodes_min=least)


def world_of(**queues: dict[str, Any]) -> QueueWorld:
    """A node of 8 GPUs, and queues with these settings."""
    world = QueueWorld()
    world.node(gpus=8, cpu=64)
    world.tree(**queues)
    return world


def place(world: QueueWorld, job: str, nodes: int) -> None:
    """It gets so many nodes, and starts."""
    parts = tuple(ev.Part(node="n1", gpus=(f"g{at}",)) for at in range(nodes))
    world.says(ev.JobPlaced(cause="1.0", job=job, attempt=world.attempt(job), parts=parts))
    world.start(job)


def test_it_is_charged_for_what_it_got() -> None:
    """Until its end; what it did not get others may have at once."""
    world = world_of(q={"maximum": {"gpu": 8_000}})
    job = world.submit(queue="q", request=elastic(8, 2))
    assert world.charged("q") == 8_000
    other = world.submit(5, queue="q")
    assert world.of(other) == "queued"
    place(world, job, 3)
    assert (world.charged("q"), world.charged("q", "cpu"), world.charged("q", "memory")) == (3_000, 3_000, 3 * 1024)
    world.settle()
    assert world.of(other) == "offered"
    assert world.charged("q") == 8_000
    world.end(job)
    assert world.charged("q") == 5_000


def test_an_elastic_gang_is_charged_in_full() -> None:
    """If it got its largest size."""
    world = world_of(q={})
    job = world.submit(queue="q", request=elastic(8, 2))
    place(world, job, 8)
    assert world.charged("q") == 8_000
    world.end(job)
    assert world.charged("q") == 0


def test_another_attempt_asks_for_all_of_it_again() -> None:
    """A node was lost: the next offer is charged for the most."""
    world = world_of(q={})
    job = world.submit(queue="q", request=elastic(8, 2))
    place(world, job, 3)
    world.end(job, None, "node_lost")
    world.pass_time(600)
    assert (world.of(job), world.attempt(job), world.charged("q")) == ("offered", 2, 8_000)
    place(world, job, 5)
    assert world.charged("q") == 5_000


def test_a_rebuilt_pool_charges_what_it_holds() -> None:
    """With another sequencer, or with a model that is limited for the first time: the model's GPUs are counted the
    same."""
    world = QueueWorld()
    world.node(gpus=8, model="a100")
    world.tree(q={})
    job = world.submit(queue="q", request=elastic(6, 1, model="a100"))
    place(world, job, 2)
    world.pool(sequencer="fifo")
    assert world.charged("q") == 2_000
    world.configure("q", maximum={"gpu:a100": 4_000})
    assert world.charged("q", "gpu:a100") == 2_000
    assert f"{MODEL_LABEL}=a100" in world.state.jobs[job].lane.request_class.request.selector
    world.end(job)
    assert world.charged("q", "gpu:a100") == 0


def test_groups_keep_what_they_ask_for() -> None:
    """Only the first kind is elastic."""
    world = world_of(q={})
    group = Request(nodes=1, gpu_milli=2_000, cpu_milli=1_000)
    job = world.submit(queue="q", request=msgspec.structs.replace(elastic(4, 1), also=(group,)))
    assert world.charged("q") == 6_000
    place(world, job, 3)  # two of the first kind, and the group
    assert world.charged("q") == 4_000


def test_a_preempted_elastic_run_releases_what_it_holds() -> None:
    """A run of two nodes does not help a job that needs four, and loses what it has used."""
    world = world_of(q={"preemption": Preemption(protect_ns=0)})
    job = world.submit(queue="q", request=elastic(8, 1), priority=10)
    place(world, job, 2)
    rest = world.submit(4, queue="q")
    place(world, rest, 1)
    world.now += 100 * SECOND
    wants = world.submit(4, queue="q", priority=60)
    world.refuse(wants)
    world.pass_time(2)
    (asked,) = world.said(ev.PreemptionRequested)
    assert {victim.job: victim.gpu_s for victim in asked.victims} == {job: 204, rest: 408}


def test_a_budget_counts_what_it_holds() -> None:
    """Two of eight GPUs for five hours are ten GPU-hours."""
    world = QueueWorld()
    world.now = at(2026, 5, 1)
    world.node("n1", gpus=8)
    world.tree(q={"budget": budget(10)})
    job = world.submit(queue="q", request=elastic(8, 2))
    place(world, job, 2)
    world.pass_time(4.1 * HOUR)
    assert marks(world) == [("q", 80, 8)]
    world.end(job)
