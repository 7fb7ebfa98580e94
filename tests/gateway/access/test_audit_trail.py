"""The record of access: one entry for equal accesses, chains over several gateways, a bus that is away, and a person who is forgotten."""

import asyncio
import tracemalloc
from typing import Any

import msgspec
import pytest

from fairlead_bus.memory import MemoryBus
from fairlead_bus.port import StreamFull
from fairlead_bus.streams import MESSAGE_BYTES_MAX
from fairlead_gateway.access.audit_reader import EntryPlace, forget, read_history
from fairlead_gateway.access.audit_trail import WAITING_MAX
from fairlead_schemas.units.timestamps import HOUR_NS, MINUTE_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.access_records import (
    ENTRIES_MAX,
    TARGET_CHARS_MAX,
    UNKNOWN,
    AccessEntry,
    AccessRecord,
    BrokenChain,
    ChainCheck,
    bounded,
    decode_record,
    encode_record,
    next_record,
)
from tests.gateway.access.audit_world import DENIED, READ, World
from tests.kit.eventually import eventually_async

TEXTS = ("principal", "via", "verb", "target", "owner", "address")


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


async def test_flushes_at_once_write_each_entry_once() -> None:
    """The second one waits for the first, and what is dropped meanwhile is not missed."""
    world = World()
    trail = world.trail()
    for kept in (READ, DENIED):
        trail.note(kept)
    await asyncio.gather(trail.flush(), trail.flush())
    assert [entry.count for entry in (*await world.of("p1"), *await world.of("p2"))] == [1] * 4
    trail.note(msgspec.structs.replace(READ, target="job:813"))
    flushing = asyncio.create_task(trail.flush())
    await asyncio.sleep(0)
    trail.drop("p2")
    await flushing
    assert [entry.target for entry in await world.of("p2")].count("job:813") == 0


async def test_equal_accesses_are_one_entry_for_a_while() -> None:
    """Before the write they are counted; after it they wait for one entry, until the time is over. None is lost in a flood, and the end of
    the process waits for no time."""
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
    assert [entry.count for entry in await world.of("p1")] == [2, 3]
    for number in range(1_000):
        trail.note(DENIED)
        if number % 100 == 0:
            await trail.flush()
    assert len(await world.of("p1")) == 2
    world.now_ns += MINUTE_NS
    await trail.flush()
    assert [entry.count for entry in await world.of("p1")] == [1_000, 2, 3]
    trail.note(DENIED)
    await trail.flush(all_of_it=True)
    assert [entry.count for entry in await world.of("p1")] == [1, 1_000, 2, 3]


@pytest.mark.parametrize("is_full", [False, True])
async def test_accesses_during_a_write_are_of_the_next_entry(is_full: bool) -> None:
    """A flood continues while the bus takes the first entry; where it does not take it, all are one entry of the next time."""
    world = World()
    trail = world.trail()
    append, denied = MemoryBus.append, AccessEntry(kind="denied", at_ns=0, principal="p1", target="job:1")

    async def slow(bus: MemoryBus, *args: Any, **options: Any) -> int:
        for _ in range(3):
            trail.note(denied)
        if is_full:
            raise StreamFull("no room")
        return await append(bus, *args, **options)

    trail.note(denied)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryBus, "append", slow)
        await trail.flush()
    await trail.flush()
    world.now_ns += MINUTE_NS
    await trail.flush()
    assert [entry.count for entry in await world.of("p1")] == ([4] if is_full else [3, 1])


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
        trail.note(AccessEntry(kind="read", at_ns=0, principal="p3", target=f"job:{number}"))
    assert trail.lost == 4  # of two chains each: the read and the denial
    world.hub.start()
    await trail.flush()
    counts = {entry.kind: entry.count for entry in await world.of("p1")}
    assert counts == {"denied": 2, "read": 1}
    assert len(await world.of("p3")) == WAITING_MAX - 4


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


