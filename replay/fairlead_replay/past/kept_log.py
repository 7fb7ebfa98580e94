"""A cluster that stands still: a log that nobody writes any more, and the answers of gateway, explainer and warehouse about it.

A log that was kept (an export, an archive, the play of a what-if) is held in memory, and a request is answered as the cluster of then
would have answered it. Nothing that changes anything is taken. `StandingTransport` gives that to a client in the place of the network.
"""

import asyncio
import logging
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import structlog

from fairlead_bus.log import Chain
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Bus, LogDamaged, Stored, Unavailable
from fairlead_gateway.service import Gateway, GatewaySettings
from fairlead_gateway.sources.live_views import LiveViews
from fairlead_replay.explainer.service import Explainer
from fairlead_schemas.http.api import Problem
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import CommitUndecodable, decode_commit

#: POSTs that change nothing.
READING = ("/v1/sql", "/v1/jobs:dryrun")
#: Paths that the warehouse answers.
STORED = ("/v1/sql", "/v1/usage", "/v1/use")
WAREHOUSE_S, LOOK_S = 120.0, 0.02


class StandingCluster:
    """Gateway and explainer over a log in memory; the warehouse is filled when it is asked first."""

    def __init__(self, messages: Iterable[Stored]) -> None:
        """Raises LogDamaged."""
        hub = self._hub = MemoryHub()
        folding, chain, log = LiveViews(hub.connect()), Chain(), hub.streams[subjects.LOG]
        for stored in messages:
            try:
                commit = decode_commit(stored.payload)
            except CommitUndecodable as error:
                raise LogDamaged(stored.sequence, str(error)) from error
            chain.extend(stored, commit)
            try:
                folding.views.fold(stored.sequence, commit)
            except KeyError as error:
                raise LogDamaged(stored.sequence, f"not valid: {error}") from error
            log.store(stored.subject, stored.payload, 0)
        folding.take_up(folding.views, chain.heads)
        folding.caught_up = True
        folding.log_end = folding.views.sequence
        self._gateway = Gateway(hub.connect(), GatewaySettings(), folding)
        self._gateway.views.silent_s = lambda _node: 0
        clock: Callable[[], int] = lambda: self._gateway.views.at_ns  # noqa: E731 -- the log's own time
        self._gateway.past.clock = clock
        self._explainer = Explainer(hub.connect(), clock=clock)
        self._clock = clock
        self._tasks: list[asyncio.Task[Any]] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._filling = asyncio.Lock()

    async def answer(self, request: httpx.Request) -> httpx.Response:
        """Return the answer to a request that changes nothing; 405 to any other."""
        if request.method not in ("GET", "HEAD") and request.url.path not in READING:
            return _refused("a log that stands still takes only requests that read")
        if not self._tasks:
            self._tasks.append(asyncio.create_task(self._explainer.run()))
            await asyncio.sleep(0)
        if request.url.path in STORED or self._folder is not None:
            await self._fill()
        transport = httpx.ASGITransport(self._gateway.app, raise_app_exceptions=False)
        found = await transport.handle_async_request(request)
        return httpx.Response(found.status_code, headers=found.headers, content=await found.aread())

    async def _fill(self) -> None:
        """Start the warehouse, and wait until it has the whole log."""
        from fairlead_telemetry.service import Telemetry
        from fairlead_telemetry.warehouse.warehouse import Retention

        async with self._filling:
            if self._folder is not None:
                return
            self._folder = tempfile.TemporaryDirectory(prefix="fairlead-log-")
            forever = Retention(9 * 10**18, 9 * 10**18, 9 * 10**18)
            service = Telemetry(self._hub.connect(), Path(self._folder.name), kept=forever, clock=self._clock)
            self._tasks.append(asyncio.create_task(service.run()))
            bus, last = self._hub.connect(), self._gateway.views.sequence
            async with asyncio.timeout(WAREHOUSE_S):
                while not await _has(bus, last):  # noqa: ASYNC110 -- the service tells nobody
                    await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        """End what runs, and remove the warehouse."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._folder is not None:
            self._folder.cleanup()


async def _has(bus: Bus, sequence: int) -> bool:
    try:
        answer = await bus.request(subjects.rpc("telemetry", "warehouse"), b"{}", timeout_s=5)
    except Unavailable:
        return False
    return msgspec.json.decode(answer).get("sequence", 0) >= sequence


def _refused(detail: str) -> httpx.Response:
    kind, hint = "urn:fairlead:problem:standing_log", "without --log the verb goes to the cluster"
    problem = Problem(type=kind, title="Method Not Allowed", status=405, detail=detail, hint=hint)
    return httpx.Response(
        405, content=msgspec.json.encode(problem), headers={"content-type": "application/problem+json"}
    )


class StandingTransport(httpx.BaseTransport):
    """Network of a client that asks a kept log. The cluster lives in a thread of its own until `close`."""

    def __init__(self, messages: Iterable[Stored]) -> None:
        """Raises LogDamaged and ExportError."""
        # What services say of themselves is nothing that was asked.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="standing", daemon=True)
        self._thread.start()
        self._cluster: StandingCluster | None = None
        try:
            self._cluster = self._run(_made(messages))
        except BaseException:
            self.close()
            raise

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the answer."""
        assert self._cluster is not None
        plain = httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
        return self._run(self._cluster.answer(plain))

    def _run[T](self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the cluster and its thread."""
        if self._loop.is_closed():
            return
        if self._cluster is not None:
            self._run(self._cluster.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._cluster = None


async def _made(messages: Iterable[Stored]) -> StandingCluster:
    return StandingCluster(messages)
