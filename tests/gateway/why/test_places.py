"""Reasons without a placement, from the placer's own core to the sentence: each cause with its numbers and its remedy."""

from typing import Any

import pytest

from bench.vectors.allocation import descriptions
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import NodeRow
from fairlead_gateway.why import free_resources
from fairlead_gateway.why.dominant_reason import reason_of
from fairlead_gateway.why.explanation import explained, proposed_changes
from fairlead_gateway.why.free_resources import JobPool
from fairlead_placer.cluster.capacity.node_shape import REPLICAS_LABEL, SHARING_LABEL
from fairlead_schemas.http.api import Reason, SuggestedChange
from fairlead_schemas.queries.explainer import Explanation
from fairlead_schemas.queuefile.settings import MODEL_LABEL
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CordonNode, DrainNode, QuarantineNode, TaintNode
from fairlead_schemas.wire.reports import HealthSeen
from fairlead_schemas.wire.resources import Request
from tests.gateway.placer_views import cluster, join, views_of
from tests.kit.placer_world import PlacerWorld, request

GEFORCE = descriptions()["rtx4090x8-pcie"]
H100 = {MODEL_LABEL: "NVIDIA-H100-80GB-HBM3"}
RESERVED = 1_000_000_000


def why(world: PlacerWorld, job: str) -> Reason:
    """The reason of a job that waits."""
    views = views_of(world)
    return reason_of(views, views.jobs.rows[job], world.now)


def changes(views: Views, job: str) -> list[SuggestedChange]:
    """What is proposed for a job that has its turn and finds no place."""
    return proposed_changes(JobPool(views, views.jobs.rows[job].request, job), Explanation(reason="place"))


def refused(world: PlacerWorld, wanted: Request) -> Reason:
    """The same of one that is offered now, and fits nowhere."""
    events = world.offer(wanted)
    assert any(isinstance(event, ev.JobUnplaceable) for event in events), events
    return why(world, str(world.jobs))


def test_fragmentation() -> None:
    """Enough are free in all, and no node has as many together: which has how many."""
    world = cluster(4)
    for _ in range(4):
        world.offer(request(4, cpu=60))
    reason = refused(world, request(8))
    assert reason.code == "no_place"
    assert reason.message.startswith(
        "needs 8 GPUs on one node; of 4 nodes 4 lack free GPUs; "
        "16 GPUs are free, no node has 8 together: n1 4, n2 4, n3 4, n4 4"
    )
    assert (reason.detail["free_gpus"], reason.detail["most_free_gpus"]) == (16, 4)


def test_one_answer_looks_at_each_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason and the proposals go by the same free resources."""
    world = cluster(4)
    for _ in range(4):
        world.offer(request(5, cpu=60))
    world.offer(request(8))
    views, seen = views_of(world), list[str]()
    count = free_resources.free_on_node

    def counted(row: NodeRow, *more: Any) -> free_resources.NodeFreeResources:
        seen.append(row.id)
        return count(row, *more)

    monkeypatch.setattr(free_resources, "free_on_node", counted)
    reason, found = explained(views, views.jobs.rows["5"], world.now, Explanation(reason="place"))
    assert "no node has 8 together: n1 3, n2 3, n3 3, n4 3" in reason.message
    assert [change.message for change in found] == [
        "starts when 8 GPUs are free on one node",
        "could start now with 3 GPUs instead of 8",
    ]
    assert sorted(seen) == ["n1", "n2", "n3", "n4"]


def test_fragmentation_proposes_what_would_fit() -> None:
    """As many GPUs as one node has free now."""
    world = cluster(2)
    for _ in range(2):
        world.offer(request(5, cpu=60))
    refused(world, request(8, cpu=4))
    views = views_of(world)
    told = changes(views, "3")
    assert [(change.kind, change.amount) for change in told] == [("wait", 8000), ("smaller", 3000)]
    assert told[1].message == "could start now with 3 GPUs instead of 8"


def test_nothing_is_free() -> None:
    """The reason has no further detail."""
    world = cluster(1)
    world.offer(request(8))
    reason = refused(world, request(1))
    assert reason.message == "needs 1 GPU on one node; of 1 node 1 lacks free GPUs; n1 fits after job 1 ends"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (request(4, cpu=40), "2 lack free CPUs; the most that is left on one of them with free GPUs is 24 CPUs, on n2"),
        (
            request(4, memory_gib=500),
            "2 lack free memory; the most that is left on one of them with free GPUs is 412Gi of memory, on n1",
        ),
        (request(0, cpu=40), "2 lack free CPUs; the most that is left on one of them is 24 CPUs, on n2"),
    ],
)
def test_gpus_are_free_and_cpus_or_memory_are_not(wanted: Request, said: str) -> None:
    """The best node's remainder of the missing resource is given."""
    world = cluster(2)
    world.offer(request(4, cpu=50, memory_gib=100))
    world.offer(request(4, cpu=40, memory_gib=200))
    assert said in refused(world, wanted).message


