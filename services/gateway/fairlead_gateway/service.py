"""What the gateway is built of, in order, and its life. Start here to see what there is."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import structlog
import uvicorn

from fairlead_bus.log import Folded
from fairlead_bus.port import Bus, LogDamaged, Unavailable
from fairlead_bus.settings import seconds, whole
from fairlead_gateway import (
    idleverbs,
    logs,
    metricsroute,
    nodeverbs,
    poolroutes,
    queueverbs,
    reading,
    sqlroute,
    usageroute,
    useroute,
    verbs,
    watching,
    whyroute,
)
from fairlead_gateway.app import build_app
from fairlead_gateway.asking import Asking
from fairlead_gateway.commands import CommandGate
from fairlead_gateway.deciding import Decisions
from fairlead_gateway.door import Door
from fairlead_gateway.dryrun import DryRuns
from fairlead_gateway.explaining import Explaining
from fairlead_gateway.folding import Folding
from fairlead_gateway.identities import SETTING, Identities
from fairlead_gateway.intake import Intake
from fairlead_gateway.metrics import Metrics
from fairlead_gateway.past import Past
from fairlead_gateway.views.rows import Outcome
from fairlead_gateway.watching import Feed

log = structlog.get_logger()

EXIT_OK = 0
EXIT_DAMAGED = 70
#: Seconds that open requests (watches, followed logs) get to end after a stop was asked for.
DRAIN_S = 2
BACKLOG = 4096


class Settings(NamedTuple):
    """What the environment says (docs/settings.md)."""

    #: There is no authentication yet, so loopback unless somebody decides otherwise.
    host: str = "127.0.0.1"
    port: int = 8080
    decision_wait_s: float = 2.0
    #: A file of those who may see rows of the warehouse (identities.py); "": everybody is `anonymous-admin`.
    identities: str = ""

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Self:
        """FAIRLEAD_HTTP_HOST, FAIRLEAD_HTTP_PORT, FAIRLEAD_DECISION_WAIT_S, FAIRLEAD_IDENTITIES. Raises BadSetting."""
        return cls(
            host=env.get("FAIRLEAD_HTTP_HOST") or "127.0.0.1",
            port=whole(env, "FAIRLEAD_HTTP_PORT", 8080, unit="port number", least=0, most=65535),
            decision_wait_s=seconds(env, "FAIRLEAD_DECISION_WAIT_S", 2.0),
            identities=env.get(SETTING, ""),
        )


class Gateway:
    """All parts, wired. `app` is the ASGI callable; `background` keeps it alive without a web server (tests)."""

    def __init__(self, bus: Bus, settings: Settings, folding: Folding) -> None:
        self.settings = settings
        self.folding = folding
        self._bus = bus
        views = self.views = folding.views
        self.queue = CommandGate(bus, "queue")
        self.placer = CommandGate(bus, "placer")
        self.telemetry = CommandGate(bus, "telemetry")
        self.metrics = Metrics(views, bus)
        self.feed = Feed(bus, views, self.metrics)
        decisions = Decisions(
            views, wait_s=settings.decision_wait_s,
            is_ready=lambda: folding.caught_up, has_room=lambda: folding.has_room,
        )  # fmt: skip
        decisions.on_decided = self.metrics.decision_seconds.observe
        intake = Intake(views, self.queue, decisions)
        past = Past(bus, views)
        asking = Asking(views, decisions)
        identities = Identities.read(settings.identities)
        explaining = Explaining(bus)
        routers = [
            verbs.routes(verbs.Verbs(views, self.queue, self.placer, asking)),
            nodeverbs.routes(nodeverbs.NodeVerbs(views, self.placer, asking), views),
            queueverbs.routes(queueverbs.QueueVerbs(views, self.queue, asking)),
            idleverbs.routes(idleverbs.IdleVerbs(views, self.telemetry, asking), views),
            watching.routes(self.feed),
            logs.routes(views, bus),
            whyroute.routes(whyroute.Whys(views, bus, past, explaining)),
            poolroutes.routes(views, past, explaining),
            usageroute.routes(bus),
            sqlroute.routes(sqlroute.SqlRoute(bus, identities)),
            metricsroute.routes(bus, identities),
            useroute.routes(bus, identities),
            reading.routes(views, bus, past),
        ]
        hot = {
            ("POST", "/v1/jobs"): intake.jobs,
            ("POST", "/v1/events"): intake.events,
            ("POST", "/v1/jobs:dryrun"): DryRuns(views, decisions, explaining).answer,
        }
        self.app = Door(views, hot, build_app(folding, self.metrics, routers, hot))
        for service, gate in (("queue", self.queue), ("placer", self.placer), ("telemetry", self.telemetry)):
            for what in gate.statistics():
                self.metrics.commands.labels(service, what).set_function(_statistic(gate, what))
        views.outcomes.on_outcome = self._decided
        folding.on_folded = self._folded
        self._server: uvicorn.Server | None = None

    def _decided(self, command_id: str, outcome: Outcome) -> None:
        self.queue.decided(command_id, outcome)
        self.placer.decided(command_id, outcome)
        self.telemetry.decided(command_id, outcome)

    def _folded(self, batch: list[Folded]) -> None:
        self.feed.extend(batch)
        if self.folding.caught_up:
            self.metrics.happened.take(batch)

    async def background(self) -> None:
        """Fold, publish and watch the log's end until one of them fails."""
        async with asyncio.TaskGroup() as group:
            for work in (
                self.folding.run(),
                self.queue.run(),
                self.placer.run(),
                self.telemetry.run(),
                self.folding.watch_end(),
            ):
                group.create_task(work)

    async def run(self) -> int:
        """Serve until stopped. 70 when the log is damaged or not valid: the gateway never shows a guess."""
        server = self._server = _server(self.app, self.settings)
        try:
            door = _listen(self.settings)
        except (OSError, OverflowError) as error:
            log.critical("cannot listen", host=self.settings.host, port=self.settings.port, reason=str(error))
            return 1
        background = asyncio.create_task(self.background())
        serving = asyncio.create_task(server.serve(sockets=[door]))
        log.info("listening", host=self.settings.host, port=self.settings.port, authentication="none")
        try:
            await asyncio.wait((background, serving), return_when=asyncio.FIRST_COMPLETED)
            if not background.done():
                return EXIT_OK
            server.should_exit = True
            await serving
            return _damage(background.exception())
        finally:
            background.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await background
            with contextlib.suppress(Unavailable):
                await self.folding.save()

    async def stop(self) -> None:
        """Let `run` return once open requests have ended, at most DRAIN_S later."""
        self.feed.close()
        if self._server is not None:
            self._server.should_exit = True


