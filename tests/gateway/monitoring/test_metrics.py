"""Queues, GPUs and what happened, as Prometheus sees them at the gateway."""

import asyncio
import re
from typing import Any

import pytest

from fairlead_gateway.monitoring import metrics
from fairlead_gateway.monitoring.metrics import NODES_AT_ONCE, ClusterCollector
from fairlead_gateway.views.cluster_map import map_node
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queue_documents import fair_shares
from fairlead_schemas.queuefile.settings import QueueSettings
from fairlead_schemas.wire import events as ev
from tests.agent.node.metrics.promtool import complaints, needs_promtool
from tests.gateway.logbook import Logbook, joined
from tests.gateway.metrics_page import page
from tests.gateway.world import GatewayWorld, gpus
from tests.kit.commits import commit_of
from tests.kit.eventually import eventually_async


async def test_a_running_and_a_waiting_job_are_counted() -> None:
    """The fair share, guarantee and use of a queue, free capacity, and the wait of the first job."""
    async with GatewayWorld() as world:
        await world.configure(a={"guaranteed": {"nvidia.com/gpu": 6}, "weight": 1}, b={"weight": 3})
        node = await world.node("n1")
        await world.run(node, queue="a", resources=gpus(7))
        await world.submit(queue="b", resources=gpus(2))
        await eventually_async(lambda: world.gateway.views.waiting.refusals != {})
        told = await page(world)
    a, b = "{pool=default,queue=a}", "{pool=default,queue=b}"
    assert (told[f"fairlead_queue_deserved_gpus{a}"], told[f"fairlead_queue_usage_gpus{a}"]) == (6, 7)
    assert (told[f"fairlead_queue_allocated_gpus{b}"], told[f"fairlead_queue_usage_gpus{b}"]) == (2, 0)
    assert (told[f"fairlead_queue_fair_share_gpus{a}"], told[f"fairlead_queue_fair_share_gpus{b}"]) == (6.5, 1.5)
    assert told[f"fairlead_queue_borrowed_gpus{a}"] == 1
    assert (told[f"fairlead_running_jobs{a}"], told[f"fairlead_pending_jobs{b}"]) == (1, 1)
    assert told["fairlead_admission_wait_seconds_count{queue=a}"] == 1
    assert told["fairlead_gpus{pool=default,state=held}"] == 7
    assert told["fairlead_gpus{pool=default,state=free}"] == told["fairlead_gpus_largest_startable{pool=default}"] == 1
    assert told["fairlead_gpus_fragmented{pool=default}"] == 1
    assert told["fairlead_nodes{pool=default,state=ready}"] == 1


async def test_ends_are_counted_by_queue_and_state() -> None:
    """Each once, and a rebuilt page says the same while nothing happens."""
    async with GatewayWorld() as world:
        node = await world.node("n1")
        job = await world.run(node, resources=gpus(1))
        await node.exit(job, code=0)
        await world.in_state(job, "succeeded")
        told = await page(world)
        again = await page(world)
    assert told["fairlead_ended_total{queue=default,state=succeeded}"] == 1
    same = [name for name in told if name.startswith(("fairlead_queue", "fairlead_gpus", "fairlead_ended"))]
    assert [told[name] for name in same] == [again[name] for name in same] and len(same) > 10


async def test_a_large_cluster_is_measured_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Submits have a turn after a few nodes; the result covers all of them."""
    book = Logbook()
    nodes = 5 * NODES_AT_ONCE // 2
    book.write(*(joined(f"n{at}") for at in range(nodes)))
    looked = turn = most = 0

    def look(*given: Any) -> Any:
        nonlocal looked, most
        looked += 1
        most = max(most, looked - turn)
        return map_node(*given)

    async def others() -> None:
        nonlocal turn
        while looked < nodes:
            turn = looked
            await asyncio.sleep(0)

    monkeypatch.setattr(metrics, "map_node", look)
    collector = ClusterCollector(book.views)
    await asyncio.gather(others(), collector.look())
    assert (looked, most) == (nodes, NODES_AT_ONCE)
    told = {s.name: s.value for family in collector.collect() for s in family.samples if s.value}
    assert told["fairlead_nodes"] == nodes
    await collector.look()
    assert looked == nodes, "nothing has happened since"


@needs_promtool
async def test_promtool_has_nothing_to_say() -> None:
    """About any name of the gateway, those of Python's library for Prometheus included."""
    async with GatewayWorld() as world:
        node = await world.node("n1")
        job = await world.run(node, resources=gpus(1))
        await node.exit(job, code=1)
        await world.in_state(job, "failed")
        content = (await world.http.get("/metrics")).content
    assert complaints(content) == []
    assert re.search(rb"^fairlead_ended_total\{", content, re.MULTILINE)


def shares(queues: dict[str, QueueSettings], busy: set[str], gpus: int) -> dict[str, int]:
    """Fair shares of these queues, in milli-GPU, where some have a job."""
    views = Views()
    configured: list[ev.Event] = [
        ev.QueueConfigured(cause="", path=path, gpu_quota_milli=None, settings=settings)
        for path, settings in sorted(queues.items())
    ]
    views.fold(1, commit_of(configured, prev=""))
    for path in busy:
        views.queues.of(path).states["queued"] = 1
    return fair_shares(views, {"default": gpus * 1000})


def test_shares_are_guarantee_then_weight_up_to_the_maximum() -> None:
    """A queue without jobs has none; a queue's excess over its maximum goes to the others; the sum is at most the
    capacity."""
    queues = {
        "a": QueueSettings(guaranteed={"gpu": 4000}, weight=1),
        "b": QueueSettings(weight=1, maximum={"gpu": 2000}),
        "c": QueueSettings(weight=2),
    }
    assert shares(queues, {"a", "b", "c"}, 16) == {"a": 4000 + 3333 + 0, "b": 2000, "c": 6666}
    assert shares(queues, {"c"}, 16) == {"a": 0, "b": 0, "c": 16000}
    assert shares(queues, set(), 16) == {"a": 0, "b": 0, "c": 0}


def test_shares_go_down_the_tree() -> None:
    """A queue's share is divided among those below it that have jobs; one above has jobs where one below has."""
    queues = {
        "r": QueueSettings(weight=1),
        "r/x": QueueSettings(weight=1),
        "r/y": QueueSettings(weight=3),
        "s": QueueSettings(weight=1),
    }
    assert shares(queues, {"r/x", "r/y", "s"}, 8) == {"r": 4000, "r/x": 1000, "r/y": 3000, "s": 4000}
    assert shares(queues, {"r/y"}, 8) == {"r": 8000, "r/x": 0, "r/y": 8000, "s": 0}


def test_more_promised_than_there_is_shrinks_for_all() -> None:
    """In proportion."""
    queues = {"a": QueueSettings(guaranteed={"gpu": 6000}), "b": QueueSettings(guaranteed={"gpu": 2000})}
    assert shares(queues, {"a", "b"}, 4) == {"a": 3000, "b": 1000}
