"""The gateway alone, on the in-memory bus, with a client: services are what a test puts next to it."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Self

import httpx
import msgspec

from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Message
from fairlead_bus.service import Service
from fairlead_gateway.monitoring.probes import PROBE_USER
from fairlead_gateway.server.http_server import HttpSettings
from fairlead_gateway.service import Gateway, GatewaySettings
from fairlead_gateway.signon.settings import sign_on_file
from fairlead_gateway.sources.live_views import LiveViews
from fairlead_replay.explainer.service import Explainer
from fairlead_schemas.wire import subjects
from tests.kit.eventually import eventually_async

WAIT_S = 60.0


class Gatehouse:
    """Hub, gateway and client. Use `async with Gatehouse() as house`."""

    def __init__(
        self,
        *,
        decision_wait_s: float = 30.0,
        log_bytes_max: int | None = None,
        sign_on: str = "",
        http: HttpSettings | None = None,
    ) -> None:
        self.hub = MemoryHub(log_bytes_max=log_bytes_max)
        self.settings = GatewaySettings(
            http=http or HttpSettings(), decision_wait_s=decision_wait_s, sign_on=sign_on, file=sign_on_file(sign_on)
        )
        self._tasks: list[asyncio.Task[Any]] = []
        self.services: list[Service[Any] | Explainer] = []

    async def __aenter__(self) -> Self:
        await self.start_gateway()
        return self

    def spawn(self, service: Service[Any] | Explainer) -> None:
        """Run a service until the end."""
        self.services.append(service)
        self._tasks.append(asyncio.create_task(service.run()))

    async def start_gateway(self) -> None:
        """A gateway (another one, after a restart) and a client for it."""
        self.bus = self.hub.connect()
        folding = LiveViews(self.bus)
        await folding.restore()
        self.gateway = Gateway(self.bus, self.settings, folding)
        self.background = asyncio.create_task(self.gateway.background())
        self._tasks.append(self.background)
        transport = httpx.ASGITransport(self.gateway.app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30)

    async def stop_gateway(self) -> None:
        """Kill the gateway's background: it loses everything that it had in memory."""
        self.background.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.background

    async def __aexit__(self, *_: object) -> None:
        self.gateway.feed.close()
        for service in self.services:
            await service.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.http.aclose()

    async def play_telemetry(self, verb: str, answer: Callable[[dict[str, Any]], bytes]) -> list[dict[str, Any]]:
        """Answer the gateway's requests to telemetry with what `answer` makes of each; return the list of requests, which grows."""
        requests: list[dict[str, Any]] = []

        async def serve(message: Message) -> bytes:
            requests.append(msgspec.json.decode(message.payload))
            return answer(requests[-1])

        await self.hub.connect().serve(subjects.rpc("telemetry", verb), serve)
        return requests

    async def job(self, job: str) -> dict[str, Any]:
        """GET one job."""
        return (await self.http.get(f"/v1/jobs/{job}")).json()

    async def in_state(self, job: str, state: str) -> None:
        """Wait until the job is in a state."""
        await eventually_async(
            lambda: job in self.gateway.views.jobs.rows and self.gateway.views.jobs.rows[job].state == state
        )

    def log_length(self) -> int:
        """Commits in the log."""
        return self.hub.streams[subjects.LOG].last

    def commands_stored(self) -> int:
        """Command messages in CMD, without the probes of readiness."""
        probe = subjects.cmd(PROBE_USER)
        return sum(each.subject != probe for each in self.hub.streams[subjects.CMD].messages)
