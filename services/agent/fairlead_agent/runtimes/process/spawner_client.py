"""Agent's end of the spawner's socket, and the conversation over it: starts a spawner where none runs, connects, sends
and receives. Events are held back until a listing was handled; after a break it resumes, with the same spawner or the
next one.

The link owns the connection and no state of runs. Events are delivered in their order, in the event loop. The protocol
is described in `spawner.py`, which this module never imports: it is another program.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import structlog

from fairlead_agent.runtimes.port import RuntimeUnfit

PROGRAM = str(Path(__file__).with_name("spawner.py"))
SOCKET, LOCK, LOG = "spawner.sock", "spawner.lock", "spawner.log"
BACKLOG = 16
RETRY_S = 0.1
#: Versions of a spawner that this agent can talk to: its own, and those that an agent before it may have left running.
PROTOCOLS = (1, 2)
RETRIES = 50


class Started(msgspec.Struct, tag_field="event", tag="started"):
    """The run's program runs, or (pid 0) there is none and its end follows."""

    key: str
    pid: int


class Failed(msgspec.Struct, tag_field="event", tag="failed"):
    """The run could not be started."""

    key: str
    text: str


class Ended(msgspec.Struct, tag_field="event", tag="ended"):
    """The run and everything that it has started are gone. `oom`: the kernel killed its program for memory."""

    key: str
    code: int | None
    signal: int | None
    oom: bool = False


class Listing(msgspec.Struct, tag_field="event", tag="listing"):
    """Everything that the spawner knows. `orphans`: process ids of runs that an earlier spawner has started.
    `marks`: by which processes of running and orphaned runs are found (processes.py); older spawners give none.
    `protocol`: the version that it speaks; older ones say none."""

    running: dict[str, int]
    ended: dict[str, tuple[int | None, int | None]]
    orphans: dict[str, int]
    protocol: int = 1
    marks: dict[str, int] = {}


Event = Started | Failed | Ended | Listing

_decode = msgspec.json.Decoder(Event).decode
_encode = msgspec.json.Encoder().encode


