"""Invalid samples are refused, counted by node and reason, and do no harm."""

from pathlib import Path

import msgspec

from fairlead_schemas.units.timestamps import DAY_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.samples import PAYLOAD_BYTES_MAX, columns_of, encode_samples
from fairlead_telemetry.ingest import AHEAD_NS
from fairlead_telemetry.samples.intake import REFUSERS_MAX, STEP_MS, SampleBook, SampleDelays
from fairlead_telemetry.service import Telemetry
from fairlead_telemetry.warehouse.warehouse import Retention
from tests.kit.eventually import eventually_async
from tests.telemetry.samples.nodes import START_NS, day
from tests.telemetry.service_on_bus import ask, running, world
from tests.telemetry.story import morning

GOOD = next(iter(day(0)))


def telling(**changes: object) -> bytes:
    return msgspec.msgpack.encode({**msgspec.msgpack.decode(encode_samples(GOOD)), **changes})


async def test_each_reason_is_counted(tmp_path: Path) -> None:
    """Garbage, another's name, times that cannot be; the good one between them is stored, and the loss of none is claimed."""
    hub, bus = await world(morning())
    now_ns = START_NS + DAY_NS
    bad = [
        ("n1", b"\xc1"),
        ("n1", telling(at_ns=-1)),
        ("n1", telling(uses=[["g"], ["a", "b"]])),
        ("n1", b"\x00" * PAYLOAD_BYTES_MAX),
        ("n2", encode_samples(GOOD)),
        ("n1", telling(at_ns=now_ns + AHEAD_NS + 10**9, n=9)),
        ("n1", telling(at_ns=now_ns - 3 * DAY_NS, n=8)),
    ]
    for node, payload in [*bad[:4], ("n1", encode_samples(GOOD)), *bad[4:]]:
        await bus.append(subjects.SAMPLE, subjects.sample(node), payload)
    service = Telemetry(hub.connect(), tmp_path, kept=Retention(2 * DAY_NS, DAY_NS, DAY_NS), clock=lambda: now_ns)

    async def counted() -> bool:
        query = "SELECT node, reason, batches FROM sample_refusals ORDER BY ALL"
        return (await ask(bus, "sql", query=query))["rows"] == [
            ["n1", "future", 1],
            ["n1", "garbage", 4],
            ["n1", "past", 1],
            ["n2", "other_node", 1],
        ]

    async with running(hub.connect(), tmp_path, service):
        await eventually_async(counted, not_yet=(Exception,))
        state = await ask(bus, "warehouse")
        assert state["samples_refused"] == {"garbage": 4, "other_node": 1, "future": 1, "past": 1}
        assert state["samples_lost"] == 0
        assert (await ask(bus, "sql", query="SELECT count(*) FROM samples"))["rows"] == [[3]]
        told = (await ask(bus, "sql", query="SELECT newest FROM sample_refusals WHERE reason = 'other_node'"))["rows"]
        assert told == [["batch of node 'n1'"]]


def test_very_many_senders_of_garbage_are_counted_together() -> None:
    """Invented names must not fill the memory."""
    book = SampleBook({})
    for number in range(REFUSERS_MAX + 10):
        book.refuse(f"n{number}", "garbage", "x" * 1000)
    refusals = book.take().refusals
    assert len(refusals) == REFUSERS_MAX + 1
    assert refusals["", "garbage"].batches == 10
    assert len(refusals["", "garbage"].newest) == 300
    assert book.refused == {"garbage": REFUSERS_MAX + 10}
    assert book.take().refusals == {}, "nothing new"


def test_delays_are_counted_in_steps() -> None:
    """Half and 99 % of all; a clock that is ahead counts as none."""
    delays = SampleDelays()
    assert delays.within_ms(50) is None
    delays.add([10**9 * second for second in range(100)], 100 * 10**9)
    assert delays.within_ms(50) == 50_000 + STEP_MS
    assert delays.within_ms(99) is not None
    delays.add([10**18] * 1000, 0)
    assert delays.within_ms(50) == STEP_MS


def test_a_batch_that_is_known_is_no_refusal() -> None:
    """The stream is read from its start after each restart."""
    book = SampleBook({})
    assert not book.is_known(columns_of(GOOD))
    assert book.add(columns_of(GOOD))
    assert book.is_known(columns_of(GOOD))
    assert not book.add(columns_of(GOOD))