def test_a_gang_that_fits_some_nodes_only() -> None:
    """The number of nodes with enough is given."""
    world = cluster(3)
    world.offer(request(4, nodes=2, cpu=60))
    reason = refused(world, request(8, nodes=2))
    assert "16 GPUs are free, 8 or more on 1 of the nodes: n3 8, n1 4, n2 4" in reason.message
    assert reason.detail["nodes_with_enough"] == 1


def test_another_model() -> None:
    """The requested model and the available ones."""
    reason = refused(cluster(3, labels=H100), request(1, selector=(f"{MODEL_LABEL}~A100",)))
    assert (
        "3 have another GPU model; asks for A100; the cluster has 3 nodes with NVIDIA-H100-80GB-HBM3 GPUs"
        in reason.message
    )
    assert reason.detail["models.NVIDIA-H100-80GB-HBM3"] == 3
    assert "ask for a model that the pool has" in str(reason.detail["next"])


def test_another_label() -> None:
    """The requirement, the number of nodes without it, and their values."""
    reason = refused(cluster(2, labels={"zone": "a"}), request(1, selector=("zone=b",)))
    assert "asks for zone=b, which 2 of 2 nodes do not have; of zone there are a (2)" in reason.message


def test_a_node_that_is_not_there() -> None:
    """The answer lists the nodes of the cluster."""
    reason = refused(cluster(2), request(1, selector=("fairlead/node in (n7)",)))
    told = "asks for fairlead/node in (n7), which 2 of 2 nodes do not have; of fairlead/node there are n1 (1), n2 (1)"
    assert told in reason.message


def test_a_taint() -> None:
    """The taint, the number of nodes, and the toleration that helps."""
    world = cluster(2)
    for name in ("n1", "n2"):
        world.command(TaintNode(id=name, node=name, taint="team=vision:NoSchedule"))
    reason = refused(world, request(1))
    assert "2 nodes have the taint team=vision:NoSchedule" in reason.message
    assert (reason.detail["taint"], reason.detail["tainted"]) == ("team=vision:NoSchedule", 2)
    assert "--toleration team=vision:NoSchedule" in str(reason.detail["next"])
    views = views_of(world)
    told = changes(views, "1")
    assert [change.kind for change in told] == ["request"], "waiting ends no taint"
    assert "--toleration team=vision:NoSchedule" in told[0].message


def test_the_proposed_toleration_helps() -> None:
    """The proposal of `next` leads to a placement."""
    world = cluster(1, taints=("team=vision:NoSchedule",))
    refused(world, request(1))
    events = world.offer(request(1, tolerations=("team=vision:NoSchedule",)))
    assert any(isinstance(event, ev.JobPlaced) for event in events)


def test_a_numa_request_that_no_node_can_hold() -> None:
    """The most that one NUMA node has is given."""
    reason = refused(cluster(1, inside=GEFORCE, cpu=224), request(5, require=("numa",)))
    assert "1 never has that close together" in reason.message
    assert (
        "asks for 5 GPUs and 1 CPU on one NUMA node; no NUMA node of the cluster has more than 4 GPUs and 112 CPUs"
        in reason.message
    )
    assert (reason.detail["numa_gpus"], reason.detail["numa_cpus"]) == (4, 112)


def test_cpus_that_no_numa_node_has() -> None:
    """The GPUs suffice; CPUs on their NUMA node do not."""
    reason = refused(cluster(1, inside=GEFORCE, cpu=224), request(2, cpu=120, require=("numa",)))
    assert "asks for 2 GPUs and 120 CPUs on one NUMA node" in reason.message and "112 CPUs" in reason.message