class SpawnerLink(asyncio.Protocol):
    """Link over one connection after the other; `on_event` gets each event, `lost` is called when a connection has broken."""

    def __init__(self, base: str, on_event: Callable[[Event], None], lost: Callable[[], None]) -> None:
        self.connected = False
        self._base = base
        self._on_event = on_event
        self._lost = lost
        self._lines: list[bytes] = []
        self._rest = b""
        self._transport: asyncio.WriteTransport | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._loop = asyncio.get_running_loop()

    async def connect(self) -> None:
        """Connect, to a spawner of our own where none lives. Raises OSError when that does not work."""
        await self._loop.create_unix_connection(lambda: self, sock=await self._reached())

    async def _reached(self) -> socket.socket:
        tries_left = RETRIES
        while True:
            tries_left -= 1
            try:
                self._start_if_none()
                return self._connected_socket()
            except (ConnectionError, FileNotFoundError):  # it is just ending or has just been started
                if not tries_left:
                    raise
                await asyncio.sleep(RETRY_S)

    def send(self, request: dict[str, object]) -> None:
        """With everything else of this turn of the loop. Lost when not connected. Raises ValueError, TypeError
        for what cannot be written as JSON."""
        line = _encode(request)
        if not self._lines:
            self._loop.call_soon(self._flush)
        self._lines.append(line)

    def close(self) -> None:
        """Let go, after what was sent is written; the spawner stays."""
        self._flush()
        self.connected = False
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        if self._lines and self.connected and self._transport is not None:
            self._transport.write(b"\n".join([*self._lines, b""]))
        self._lines.clear()

    # ------------------------------------------------------------------ what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.WriteTransport, transport)
        self._rest = b""
        self.connected = True

    def data_received(self, data: bytes) -> None:
        """Events."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._on_event(_decode(line))

    def connection_lost(self, exc: Exception | None) -> None:
        """The spawner has ended, or we have closed."""
        self._transport = None
        if self.connected:
            self.connected = False
            self._lost()

    # ------------------------------------------------------------------ the socket and the process

    def _start_if_none(self) -> None:
        if self._child is not None:
            self._child.poll()  # reaps one that has died
        lock = os.open(f"{self._base}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._start(lock)
        finally:
            os.close(lock)  # the spawner's copy holds the lock

    def _start(self, lock: int) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, self._address() as address:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self._base}/{SOCKET}")  # noqa: PTH108 -- of a spawner that is gone
            os.fchmod(listener.fileno(), 0o600)
            listener.bind(address)
            listener.listen(BACKLOG)
            fds = (lock, listener.fileno())
            with open(f"{self._base}/{LOG}", "wb") as log:  # noqa: PTH123
                self._child = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-X", "utf8", PROGRAM, self._base, *map(str, fds)],
                    pass_fds=fds,
                    cwd="/",
                    env={},
                    start_new_session=True,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                )

    def _connected_socket(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with self._address() as address:
                sock.connect(address)
        except OSError:
            sock.close()
            raise
        sock.setblocking(False)
        return sock

    @contextlib.contextmanager
    def _address(self):  # type: ignore[no-untyped-def]
        """Yield a name of the socket that is short enough (107 bytes) at any depth of the directory."""
        directory = os.open(self._base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{directory}/{SOCKET}"
        finally:
            os.close(directory)


LISTING_S = 30.0
LISTING_TRIES = 5
RECONNECT_S = 0.5

_log = structlog.get_logger()


class Conversation:
    """Conversation with one spawner after the other. `on_event` gets the events of runs, in their order; `again` gets the listing
    that a conversation begins with after a break.
    """

    def __init__(
        self, home: str, on_event: Callable[[Started | Failed | Ended], None], again: Callable[[Listing], None]
    ) -> None:
        self._home, self._tell, self._again = home, on_event, again
        #: False while the connection is broken: requests wait with their callers.
        self.ready = False
        self._held: list[Event] | None = None
        self._listing: asyncio.Future[Listing] | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._link: SpawnerLink

    async def open(self) -> None:
        """Raises RuntimeUnfit where no spawner can be started."""
        self._loop = asyncio.get_running_loop()
        self._link = SpawnerLink(self._home, self._on_event, self._lost)
        try:
            await self._link.connect()
        except OSError as error:
            raise RuntimeUnfit(f"no spawner answers in {self._home}: {error}; see spawner.log there") from error
        self.ready = True

    def send(self, request: dict[str, object]) -> None:
        """Lost while it is broken off. Raises ValueError, TypeError for what cannot be written as JSON."""
        self._link.send(request)

    async def listing(self) -> Listing:
        """Return the spawner's complete current state. Later events are held back until the caller awaits for the first time.

        Raises RuntimeUnfit.
        """
        for _ in range(LISTING_TRIES):  # an idle spawner may end while we connect
            if self._reconnecting is not None:
                await self._reconnecting
            try:
                return await self._list()
            except ConnectionError:
                continue
            except TimeoutError:
                break
        raise RuntimeUnfit(f"the spawner in {self._home} does not answer; see spawner.log there")

    def understood(self, listing: Listing) -> Listing:
        """The same. Raises RuntimeUnfit for one of a spawner that we might not understand."""
        if listing.protocol not in PROTOCOLS:
            raise RuntimeUnfit(
                f"the spawner in {self._home} uses version {listing.protocol} of its protocol, this agent knows "
                f"{PROTOCOLS[0]} to {PROTOCOLS[-1]}: a newer agent has started it; start that version again, or drain the node first"
            )
        return listing

    def close(self) -> None:
        """Close the connection after writing the sent data; the spawner stays."""
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        self._link.close()

    def _on_event(self, event: Event) -> None:
        if self._held is not None:
            self._held.append(event)
        elif not isinstance(event, Listing):
            self._tell(event)
        elif self._listing is not None and not self._listing.done():
            self._held = []  # until who asked has dealt with it
            self._listing.set_result(event)

    async def _list(self) -> Listing:
        self._listing = self._loop.create_future()
        self._link.send({"op": "list"})
        async with asyncio.timeout(LISTING_S):
            listing = await self._listing
        self._loop.call_soon(self._go_on)  # after what the caller does with it, up to its next wait
        return listing

    def _go_on(self) -> None:
        held, self._held = self._held, None
        for event in held or ():
            self._on_event(event)

    def _lost(self) -> None:
        self.ready, self._held = False, None
        if self._listing is not None and not self._listing.done():
            self._listing.set_exception(ConnectionError("the spawner has gone"))
        if self._reconnecting is None or self._reconnecting.done():
            self._reconnecting = self._loop.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        while not self.ready:
            try:
                await self._link.connect()
                listing = await self._list()
                self.ready = True
                self._again(listing)
            except (OSError, TimeoutError) as error:
                _log.error("no spawner answers; runs continue", directory=self._home, reason=str(error))
                self._link.close()
                await asyncio.sleep(RECONNECT_S)
