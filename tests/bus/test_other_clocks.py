"""Comparison with other clocks: which differences keep a writer from leading."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from fairlead_bus import log_time
from fairlead_bus.environment_settings import BadSetting
from fairlead_bus.log_time import OtherClocks, disagreement, skew_from
from fairlead_bus.memory import MemoryHub
from fairlead_schemas.units.timestamps import HOUR_NS, SECOND_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.reports import Heartbeat, encode


@pytest.mark.parametrize(
    ("server_s", "nodes_s", "agrees"),
    [
        (0, [], True),
        (5, [], True),
        (6, [], False),
        (-6, [], False),
        (3600, [0], True),  # half of the others
        (3600, [0, 1, -2, 3600], True),
        (3600, [3600, 3599, 0], False),
        (0, [3600, 3600], False),  # the server is on the same machine, and the nodes know better
        (0, [3600], True),
    ],
)
def test_a_clock_agrees_that_half_of_the_others_share(server_s: int, nodes_s: Sequence[int], agrees: bool) -> None:
    """No single clock, be it the server's, keeps a writer from leading where others agree with it."""
    found = disagreement(server_s * SECOND_NS, [each * SECOND_NS for each in nodes_s], 5 * SECOND_NS)
    assert (found == "") == agrees


def test_the_sentence_names_the_differences() -> None:
    """A person reads by how much and from whom, and what is allowed."""
    assert disagreement(-HOUR_NS, [-HOUR_NS, -HOUR_NS - SECOND_NS, 0], 5 * SECOND_NS) == (
        "the bus's server is -3600.0 s from it, 2 of 3 nodes are too far from it (median -3600.0 s); at most 5 s are allowed"
    )


async def beat(hub: MemoryHub, node: str, wall_ns: int) -> None:
    """Let a node beat for as long as the test runs."""
    bus = hub.connect()
    while True:
        await bus.publish(subjects.beat(node), encode(Heartbeat(node=node, incarnation="i1", wall_ns=wall_ns)))
        await asyncio.sleep(0.01)


async def test_nodes_are_listened_to_where_the_server_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that agrees is enough; where it differs, beats decide; beats without a clock, and garbage, do not count."""
    monkeypatch.setattr(log_time, "LISTEN_S", 0.2)
    now_ns = time.time_ns()
    right, wrong = MemoryHub(clock=lambda: now_ns), MemoryHub(clock=lambda: now_ns + HOUR_NS)
    assert await OtherClocks(right.connect(), lambda: now_ns).differ() == ""
    clocks = OtherClocks(wrong.connect(), lambda: now_ns)
    assert "+3600.0 s" in await clocks.differ()
    beats = [asyncio.create_task(beat(wrong, "n1", now_ns)), asyncio.create_task(beat(wrong, "n2", 0))]
    await wrong.connect().publish(subjects.beat("n3"), b"no beat")
    assert await clocks.differ() == ""
    beats += [asyncio.create_task(beat(wrong, f"m{i}", now_ns + HOUR_NS)) for i in range(2)]
    assert "2 of 3 nodes" in await clocks.differ()
    beats += [asyncio.create_task(beat(right, f"m{i}", now_ns + HOUR_NS)) for i in range(2)]
    assert "2 of 2 nodes" in await OtherClocks(right.connect(), lambda: now_ns).differ(ask_nodes=True)
    for each in beats:
        each.cancel()


async def test_an_unavailable_server_differs_from_no_clock() -> None:
    """A clock that cannot be compared is no reason to stop."""
    hub = MemoryHub()
    clocks = OtherClocks(hub.connect(), lambda: 0)
    hub.stop()
    assert await clocks.differ() == ""


def test_the_setting_is_checked() -> None:
    """Seconds above 0; five unless it is set."""
    assert skew_from({}) == 5 * SECOND_NS
    assert skew_from({"FAIRLEAD_CLOCK_SKEW_S": "0.5"}) == SECOND_NS // 2
    with pytest.raises(BadSetting, match="FAIRLEAD_CLOCK_SKEW_S: expected seconds above 0"):
        skew_from({"FAIRLEAD_CLOCK_SKEW_S": "0"})
