"""Entries of the record of access, and a bus with writers of it."""

from fairlead_bus.memory import MemoryBus
from fairlead_bus.memory_hub import MemoryServer
from fairlead_gateway.access.audit_reader import read_history
from fairlead_gateway.access.audit_trail import WAITING_MAX, AuditTrail
from fairlead_schemas.units.timestamps import HOUR_NS
from fairlead_schemas.wire.access_records import AccessEntry

READ = AccessEntry(
    kind="read",
    at_ns=0,
    principal="p1",
    via="token:t1",
    verb="job:read",
    target="job:812",
    owner="p2",
    address="10.0.0.9",
)
DENIED = AccessEntry(kind="denied", at_ns=0, principal="p1", verb="job:cancel", target="job:812", owner="p2")


class World:
    """A bus, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.hub = MemoryServer()
        self.bus: MemoryBus = MemoryBus(self.hub)
        self.now_ns = HOUR_NS

    def trail(self) -> AuditTrail:
        """A gateway's writer."""
        return AuditTrail(MemoryBus(self.hub), lambda: self.now_ns)

    async def of(self, person: str) -> list[AccessEntry]:
        """What is noted of a person, whose chain is whole."""
        found = await read_history(self.bus, person, entries_max=2 * WAITING_MAX)
        assert found.broken == ""
        return found.entries
