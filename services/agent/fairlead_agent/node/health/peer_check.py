"""Network check among the nodes of a gang before it starts: over TCP between the agents' own addresses, without the bus.

Each agent listens on a port that follows from the job, the attempt and its rank, tries its partners
(`culprits.partners`) until `TRIED_S`, and passes on every row of results that it knows until all are there or `SHARED_S`.
So each agent reaches a verdict of its own, from the same rows where the network lets them through. An agent that is cut
off finds that no other agent answers it. No agent is in charge.

A meeting is no secret and carries none: its token keeps strangers and other attempts out of the results, but no
attacker on the same network. The worst that an attacker can do is to keep a gang from starting, and an attacker on that
network can do that anyway.
"""

import asyncio
import contextlib
import hashlib
import ipaddress
import time
from typing import NamedTuple
from zlib import crc32

import msgspec

from fairlead_agent.node.health.fault_localization import FaultVerdict, partners, verdict, worth_another_try
from fairlead_schemas.wire.desired import RunOrder

#: Ports of meetings, below those that gangs themselves meet at; ranks beyond share them, at other addresses.
PORT_FIRST, PORTS, RANKS_APART = 10_000, 8_000, 2_000
#: From the meeting's start: until when partners are tried, and until when rows are passed on. Agents of a gang hear of their
#: orders within a second or two of each other.
TRIED_S, SHARED_S = 5.0, 7.5
RETRY_S = 0.2
#: Longest time for one partner to take rows.
ROWS_S = 1.0
#: Bytes that a pair sends each way.
PIECE_BYTES = 4 * 2**20
PARTNERS_MAX = 16
#: So often a partner is tried again that was slow.
TRIED_AGAIN = 2
#: Partners that one rank tries at once: more would measure each other.
AT_ONCE = 2
LINE_BYTES_MAX = 2**20


class Rules(NamedTuple):
    """Time and size limits of a meeting; tests use shorter ones."""

    tried_s: float = TRIED_S
    shared_s: float = SHARED_S
    piece_bytes: int = PIECE_BYTES


class _Hello(msgspec.Struct):
    """First line of a connection. It announces a try of `piece` bytes, or it passes on `rows`."""

    token: str
    rank: int
    piece: int = 0
    rows: dict[str, dict[str, int]] = {}


_encoder = msgspec.json.Encoder()
_hello = msgspec.json.Decoder(_Hello)


def port_of(job: str, attempt: int, rank: int) -> int:
    """Return the port on which a rank listens: ranks on one machine must not get each other's port."""
    return PORT_FIRST + crc32(f"meet {job}.{attempt}".encode()) % PORTS + rank % RANKS_APART


async def meet(order: RunOrder, rules: Rules | None = None) -> FaultVerdict:
    """Meet the others of the gang, and say who is to blame for what does not work; within `shared_s` seconds."""
    meeting = _Meeting(order, rules or Rules())
    try:
        return await meeting.hold()
    finally:
        meeting.leave()


