"""A cluster of 14,000 GPUs joins at once: its nodes' descriptions are folded within the memory of the service."""

from pathlib import Path

import msgspec

from fairlead_agent.hollow.shapes import Shape, inventory, of_profile
from fairlead_schemas.wire import events as ev
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.story import Story

NODES = 1750


def _joined(shape: Shape, incarnation: str) -> ev.NodeJoined:
    found = inventory(shape)
    return ev.NodeJoined(cause="report:x:1", node=shape.node, incarnation=incarnation, boot_id="b", inventory=found)


def test_the_nodes_of_14000_gpus_are_folded_within_256_mb(tmp_path: Path) -> None:
    """All of them twice in one store, as after a restart of every agent."""
    shapes = of_profile(NODES, "dgx-a100", "n")
    story = Story()
    for seconds, incarnation in ((1, "a"), (2, "b")):
        for first in range(0, NODES, 250):
            story.at(seconds, *(_joined(shape, incarnation) for shape in shapes[first : first + 250]))
    warehouse = Warehouse(tmp_path)
    try:
        store(warehouse, story)
        found = warehouse.rows(
            "SELECT count(*), sum(gpu_count), min(gpu_model), max(gpu_model), min(cpu_milli) FROM nodes"
        )
        [(nodes, gpus, *models, cpu_milli)] = found
        one = inventory(shapes[0])
        assert (nodes, gpus, set(models), cpu_milli) == (NODES, 8 * NODES, {one.gpus[0].model}, one.cpu_milli)
        [(described,)] = warehouse.rows("SELECT gpus FROM fold.nodes WHERE node = ?", [shapes[7].node])
        assert msgspec.json.decode(described) == list(msgspec.to_builtins(inventory(shapes[7]).gpus))
    finally:
        warehouse.close()
