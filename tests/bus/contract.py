"""The contract of a bus: one suite of promises, for the in-memory twin and one nats-server (test_contract.py), and for three (nats/test_contract_on_three.py)."""

import asyncio
import time
from collections.abc import Awaitable

import pytest

from fairlead_bus import streams
from fairlead_bus.port import (
    Bus,
    Message,
    OutcomeUnknown,
    StaleWriter,
    StreamFull,
    Subscription,
    TooLarge,
    Unavailable,
)
from fairlead_schemas.wire import subjects
from tests.bus.worlds import BusWorld
from tests.kit.eventually import eventually_async

QUEUE, PLACER = subjects.log("queue"), subjects.log("placer")


async def soon[T](awaited: Awaitable[T]) -> T:
    """Fail instead of hanging."""
    return await asyncio.wait_for(awaited, 60)


async def read_all(bus: Bus, count: int, *, stream: str = subjects.LOG, subject: str = "") -> list[tuple[int, bytes]]:
    """The first `count` messages of a stream."""
    tail, found = await bus.tail(stream, after=0, subject=subject), []
    while len(found) < count:
        found += [(stored.sequence, stored.payload) for stored in await soon(tail.next())]
    await tail.close()
    return found


async def test_appends_are_totally_ordered_over_subjects(world: BusWorld):
    """Sequences rise by one over all subjects of a stream, and a tail sees them so."""
    bus = await world.connect()
    sequences = [await bus.append(subjects.LOG, subject, subject.encode()) for subject in (QUEUE, PLACER, QUEUE)]
    assert sequences == [1, 2, 3]
    assert await read_all(bus, 3) == [(1, QUEUE.encode()), (2, PLACER.encode()), (3, QUEUE.encode())]


async def test_stale_writer_is_refused_and_nothing_is_stored(world: BusWorld):
    """The fence is per subject: another writer's commits do not move it, an own one does."""
    bus = await world.connect()
    assert await bus.append(subjects.LOG, QUEUE, b"1", expected=0) == 1
    assert await bus.append(subjects.LOG, PLACER, b"2", expected=0) == 2
    with pytest.raises(StaleWriter):
        await bus.append(subjects.LOG, QUEUE, b"stale", expected=0)
    assert await bus.append(subjects.LOG, QUEUE, b"3", expected=1) == 3
    assert (await bus.state(subjects.LOG)).last == 3


async def test_a_stream_is_filled_at_exact_sequences(world: BusWorld):
    """Many in flight, of several subjects, in their order. Behind another end than expected nothing is stored."""
    bus = await world.connect()
    await bus.append(subjects.LOG, QUEUE, b"first")
    messages = [((QUEUE, PLACER)[number % 2], b"%d" % number) for number in range(3000)]
    assert await soon(bus.fill(subjects.LOG, iter(messages), after=1)) == 3001
    expected = [(1, b"first"), *((number + 2, payload) for number, (_, payload) in enumerate(messages))]
    assert await read_all(bus, 3001) == expected
    with pytest.raises(StaleWriter):
        await soon(bus.fill(subjects.LOG, messages[:5], after=7))
    assert (await bus.state(subjects.LOG)).last == 3001
    assert await bus.fill(subjects.LOG, [], after=3001) == 3001


async def test_copies_of_a_single_server_are_its_own(world: BusWorld):
    """One wanted, one there."""
    bus = await world.connect()
    found = await bus.copies(subjects.LOG)
    assert (found.wanted, len(found.copies), found.copies[0].is_current) == (1, 1, True)


async def test_message_id_stores_a_repetition_once(world: BusWorld):
    """A resent message with the same id gives the first one's sequence."""
    bus = await world.connect()
    first = await bus.append(subjects.CMD, subjects.cmd("queue"), b"a", msg_id="m1")
    assert await bus.append(subjects.CMD, subjects.cmd("queue"), b"a", msg_id="m1") == first
    assert (await bus.state(subjects.CMD)).last == first


