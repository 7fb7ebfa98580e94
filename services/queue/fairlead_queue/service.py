"""Wiring: the queue's core on the service shell, fed with its commands."""

from fairlead_bus.main import instance
from fairlead_bus.port import Bus
from fairlead_bus.service import Service
from fairlead_bus.source import CommandSource
from fairlead_queue.core import QueueCore


async def build(bus: Bus) -> Service[QueueCore]:
    """The queue service on a connected bus."""
    return Service(
        bus, QueueCore, writer=QueueCore.writer, sources=[CommandSource(QueueCore.writer)], instance=instance()
    )
