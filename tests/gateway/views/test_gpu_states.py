"""Free GPUs are one number in all places: the placer's own state, packing, the map, /metrics, lists of nodes, dry runs
and SQL."""

import asyncio
import tempfile
from collections import Counter
from contextlib import closing
from itertools import batched
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlead_gateway.monitoring.metrics import ClusterCollector
from fairlead_gateway.routes.documents import node_documents
from fairlead_gateway.views.cluster_map import cluster_map
from fairlead_gateway.views.fold import Views
from fairlead_gateway.why.free_resources import JobPool
from fairlead_placer.scheduling.node_selection import NodeSelection, find
from fairlead_replay.explainer.answers import packing
from fairlead_schemas.queries.cluster_map import PoolPacking
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import decode_envelope, encode_commit
from fairlead_schemas.wire.reports import HealthSeen
from fairlead_schemas.wire.resources import Gpu, Inventory, MigInstance, Request
from fairlead_telemetry.samples.intake import SampleIntake
from fairlead_telemetry.warehouse.warehouse import CommitBytes, Warehouse
from tests.gateway.placer_views import views_of
from tests.kit.placer_world import SECOND, PlacerWorld, inventory, request

NODES, GPUS = ("n1", "n2", "n3", "n4"), 4
ANYBODY = Request(gpu_milli=1000, cpu_milli=1, memory_mib=1)


def cut(name: str) -> Inventory:
    """A node whose first GPU is in MIG mode, with one instance."""
    found = inventory(name, GPUS)
    instance = MigInstance(uuid=f"MIG-{name}", profile="3g.20gb")
    first: Gpu = msgspec.structs.replace(found.gpus[0], mig=True, instances=(instance,))
    return msgspec.structs.replace(found, gpus=(first, *found.gpus[1:]))


class GpuStates:
    """Four nodes, one of them with MIG, and everything that can close them or their GPUs."""

    def __init__(self) -> None:
        self.world = PlacerWorld()
        self.world.joined({name: cut(name) if name == "n4" else inventory(name, GPUS) for name in NODES})
        self.commands = 0
        self.silent: set[str] = set()

    def command(self, kind: type[cmd.CommandBase], node: str, **fields: object) -> None:
        """A person's command about a node."""
        self.commands += 1
        self.world.command(kind(id=f"c{self.commands}", user="ops", node=node, **fields))  # type: ignore[call-arg] -- of any kind

    def do(self, act: str, node: str, number: int) -> None:
        """One thing that happens to the node."""
        world = self.world
        gpu = f"{node}-g{number % GPUS}"
        runs = [run.rpartition(".") for run in world.core.state.nodes[node].held]
        match act:
            case "run":
                world.offer(request(1 + number % GPUS, nodes=1 + number % 2))
            case "share":
                world.offer(Request(gpu_milli=(300, 500)[number % 2], gpu_parts=1, cpu_milli=1000, memory_mib=1024))
            case "instance":
                world.offer(Request(gpu_milli=1000, profile="3g.20gb", cpu_milli=1000, memory_mib=1024))
            case "tolerant":
                world.offer(msgspec.structs.replace(request(1), tolerations=("team",)))
            case "end" if runs and not world.core.state.nodes[node].lost:
                job, _, attempt = runs[number % len(runs)]
                rank = world.core.state.nodes[node].held[f"{job}.{attempt}"]
                world.exit(node, job, rank, int(attempt), exit_code=number % 2, clean=number % 3 > 0)
            case "fault" if not world.core.state.nodes[node].lost:
                world.report(node, HealthSeen(n=0, gpu=gpu, code=("xid79", "ecc_volatile", "lost")[number % 3]))
            case "restore" if faulted := sorted(world.core.state.nodes[node].faulted):
                self.command(cmd.RestoreGpu, node, gpu=faulted[number % len(faulted)])
            case "fail":
                self.fail(number)
            case "cordon":
                self.command(cmd.CordonNode, node)
            case "uncordon":
                self.command(cmd.UncordonNode, node)
            case "drain":
                self.command(cmd.DrainNode, node)
            case "quarantine":
                self.command(cmd.QuarantineNode, node, reason="smells")
            case "unquarantine":
                self.command(cmd.UnquarantineNode, node)
            case "taint":
                self.command(
                    cmd.TaintNode, node, taint=f"team=a:{('NoSchedule', 'NoExecute', 'PreferNoSchedule')[number % 3]}"
                )
            case "untaint":
                self.command(cmd.UntaintNode, node, taint="team")
            case "lose":
                world.silent(node)
            case "later":
                world.now += 600 * SECOND
                world.step()
            case "silent":
                self.silent ^= {node}
            case _:
                pass

    def fail(self, number: int) -> None:
        """Two jobs of two users fail as soon as they run, wherever they are placed."""
        for user in (f"u{number}", f"v{number}"):
            for event in self.world.offer(request(1), user=user):
                if isinstance(event, ev.JobPlaced):
                    self.world.start(event.parts[0].node, event.job)
                    self.world.exit(event.parts[0].node, event.job, exit_code=9)

    def views(self) -> Views:
        """The gateway's, which hears no beat of the silent nodes."""
        views = views_of(self.world)
        views.silent_s = lambda node: 90 if node in self.silent and not views.nodes.rows[node].lost else 0
        return views

    def packing(self) -> PoolPacking:
        """As the explainer answers it."""
        found = packing(self.world.core.state, len(self.world.log), "default", frozenset(self.silent)).packing
        assert found is not None
        return found