def _is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the address; then the agent listens on no other address.

    A name counts as reachable: many machines have their own name at a loopback address.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Meeting:
    def __init__(self, order: RunOrder, rules: Rules) -> None:
        self._order, self._rules, self._ranks = order, rules, len(order.hosts)
        self._token = hashlib.sha256(f"{order.job}.{order.attempt}.{order.epoch}".encode()).hexdigest()[:16]
        self._rows: dict[int, dict[int, int]] = {}
        self._partners = partners(order.rank, self._ranks, PARTNERS_MAX)
        self._began = time.monotonic()
        self._server: asyncio.Server | None = None

    async def hold(self) -> FaultVerdict:
        """The whole of it."""
        own = self._order.hosts[self._order.rank]
        with contextlib.suppress(OSError):  # a port that is taken: the others will say so
            self._server = await asyncio.start_server(
                self._answer,
                own if _is_loopback(own) else None,
                self._port(self._order.rank),
                limit=LINE_BYTES_MAX,
                reuse_address=True,
            )
        at_once = asyncio.Semaphore(AT_ONCE)
        mine: dict[int, int] = {}
        await asyncio.gather(*(self._try(peer, mine, at_once) for peer in self._partners))
        for _ in range(TRIED_AGAIN):
            await asyncio.gather(*(self._try_again(peer, mine, at_once) for peer in worth_another_try(mine)))
        self._rows[self._order.rank] = mine
        while len(self._rows) < self._ranks and self._left(self._rules.shared_s) > 0:
            await self._tell()
            await asyncio.sleep(min(RETRY_S, max(0.0, self._left(self._rules.shared_s))))
        await self._tell()  # callers that wait for the last row get it from here
        return verdict(self._ranks, self._rows)

    def leave(self) -> None:
        """Listen until all who may still ask have had their time."""
        if self._server is not None:
            asyncio.get_running_loop().call_later(max(0.0, self._left(self._rules.shared_s)), self._server.close)

    def _left(self, until_s: float) -> float:
        return self._began + until_s - time.monotonic()

    def _port(self, rank: int) -> int:
        return port_of(self._order.job, self._order.attempt, rank)

    # -- asking

    async def _try(self, peer: int, mine: dict[int, int], at_once: asyncio.Semaphore) -> None:
        """Store the peer's rate in MiB/s in `mine`, 0 if no data came through in time. The try is repeated until that time."""
        mine[peer] = 0
        while (left := self._left(self._rules.tried_s)) > 0 and not mine[peer]:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with at_once, asyncio.timeout(left):
                    mine[peer] = await self._measure(peer)
            if not mine[peer]:
                await asyncio.sleep(RETRY_S)

    async def _try_again(self, peer: int, mine: dict[int, int], at_once: asyncio.Semaphore) -> None:
        """Once more, and the better one counts."""
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with at_once, asyncio.timeout(max(0.0, self._left(self._rules.tried_s))):
                mine[peer] = max(mine[peer], await self._measure(peer))

    async def _measure(self, peer: int) -> int:
        piece = self._rules.piece_bytes
        async with asyncio.timeout(RETRY_S * 5):  # a silent address must not keep others waiting
            reader, writer = await self._connect(peer)
        try:
            began = time.monotonic()
            writer.write(self._line(_Hello(token=self._token, rank=self._order.rank, piece=piece)) + bytes(piece))
            await writer.drain()
            await reader.readexactly(piece)
            took = max(1e-6, time.monotonic() - began)
            return max(1, round(2 * piece / took / 2**20))
        finally:
            writer.close()

    async def _tell(self) -> None:
        """Every row that is known, to every partner that answered; the others hear it from those, if from anybody."""
        rows = {str(rank): {str(peer): rate for peer, rate in row.items()} for rank, row in self._rows.items()}
        line = self._line(_Hello(token=self._token, rank=self._order.rank, rows=rows))

        async def one(peer: int) -> None:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(ROWS_S):
                    reader, writer = await self._connect(peer)
                    try:
                        writer.write(line)
                        await writer.drain()
                        await reader.read(1)
                    finally:  # a partner that does not answer would keep the connection, and its own end, open
                        writer.close()

        mine = self._rows[self._order.rank]
        await asyncio.gather(*(one(peer) for peer in self._partners if mine[peer]))

    async def _connect(self, peer: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._order.hosts[peer], self._port(peer), limit=LINE_BYTES_MAX)

    def _line(self, hello: _Hello) -> bytes:
        return _encoder.encode(hello) + b"\n"

    # -- answering

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._rules.tried_s):
                await self._serve(reader, writer)
        except (OSError, TimeoutError, ValueError, msgspec.MsgspecError, asyncio.IncompleteReadError):
            pass  # the other end sees it as a failure, and that is what it is
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = _hello.decode(await reader.readline())
        if hello.token != self._token or not 0 <= hello.rank < self._ranks or not 0 <= hello.piece <= PIECE_BYTES:
            return
        if hello.piece:
            await reader.readexactly(hello.piece)
            writer.write(bytes(hello.piece))
        else:
            for rank, row in hello.rows.items():
                if 0 <= int(rank) < self._ranks and int(rank) != self._order.rank:
                    self._rows[int(rank)] = {int(peer): rate for peer, rate in row.items()}
            writer.write(b"k")
        await writer.drain()