async def test_a_bus_that_goes_away_in_mid_write_has_it_once() -> None:
    """The append is stored and its answer lost with the bus: it is read back once the bus is there again."""
    world = World()
    trail = world.trail()
    world.hub.unknown_appends.append(True)
    append = MemoryBus.append

    async def going_away(bus: MemoryBus, *args: Any, **options: Any) -> int:
        try:
            return await append(bus, *args, **options)
        finally:
            world.hub.stop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryBus, "append", going_away)
        trail.note(AccessEntry(kind="signed_in", at_ns=0, principal="p1", via="local"))
        flushing = asyncio.create_task(trail.flush())
        await eventually_async(lambda: not world.hub.up)
    world.hub.start()
    await flushing
    await trail.flush()
    assert len(await world.of("p1")) == 1


async def test_an_append_without_an_answer_that_another_gateway_continued_is_noted_once() -> None:
    """Its chain's end is another's message then."""
    world = World()
    first, second = world.trail(), world.trail()
    last, asked = MemoryBus.last, list[str]()

    async def later(bus: MemoryBus, stream: str, subject: str) -> Any:
        asked.append(subject)
        if len(asked) == 2:  # the first's reading back
            second.note(AccessEntry(kind="signed_in", at_ns=0, principal="p1", via="other"))
            await second.flush()
        return await last(bus, stream, subject)

    world.hub.unknown_appends.append(True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryBus, "last", later)
        first.note(AccessEntry(kind="signed_in", at_ns=0, principal="p1", via="local"))
        await first.flush()
    await first.flush()
    assert [entry.via for entry in await world.of("p1")] == ["other", "local"]


async def test_a_chain_that_cannot_be_written_repeats_nothing_in_others() -> None:
    """Neither in that of the reader of the same thing, nor in anybody's."""
    world = World()
    trail = world.trail()
    append, is_full = MemoryBus.append, True

    async def refusing(bus: MemoryBus, stream: str, subject: str, *args: Any, **options: Any) -> int:
        if is_full and subject == subjects.audit("p2"):
            raise StreamFull("no room")
        return await append(bus, stream, subject, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryBus, "append", refusing)
        trail.note(READ)
        trail.note(AccessEntry(kind="signed_in", at_ns=0, principal="p3", via="local"))
        for _ in range(3):
            await trail.flush()
        assert [len(await world.of(person)) for person in ("p1", "p2", "p3")] == [1, 0, 1]
        is_full = False
        await trail.flush()
    assert [len(await world.of(person)) for person in ("p1", "p2", "p3")] == [1, 1, 1]


async def test_texts_of_any_size_and_alphabet_are_written() -> None:
    """As long as the message bound allows: a text that is cut keeps its beginning."""
    world = World()
    trail = world.trail()
    for number in range(2 * ENTRIES_MAX):
        trail.note(
            AccessEntry(
                kind="read",
                at_ns=0,
                principal="p1",
                via="\x00" * 20_000,
                target=f"job:{number}" + "\x01" * 20_000,
                address="\udc80" * 500,
            )
        )
    await trail.flush()
    entries = await world.of("p1")
    assert len({entry.target for entry in entries}) == 2 * ENTRIES_MAX
    assert {len(entry.target) for entry in entries} == {TARGET_CHARS_MAX}
    full = [AccessEntry(kind="sign_in_failed", at_ns=2**62, **dict.fromkeys(TEXTS, "\x01" * 10_000))] * ENTRIES_MAX
    assert len(encode_record(next_record(None, [bounded(entry) for entry in full]))) < MESSAGE_BYTES_MAX


async def test_names_that_are_no_ids_reach_no_chain_of_others() -> None:
    """Wildcards and dots mean something in subjects: what they do is noted as by an unknown name, and nothing is read or erased."""
    world = World()
    trail = world.trail()
    trail.note(READ)
    odd = ("p1.x", "*", ">", "a b", "P1", "")
    for name in odd:
        trail.note(AccessEntry(kind="denied", at_ns=0, principal=name, target="job:1", owner=">"))
    await trail.flush()
    assert {entry.principal for entry in await world.of(UNKNOWN)} == set(odd)
    for name in odd:
        assert await world.of(name) == []
        await forget(world.bus, name)
    assert len(await world.of("p1")) == len(await world.of("p2")) == 1
    assert len(await world.of(UNKNOWN)) == len(odd)