ACTS = (
    "run",
    "run",
    "share",
    "instance",
    "tolerant",
    "end",
    "end",
    "fault",
    "fault",
    "restore",
    "fail",
    "fail",
    "cordon",
    "uncordon",
    "drain",
    "quarantine",
    "unquarantine",
    "taint",
    "untaint",
    "lose",
    "later",
    "silent",
)


def metric(views: Views, name: str, **labels: str) -> float:
    """The sum of a gauge's values with these labels, as /metrics has it."""
    collector = ClusterCollector(views)
    asyncio.run(collector.look())
    return sum(
        sample.value
        for family in collector.collect()
        if family.name == name
        for sample in family.samples
        if labels.items() <= sample.labels.items()
    )


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTS), st.sampled_from(NODES), st.integers(0, 11)), max_size=20))
def test_free_gpus_are_one_number(acts: list[tuple[str, str, int]]) -> None:
    """After any history: faults, drains, taints, shares, MIG, quarantine, losses, silence, runs that are not clean."""
    cluster = GpuStates()
    for act in acts:
        cluster.do(*act)
    views, found = cluster.views(), cluster.packing()
    state, facts = cluster.world.core.state, cluster_map(views)
    room_ = facts.pools[0]
    free = room_.states["free"]

    by_node = {node.id: [gpu.state for gpu in node.gpus].count("free") for node in facts.nodes}
    placers = {
        name: node.gpus_free
        if node.open and not node.keeper and not _barred(node.taints) and name not in cluster.silent
        else 0
        for name, node in state.nodes.items()
    }
    assert by_node == placers, "the map and the placer's own state"

    assert found.gpu_milli_free == 1000 * free + room_.shares_free_milli, "the map and packing"
    largest = room_.largest_on_one_node
    assert (largest.gpus if largest else 0) == (found.largest_on_one_node.gpus if found.largest_on_one_node else 0)

    assert metric(views, "fairlead_gpus", state="free") == free, "/metrics"
    assert metric(views, "fairlead_gpus_largest_startable") == (largest.gpus if largest else 0)
    documents = node_documents(views, [row for _, row in sorted(views.nodes.rows.items())])
    assert {node.id: node.gpus_free for node in documents} == by_node, "lists of nodes and top"
    counted = Counter[str]()
    for node in documents:
        counted.update(node.gpu_states)
    assert counted == {state: count for state, count in room_.states.items() if count}

    # What a dry run goes by. The placer still counts on a silent node, so it would place a job there.
    takers = [left for name, left in JobPool(views, ANYBODY).free.items() if name not in cluster.silent]
    assert sum(len(left.whole_gpus) for left in takers) == free, "dry runs"
    if not cluster.silent:
        for gpus in range(1, GPUS + 1):
            fits = isinstance(find(state, Request(gpu_milli=1000 * gpus, cpu_milli=1, memory_mib=1)), NodeSelection)
            assert fits == (largest is not None and largest.gpus >= gpus), f"the placer, with {gpus} GPUs"


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([act for act in ACTS if act != "silent"]), st.sampled_from(NODES), st.integers(0, 11)
        ),
        max_size=25,
    ),
    st.integers(1, 40),
)
@example([("fault", "n1", 0), ("restore", "n1", 0), ("taint", "n2", 0), ("untaint", "n2", 0)], 1)
def test_sql_has_every_gpu_in_the_state_of_the_map(acts: list[tuple[str, str, int]], batch: int) -> None:
    """Folded in any batches; a silent agent alone is not in the log, and so not in SQL."""
    cluster = GpuStates()
    for act in acts:
        cluster.do(*act)
    log = [
        CommitBytes.of(sequence, decode_envelope(encode_commit(commit)))
        for sequence, commit in enumerate(cluster.world.log, 1)
    ]
    with tempfile.TemporaryDirectory() as folder, closing(Warehouse(Path(folder))) as warehouse:
        for some in batched(log, batch):
            warehouse.store(list(some), {}, "a log", SampleIntake([], [], {}))
        found = warehouse.rows("SELECT node, uuid, state, fault FROM gpus ORDER BY ALL")
    facts = cluster_map(cluster.views())
    assert found == [(node.id, gpu.uuid, gpu.state, gpu.fault or None) for node in facts.nodes for gpu in node.gpus]


def _barred(taints: tuple[str, ...]) -> bool:
    return any(not taint.endswith(":PreferNoSchedule") for taint in taints)
