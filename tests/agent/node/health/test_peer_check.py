"""Ranks of a gang that try each other: over this machine's own addresses, and over hosts of which one is cut off."""

import asyncio
import os
import subprocess
import sys
import warnings

import msgspec
import pytest

from fairlead_agent.node.health import fault_localization
from fairlead_agent.node.health.fault_localization import FaultVerdict
from fairlead_agent.node.health.peer_check import Rules, meet, port_of
from tests.agent.placer_script import order
from tests.kit.eventually import eventually_async
from tests.kit.hosts import Hosts
from tests.kit.loopback import hosts

#: Where somebody is missing all of it is waited for; where all come, it ends when they have met.
SHORT = Rules(tried_s=5.0, shared_s=7.0, piece_bytes=64 * 1024)
LONG = SHORT._replace(tried_s=60.0, shared_s=90.0)


@pytest.fixture(autouse=True)
def _rates_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks are in one process here, and what else the machine does is no slow network: what is slow is test_culprits.py's."""
    monkeypatch.setattr(fault_localization, "SLOWER", 10**9)


async def gather(job: str, count: int, *away: int) -> dict[int, FaultVerdict]:
    """A gang in which some never come."""
    came, rules = [rank for rank in range(count) if rank not in away], SHORT if away else LONG
    found = await asyncio.gather(*(meet(order(job, "true", rank=rank, hosts=hosts(count)), rules) for rank in came))
    return dict(zip(came, found, strict=True))


async def test_a_gang_that_can_talk_starts() -> None:
    """Every rank says so, and does not wait for its time to be over."""
    async with asyncio.timeout(LONG.tried_s):
        assert all(found.clean for found in (await gather("1", 8)).values())


async def test_a_rank_that_does_not_answer_is_blamed_by_all() -> None:
    """Each of the others reaches the same verdict by itself."""
    found = await gather("2", 6, 4)
    assert {rank: verdict.culprits for rank, verdict in found.items()} == dict.fromkeys((0, 1, 2, 3, 5), (4,))


async def test_a_rank_without_contact_blames_itself() -> None:
    """No other rank reaches it: it is more likely at fault than all the others."""
    assert (await meet(order("3", "true", rank=2, hosts=hosts(5)), SHORT)).culprits == (2,)


async def test_a_larger_gang_passes_rows_on() -> None:
    """Not everybody tries everybody; all rows reach all."""
    assert all(found.clean for found in (await gather("4", 20)).values())


async def test_a_partner_that_takes_rows_and_never_answers_costs_no_connection() -> None:
    """Each connection is closed when its time is over, and not left to the garbage collector, which may come much later."""
    mine, silent = hosts(2)
    open_now: set[object] = set()

    async def answer_pieces_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        hello = msgspec.json.decode(await reader.readline())
        if hello.get("piece"):
            writer.write(await reader.readexactly(hello["piece"]))
        await reader.read()  # until the other end closes
        open_now.discard(writer)
        writer.close()

    server = await asyncio.start_server(answer_pieces_only, silent, port_of("6", 1, 1))
    async with server:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            await meet(order("6", "true", rank=0, hosts=(mine, silent)), SHORT._replace(tried_s=1.0, shared_s=1.5))
            await eventually_async(lambda: not open_now, "every connection is closed")
        assert [str(each.message) for each in caught if each.category is ResourceWarning] == []


async def test_unknown_peers_and_other_attempts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invalid hellos, another token, rows of ranks that do not exist."""

    async def shout(*lines: bytes) -> None:
        for line in lines:
            for _ in range(500):
                try:
                    _, writer = await asyncio.open_connection(hosts(3)[0], port_of("7", 1, 0))
                    break
                except OSError:
                    await asyncio.sleep(0.02)
            else:
                return
            writer.write(line)
            await writer.drain()
            writer.close()

    lines = (
        b"\xff\x00 no hello\n",
        b'{"token":"x","rank":1,"rows":{"1":{"0":0}}}\n',
        b'{"token":"x","rank":1,"piece":99999999999}\n',
        b"x" * 2**21 + b"\n",
    )
    found, _ = await asyncio.gather(gather("7", 3), shout(*lines))
    assert all(verdict.clean for verdict in found.values())


def test_ranks_on_one_machine_have_ports_of_their_own() -> None:
    """Below those that gangs meet at themselves, and those that the kernel gives out."""
    ports = {port_of("812", 3, rank) for rank in range(2000)}
    assert len(ports) == 2000
    assert min(ports) >= 10_000 and max(ports) < 20_000


SCRIPT = """
import asyncio, sys
from fairlead_agent.node.health.peer_check import meet
from fairlead_schemas.wire.desired import RunOrder
hosts = tuple(sys.argv[2:])
found = asyncio.run(meet(RunOrder(job="7", attempt=1, rank=int(sys.argv[1]), epoch=1, hosts=hosts)))
print(found.culprits, found.paths)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_disconnected_host_is_blamed_within_ten_seconds() -> None:
    """Four hosts, one without its cable: the three blame it, and it blames itself. No rank waits for longer than the
    rules allow."""
    assert Rules().tried_s < Rules().shared_s < 10
    with Hosts("a", "b", "c", "d") as network:
        names = ("a", "b", "c", "d")
        network["c"].cut()
        addresses = [network[name].address for name in names]
        running = [
            network[name].start([sys.executable, "-c", SCRIPT, str(rank), *addresses], output=subprocess.PIPE)
            for rank, name in enumerate(names)
        ]
        said = [process.communicate(timeout=60)[0].decode() for process in running]
    assert said == ["(2,) ()\n"] * 4