async def test_last_and_read_go_by_subject_and_sequence(world: BusWorld):
    """The newest message of a subject, a message by its sequence, None where there is none."""
    bus = await world.connect()
    assert await bus.last(subjects.LOG, QUEUE) is None
    await bus.append(subjects.LOG, QUEUE, b"1")
    await bus.append(subjects.LOG, PLACER, b"2")
    newest, second, absent = (
        await bus.last(subjects.LOG, QUEUE),
        await bus.read(subjects.LOG, 2),
        await bus.read(subjects.LOG, 9),
    )
    assert newest is not None and (newest.sequence, newest.payload) == (1, b"1")
    assert second is not None and (second.subject, second.payload) == (PLACER, b"2")
    assert absent is None


async def test_an_empty_stream_continues_after_a_sequence(world: BusWorld):
    """The next message is numbered after it, for the stream and for a tail from there; a stream with messages is
    unchanged."""
    bus = await world.connect()
    command = subjects.cmd("queue")
    await bus.advance(subjects.CMD, 812)
    assert (await bus.state(subjects.CMD)).last == 812
    tail = await bus.tail(subjects.CMD, after=812, subject=command)
    assert await bus.append(subjects.CMD, command, b"one") == 813
    assert [(one.sequence, one.payload) for one in await soon(tail.next())] == [(813, b"one")]
    await tail.close()
    with pytest.raises(StaleWriter, match="expected an empty one"):
        await bus.advance(subjects.CMD, 900)
    assert await bus.append(subjects.CMD, command, b"two") == 814


async def test_a_subject_is_erased_and_goes_on(world: BusWorld):
    """Its messages are gone for readers and as the last one, others stay, and the subject can begin again; a sealed stream refuses."""
    bus = await world.connect()
    mine, yours = subjects.audit("p1"), subjects.audit("p2")
    for number, subject in enumerate((mine, yours, mine)):
        await bus.append(subjects.AUDIT, subject, b"%d" % number)
    await bus.erase(subjects.AUDIT, mine)
    await bus.erase(subjects.AUDIT, subjects.audit("unknown"))
    assert await bus.last(subjects.AUDIT, mine) is None
    assert await read_all(bus, 1, stream=subjects.AUDIT) == [(2, b"1")]
    assert await bus.append(subjects.AUDIT, mine, b"again", expected=0) == 4
    await bus.append(subjects.LOG, QUEUE, b"1")
    with pytest.raises(Unavailable):
        await bus.erase(subjects.LOG, QUEUE)
    assert await bus.last(subjects.LOG, QUEUE) is not None


async def test_tail_filters_by_subject(world: BusWorld):
    """A filtered tail sees its subject only, with the stream's own sequences."""
    bus = await world.connect()
    for service in ("queue", "placer", "queue"):
        await bus.append(subjects.CMD, subjects.cmd(service), service.encode())
    found = await read_all(bus, 2, stream=subjects.CMD, subject=subjects.cmd("queue"))
    assert found == [(1, b"queue"), (3, b"queue")]


async def test_tail_delivers_every_message_of_a_burst_in_order(world: BusWorld):
    """More messages than one request takes arrive whole and in order, while others are being written."""
    bus = await world.connect()

    async def write() -> None:
        for number in range(1700):
            await bus.append(subjects.LOG, QUEUE, b"%d" % number)

    writing = asyncio.create_task(write())
    found = await read_all(bus, 1700)
    await writing
    assert found == [(number + 1, b"%d" % number) for number in range(1700)]


async def test_tail_starts_behind_a_sequence(world: BusWorld):
    """`after` is the last sequence already known."""
    bus = await world.connect()
    for number in range(5):
        await bus.append(subjects.LOG, QUEUE, b"%d" % number)
    tail = await bus.tail(subjects.LOG, after=3)
    assert (await soon(tail.next()))[0].sequence == 4
    await tail.close()


