"""A small world for the gateway: the real queue and placer on the in-memory bus, and nodes played by hand."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import Any, Self

from msgspec import structs

from fairlead_bus.input_source import CommandSource
from fairlead_bus.memory import MemoryBus
from fairlead_bus.service import Service
from fairlead_gateway.server.http_server import HttpSettings
from fairlead_placer.core import PlacerCore
from fairlead_placer.decide.fencing import DEFAULT_LEASE_NS
from fairlead_placer.shell.node_link import ReportSource
from fairlead_placer.shell.publisher import DesiredStatePublisher
from fairlead_queue.core import QueueCore
from fairlead_replay.explainer.service import Explainer
from fairlead_schemas.wire import reports as rp
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.desired import decode_desired
from fairlead_schemas.wire.resources import Gpu, Inventory
from tests.gateway.gatehouse import Gatehouse
from tests.kit.eventually import eventually_async


def inventory(node: str, gpus: int = 8) -> Inventory:
    """A played machine with `gpus` A100s, 64 CPUs and 512 GiB."""
    devices = tuple(Gpu(uuid=f"GPU-{node}-{i}", index=i, model="A100", memory_mib=81920) for i in range(gpus))
    return Inventory(gpus=devices, cpu_milli=64_000, memory_mib=512 * 1024, simulated=True, hostname=f"{node}.local")


class PlayedNode:
    """An agent played by the test: says what it is sent to say, numbered."""

    def __init__(self, bus: MemoryBus, name: str) -> None:
        self._bus = bus
        self.name = name
        self._n = 0

    async def _report(self, make: Callable[[int], rp.Report]) -> None:
        self._n += 1
        batch = rp.ReportBatch(node=self.name, incarnation=f"i-{self.name}", reports=[make(self._n)])
        await self._bus.publish(subjects.report(self.name), rp.encode(batch))

    async def join(
        self, gpus: int = 8, runtime: str = "process", labels: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """First report: what it has."""
        found = inventory(self.name, gpus)
        found = structs.replace(found, runtime=runtime, labels={**found.labels, **labels})
        await self._report(lambda n: rp.InventorySeen(n=n, boot_id="boot", inventory=found))

    async def start(self, job: str, rank: int = 0, attempt: int = 1) -> None:
        """A rank runs."""
        await self._report(lambda n: rp.StartSeen(n=n, job=job, attempt=attempt, rank=rank))

    async def fail_start(self, job: str, message: str, attempt: int = 1) -> None:
        """A run could not be started; it left no files."""
        await self._report(
            lambda n: rp.ExitSeen(
                n=n, job=job, attempt=attempt, rank=0, outcome="start_failed", message=message, clean=True
            )
        )

    async def exit(self, job: str, code: int = 0, rank: int = 0, attempt: int = 1) -> None:
        """A rank has ended, its devices clean."""
        await self._report(
            lambda n: rp.ExitSeen(
                n=n, job=job, attempt=attempt, rank=rank, outcome="exited", exit_code=code, clean=True
            )
        )

    async def sick(self, gpu: str, code: str) -> None:
        """What it found of a GPU's health."""
        await self._report(lambda n: rp.HealthSeen(n=n, gpu=gpu, code=code, evidence="seen"))

    async def stopped(self, job: str, rank: int = 0, attempt: int = 1) -> None:
        """A rank was stopped as asked."""
        await self._report(
            lambda n: rp.ExitSeen(n=n, job=job, attempt=attempt, rank=rank, outcome="stopped", signal=15, clean=True)
        )

    async def orders(self) -> list[str]:
        """Jobs that the node should run now, "<job>.<attempt>" (with "!" where it should stop)."""
        entry = await self._bus.get(subjects.DESIRED, self.name)
        runs = decode_desired(entry.value).runs if entry else []
        return [f"{run.job}.{run.attempt}{'!' if run.stop else ''}" for run in runs]


