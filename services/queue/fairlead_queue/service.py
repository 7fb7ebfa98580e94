"""Wiring: the queue's core on the service shell, fed with its commands."""

import os

from fairlead_bus.input_source import CommandSource
from fairlead_bus.log_time import skew_from
from fairlead_bus.main import instance
from fairlead_bus.port import Bus
from fairlead_bus.service import Service
from fairlead_queue.core import QueueCore


async def build(bus: Bus) -> Service[QueueCore]:
    """Build the queue service on a connected bus. Raises BadSetting."""
    return Service(
        bus,
        QueueCore,
        writer=QueueCore.writer,
        sources=[CommandSource(QueueCore.writer)],
        skew_ns=skew_from(os.environ),
        instance=instance(),
    )
