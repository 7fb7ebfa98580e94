"""The engine as this node's agent knows it: where it is, whether it answers, and calls with an end to each.

Short calls go through the Docker SDK in a few threads, apart by urgency, so that what ends a run never waits behind
starts. Lasting answers are `streams.py`. An engine that stands still (stopped, a full disk) fails calls
after a while, and nothing else of the agent.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import docker
import docker.errors
import requests.exceptions

from fairlead_agent.runtimes.docker.facts import EngineFacts, engine_facts
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
    #: A process that is gone while the engine cannot say how it ended: then nobody can.
    silent_s: float = 60.0
    #: What a container still prints after its end was told.
    drain_s: float = 5.0
    #: Of containers that no journal knows, between TERM and KILL.
    orphan_grace_s: float = 10.0


class EngineLink:
    """One engine on this machine, reached by its socket."""

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
        """What it is now: it may come back as another version, or with other settings. Raises ENGINE_ERRORS."""
        self.info = await self.call(lambda api: api.info())
        self.facts = engine_facts(self.info, await self.call(lambda api: api.version()))

    async def call[T](self, ask: Callable[[docker.APIClient], T], within_s: float | None = None) -> T:
        """One short call. Raises ENGINE_ERRORS (TimeoutError is one: whether it was done is then unknown)."""
        return await self._ask(self._threads, ask, within_s)

    async def call_slowly[T](self, ask: Callable[[docker.APIClient], T]) -> T:
        """One call that has the engine work; a few at a time, the others wait without a limit."""
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
        """Let go; nobody waits for calls that hang."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._start_threads.shutdown(wait=False, cancel_futures=True)


def why(error: Exception) -> str:
    """What a person is told: the engine's own words, where it had any."""
    if isinstance(error, TimeoutError | requests.exceptions.Timeout):
        return "the Docker engine has not answered in time"
    if isinstance(error, requests.exceptions.ConnectionError):
        return f"the Docker engine does not answer: {error}"
    said: Any = getattr(error, "explanation", None) or error
    return str(said) or type(error).__name__