def _statistic(gate: CommandGate, what: str) -> Callable[[], float]:
    return lambda: gate.statistics()[what]


def _damage(error: BaseException | None) -> int:
    inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
    if isinstance(inner, LogDamaged):
        log.critical("log damaged, stopped", sequence=inner.sequence, reason=str(inner))
        return EXIT_DAMAGED
    if isinstance(inner, KeyError):
        log.critical("log is not valid, stopped", reason=str(inner))
        return EXIT_DAMAGED
    log.critical("gateway failed", exc_info=inner)
    return 1


def _listen(settings: Settings) -> socket.socket:
    """The socket, or the OSError that says why not; the server itself would only say that it exits."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)


class _Server(uvicorn.Server):
    """Signals belong to `fairlead_bus.main`."""

    @contextlib.contextmanager
    def capture_signals(self):
        yield


def _server(app: Any, settings: Settings) -> uvicorn.Server:
    config = uvicorn.Config(
        app, host=settings.host, port=settings.port, loop="none", http="httptools", ws="none", lifespan="off",
        access_log=False, log_config=None, server_header=False, date_header=False, timeout_graceful_shutdown=DRAIN_S,
        timeout_keep_alive=75, backlog=BACKLOG,
    )  # fmt: skip
    return _Server(config)


async def build(bus: Bus, settings: Settings | None = None) -> Gateway:
    """A gateway on a connected bus, its views restored from the newest snapshot. Raises BadSetting."""
    settings = settings or Settings.from_environment(os.environ)
    folding = Folding(bus)
    await folding.restore()
    return Gateway(bus, settings, folding)