def test_numa_that_is_not_free() -> None:
    """GPUs are free on both NUMA nodes, and not enough on one."""
    world = cluster(1, inside=GEFORCE, cpu=224)
    for _ in range(2):
        world.offer(request(3, cpu=8, require=("numa",)))
    reason = refused(world, request(2, require=("numa",)))
    assert "no node has 2 GPUs and 1 CPU free on one NUMA node, free on NUMA nodes: n1 1 + 1" in reason.message
    assert "only prefer it (topology.prefer: numa)" in str(reason.detail["next"])


def test_a_rack_that_is_large_enough_may_be_freed() -> None:
    """The wait is for one rack; until then the number that fits the best one would do."""
    world = PlacerWorld()
    for at in range(4):
        join(world, f"n{at}", labels={"fairlead/rack": f"r{at // 2}"})
    for rack in ("r0", "r1"):
        world.offer(request(5, selector=(f"fairlead/rack={rack}",)))
    reason = refused(world, request(8, nodes=2, require=("rack",)))
    views = views_of(world)
    told = changes(views, "3")
    assert told[0].message == "starts when 8 GPUs are free on each of 2 nodes of one rack"
    assert "no rack takes 2 nodes: the best takes 1; of 4 nodes 2 lack free GPUs, 2 could take part" in reason.message
    assert str(reason.detail["next"]).startswith("ask for 1 node, or only prefer one rack")


def test_no_rack_is_large_enough() -> None:
    """Waiting does not help: the size of the largest is proposed, although other jobs hold it now."""
    world = PlacerWorld()
    for at in range(4):
        join(world, f"n{at}", labels={"fairlead/rack": f"r{at // 2}"})
    world.offer(request(8))
    refused(world, request(8, nodes=3, require=("rack",)))
    views = views_of(world)
    (told,) = changes(views, "2")
    assert told.kind == "request" and told.message.startswith("ask for 2 nodes, or only prefer one rack")


def test_links_that_no_node_has() -> None:
    """NVLink where there is none."""
    reason = refused(cluster(2, inside=GEFORCE, cpu=224), request(2, require=("nvlink",)))
    assert "asks for 2 GPUs and 1 CPU connected by NVLink; the cluster has no such GPUs" in reason.message


def test_no_rack_takes_the_gang() -> None:
    """The number that fits the best one comes first; the pool would take the gang."""
    world = PlacerWorld()
    for rack, size in (("r1", 3), ("r2", 2)):
        for at in range(size):
            join(world, f"{rack}n{at}", labels={"fairlead/rack": rack})
    reason = refused(world, request(8, nodes=4, require=("rack",)))
    assert reason.message.startswith(
        "needs 8 GPUs on each of 4 nodes; no rack takes 4 nodes: the largest has 3; of 5 nodes 5 could take part"
    )
    assert (reason.detail["level"], reason.detail["needed"], reason.detail["best"]) == ("rack", 4, 3)
    assert "ask for 3 nodes, or only prefer one rack" in str(reason.detail["next"])


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (DrainNode(id="d", node="n1", reason="new kernel"), "1 is draining or drained; n1 is drained (new kernel)"),
        (CordonNode(id="d", node="n1", reason="new kernel"), "1 is cordoned; n1 (new kernel)"),
        (QuarantineNode(id="d", node="n1", reason="smells"), "1 is in quarantine; n1 (smells)"),
    ],
)
def test_nodes_that_take_no_work(command: Any, said: str) -> None:
    """Their names, and the reason given by the user."""
    world = cluster(1)
    world.command(command)
    assert said in refused(world, request(1)).message


def test_a_lost_node() -> None:
    """By name."""
    world = cluster(1)
    world.silent("n1")
    assert "1 is lost; n1" in refused(world, request(1)).message


