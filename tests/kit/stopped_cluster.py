"""Data directory of a stopped cluster, made from a log."""

from collections.abc import Sequence
from pathlib import Path

from fairlead.commands.audit_options import new_bus
from fairlead_bus.command_loss import cursors
from fairlead_bus.main import with_bus
from fairlead_bus.port import Bus, Stored
from fairlead_schemas.wire import subjects


def make_cluster(data: Path, log: Sequence[Stored]) -> None:
    """The data of a stopped cluster with this log."""

    async def fill(bus: Bus) -> None:
        await bus.ensure()
        for stored in log:
            await bus.append(subjects.LOG, stored.subject, stored.payload)
        await bus.advance(subjects.CMD, max((await cursors(bus)).values()))

    with new_bus(data, "") as url:
        with_bus(url, "test", fill)