async def test_a_clock_that_is_set_back_hides_nothing() -> None:
    """What was written in its future stands for no access of now."""
    world = World()
    trail = world.trail()
    world.now_ns += 48 * HOUR_NS
    trail.note(DENIED)
    await trail.flush()
    world.now_ns -= 48 * HOUR_NS
    trail.note(DENIED)
    await trail.flush()
    assert len(await world.of("p1")) == 2


@pytest.mark.parametrize("garbage", [b"\xff", b'{"n":1,"prev":"\xff","entries":[]}', b'{"n":0,"prev":"","entries":[]}'])
async def test_a_message_that_cannot_be_read_shows_and_stops_no_writer(garbage: bytes) -> None:
    """The chain is broken there, and continues behind it."""
    world = World()
    trail = world.trail()
    trail.note(READ)
    await trail.flush()
    await world.bus.append(subjects.AUDIT, subjects.audit("p1"), garbage)
    trail.note(DENIED)
    await trail.flush()
    found = await read_history(world.bus, "p1")
    assert [entry.kind for entry in found.entries] == ["read"] and found.broken.startswith("after record 1")
    last = await world.bus.last(subjects.AUDIT, subjects.audit("p1"))
    assert last is not None and [entry.kind for entry in decode_record(last.payload).entries] == ["denied"]


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


async def test_nothing_is_noted_of_a_forgotten_person() -> None:
    """Not what waits at another gateway, nor what comes later, nor what is written while the record is erased. Owners keep their part."""
    world = World()
    trail = world.trail()
    trail.note(READ)
    await trail.flush()
    trail.note(READ)  # an equal one, which would be written in an hour
    trail.note(DENIED)
    trail.drop("p1")
    await forget(world.bus, "p1")
    trail.note(DENIED)
    world.now_ns += 2 * HOUR_NS
    await trail.flush(all_of_it=True)
    assert await world.of("p1") == [] and len(await world.of("p2")) == 3
    plain = trail._write

    async def meanwhile(person: str, likenesses: Any) -> None:
        await plain(person, likenesses)
        trail.drop(person)

    trail._write = meanwhile  # type: ignore[method-assign]
    trail.note(AccessEntry(kind="signed_in", at_ns=0, principal="p3", via="local"))
    await trail.flush()
    assert await world.of("p3") == []


def test_a_changed_chain_is_found() -> None:
    """A changed, missing, repeated or unreadable message in the middle; a chain whose beginning has expired is whole."""
    payloads: list[bytes] = []
    previous: bytes | None = None
    for number in range(4):
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


async def test_a_long_chain_is_read_in_pages_and_in_the_memory_of_one() -> None:
    """A hundred thousand entries, each in one page; a page needs the memory of its own entries, not that of the chain."""
    world = World()
    previous: bytes | None = None
    for record in range(1_000):
        entries = [
            AccessEntry(kind="denied", at_ns=100 * record + index, principal="p1", target=f"job:{index}")
            for index in range(ENTRIES_MAX)
        ]
        previous = encode_record(next_record(previous, entries))
        await world.bus.append(subjects.AUDIT, subjects.audit("p1"), previous)
    tracemalloc.start()
    newest = await read_history(world.bus, "p1")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [entry.at_ns for entry in newest.entries] == list(range(99_999, 98_999, -1))
    assert newest.next == EntryPlace(991, 0) and not newest.broken
    assert peak < 4 * 2**20, f"{peak} bytes for a page of {len(newest.entries)} entries"
    earlier = await read_history(world.bus, "p1", before=newest.next, entries_max=150)
    assert [entry.at_ns for entry in earlier.entries] == list(range(98_999, 98_849, -1))
    assert earlier.next == EntryPlace(989, 50)
    first = await read_history(world.bus, "p1", before=EntryPlace(1, 2))
    assert [entry.at_ns for entry in first.entries] == [1, 0] and first.next is None


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