async def test_unknown_outcome_that_was_stored_can_be_read_back(world: BusWorld):
    """The answer is lost, the message is not: it is there once, and the old fence refuses a second."""
    bus = await world.connect()
    with pytest.raises(OutcomeUnknown):
        await world.unknown_append(bus, QUEUE, b"1", 0, stored=True)
    newest = None
    for _ in range(600):
        newest = await bus.last(subjects.LOG, QUEUE)
        if newest is not None:
            break
        await asyncio.sleep(0.1)
    assert newest is not None and newest.payload == b"1"
    with pytest.raises(StaleWriter):
        await bus.append(subjects.LOG, QUEUE, b"again", expected=0)


async def test_unknown_outcome_that_was_not_stored_can_be_sent_again(world: BusWorld):
    """The message is nowhere; the same fence still lets it in."""
    bus = await world.connect()
    with pytest.raises(OutcomeUnknown):
        await world.unknown_append(bus, QUEUE, b"1", 0, stored=False)
    for _ in range(600):
        try:
            assert await bus.last(subjects.LOG, QUEUE) is None
            assert await bus.append(subjects.LOG, QUEUE, b"1", expected=0) == 1
            break
        except (Unavailable, OutcomeUnknown):
            await asyncio.sleep(0.1)
    assert (await bus.state(subjects.LOG)).last == 1


async def test_a_stopped_server_is_unavailable_and_comes_back_with_everything(world: BusWorld):
    """While the server is away calls fail and nothing is buffered; afterwards the tail continues by itself."""
    bus = await world.connect()
    back = asyncio.Event()
    bus.on_reconnect(back.set)
    await bus.append(subjects.LOG, QUEUE, b"1")
    tail = await bus.tail(subjects.LOG, after=0)
    assert [s.sequence for s in await soon(tail.next())] == [1]
    await world.stop_server()
    await asyncio.sleep(0.2)
    with pytest.raises((Unavailable, OutcomeUnknown)):
        await bus.append(subjects.LOG, QUEUE, b"lost")
    await bus.publish("fairlead.beat.n1", b"into the void")
    await world.start_server()
    await soon(back.wait())
    assert await bus.append(subjects.LOG, QUEUE, b"2", expected=1) == 2
    assert [(s.sequence, s.payload) for s in await soon(tail.next())] == [(2, b"2")]
    await tail.close()


async def test_full_log_refuses_and_keeps_what_it_has(small_world: BusWorld):
    """Discard new: the writer gets an error, nothing old is dropped, reading continues."""
    bus = await small_world.connect()
    stored = 0
    with pytest.raises(StreamFull):  # noqa: PT012 -- which of the appends is refused is what is counted
        for _ in range(200):
            await bus.append(subjects.LOG, QUEUE, b"x" * 1000)
            stored += 1
    state = await bus.state(subjects.LOG)
    assert (state.first, state.last) == (1, stored) and stored > 10


async def test_message_over_the_limit_is_refused(world: BusWorld):
    """Over 1 MiB nothing is stored."""
    bus = await world.connect()
    with pytest.raises(TooLarge):
        await bus.append(subjects.LOG, QUEUE, b"x" * (2**20 + 200_000))
    assert (await bus.state(subjects.LOG)).last == 0


async def test_core_messages_reach_subscribers_in_order(world: BusWorld):
    """Wildcards match one token; nothing is stored for later."""
    sender, receiver = await world.connect(), await world.connect()
    got: list[Message] = []
    await sender.publish("fairlead.beat.n0", b"too early")
    await sender.flush()
    subscription = await receiver.subscribe("fairlead.beat.*", got.append)
    await receiver.flush()
    for number in range(100):
        await sender.publish(f"fairlead.beat.n{number % 3}", b"%d" % number)
    await sender.publish("fairlead.report.n1", b"not asked for")
    await sender.flush()
    for _ in range(3000):
        if len(got) == 100:
            break
        await asyncio.sleep(0.02)
    assert [(m.subject, m.payload) for m in got] == [(f"fairlead.beat.n{n % 3}", b"%d" % n) for n in range(100)]
    await subscription.close()
    await sender.publish("fairlead.beat.n1", b"after closing")
    await sender.flush()
    await asyncio.sleep(0.05)
    assert len(got) == 100


