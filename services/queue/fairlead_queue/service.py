"""Wiring: the queue's core on the service shell, fed with its commands."""

import os

from fairlead_bus.input_source import CommandSource
from fairlead_bus.log_time import skew_from
from fairlead_bus.main import instance
from fairlead_bus.pacing import GATHER_S
from fairlead_bus.port import Bus
from fairlead_bus.service import Service
from fairlead_queue.core import QueueCore
from fairlead_queue.limits import PARKED_OFFERS_MAX

#: Time between two small commits while the placer has enough open offers: it places those meanwhile.
AHEAD_GATHER_S = 0.012
AHEAD_OFFERS = PARKED_OFFERS_MAX // 2


def gather_s(core: QueueCore) -> float:
    """Return how far apart the queue's small commits begin while it is busy. With enough open offers in each pool in which jobs
    wait, no GPU waits for the next ones."""
    waiting = [pool for pool in core.state.pools.values() if pool.waiting]
    return AHEAD_GATHER_S if all(len(pool.offers) >= AHEAD_OFFERS for pool in waiting) else GATHER_S


async def build(bus: Bus) -> Service[QueueCore]:
    """Build the queue service on a connected bus. Raises BadSetting."""
    return Service(
        bus,
        QueueCore,
        writer=QueueCore.writer,
        sources=[CommandSource(QueueCore.writer)],
        skew_ns=skew_from(os.environ),
        instance=instance(),
        gather_s=gather_s,
    )
