"""The estimator's process: fed, asked, killed and started anew, with a state that is kept, and one that is damaged."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from fairlead_bus.memory import MemoryBus
from fairlead_bus.port import Stored
from fairlead_replay.estimates import estimator as outside
from fairlead_replay.estimates.estimator import Estimator
from fairlead_schemas.queries import estimates as q
from fairlead_schemas.wire import subjects
from tests.replay.estimates import scenes

ASK = q.encode(q.AskStart(submit=scenes.submit()))


async def bus_with(log: list[Stored]) -> Any:
    """Return a bus with a log."""
    bus = MemoryBus()
    await bus.ensure_streams()
    for stored in log:
        await bus.append(stored.subject, stored.payload)
    return bus
