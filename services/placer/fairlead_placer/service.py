"""The placer as a service: which parts it is made of."""

import os
import time

from fairlead_bus.input_source import CommandSource
from fairlead_bus.log_time import skew_from
from fairlead_bus.main import instance
from fairlead_bus.port import Bus
from fairlead_bus.service import Service
from fairlead_placer.core import PlacerCore
from fairlead_placer.shell.node_link import Relay, ReportSource, lease_from, quiet_from
from fairlead_placer.shell.publisher import DesiredStatePublisher


async def build(bus: Bus) -> Service[PlacerCore]:
    """The service on this bus, ready to `run`. Raises BadSetting."""
    actor, lease_ns = DesiredStatePublisher(bus), lease_from(os.environ)
    reports = ReportSource(actor, lease_ns, time.monotonic_ns, quiet_from(os.environ, lease_ns))
    await Relay(bus).open()
    return Service(
        bus,
        PlacerCore,
        writer=PlacerCore.writer,
        sources=[CommandSource("placer", waits=True), reports],
        act=actor.act,
        skew_ns=skew_from(os.environ),
        instance=instance(),
    )
