"""The telemetry service on the in-memory bus, and requests to it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Bus
from fairlead_schemas.wire import subjects
from fairlead_telemetry.service import Telemetry
from fairlead_telemetry.warehouse.warehouse import Retention
from tests.kit.eventually import eventually_async
from tests.telemetry.story import Story


@contextlib.asynccontextmanager
async def running(bus: Bus, directory: Path, service: Telemetry | None = None) -> AsyncIterator[asyncio.Task[int]]:
    """The service, stopped at the end."""
    service = service or Telemetry(bus, directory, kept=Retention(10**18 * 9, 10**18 * 9, 10**18 * 9))
    task = asyncio.create_task(service.run())
    yield task
    await service.stop()
    await task


async def ask(bus: Bus, verb: str, **request: object) -> dict:
    if verb == "sql":
        request["caller"] = {"user": "ada", "role": "admin"}
    raw = await bus.request(subjects.rpc("telemetry", verb), json.dumps(request).encode(), timeout_s=15)
    assert len(raw) < 2**20
    return json.loads(raw)


async def reaches(bus: Bus, sequence: int) -> None:
    async def there() -> bool:
        return (await ask(bus, "warehouse"))["sequence"] == sequence

    await eventually_async(there, not_yet=(Exception,))


async def world(story: Story) -> tuple[MemoryHub, Bus]:
    hub = MemoryHub()
    bus = hub.connect()
    await bus.ensure()
    await story.append_to(bus)
    return hub, bus
