"""Requests of more than one kind, parts of GPUs, and tasks: what enters, and what it is charged."""

from typing import Any

import pytest

from fairlead_schemas.queuefile.settings import MODEL_LABEL, Sharing
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request
from tests.kit.queue_world import QueueWorld


def replicas(count: int, **more: Any) -> Request:
    """So many replicas of GPUs that are sliced by time."""
    return Request(cpu_milli=1000, gpu_parts=count, replicas=True, **more)


def world_of(**pool: Any) -> QueueWorld:
    """Two nodes of two models, and a queue without limits."""
    world = QueueWorld()
    world.node("n1", gpus=8, model="a100")
    world.node("n2", gpus=4, model="h100")
    world.tree(default={})
    world.pool(**pool)
    return world


def of(model: str, nodes: int, gpus: int) -> Request:
    """Nodes of a model."""
    return Request(nodes=nodes, gpu_milli=gpus * 1000, cpu_milli=1000, selector=(f"{MODEL_LABEL}={model}",))


def both(nodes: int) -> Request:
    """One node of the first model, and others of the second."""
    return Request(gpu_milli=2000, cpu_milli=1000, selector=(f"{MODEL_LABEL}=a100",), also=(of("h100", nodes, 1),))


def rejected(world: QueueWorld, request: Request, **more: Any) -> ev.JobRejected:
    """A submit that must be refused."""
    answer = world.one(world.submission(request=request, **more))
    assert isinstance(answer, ev.JobRejected)
    return answer


def test_each_kind_is_charged_to_its_model() -> None:
    """Two GPU models in one job."""
    world = world_of()
    world.configure("default", maximum={"gpu:a100": 8_000, "gpu:h100": 3_000})
    world.submit(request=both(3))
    assert world.charged("default") == 5_000
    assert (world.charged("default", "gpu:a100"), world.charged("default", "gpu:h100")) == (2_000, 3_000)
    assert world.charged("default", "cpu") == 4_000
    waits = world.submit(request=both(1))
    assert world.of(waits) == "queued"
    assert world.said(ev.JobDeferred)[-1].resource == "gpu:h100"


def test_every_task_group_names_its_model_where_models_are_counted() -> None:
    """It could not be counted otherwise; a part of a name is not a model."""
    world = world_of()
    world.configure("default", maximum={"gpu:a100": 8_000})
    unnamed = Request(gpu_milli=1000, selector=(f"{MODEL_LABEL}=a100",), also=(Request(gpu_milli=1000),))
    vague = Request(gpu_milli=1000, selector=(f"{MODEL_LABEL}~A100",))
    assert [rejected(world, each).code for each in (unnamed, vague, replicas(1))] == ["model_needed"] * 3


def test_a_group_that_no_node_can_hold_is_named() -> None:
    """The other groups would fit."""
    answer = rejected(world_of(), Request(gpu_milli=8000, also=(of("h100", 1, 16),)))
    assert (answer.code, answer.field) == ("larger_than_any_node", "groups[0].resources.nvidia.com/gpu")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"gpu_milli": 1500}, "resources.nvidia.com/gpu"),
        ({"nodes": 2, "nodes_min": 3}, "nodes"),
        ({"require": ("shelf",)}, "topology.require"),
        ({"selector": ("a in (",)}, "nodeSelector"),
        ({"nodes": 4097, "tasks": True}, "tasks"),
    ],
)
def test_requests_that_break_the_rules_are_refused(fields: dict[str, Any], field: str) -> None:
    """Commands have other senders than the gateway, too."""
    answer = rejected(world_of(), Request(**fields))
    assert (answer.code, answer.field) == ("invalid", field)


def test_shares_and_instances_are_charged_as_parts_of_a_gpu() -> None:
    """Half a GPU; two instances of three sevenths each on each of two nodes; tasks."""
    world = world_of()
    world.submit(request=Request(gpu_milli=500, gpu_parts=1))
    assert world.charged("default") == 500
    world.submit(request=Request(nodes=2, gpu_milli=858, gpu_parts=2, profile="3g.20gb"))
    assert world.charged("default") == 500 + 2 * 858
    world.submit(request=Request(nodes=3, gpu_milli=1000, tasks=True))
    assert world.charged("default") == 500 + 2 * 858 + 3_000


def test_a_replica_is_charged_as_its_pool_says() -> None:
    """A quarter of a GPU where each has four; the accepted request says so, and it stays so."""
    world = world_of(sharing=Sharing(replicas=4))
    world.submit(request=replicas(2, nodes=2))
    assert world.charged("default") == 2 * 2 * 250
    assert world.said(ev.JobSubmitted)[-1].request.gpu_milli == 500
    world.pool(sharing=Sharing(replicas=8))
    assert world.charged("default") == 1_000


def test_replicas_need_a_setting_of_the_pool() -> None:
    """The refusal gives the setting."""
    answer = rejected(world_of(), replicas(1))
    assert (answer.code, answer.field) == ("not_shared", "resources.nvidia.com/gpu.shared")
    assert 'set "sharing: {replicas: 4}" for it in the queue file' in answer.message


def test_one_replica_on_each_node_where_the_pool_says_so() -> None:
    """Two might lie on one GPU."""
    world = world_of(sharing=Sharing(replicas=4, one_each=True))
    answer = rejected(world, replicas(2))
    assert (answer.code, answer.message[:19]) == ("one_each", "expected 1, found 2")
    world.submit(request=replicas(1, nodes=2))
    assert world.charged("default") == 500


def test_replicas_of_a_group_are_charged_too() -> None:
    """Each kind by itself."""
    world = world_of(sharing=Sharing(replicas=2))
    world.submit(request=Request(gpu_milli=1000, also=(replicas(1, nodes=2),)))
    assert world.charged("default") == 1_000 + 2 * 500