async def test_requests_are_answered_or_unavailable(world: BusWorld):
    """One answer to one request; without a responder a clear failure, soon."""
    asker, server = await world.connect(), await world.connect()

    async def echo(message: Message) -> bytes:
        return b"re:" + message.payload

    await server.serve("fairlead.rpc.test.echo", echo)
    await server.flush()
    assert await asker.request("fairlead.rpc.test.echo", b"1", timeout_s=60) == b"re:1"
    with pytest.raises(Unavailable):
        await asker.request("fairlead.rpc.test.nobody", b"1", timeout_s=0.5)


async def test_of_a_group_one_answers_each_request(world: BusWorld):
    """Every request is taken once, all members get some; after one has gone the others get them all."""
    asker, took = await world.connect(), {name: list[bytes]() for name in ("a", "b", "alone")}

    async def join(name: str, group: str) -> tuple[Bus, Subscription]:
        async def answer(message: Message) -> bytes:
            took[name].append(message.payload)
            return name.encode()

        bus = await world.connect()
        subscription = await bus.serve("fairlead.rpc.test.group", answer, group=group)
        await bus.flush()
        return bus, subscription

    bus, first = await join("a", "answering")
    await join("b", "answering")
    await join("alone", "")
    asked = [b"%d" % number for number in range(60)]
    for payload in asked:
        await asker.request("fairlead.rpc.test.group", payload, timeout_s=60)
    await eventually_async(lambda: len(took["alone"]) == 60 and len(took["a"] + took["b"]) == 60)
    assert sorted(took["a"] + took["b"]) == sorted(took["alone"]) == sorted(asked)
    assert took["a"] and took["b"]
    await first.close()
    await bus.flush()
    before = len(took["b"])
    for payload in asked[:10]:
        await asker.request("fairlead.rpc.test.group", payload, timeout_s=60)
    await eventually_async(lambda: len(took["b"]) == before + 10)


async def test_bucket_keeps_the_last_value_under_compare_and_set(world: BusWorld):
    """Revisions rise, a wrong expectation is refused, a deleted key is absent and can be created again."""
    bus = await world.connect()
    assert await bus.get(subjects.DESIRED, "n1") is None
    first = await bus.put(subjects.DESIRED, "n1", b"a", expected=0)
    with pytest.raises(StaleWriter):
        await bus.put(subjects.DESIRED, "n1", b"b", expected=0)
    await bus.put(subjects.DESIRED, "n1", b"b", expected=first)
    entry = await bus.get(subjects.DESIRED, "n1")
    assert entry is not None and entry.value == b"b" and entry.revision > first
    await bus.delete(subjects.DESIRED, "n1")
    assert await bus.get(subjects.DESIRED, "n1") is None
    assert await bus.put(subjects.DESIRED, "n1", b"c", expected=0) > entry.revision


async def test_a_shredded_key_is_absent_and_can_be_created_again(world: BusWorld):
    """As after a deletion; an absent key is fine."""
    bus = await world.connect()
    await bus.shred(subjects.PEOPLE, "login.ada")
    await bus.put(subjects.PEOPLE, "login.ada", b"{}")
    await bus.shred(subjects.PEOPLE, "login.ada")
    assert await bus.get(subjects.PEOPLE, "login.ada") is None
    assert await bus.put(subjects.PEOPLE, "login.ada", b"{}", expected=0)


