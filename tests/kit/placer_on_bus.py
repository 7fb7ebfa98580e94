"""The placer's service on the in-memory bus, and the messages of a queue and of agents."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from fairlead_bus.memory import MemoryBus, MemoryHub
from fairlead_bus.service import Service
from fairlead_placer.core import PlacerCore
from fairlead_placer.service import build
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import reports, subjects
from fairlead_schemas.wire.commit import GENESIS, commit_hash, decode_commit, encode_commit
from fairlead_schemas.wire.desired import Desired, decode_desired
from fairlead_schemas.wire.reports import InventorySeen, Report, ReportAck, ReportBatch
from tests.kit.commits import commit_of
from tests.kit.eventually import eventually_async
from tests.kit.placer_world import PlacerWorld, inventory


class PlacerOnBus:
    """A hub with a placer on it, and the voices of a queue and of agents."""

    def __init__(self) -> None:
        self.hub = MemoryHub()
        self.bus: MemoryBus = self.hub.connect()
        self.world = PlacerWorld()  # for its builders only
        self.confirms: list[ReportAck] = []
        self.writes: list[Desired] = []
        self._prev, self._n, self._last = GENESIS, 0, 0
        self.sent: dict[str, int] = {}
        self.service: Service[PlacerCore]

    async def start(self) -> None:
        await self.bus.subscribe(subjects.confirm("*"), lambda m: self.confirms.append(reports.decode_ack(m.payload)))
        await self.bus.on_put(subjects.DESIRED, "*", lambda _, value: self.writes.append(decode_desired(value)))
        await self.start_placer()

    async def start_placer(self) -> None:
        self.placer_bus = self.hub.connect()
        self.service = await build(self.placer_bus)
        self.task = asyncio.create_task(self.service.run())
        await self.until(lambda: self.service.leading)

    async def stop_placer(self) -> None:
        await self.service.stop()
        assert await asyncio.wait_for(self.task, 60) == 0
        await self.placer_bus.close()

    async def until(self, true: Callable[[], object]) -> None:
        await eventually_async(true)

    async def queue(self, *events: ev.Event) -> None:
        self._n += 1
        commit = commit_of(list(events), n=self._n, basis=0, at_ns=self._n, prev=self._prev)
        payload = encode_commit(commit)
        self._prev = commit_hash(payload)
        self._last = await self.bus.append(subjects.LOG, subjects.log("queue"), payload, expected=self._last)

    async def send(self, node: str, *items: Report, incarnation: str = "i1") -> None:
        first = self.sent.get(node, 0)
        numbered = [msgspec.structs.replace(item, n=first + i) for i, item in enumerate(items, 1)]
        self.sent[node] = first + len(items)
        batch = ReportBatch(node=node, incarnation=incarnation, reports=numbered)
        await self.bus.publish(subjects.report(node), reports.encode(batch))

    async def join(self, node: str) -> None:
        await self.send(node, InventorySeen(n=0, boot_id="b", inventory=inventory(node)))
        await self.until(lambda: node in self.service.core.rollback().nodes)

    def events(self) -> list[ev.Event]:
        messages = self.hub.streams[subjects.LOG].messages
        return [e for m in messages if m.subject == subjects.log("placer") for e in decode_commit(m.payload).events]

    def desired(self, node: str) -> Desired:
        return decode_desired(self.hub.buckets[subjects.DESIRED][node].value)


@asynccontextmanager
async def placer_on_bus() -> AsyncIterator[PlacerOnBus]:
    """A placer on a hub, ended with the context."""
    made = PlacerOnBus()
    await made.start()
    yield made
    await made.stop_placer()
    await made.bus.close()