class GatewayWorld(Gatehouse):
    """The gateway with the real queue and placer. Use `async with GatewayWorld() as world`."""

    def __init__(
        self,
        *,
        queue: bool = True,
        decision_wait_s: float = 30.0,
        log_bytes_max: int | None = None,
        http: HttpSettings | None = None,
        sign_on: str = "",
    ) -> None:
        super().__init__(decision_wait_s=decision_wait_s, log_bytes_max=log_bytes_max, http=http, sign_on=sign_on)
        self._with_queue = queue
        #: By how much the placer's measure of silence is ahead.
        self._skipped_ns = 0

    def _monotonic_ns(self) -> int:
        return time.monotonic_ns() + self._skipped_ns

    async def __aenter__(self) -> Self:
        if self._with_queue:
            await self.start_queue()
        bus = self.hub.connect()
        placer = Service(
            bus,
            PlacerCore,
            writer="placer",
            sources=[
                CommandSource("placer"),
                ReportSource(actor := DesiredStatePublisher(bus), monotonic_ns=self._monotonic_ns),
            ],
            act=actor.act,
        )
        self.spawn(placer)
        return await super().__aenter__()

    async def start_queue(self) -> None:
        """The queue service, on a client of its own."""
        self.spawn(Service(self.hub.connect(), QueueCore, writer="queue", sources=[CommandSource("queue")]))

    async def start_explainer(self) -> Explainer:
        """A person who answers questions, on a client of his own."""
        explainer = Explainer(self.hub.connect())
        self.spawn(explainer)
        await asyncio.sleep(0.01)
        return explainer

    async def start_gateway(self) -> None:
        """As the base does; the queue's first commit has arrived."""
        await super().start_gateway()
        if self._with_queue:
            await eventually_async(lambda: "default" in self.gateway.views.queues.rows)

    # -- what tests do

    async def lose(self, name: str) -> None:
        """The node falls silent for longer than its lease, all others beat."""
        rows = self.gateway.views.nodes.rows
        for step in range(6):  # a longer leap would be taken for the placer's own sleep
            verb = ("cordon", "uncordon")[step % 2]  # it looks when something comes
            await self.http.post(f"/v1/nodes/{name}:{verb}", json={})
            self._skipped_ns += DEFAULT_LEASE_NS // 4
        await eventually_async(lambda: rows[name].lost)
        for other in rows.keys() - {name}:
            await self.hub.connect().publish(
                subjects.beat(other), rp.encode(rp.Heartbeat(node=other, incarnation=f"i-{other}"))
            )
        await eventually_async(lambda: not any(row.lost for row in rows.values() if row.id != name))

    async def node(self, name: str, gpus: int = 8, *, runtime: str = "process", **labels: str) -> PlayedNode:
        """A node that has joined. `labels`: more of them, below "fairlead/storage."."""
        node = PlayedNode(self.hub.connect(), name)
        await node.join(gpus, runtime, {f"fairlead/storage.{name}": value for name, value in labels.items()})
        await eventually_async(lambda: name in self.gateway.views.nodes.rows)
        return node

    async def run(self, node: PlayedNode, **spec: Any) -> str:
        """Submit one job, and let it run there; its id."""
        job = await self.submit(**spec)
        await self.in_state(job, "placed")
        await node.start(job)
        await self.in_state(job, "running")
        return job

    async def configure(self, **queues: dict[str, Any]) -> None:
        """Apply a queue file; `a__b` is the queue a/b."""
        file = {"queues": {path.replace("__", "/"): words for path, words in queues.items()}}
        answer = await self.http.post("/v1/queues:apply", json=file)
        assert answer.status_code == 200, answer.text

    async def why(self, job: str, at: int | str = "") -> dict[str, Any]:
        """GET why."""
        answer = await self.http.get(f"/v1/jobs/{job}/why", params={"at": str(at)} if at else {})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def submit(self, **spec: Any) -> str:
        """Submit one job; its id."""
        answer = await self.http.post("/v1/jobs", json={"command": ["true"], **spec})
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]


def gpus(count: int) -> dict[str, Any]:
    """Resources of a job with `count` GPUs per node."""
    return {"nvidia.com/gpu": count}


async def fragmented(world: GatewayWorld) -> tuple[PlayedNode, PlayedNode, str]:
    """Two nodes of 2 GPUs with a run of 1 each; a job of 2 waits."""
    sliced: dict[str, Any] = {"resources": gpus(1), "time": {"slice": "1s"}}
    first = await world.node("n1", 2)
    await world.run(first, **sliced)
    gone = await world.run(first, **sliced)
    second = await world.node("n2", 2)
    await world.run(second, **sliced)
    await first.exit(gone)
    await world.in_state(gone, "succeeded")
    big = await world.submit(resources=gpus(2))
    await eventually_async(lambda: world.gateway.views.jobs.rows[big].state == "offered")
    return first, second, big


async def first_lines(stream: AsyncIterator[str], count: int) -> list[str]:
    """The first non-empty lines of a stream."""
    lines: list[str] = []
    async for line in stream:
        if line:
            lines.append(line)
        if len(lines) == count:
            break
    return lines
