"""Replacement of a tail's consumer: after a silence, and not because its own process was busy."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
import structlog

from fairlead_bus.nats import tail as tails
from fairlead_bus.nats.link import HEARD_NS, Copies, Copy, Link
from fairlead_bus.nats.server_checks import parse_addresses
from fairlead_bus.nats.tail import GRACE_S, REQUEST_MESSAGES, SILENCE_S, ConsumerWatch, NatsTail
from fairlead_bus.port import LogDamaged, Unavailable
from tests.kit.eventually import eventually_async

NOT_LOST = (False, GRACE_S)


def test_an_active_consumer_is_not_lost() -> None:
    """The next check is at the earliest moment at which it could have been silent for too long."""
    silence = ConsumerWatch()
    silence.received_at = 10.0
    assert silence.look(10.5, expecting=True) == (False, SILENCE_S - 0.5)


def test_a_silent_consumer_is_lost_at_the_second_look() -> None:
    """The first look may come before heartbeats that are in the socket already are read."""
    silence = ConsumerWatch()
    silence.received_at = 10.0
    assert silence.look(10.0 + SILENCE_S, expecting=True) == NOT_LOST
    lost, _ = silence.look(10.0 + SILENCE_S + GRACE_S, expecting=True)
    assert lost


def test_a_busy_process_keeps_its_consumer() -> None:
    """Its loop stood still for longer than the silence; then it reads the heartbeats that came meanwhile."""
    silence = ConsumerWatch()
    silence.received_at = 10.0
    assert silence.look(20.0, expecting=True) == NOT_LOST
    silence.received_at = 20.05
    assert silence.look(20.1, expecting=True) == (False, SILENCE_S - (20.1 - 20.05))


def test_without_an_open_request_silence_means_nothing() -> None:
    """A reader that has enough to do asks for nothing, and the server sends no heartbeats then."""
    silence = ConsumerWatch()
    silence.received_at = 10.0
    for now in (20.0, 20.1, 20.2):
        assert silence.look(now, expecting=False) == NOT_LOST


class RecordedLink:
    """A link whose server answers that all is well, and which keeps the requests for messages."""

    def __init__(self) -> None:
        self.client = self
        self.addresses = parse_addresses("nats://bus-1:4222")
        self.on_back: list[Callable[[], None]] = []
        self.on_drop: list[Callable[[], None]] = []
        self.pulls: list[tuple[str, dict[str, Any]]] = []
        self.info: dict[str, Any] = {"state": {"last_seq": 0}}

    def new_inbox(self) -> str:
        """Return an inbox of the form that the library makes."""
        return "_INBOX.box"

    async def subscribe(self, subject: str, received: object) -> Any:
        """Subscribe to nothing."""

    async def read(self, subject: str) -> bytes:
        """Answer what the stream holds: nothing, unless the test says otherwise."""
        return msgspec.json.encode(self.info)

    async def ask(self, subject: str, request: bytes, timeout_s: float) -> bytes:
        """Answer that the consumer was made, on a server of this name."""
        return b'{"cluster": {"leader": "bus-2"}}'

    async def send(self, subject: str, request: bytes, reply: str = "") -> None:
        """Keep requests for messages."""
        if subject.startswith("$JS.API.CONSUMER.MSG.NEXT"):
            self.pulls.append((reply, msgspec.json.decode(request)))


async def test_one_of_the_open_requests_has_heartbeats() -> None:
    """Two would tell the same twice a second. When the one that has them is used up, the next one gets them."""
    link = RecordedLink()
    tail = NatsTail(cast(Link, link), "LOG", 0, "")
    reading = asyncio.create_task(tail.next())
    await eventually_async(lambda: len(link.pulls) == 2)
    assert ["idle_heartbeat" in pull for _, pull in link.pulls] == [True, False]
    consumer = tail._consumer  # pyright: ignore[reportPrivateUsage]
    for number in range(1, REQUEST_MESSAGES + 1):
        tail._received("LOG", b"", f"$JS.ACK.LOG.{consumer}.1.{number}.{number}.0.0", "")  # pyright: ignore[reportPrivateUsage]
    assert len(await reading) == REQUEST_MESSAGES
    assert ["idle_heartbeat" in pull for _, pull in link.pulls] == [True, False, True]
    await tail.close()


#: Other copies of a stream: heard a moment ago, too long ago, and never by this leader.
HEARD, SILENT, UNHEARD = Copy(current=True, active=HEARD_NS // 2), Copy(current=True, active=2 * HEARD_NS), Copy()


@pytest.mark.parametrize(
    ("others", "may_be_deposed"),
    [
        ([], False),
        ([HEARD, SILENT], False),
        ([HEARD, UNHEARD], False),
        ([SILENT, SILENT], True),
        ([SILENT, UNHEARD], True),
    ],
)
def test_a_leader_counts_while_it_hears_from_most_copies(others: list[Copy], may_be_deposed: bool) -> None:
    """A server that was cut off answers as the leader of what it had, and does not know of its successor."""
    try:
        Copies(replicas=others).check_leader("LOG")
    except Unavailable:
        assert may_be_deposed
    else:
        assert not may_be_deposed


def stream_at(last: int, *others: Copy) -> dict[str, Any]:
    """A stream with these other copies, as its leader describes it."""
    return {"state": {"last_seq": last}, "cluster": {"replicas": list(others)}}


@pytest.mark.parametrize("others", [(SILENT, SILENT), (HEARD, HEARD)])
async def test_a_leader_that_knows_less_than_was_read_is_asked_again(others: tuple[Copy, ...]) -> None:
    """One that was cut off, or that has only just been elected: the tail goes on once the stream reaches its cursor again."""
    link = RecordedLink()
    link.info = stream_at(5, *others)
    tail = NatsTail(cast(Link, link), "LOG", 8, "")
    reading = asyncio.create_task(tail.next())
    await eventually_async(lambda: tail._behind_since is not None or others == (SILENT, SILENT))  # pyright: ignore[reportPrivateUsage]
    assert not reading.done() and not link.pulls
    link.info = stream_at(8, HEARD, HEARD)
    await eventually_async(lambda: link.pulls)
    assert not reading.done()
    reading.cancel()
    await tail.close()


@pytest.mark.parametrize("others", [(), (HEARD, HEARD)])
async def test_a_stream_that_stays_behind_has_gone_back(
    others: tuple[Copy, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once where there is one copy; of several, when a leader says so for as long as a deposed one could."""
    monkeypatch.setattr(tails, "STALE_S", 0.3)
    link = RecordedLink()
    link.info = stream_at(5, *others)
    tail = NatsTail(cast(Link, link), "LOG", 8, "")
    with pytest.raises(LogDamaged, match="went back to 5"):
        await asyncio.wait_for(tail.next(), 60)
    await tail.close()


