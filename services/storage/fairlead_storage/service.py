"""Wiring: the storage core on the service shell, fed with its commands."""

import os

from fairlead_bus.input_source import CommandSource
from fairlead_bus.log_time import skew_from
from fairlead_bus.main import instance
from fairlead_bus.port import Bus
from fairlead_bus.service import Service
from fairlead_storage.core import StorageCore


async def build(bus: Bus) -> Service[StorageCore]:
    """Build the storage service on a connected bus. Raises BadSetting.

    It continues without commands while some are lost: it answers who asks about its state.
    """
    return Service(
        bus,
        StorageCore,
        writer=StorageCore.writer,
        sources=[CommandSource(StorageCore.writer, waits=True)],
        skew_ns=skew_from(os.environ),
        instance=instance(),
    )