async def test_keys_of_a_kind_are_listed_while_they_exist(world: BusWorld):
    """Keys of the one kind, without those that were deleted; none is fine."""
    bus = await world.connect()
    assert await bus.keys(subjects.PEOPLE, "login") == []
    for key in ("login.ada", "login.bob", "principal.p1", "loginx.eve"):
        await bus.put(subjects.PEOPLE, key, b"{}")
    await bus.delete(subjects.PEOPLE, "login.bob")
    assert await bus.keys(subjects.PEOPLE, "login") == ["login.ada"]


async def test_bucket_entry_with_a_time_to_live_expires(world: BusWorld):
    """A lease without renewal disappears; its key can be created again."""
    bus = await world.connect()
    await bus.put(subjects.LEASE, "queue", b"me", expected=0, ttl_s=1)
    for _ in range(600):
        if await bus.get(subjects.LEASE, "queue") is None:
            break
        await asyncio.sleep(0.1)
    assert await bus.put(subjects.LEASE, "queue", b"you", expected=0, ttl_s=1)


async def test_watchers_hear_of_puts(world: BusWorld):
    """`on_put` hears its key, "*" every key, from both ways of putting."""
    writer, watcher = await world.connect(), await world.connect()
    one: list[tuple[str, bytes]] = []
    every: list[tuple[str, bytes]] = []
    await watcher.on_put(subjects.DESIRED, "n1", lambda key, value: one.append((key, value)))
    await watcher.on_put(subjects.DESIRED, "*", lambda key, value: every.append((key, value)))
    await watcher.flush()
    await writer.put(subjects.DESIRED, "n1", b"a")
    await writer.put_quickly(subjects.DESIRED, "n2", b"b")
    await writer.flush()
    for _ in range(3000):
        if len(every) == 2:
            break
        await asyncio.sleep(0.02)
    assert one == [("n1", b"a")]
    assert every == [("n1", b"a"), ("n2", b"b")]
    entry = None
    for _ in range(1200):
        entry = await watcher.get(subjects.DESIRED, "n2")
        if entry is not None:
            break
        await asyncio.sleep(0.05)
    assert entry is not None and entry.value == b"b"


async def test_objects_are_replaced_whole(world: BusWorld):
    """A blob larger than a message comes back whole; a second put replaces the first; absent is None."""
    bus = await world.connect()
    assert await bus.get_object(subjects.SNAPSHOT, "queue-0") is None
    await bus.put_object(subjects.SNAPSHOT, "queue-0", b"a" * 3_000_000)
    await bus.put_object(subjects.SNAPSHOT, "queue-0", b"b" * 2_500_000)
    assert await bus.get_object(subjects.SNAPSHOT, "queue-0") == b"b" * 2_500_000


async def test_an_object_that_is_replaced_while_it_is_read_comes_whole(world: BusWorld):
    """One version or the next, never a wait for pieces that are gone."""
    writer, reader = await world.connect(), await world.connect()
    versions = [bytes([number]) * 300_000 for number in range(20)]
    await writer.put_object(subjects.SNAPSHOT, "queue-0", versions[0])

    async def replace() -> None:
        for version in versions[1:]:
            await writer.put_object(subjects.SNAPSHOT, "queue-0", version)

    assert await reader.get_object(subjects.SNAPSHOT, "queue-0") == versions[0]
    replacing = asyncio.create_task(replace())
    seen: list[int] = []
    while not replacing.done():
        found = await soon(reader.get_object(subjects.SNAPSHOT, "queue-0"))
        assert found is not None
        seen.append(versions.index(found))
    await replacing
    assert seen == sorted(seen)
    assert await reader.get_object(subjects.SNAPSHOT, "queue-0") == versions[-1]