def deliver(tail: NatsTail, *sequences: int) -> None:
    """Let the tail's present consumer deliver these messages of its stream."""
    consumer = tail._consumer  # pyright: ignore[reportPrivateUsage]
    for number, sequence in enumerate(sequences, 1):
        tail._received("LOG", b"", f"$JS.ACK.LOG.{consumer}.1.{sequence}.{number}.0.0", "")  # pyright: ignore[reportPrivateUsage]


async def test_a_damaged_copy_of_the_log_is_named_and_another_one_is_read() -> None:
    """What one server's copy lacks is no damage of the log while another consumer delivers it."""
    link = RecordedLink()
    tail = NatsTail(cast(Link, link), "LOG", 0, "")
    reading = asyncio.create_task(tail.next())
    await eventually_async(lambda: len(link.pulls) == 2)
    with structlog.testing.capture_logs() as logs:
        deliver(tail, 3, 4)
        await eventually_async(lambda: len(link.pulls) == 4)
        assert not reading.done()
        deliver(tail, 1, 2, 3)
    assert [stored.sequence for stored in await reading] == [1, 2, 3]
    (error,) = (line for line in logs if line["log_level"] == "error")
    assert (error["server"], error["first"], error["last"]) == ("bus-2", 1, 2)
    await tail.close()


async def test_a_gap_that_every_consumer_delivers_is_passed_on() -> None:
    """The reader of the log calls it damage; other streams and filtered tails leave out messages as a rule."""
    link = RecordedLink()
    tail = NatsTail(cast(Link, link), "LOG", 0, "")
    reading = asyncio.create_task(tail.next())
    for number in range(tails.GAP_TRIES + 1):
        await eventually_async(lambda n=number: len(link.pulls) == 2 * (n + 1))
        deliver(tail, 3)
    assert [stored.sequence for stored in await reading] == [3]
    await tail.close()
    filtered = NatsTail(cast(Link, RecordedLink()), "LOG", 0, "fairlead.log.queue")
    reading = asyncio.create_task(filtered.next())
    await eventually_async(lambda: filtered._consumer)  # pyright: ignore[reportPrivateUsage]
    deliver(filtered, 3, 7)
    assert [stored.sequence for stored in await reading] == [3, 7]
    await filtered.close()
