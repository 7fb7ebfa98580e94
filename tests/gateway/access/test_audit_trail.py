"""The record of access: one entry for equal accesses, chains over several gateways, a bus that is away, and a person who is forgotten."""

import asyncio

import pytest

from fairlead_bus.memory import MemoryBus
from fairlead_bus.memory_hub import MemoryServer
from fairlead_gateway.access.audit_reader import forget, read_history
from fairlead_gateway.access.audit_trail import WAITING_MAX, AuditTrail
from fairlead_schemas.units.timestamps import HOUR_NS, MINUTE_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.access_records import (
    AccessEntry,
    AccessRecord,
    BrokenChain,
    ChainCheck,
    decode_record,
    encode_record,
)

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
        found = await read_history(self.bus, person)
        assert found.broken == ""
        return found.entries


async def test_a_read_is_noted_for_both_and_the_owner_sees_no_address() -> None:
    """The owner sees who looked; where from is the reader's own affair."""
    world = World()
    trail = world.trail()
    trail.note(READ)
    await trail.flush()
    (mine,), (theirs,) = await world.of("p1"), await world.of("p2")
    assert mine.address == "10.0.0.9" and mine.at_ns == world.now_ns
    assert theirs.address == "" and theirs.principal == "p1" and theirs.target == "job:812"
    assert b"10.0.0.9" not in b"".join(
        m.payload for m in world.hub.streams["AUDIT"].messages if m.subject.endswith("p2")
    )


async def test_equal_accesses_are_one_entry_for_a_while() -> None:
    """Before the write they are counted; after it they are part of what is written, until the time is over."""
    world = World()
    trail = world.trail()
    for _ in range(3):
        trail.note(DENIED)
    await trail.flush()
    trail.note(DENIED)
    await trail.flush()
    assert [entry.count for entry in await world.of("p1")] == [3]
    world.now_ns += MINUTE_NS
    trail.note(DENIED)
    await trail.flush()
    assert [entry.count for entry in await world.of("p1")] == [1, 3]


async def test_sign_ins_are_never_merged_away() -> None:
    """Two of one session's address within a second are two facts once the first is written."""
    world = World()
    trail = world.trail()
    for _ in range(2):
        trail.note(AccessEntry(kind="signed_in", at_ns=0, principal="p1", via="local"))
        await trail.flush()
    assert len(await world.of("p1")) == 2


async def test_two_gateways_write_one_chain() -> None:
    """An append that comes second reads the chain's end again; nothing is lost, and the chain is whole."""
    world = World()
    trails = [world.trail() for _ in range(3)]
    for number, trail in enumerate(trails):
        for job in range(250):
            trail.note(AccessEntry(kind="read", at_ns=0, principal="p1", target=f"job:{job}-{number}", owner="p2"))
    await asyncio.gather(*(trail.flush() for trail in trails))
    for person in ("p1", "p2"):
        assert len({entry.target for entry in await world.of(person)}) == 750


async def test_what_the_bus_does_not_take_waits_and_is_bounded() -> None:
    """An outage loses nothing up to the bound; what is over it is counted."""
    world = World()
    trail = world.trail()
    world.hub.stop()
    trail.note(READ)
    trail.note(DENIED)
    await trail.flush()
    trail.note(DENIED)
    for number in range(WAITING_MAX):
        trail.note(AccessEntry(kind="denied", at_ns=0, principal="p3", target=f"job:{number}"))
    assert trail.lost == 2
    world.hub.start()
    await trail.flush()
    counts = {entry.kind: entry.count for entry in await world.of("p1")}
    assert counts == {"denied": 2, "read": 1}
    assert len(await world.of("p3")) == WAITING_MAX - 2


@pytest.mark.parametrize("stored", [True, False])
async def test_an_append_without_an_answer_is_noted_once(stored: bool) -> None:
    """Its outcome is read back."""
    world = World()
    trail = world.trail()
    world.hub.unknown_appends.append(stored)
    trail.note(AccessEntry(kind="signed_in", at_ns=0, principal="p1", via="local"))
    await trail.flush()
    await trail.flush()
    assert len(await world.of("p1")) == 1


async def test_a_person_who_is_forgotten_leaves_no_byte() -> None:
    """Their chain is gone; owners still see by which opaque id their things were read, and other chains stay whole."""
    world = World()
    trail = world.trail()
    trail.note(READ)
    trail.note(AccessEntry(kind="signed_in", at_ns=0, principal="p2", via="local", address="10.0.0.8"))
    await trail.flush()
    await forget(world.bus, "p1")
    assert await world.of("p1") == []
    assert b"10.0.0.9" not in b"".join(message.payload for message in world.hub.streams["AUDIT"].messages)
    assert {entry.kind for entry in await world.of("p2")} == {"read", "signed_in"}


def test_a_changed_chain_is_found() -> None:
    """A changed, missing, repeated or unreadable message in the middle; a chain whose beginning has expired is whole."""
    payloads: list[bytes] = []
    previous: bytes | None = None
    for number in range(4):
        from fairlead_schemas.wire.access_records import next_record

        previous = encode_record(next_record(previous, [AccessEntry(kind="signed_in", at_ns=number)]))
        payloads.append(previous)

    def check(messages: list[bytes]) -> None:
        chain = ChainCheck()
        for message in messages:
            chain.take(message)

    check(payloads)
    check(payloads[2:])
    first = decode_record(payloads[0])
    forged = encode_record(AccessRecord(n=1, prev=first.prev, entries=[AccessEntry(kind="signed_in", at_ns=9)]))
    for wrong in (
        [forged, *payloads[1:]],
        [payloads[0], *payloads[2:]],
        [payloads[0], payloads[0], *payloads[1:]],
        [payloads[0], b"{}", *payloads[1:]],
        [encode_record(AccessRecord(n=1, prev="1" * 64, entries=[]))],
    ):
        with pytest.raises(BrokenChain):
            check(wrong)


async def test_a_chain_that_was_changed_is_read_as_far_as_it_is_whole() -> None:
    """And says so."""
    world = World()
    trail = world.trail()
    trail.note(READ)
    await trail.flush()
    await world.bus.append(
        subjects.AUDIT, subjects.audit("p1"), encode_record(AccessRecord(n=7, prev="0" * 64, entries=[]))
    )
    found = await read_history(world.bus, "p1")
    assert len(found.entries) == 1 and "does not continue" in found.broken