def test_faulted_gpus() -> None:
    """Their number on each node."""
    world = cluster(1)
    world.report("n1", HealthSeen(n=0, gpu="n1-g0", code="xid79"))
    reason = refused(world, request(8))
    assert "1 node has the taint fairlead/unhealthy=xid79:NoSchedule" in reason.message
    assert "when the node is healthy again" in str(reason.detail["next"])
    reason = refused(world, request(8, tolerations=("fairlead/unhealthy",)))
    assert "1 has too many faulted GPUs; GPUs that are faulted: n1 1 of 8" in reason.message


def test_a_node_reserved_for_another_job() -> None:
    """The other job's name; it waits longer."""
    world = cluster(1)
    world.offer(request(4, cpu=1))
    world.offer(request(8))
    world.queue(ev.ReservationRequested(cause="clock", job="2", attempt=1, waited_ns=RESERVED))
    reason = refused(world, request(1))
    assert "1 is kept for another job" in reason.message and "n1 is kept for job 2" in reason.message


def test_a_share_larger_than_any_remainder() -> None:
    """The largest remainder of one GPU, and its node."""
    world = cluster(1, 2)
    for _ in range(2):
        world.offer(Request(gpu_milli=700, gpu_parts=1))
    reason = refused(world, Request(gpu_milli=500, gpu_parts=1))
    assert "the most that is left of one GPU is 0.300, on n1" in reason.message
    assert reason.detail["most_left_gpu_milli"] == 300
    views = views_of(world)
    told = changes(views, "3")
    assert [(change.kind, change.amount) for change in told] == [("wait", 500), ("smaller", 300)]
    assert told[1].message == "could start now with 0.300 GPUs instead of 0.500"
    events = world.offer(Request(gpu_milli=300, gpu_parts=1))
    assert any(isinstance(event, ev.JobPlaced) for event in events)


def test_shared_gpus_where_there_are_none() -> None:
    """Replicas of nodes that give GPUs out whole, and the other way round."""
    replica = Request(gpu_milli=250, gpu_parts=1, replicas=True)
    assert "asks for shared GPUs, and these nodes give theirs out whole" in refused(cluster(1), replica).message
    sliced = cluster(1, labels={REPLICAS_LABEL: "4", SHARING_LABEL: "mps"})
    assert "give them out as replicas alone" in refused(sliced, request(1)).message


def test_an_exclusive_job_without_an_empty_node() -> None:
    """The empty nodes, and the number of runs on the others."""
    world = cluster(2)
    for _ in range(2):
        world.offer(request(1, cpu=60))
    reason = refused(world, request(1, exclusive=True, cpu=2))
    assert "2 are not empty; asks for nodes to itself; 0 of 2 are empty: n1 1 run, n2 1 run" in reason.message


def test_network_devices() -> None:
    """The most that a node has."""
    reason = refused(cluster(1, inside=GEFORCE, cpu=224), request(1, nics=4))
    assert "asks for 4 network devices on a node, the most of the cluster is 2" in reason.message


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (request(0, cpu=65), "asks for 65 CPUs on a node, the most of the cluster is 64 CPUs"),
        (
            request(1, gpu_memory_mib=81920),
            "asks for 80Gi of memory of each GPU, the most of the cluster is 40Gi of memory",
        ),
        (request(1, compute_capability=90), "asks for 9.0 as compute capability, the most of the cluster is 8.0"),
        (request(9), "asks for 9 GPUs on a node, the most of the cluster is 8 GPUs"),
    ],
)
def test_more_than_any_node_has(wanted: Request, said: str) -> None:
    """The amount, and the most there is."""
    assert said in refused(cluster(2), wanted).message


def test_the_dominant_cause_comes_first() -> None:
    """The one of most nodes, whatever else there is."""
    world = cluster(3)
    world.command(CordonNode(id="c", node="n3"))
    for _ in range(2):
        world.offer(request(8))
    message = refused(world, request(8)).message
    assert message.startswith("needs 8 GPUs on one node; of 3 nodes 2 lack free GPUs, 1 is cordoned; n1 fits")


def test_a_list_of_jobs_has_short_reasons() -> None:
    """Checking all nodes for each of thousands of jobs would be too slow."""
    world = cluster(1)
    world.offer(request(4, cpu=1))
    refused(world, request(8))
    views = views_of(world)
    short = reason_of(views, views.jobs.rows["2"], world.now, count_ahead=False)
    assert "free_gpus" not in short.detail and "together" not in short.message
