"""Wiring: the access core on the service shell, fed with its commands."""

import os

from fairlead_access.core import AccessCore
from fairlead_bus.input_source import CommandSource
from fairlead_bus.log_time import skew_from
from fairlead_bus.main import instance
from fairlead_bus.port import Bus
from fairlead_bus.service import Service


async def build(bus: Bus) -> Service[AccessCore]:
    """Build the access service on a connected bus. Raises BadSetting.

    It continues without commands while some are lost: tokens and sessions expire by its events.
    """
    return Service(
        bus,
        AccessCore,
        writer=AccessCore.writer,
        sources=[CommandSource(AccessCore.writer, waits=True)],
        skew_ns=skew_from(os.environ),
        instance=instance(),
    )
