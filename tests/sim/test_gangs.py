"""The simulator's own books: what it would say of placements that are too few, too small, or in the wrong place."""

from typing import Any

import pytest

from fairlead_replay.sim.invariants import Books
from fairlead_replay.sim.run_books import could_ever, whole
from fairlead_schemas.queuefile.settings import QueueSettings
from fairlead_schemas.wire.events import (
    JobOffered,
    JobPlaced,
    JobSubmitted,
    NodeJoined,
    Part,
    QueueConfigured,
    RunEnded,
)
from fairlead_schemas.wire.resources import Gpu, Inventory, Request
from tests.kit.queue_world import SPEC

POOLS = {f"n{at}": "default" for at in range(8)} | {"other": "a100"}


def part(node: str = "n0", gpus: int = 1, **more: Any) -> Part:
    """Return the part of a node: one CPU and one GiB for each task."""
    tasks = more.get("tasks", 1)
    fields = {"cpu_milli": 1000 * tasks, "memory_mib": 1024 * tasks, **more}
    return Part(node=node, gpus=tuple(f"{node}-{at}" for at in range(gpus)), **fields)


def unit(gpus: int = 1, **more: Any) -> Request:
    """One CPU, one GiB and whole GPUs."""
    return Request(gpu_milli=gpus * 1000, cpu_milli=1000, memory_mib=1024, **more)


def placed(*parts: Part) -> JobPlaced:
    return JobPlaced(cause="1.0", job="1", attempt=1, parts=parts)


def nodes(count: int, **more: Any) -> list[Part]:
    return [part(f"n{at}", **more) for at in range(count)]


@pytest.mark.parametrize(
    ("request_", "parts"),
    [
        (unit(nodes=2), nodes(2)),
        (unit(nodes=8, nodes_min=2), nodes(2)),
        (unit(nodes=8, nodes_min=2), nodes(8)),
        (unit(nodes=6, tasks=True), [part("n0", gpus=4, tasks=4), part("n1", gpus=2, tasks=2)]),
        (unit(nodes=2, exclusive=True), nodes(2, cpu_milli=64_000, memory_mib=1 << 20)),
        (unit(2, also=(unit(1, nodes=2),)), [part("n0", gpus=2), part("n1"), part("n2")]),
        (unit(2, nodes=3, nodes_min=1, also=(unit(1),)), [part("n0", gpus=2), part("n1", gpus=2), part("n2")]),
        (Request(gpu_milli=858, gpu_parts=2, profile="3g.20gb", cpu_milli=1000, memory_mib=1024), [part(gpus=2)]),
        (unit(pool="a100"), [part("other")]),
    ],
    ids=repr,
)
def test_a_placement_that_is_whole(request_: Request, parts: list[Part]) -> None:
    """All units, or as few as will do; each with what it asks for."""
    assert whole(placed(*parts), request_, POOLS) == ""


@pytest.mark.parametrize(
    ("request_", "parts", "says"),
    [
        (unit(nodes=2), nodes(1), "asks for 2 units, placed with 1"),
        (unit(nodes=8, nodes_min=2), nodes(1), "asks for 2 to 8 units, placed with 1"),
        (unit(nodes=2, nodes_min=1), nodes(3), "asks for 1 to 2 units, placed with 3"),
        (unit(nodes=6, tasks=True), [part("n0", gpus=4, tasks=4)], "asks for 6 units, placed with 4"),
        (unit(nodes=6, tasks=True), [part("n0", gpus=5, tasks=6)], "I6"),
        (unit(nodes=2), [part("n0", gpus=2, tasks=2)], "parts that share one"),
        (unit(2, also=(unit(1, nodes=2),)), [part("n0"), part("n1", gpus=2), part("n2")], "I6"),
        (unit(nodes=2), nodes(2, cpu_milli=999), "I6"),
        (unit(nodes=2, exclusive=True), nodes(2, cpu_milli=999), "I6"),
        (unit(), [part("other")], "is of pool"),
    ],
    ids=repr,
)
def test_a_placement_that_is_not(request_: Request, parts: list[Part], says: str) -> None:
    """Too few units, too many, or too little on one of them."""
    assert says in whole(placed(*parts), request_, POOLS)


def test_an_elastic_job_counts_for_what_it_got() -> None:
    """Others may have what it did not get; a quota that is broken after that is still seen."""
    books = Books()
    inventory = Inventory(gpus=(), cpu_milli=1, memory_mib=1)

    def take(*events: Any) -> list[str]:
        return [books.take(event) for event in events]

    def job(name: str, request: Request) -> list[Any]:
        submit = JobSubmitted(cause="cmd:1", job=name, name="x", queue="q", user="ada", request=request, spec=SPEC)
        return [submit, JobOffered(cause="clock", job=name, attempt=1, rank=1)]

    joins = [
        NodeJoined(cause="1.0", node=f"n{at}", incarnation="i", boot_id="b", inventory=inventory) for at in range(2)
    ]
    take(QueueConfigured(cause="cmd:0", path="q", settings=QueueSettings(maximum={"gpu": 8_000})), *joins)
    assert take(*job("1", unit(nodes=8, nodes_min=1)), placed(*nodes(2))) == ["", "", ""]
    assert take(*job("2", unit(6))) == ["", ""]
    assert take(*job("3", unit(1)))[1].startswith("I5: offered 3: queue q holds 9000 of gpu, may hold 8000")
    take(RunEnded(cause="1.0", job="1", attempt=1, outcome="exited", exit_code=0))
    assert take(*job("4", unit(1))) == ["", ""]


def test_requests_that_could_ever_start() -> None:
    """Tasks may share a node, elastic jobs need their fewest nodes, each group its own."""
    node = Inventory(gpus=tuple(Gpu(uuid=f"g{at}", index=at, model="A", memory_mib=1) for at in range(8)))
    assert could_ever(unit(nodes=16, tasks=True), [node, node])
    assert not could_ever(unit(nodes=17, tasks=True), [node, node])
    assert could_ever(unit(8, nodes=4, nodes_min=2), [node, node])
    assert not could_ever(unit(8, nodes=4), [node, node])
    assert not could_ever(unit(1, also=(unit(16),)), [node, node])