async def test_a_value_that_is_too_large_is_refused_and_named(world: BusWorld) -> None:
    """Also for a put without an answer: the value must not vanish, and the connection stays open."""
    bus = await world.connect()
    large = b"x" * (streams.MESSAGE_BYTES_MAX + 1)
    for put in (bus.put, bus.put_quickly):
        with pytest.raises(TooLarge):
            await put(subjects.DESIRED, "n1", large)
    await bus.put(subjects.DESIRED, "n1", b"small")
    found = await bus.get(subjects.DESIRED, "n1")
    assert found is not None and found.value == b"small"


async def test_the_server_states_its_time_and_that_of_messages(world: BusWorld):
    """Unix nanoseconds by the server's clock: now, of the stream's first message, and of a subject's newest."""
    bus = await world.connect()
    empty = await bus.times(subjects.LOG, QUEUE)
    assert (empty.first_ns, empty.last_ns) == (0, 0)
    assert abs(empty.now_ns - time.time_ns()) < 60 * 10**9
    for subject in (PLACER, QUEUE, QUEUE, PLACER):
        await bus.append(subjects.LOG, subject, b"x")
    found = await bus.times(subjects.LOG, QUEUE)
    assert empty.now_ns <= found.first_ns < found.last_ns < found.now_ns + 1000
    assert (await bus.times(subjects.LOG)).last_ns == 0


async def test_one_node_evicts_no_other_nodes_output(world: BusWorld) -> None:
    """The newest messages of each of a node's subjects stay; a node that prints without end loses its own oldest."""
    bus = await world.connect()
    first = await bus.append(subjects.OUTPUT, subjects.output("n2", "8"), b"others")
    loud, count = subjects.output("n1", "7"), streams.OUTPUTS_OF_SUBJECT_MAX
    for number in range(count + 40):
        await bus.append(subjects.OUTPUT, loud, b"%d" % number)
    assert (await bus.read(subjects.OUTPUT, first)) is not None
    kept = await read_all(bus, count, stream=subjects.OUTPUT, subject=loud)
    assert [payload for _, payload in kept] == [b"%d" % number for number in range(40, count + 40)]
    assert len(await read_all(bus, count + 1, stream=subjects.OUTPUT)) == count + 1


async def test_one_node_evicts_no_other_nodes_samples(world: BusWorld) -> None:
    """Samples are bounded by node, too."""
    bus = await world.connect()
    first = await bus.append(subjects.SAMPLE, subjects.sample("n2"), b"others")
    for number in range(streams.SAMPLES_OF_NODE_MAX + 3):
        await bus.append(subjects.SAMPLE, subjects.sample("n1"), b"%d" % number)
    assert (await bus.read(subjects.SAMPLE, first)) is not None
    assert (await read_all(bus, 2, stream=subjects.SAMPLE))[1][1] == b"3"


async def test_a_piece_of_output_has_its_largest_size(world: BusWorld) -> None:
    """A larger one is not stored: the bound of a node is one of bytes."""
    bus = await world.connect()
    with pytest.raises(TooLarge):
        await bus.append(subjects.OUTPUT, subjects.output("n1", "7"), bytes(streams.OUTPUT_MESSAGE_BYTES_MAX + 1))
    with pytest.raises(TooLarge):
        await bus.append(subjects.SAMPLE, subjects.sample("n1"), bytes(streams.SAMPLE_BYTES_MAX + 1))
    assert (await bus.state(subjects.OUTPUT)).last == 0


async def test_a_tail_reads_several_subjects(world: BusWorld) -> None:
    """As they were stored, and nothing of others."""
    bus = await world.connect()
    for node in ("n1", "n2", "n3", "n1"):
        await bus.append(subjects.OUTPUT, subjects.output(node, "7"), node.encode())
    tail, found = await bus.tail(subjects.OUTPUT, after=0, subject=subjects.outputs_of_job("7", ["n1", "n3"])), []
    while len(found) < 3:
        found += [stored.payload for stored in await soon(tail.next())]
    await tail.close()
    assert found == [b"n1", b"n3", b"n1"]
