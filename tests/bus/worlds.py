"""Two worlds with one face: the in-memory twin and a real nats-server. The contract suite runs in both."""

import asyncio
import os
import shutil
import signal
from typing import Protocol

import msgspec

from fairlead_bus import streams
from fairlead_bus.memory import MemoryBus, MemoryHub
from fairlead_bus.nats import stream_setup
from fairlead_bus.nats.adapter import NatsBus, connect
from fairlead_bus.port import Bus
from fairlead_schemas.wire import subjects
from tests.kit.nats_server import NatsServer


class BusWorld(Protocol):
    """A server, its clients, and what can go wrong with it."""

    async def connect(self) -> Bus: ...

    async def stop_server(self) -> None: ...

    async def start_server(self) -> None: ...

    async def lose_log(self) -> None:
        """The server comes back with an empty store, its streams made again."""
        ...

    async def remove(self, bus: Bus, sequence: int) -> None:
        """Lose one commit out of the middle of the log."""
        ...

    async def lose_commands(self, behind: int) -> None:
        """Restart the server without the end of CMD: its sequences above `behind` are given out again."""
        ...

    async def lose_command(self, bus: Bus, sequence: int) -> None:
        """Lose one message out of the middle of CMD."""
        ...

    async def unknown_append(self, bus: Bus, subject: str, payload: bytes, expected: int, *, stored: bool) -> None:
        """An append whose answer is lost; raises OutcomeUnknown."""
        ...

    async def close(self) -> None: ...


class MemoryWorld:
    """The twin."""

    def __init__(self, log_bytes_max: int | None = None) -> None:
        self.hub = MemoryHub(log_bytes_max=log_bytes_max)

    async def connect(self) -> MemoryBus:
        bus = self.hub.connect()
        await bus.ensure()
        return bus

    async def stop_server(self) -> None:
        self.hub.stop()

    async def start_server(self) -> None:
        self.hub.start()

    async def lose_log(self) -> None:
        self.hub.stop()
        self.hub.truncate(subjects.LOG, 0)
        self.hub.start()

    async def remove(self, bus: Bus, sequence: int) -> None:
        self.hub.remove(subjects.LOG, sequence)

    async def lose_commands(self, behind: int) -> None:
        self.hub.stop()
        self.hub.truncate(subjects.CMD, behind)
        self.hub.start()

    async def lose_command(self, bus: Bus, sequence: int) -> None:
        self.hub.remove(subjects.CMD, sequence)

    async def unknown_append(self, bus: Bus, subject: str, payload: bytes, expected: int, *, stored: bool) -> None:
        self.hub.lose_next_answer(stored=stored)
        await bus.append(subjects.LOG, subject, payload, expected=expected)

    async def close(self) -> None:
        for client in list(self.hub.clients):
            await client.close()


class NatsWorld:
    """The real thing."""

    def __init__(self, server: NatsServer, log_bytes_max: int | None = None) -> None:
        self.server = server
        self.buses: list[NatsBus] = []
        os.environ["FAIRLEAD_NATS_MONITOR"] = server.monitor
        os.environ.pop("FAIRLEAD_LOG_MAX_BYTES", None)
        if log_bytes_max:
            os.environ["FAIRLEAD_LOG_MAX_BYTES"] = str(log_bytes_max)

    async def connect(self) -> NatsBus:
        bus = await connect(self.server.url, name="contract")
        await bus.ensure()
        self.buses.append(bus)
        return bus

    async def stop_server(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def start_server(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def lose_log(self) -> None:
        await self.stop_server()
        shutil.rmtree(self.server.store_dir)
        await self.start_server()
        await self.connect()

    async def remove(self, bus: Bus, sequence: int) -> None:
        """A sealed stream cannot lose a message: the log is copied into an unsealed one of the same name first."""
        assert isinstance(bus, NatsBus)
        state = await bus.state(subjects.LOG)
        kept = [await bus.read(subjects.LOG, n) for n in range(1, state.last + 1)]
        await bus.link.read(f"$JS.API.STREAM.DELETE.{subjects.LOG}")
        spec = next(spec for spec in streams.stream_specs() if spec.name == subjects.LOG)
        await stream_setup.ensure_stream(
            bus.link,
            stream_setup.RequiredStream(
                spec.name, lambda copies: stream_setup.stream_config(spec._replace(sealed=False), copies)
            ),
        )
        for stored in kept:
            assert stored is not None
            await bus.append(subjects.LOG, stored.subject, stored.payload)
        await bus.link.read(
            f"$JS.API.STREAM.MSG.DELETE.{subjects.LOG}", msgspec.json.encode({"seq": sequence, "no_erase": True})
        )

    async def lose_commands(self, behind: int) -> None:
        """One bit of the first message that shall be lost is flipped, and the index is gone, as after a kill: the server
        drops that message and everything behind it."""
        bus = self.buses[0]
        lost = await bus.read(subjects.CMD, behind + 1)
        assert lost is not None
        await self.stop_server()
        damage_stream(self.server, subjects.CMD, lost.payload)
        await self.start_server()

    async def lose_command(self, bus: Bus, sequence: int) -> None:
        assert isinstance(bus, NatsBus)
        request = msgspec.json.encode({"seq": sequence, "no_erase": True})
        await bus.link.read(f"$JS.API.STREAM.MSG.DELETE.{subjects.CMD}", request)

    async def unknown_append(self, bus: Bus, subject: str, payload: bytes, expected: int, *, stored: bool) -> None:
        """The server is frozen, so that nobody knows; then it thaws (stored) or is killed before it read anything."""
        os.kill(self.server.pid, signal.SIGSTOP)
        await asyncio.sleep(0.05)  # its threads stop one by one
        try:
            assert isinstance(bus, NatsBus)
            headers = {"Nats-Expected-Last-Subject-Sequence": str(expected)}
            await bus.link.ask(subject, payload, headers=headers, timeout_s=0.3)
        finally:
            if stored:
                os.kill(self.server.pid, signal.SIGCONT)
            else:
                await self.stop_server()
                await self.start_server()

    async def close(self) -> None:
        for bus in self.buses:
            await bus.close()


def damage_stream(server: NatsServer, stream: str, payload: bytes) -> None:
    """Flip a bit within the stored payload, and remove the stream's index. The server is stopped."""
    (folder,) = server.store_dir.rglob(f"streams/{stream}")
    for block in (folder / "msgs").glob("*.blk"):
        held = bytearray(block.read_bytes())
        at = held.find(payload)
        if at >= 0:
            held[at] ^= 1
            block.write_bytes(held)
            for index in folder.rglob("index.db"):
                index.unlink()
            return
    raise AssertionError(f"{stream} holds no such message")
