"""Docker engine of this node: its socket, its availability, and calls that each have a timeout.

Further parts:
- answers of the engine that last: output, events, pulls;
- event stream of the engine, and the engine's availability.

Short calls go through the Docker SDK in a few threads, apart by urgency, so that a call that ends a run never waits
behind starts. If the engine hangs (stopped, a full disk), calls fail after a while,
and the rest of the agent is not affected.

One connection each, and no thread.

The SDK would hold a thread for every such answer. Asked in HTTP/1.0, the engine sends its body plainly and ends it
with the connection, so reading one is reading a socket. Leaving the block ends what was asked for (a pull, too).

One connection serves all containers of a node.

After each new connection all states are compared again, since events in between are lost. Start at `EngineNews.listen`.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlencode

import docker
import docker.errors
import requests.exceptions
import structlog

from fairlead_agent.runtimes.docker.fitness import EngineFacts, engine_facts
from fairlead_agent.runtimes.port import RuntimeUnfit
from fairlead_agent.settings import DOCKER_SOCKET

#: Starts at once: runc's work is the machine's, and more of them only wait for each other.
START_THREADS = 8
THREADS = 8
#: Whatever goes wrong between the agent and its engine.
ENGINE_ERRORS = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)


class Patience(NamedTuple):
    """Seconds that the agent waits for an engine; tests have less."""

    #: A call; a container's start may take long on a busy disk.
    call_s: float = 60.0
    #: The engine's answer to a signal, before the agent sends it to the process itself.
    signal_s: float = 5.0
    #: Between looks whether it answers, and the wait for that.
    look_s: float = 5.0
    #: While it is away it is asked again this often.
    retry_s: float = 1.0
    #: Time that a process may be gone while the engine cannot report how it ended: after it, its end is unknown.
    silent_s: float = 60.0
    #: Time in which a container may still print after its end was reported.
    drain_s: float = 5.0
    #: Of containers that no journal knows, between TERM and KILL.
    orphan_grace_s: float = 10.0


class EngineLink:
    """Link to one engine on this machine, reached by its socket."""

    def __init__(self, socket: str = DOCKER_SOCKET, patience: Patience = Patience()) -> None:  # noqa: B008 -- immutable
        self.socket = socket
        self.patience = patience
        self.facts = EngineFacts()
        #: What GET /info answered last.
        self.info: Mapping[str, Any] = {}
        self.networks: frozenset[str] = frozenset()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="docker")
        self._start_threads = ThreadPoolExecutor(START_THREADS, thread_name_prefix="docker-start")
        self._api: docker.APIClient
        self._answered_at = time.monotonic()
        #: How often its connection was lost: what was seen of a container before says nothing about its end after.
        self.outages = 0

    async def open(self) -> None:
        """Ask what it is. Raises RuntimeUnfit when none answers."""
        try:
            self._api = await self._within(self._threads, self._connect)
            await self.learn()
            self.networks = frozenset(network["Name"] for network in await self.call(lambda api: api.networks()))
        except ENGINE_ERRORS as error:
            raise RuntimeUnfit(
                f"no Docker engine answers at {self.socket} ({error}); start one, name its socket in DOCKER_HOST, or use "
                "FAIRLEAD_RUNTIME=process"
            ) from error

    async def learn(self) -> None:
        """Read the engine's facts again: it may come back as another version, or with other settings. Raises ENGINE_ERRORS."""
        self.info = await self.call(lambda api: api.info())
        self.facts = engine_facts(self.info, await self.call(lambda api: api.version()))

    async def call[T](self, ask: Callable[[docker.APIClient], T], within_s: float | None = None) -> T:
        """Make one short call. Raises ENGINE_ERRORS. After a TimeoutError, which is one of them, the outcome is unknown."""
        return await self._ask(self._threads, ask, within_s)

    async def call_slowly[T](self, ask: Callable[[docker.APIClient], T]) -> T:
        """Make one call that makes the engine work. A few run at a time; the others wait without a limit."""
        return await self._within(self._start_threads, lambda: ask(self._api))

    async def _ask[T](
        self, threads: ThreadPoolExecutor, ask: Callable[[docker.APIClient], T], within_s: float | None
    ) -> T:
        async with asyncio.timeout(self.patience.call_s if within_s is None else within_s):
            done = await self._within(threads, lambda: ask(self._api))
        self._answered_at = time.monotonic()
        return done

    async def _within[T](self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    def _connect(self) -> docker.APIClient:
        timeout_s = max(1, round(self.patience.call_s))
        return docker.APIClient(base_url=f"unix://{self.socket}", version="auto", timeout=timeout_s)

    @property
    def silent_s(self) -> float:
        """Seconds since it last answered a call; it is looked at every few seconds."""
        return time.monotonic() - self._answered_at

    def close(self) -> None:
        """Close the link without waiting for calls that hang."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._start_threads.shutdown(wait=False, cancel_futures=True)


def why(error: Exception) -> str:
    """Return the error's explanation for a person: the engine's own message, if it has one."""
    if isinstance(error, TimeoutError | requests.exceptions.Timeout):
        return "the Docker engine has not answered in time"
    if isinstance(error, requests.exceptions.ConnectionError):
        return f"the Docker engine does not answer: {error}"
    explanation: Any = getattr(error, "explanation", None) or error
    return str(explanation) or type(error).__name__


#: The engine answers a head at once; until then it may look for an image, or hang.
HEAD_S = 30.0
#: The longest line of events or progress.
LINE_BYTES_MAX = 2**20
READ_BYTES = 64 * 1024


class EngineRefused(Exception):
    """The engine has answered, with an error: its status and its words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


@contextlib.asynccontextmanager
async def answer(
    socket: str, method: str, path: str, query: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> AsyncGenerator[asyncio.StreamReader]:
    """The body of one answer. `path` is without the API's version. Raises EngineRefused, OSError (TimeoutError)."""
    async with asyncio.timeout(HEAD_S):
        reader, writer = await asyncio.open_unix_connection(socket, limit=LINE_BYTES_MAX)
    try:
        async with asyncio.timeout(HEAD_S):
            lines = [f"{method} {path}?{urlencode(query)} HTTP/1.0", "Host: docker"]
            lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            await _head(reader)
        yield reader
    finally:
        writer.close()


async def upgrade(socket: str, path: str, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the stream in both directions that a POST becomes; the caller closes it. Raises EngineRefused, OSError."""
    async with asyncio.timeout(HEAD_S):
        reader, writer = await asyncio.open_unix_connection(socket, limit=READ_BYTES)
        try:
            head = f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await _head(reader)
        except BaseException:
            writer.close()
            raise
    return reader, writer


async def _head(reader: asyncio.StreamReader) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ConnectionError("the engine closed the connection without an answer") from error
    status = int(head.split(b" ", 2)[1])
    if status >= 300:
        raise EngineRefused(status, _words(await reader.read(READ_BYTES)))


def _words(body: bytes) -> str:
    with contextlib.suppress(ValueError):
        document = json.loads(body)
        if isinstance(document, dict):
            return str(document.get("message", ""))
    return body.decode(errors="replace").strip()


async def documents(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """JSON objects, a line each, until the answer ends. Raises ConnectionError for what is not one."""
    while line := await reader.readline():
        try:
            yield json.loads(line)
        except ValueError as error:
            raise ConnectionError("the engine's answer broke off") from error


#: Without an event, the containers are compared this often all the same.
COMPARE_S = 60.0

_log = structlog.get_logger()


class EngineNews:
    """Events of the containers that a label names. `on_event(container id, action, attributes)`; `compare` lists them."""

    def __init__(
        self,
        engine: EngineLink,
        label: str,
        on_event: Callable[[str, str, dict[str, str]], None],
        compare: Callable[[], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._query = {
            "filters": json.dumps({"type": ["container"], "label": [label], "event": ["die", "oom", "kill"]})
        }
        self._on_event = on_event
        self._compare = compare
        #: Why it was last away; "" while it is there.
        self._away_reason = ""

    async def listen(self) -> None:
        """Handle the engine's events without end; reconnect to an engine that is away again and again."""
        while True:
            try:
                async with answer(self._engine.socket, "GET", "/events", self._query) as reader:
                    if self._engine.outages:
                        await self._engine.learn()
                    await self._compare()
                    self._away_reason = ""
                    async for event in documents(reader):
                        self._event(event)
                reason = "it closed the connection"
            except (*ENGINE_ERRORS, EngineRefused) as error:
                reason = str(error) or type(error).__name__
            if reason != self._away_reason:  # it is asked again and again
                _log.warning("the Docker engine is away; runs are looked at when it is back", reason=reason)
            self._away_reason = reason
            self._engine.outages += 1
            await asyncio.sleep(self._engine.patience.retry_s)

    def _event(self, event: dict[str, Any]) -> None:
        actor = event.get("Actor") or {}
        self._on_event(str(actor.get("ID", "")), str(event.get("Action", "")), actor.get("Attributes") or {})

    async def look(self) -> None:
        """Ping the engine periodically, without end: an engine that hangs does not close its connection."""
        clock = asyncio.get_running_loop().time
        compared, answers = clock(), True
        while True:
            await asyncio.sleep(self._engine.patience.look_s)
            try:
                await self._engine.call(lambda api: api.ping(), self._engine.patience.look_s)
                if clock() - compared >= COMPARE_S:
                    await self._compare()
                    compared = clock()
                answers = True
            except ENGINE_ERRORS as error:
                if answers:
                    _log.warning("the Docker engine does not answer", reason=why(error))
                answers = False
