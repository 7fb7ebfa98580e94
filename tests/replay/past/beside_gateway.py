"""A process for the past with a gateway of tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fairlead_replay.past.service import Past, PastSettings
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.standing import StandingGateway
from tests.kit.eventually import eventually_async


@asynccontextmanager
async def running(gateway: StandingGateway | SignedWorld, directory: Path, **more: Any) -> AsyncIterator[Past]:
    """A process for the past on the gateway's bus, which has folded the log. `more`: of its settings."""
    process = Past(gateway.hub.connect(), PastSettings(directory, **more))
    task = asyncio.create_task(process.run())
    try:
        await eventually_async(lambda: process.live.caught_up or task.done())
        yield process
    finally:
        await process.stop()
        await task
