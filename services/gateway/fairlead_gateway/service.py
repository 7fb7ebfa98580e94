"""Parts of the gateway in the order in which they are built, and its life cycle. Start here for an overview."""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import structlog

from fairlead_bus import bus_faults
from fairlead_bus.environment_settings import StoragePlace, registries, seconds, storage_places
from fairlead_bus.log import Folded
from fairlead_bus.pieces import PieceStore
from fairlead_bus.port import Bus, LogDamaged, Unavailable
from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.audit_trail import AuditTrail
from fairlead_gateway.access.callers import Callers
from fairlead_gateway.access.credentials import Credentials
from fairlead_gateway.access.guard import RouteGuard
from fairlead_gateway.access.owner_file import OwnerFile
from fairlead_gateway.access.passwords import Passwords
from fairlead_gateway.access.people import PeopleStore
from fairlead_gateway.access.rate_limit import RateLimit
from fairlead_gateway.access.settings import check_listener, is_loopback, sign_on_setting
from fairlead_gateway.access.upkeep import AccountUpkeep
from fairlead_gateway.access.volumes import VolumeQuestions
from fairlead_gateway.command_results import CommandPublisher, ResultWaiter
from fairlead_gateway.directories.ldap_sync import LdapSync
from fairlead_gateway.directories.scim import ScimUsers
from fairlead_gateway.directories.scim_groups import ScimGroups
from fairlead_gateway.monitoring.command_watch import CommandWatch
from fairlead_gateway.monitoring.metrics import Metrics
from fairlead_gateway.monitoring.probes import SILENT_AFTER_S, NodePresence, ServiceProbes
from fairlead_gateway.monitoring.processes import ProcessTable
from fairlead_gateway.notify.allowed_hosts import AllowedHosts
from fairlead_gateway.notify.settings import allowed_hosts
from fairlead_gateway.notify.store import RuleStore
from fairlead_gateway.pages.web_files import WebFiles, folder
from fairlead_gateway.routes import (
    access,
    apps,
    audit,
    estimates,
    events,
    gpu_usage,
    idle,
    job_logs,
    jobs,
    log_changes,
    map_columns,
    nodes,
    notifications,
    pages,
    people,
    pieces,
    prices,
    query,
    queue_preview,
    queues,
    run_files,
    scim,
    services,
    sign_in,
    sign_on,
    sql,
    status,
    storage,
    submit,
    tokens,
    tunnels,
    volume_files,
    whatif,
    why,
)
from fairlead_gateway.routes.events import EventFeed
from fairlead_gateway.routes.notifications import NotificationRoutes
from fairlead_gateway.routes.queue_roles import QueueRoles
from fairlead_gateway.routes.router import Router
from fairlead_gateway.routes.service_calls import ServiceCalls
from fairlead_gateway.server.app import build_app, route_rights
from fairlead_gateway.server.cors import Cors
from fairlead_gateway.server.fast_path import REQUEST_ID, FastPath
from fairlead_gateway.server.http_server import HttpServer, HttpSettings, listen, make_server
from fairlead_gateway.server.request_guard import RefusalLimit, RequestGuard
from fairlead_gateway.signon.settings import SignOnFile, sign_on_file
from fairlead_gateway.signon.short_lived import ShortLived
from fairlead_gateway.signon.sign_on import SignOn
from fairlead_gateway.sources.estimates_client import EstimatesClient
from fairlead_gateway.sources.historical_views import HistoricalViews
from fairlead_gateway.sources.job_waits import JobWaits
from fairlead_gateway.sources.live_views import LiveViews
from fairlead_gateway.sources.past_client import PastClient
from fairlead_gateway.sources.piece_renewal import PieceRenewal
from fairlead_gateway.sources.service_queries import ExplainerClient
from fairlead_gateway.sources.volume_files import VolumeFiles
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import OutcomeRow
from fairlead_schemas.units.image_names import Registries
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import Condition, Readiness

log = structlog.get_logger()

EXIT_OK = 0
#: Seconds for the last entries of the record of access; a stop is cut off later.
SAVE_S = 2.0
#: For a year browsers use https alone for this name, also where somebody types http. Never said of this machine's own name, whose other
#: ports are not the gateway's.
_HTTPS_ALONE = ((b"strict-transport-security", b"max-age=31536000"),)
#: Names of nodes in a condition's message.
NAMES_SHOWN = 10


class GatewaySettings(NamedTuple):
    """Settings from the environment (docs/reference/settings.md)."""

    http: HttpSettings = HttpSettings()
    decision_wait_s: float = 2.0
    #: "": as "off", and only on loopback | "off": everybody may do everything | "local": tokens and local users |
    #: path of a sign-on file, which names providers in addition.
    sign_on: str = ""
    #: File for the token of the cluster's owner; None: none is made.
    owner_file: Path | None = None
    #: Content of the file that `sign_on` names; None where it names none.
    file: SignOnFile | None = None
    #: The registries that images may come from; None: each node's agent checks its own list.
    registries: Registries | None = None
    #: Hosts that rules of notifications may name.
    webhooks: AllowedHosts = AllowedHosts()
    #: {class of storage: where this machine has it}, for files of volumes that are put and fetched here.
    storage: Mapping[str, StoragePlace] = {}

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Self:
        """Read FAIRLEAD_HTTP_*, FAIRLEAD_TLS_*, FAIRLEAD_DECISION_WAIT_S, FAIRLEAD_SIGN_ON with its file, FAIRLEAD_OWNER_FILE,
        FAIRLEAD_REGISTRIES, FAIRLEAD_NOTIFY_HOSTS, FAIRLEAD_NOTIFY_NETWORKS and FAIRLEAD_STORAGE. Raises BadSetting.
        """
        sign_on = sign_on_setting(env)
        return cls(
            http=HttpSettings.from_environment(env),
            decision_wait_s=seconds(env, "FAIRLEAD_DECISION_WAIT_S", 2.0),
            sign_on=sign_on,
            owner_file=Path(env["FAIRLEAD_OWNER_FILE"]) if env.get("FAIRLEAD_OWNER_FILE") else None,
            file=sign_on_file(sign_on),
            registries=registries(env),
            webhooks=allowed_hosts(env),
            storage=storage_places(env),
        )


class Gateway:
    """All parts, wired. `app` is the ASGI callable; `background` keeps it alive without a web server (tests)."""

    def __init__(
        self,
        bus: Bus,
        settings: GatewaySettings,
        folding: LiveViews,
        *,
        past: Callable[[Bus, Views], HistoricalViews] = HistoricalViews,
    ) -> None:
        """`past`: makes the views of the past; the process that keeps states of them has its own."""
        self.settings = settings
        self.folding = folding
        self._bus = bus
        views = self.views = folding.views
        self.watch = CommandWatch(bus)
        self.pulse = ServiceProbes(bus, folding, self.watch)
        self._gates = {name: CommandPublisher(bus, name, self.watch, self.pulse.appended) for name in subjects.WRITERS}
        self.queue, self.placer, self.telemetry, self.access, self.storage = self._gates.values()
        self.metrics = Metrics(views, bus, self.readiness)
        self.feed = EventFeed(bus, views, self.metrics)
        self.ticks = map_columns.Ticks(views)
        self.job_waits = JobWaits(views)
        #: Pieces of directories that go with jobs.
        self.pieces = PieceStore(bus, time.time)
        self.past = past(bus, views)
        self.past_client = PastClient(bus, views, count=lambda by: self.metrics.past_answers.labels(by).inc())
        self.waiter = ResultWaiter(
            views,
            wait_s=settings.decision_wait_s,
            is_ready=lambda: folding.caught_up,
            has_room=lambda: folding.has_room,
        )
        credentials = Credentials(bus, time.time_ns)
        self.has_sign_on = settings.sign_on not in ("", "off")
        #: Finds the senders of requests.
        self.callers = Callers(views, credentials if self.has_sign_on else None, blind_s=folding.blind_s)
        #: The record of access; nothing is noted without sign-on.
        self.trail = AuditTrail(bus)
        self.callers.note = self.trail.note
        self.guard = RouteGuard(views, self.callers, lambda job: query.retired_job(bus, job), self.trail.note)
        self.accounts = Accounts(bus, views, PeopleStore(bus), credentials, self.access, self.waiter)
        self.accounts.note, self.accounts.drop_notes = self.trail.note, self.trail.drop
        #: Rules of notifications; the notifier, another process, sends by them.
        self.rules = RuleStore(bus, sweeps=True)
        self.accounts.forget_rules = self.rules.forget
        self.notifications = NotificationRoutes(views, bus, self.accounts, self.rules, settings.webhooks)
        self.accounts.people.on_forgotten = self.trail.drop
        views.name_of = self.accounts.people.known_name
        self.upkeep = AccountUpkeep(views, self.callers, self.accounts, lambda: folding.caught_up)
        self.sign_on = SignOn(bus, views, self.accounts, self.callers, settings.file)
        self.callers.takes_plain_cookie = not self.sign_on.public_url.startswith("https:")
        self.processes = ProcessTable(lambda: self.pulse.evidence.leaders(time.monotonic()))
        self.presence = NodePresence(views, lambda: folding.bus_answers)
        self.tunnels = tunnels.TunnelRoutes(views, bus, self.callers, self.guard)
        calls = ServiceCalls(views, bus, self.queue, self.waiter)
        self.apps = apps.AppRoutes(views, bus, self.tunnels, self.guard, calls)
        #: All routes; `build_app` adds the gateway's own.
        self.routers = [*self._cluster_routes(), *self._people_routes()]
        #: Every route, and the OpenAPI document.
        self.api = build_app(folding, self.metrics, self.routers, self.readiness, self.guard, self._forward_past)
        #: {(method, path): the right that a request needs}
        self.rights = route_rights(self.routers)
        self.app = self._front()
        self._listen()
        self._server: HttpServer | None = None

    def _cluster_routes(self) -> list[Router]:
        """Return the routes about jobs, queues and nodes."""
        bus, views, waiter, registries = self._bus, self.views, self.waiter, self.settings.registries
        past, explaining, estimating = self.past, ExplainerClient(bus), EstimatesClient(bus, views)
        per_minute = self.settings.http.submits_per_minute
        submits = RateLimit(per_minute, "too_many_submits", "jobs", "FAIRLEAD_HTTP_SUBMITS")
        changes = queues.QueueChanges(views, self.queue, waiter, QueueRoles(views, self.accounts))
        return [
            jobs.routes(views, self.queue, waiter),
            nodes.routes(views, self.placer, waiter, past),
            queue_preview.routes(views, explaining),
            queues.queue_routes(changes),
            idle.routes(views, self.telemetry, waiter, self.accounts, past),
            events.routes(self.feed, self.callers),
            log_changes.routes(self.feed, past),
            map_columns.routes(views, past, self.callers, self.ticks, secrets.token_hex(4)),
            job_logs.routes(views, bus, self.callers, self.job_waits),
            pieces.routes(views, self.pieces),
            run_files.routes(views, bus, self.callers),
            tunnels.routes(self.tunnels),
            why.routes(why.WhyRoutes(views, bus, past, explaining, estimating)),
            estimates.routes(views, estimating),
            apps.routes(self.apps),
            queues.pool_routes(views, past, explaining),
            prices.routes(views, past, self.queue, waiter),
            services.routes(services.ServiceRoutes(views, bus, self.queue, waiter, registries)),
            storage.routes(storage.StorageRoutes(views, past, self.storage, waiter, self.accounts, self.pieces)),
            volume_files.routes(views, VolumeFiles(self.settings.storage), self.callers),
            gpu_usage.usage_routes(views, bus, self.accounts, past),
            sql.routes(sql.SqlRoutes(views, bus, self.accounts, estimating)),
            status.routes(status.ClusterStatusRoutes(views, bus, self.processes, self.access, waiter)),
            whatif.routes(whatif.WhatIfRoutes(views, bus, self.callers)),
            gpu_usage.job_metrics_routes(bus),
            gpu_usage.current_use_routes(views, bus, past),
            pages.routes(views, WebFiles(folder())),
            query.routes(views, bus, past, self.guard, self.job_waits, explaining),
            access.routes(views, self.accounts, past),
            submit.routes(
                submit.SubmitRoutes(views, self.queue, waiter, registries, submits, self.pieces),
                submit.DryRunRoutes(views, waiter, explaining, registries=registries, estimates=estimating),
            ),
        ]

    def _people_routes(self) -> list[Router]:
        """Return the routes about people, tokens and sign-ins."""
        bus, views, accounts, file = self._bus, self.views, self.accounts, self.settings.file
        passwords = Passwords(shared=ShortLived(bus))
        signing_in = sign_in.SignInRoutes(views, accounts, self.callers, time.time_ns)
        scim_users = ScimUsers(views, accounts, file.scim.issuer if file else "")
        return [
            people.routes(views, accounts, passwords),
            tokens.routes(views, accounts, self.past),
            audit.routes(views, bus, accounts),
            notifications.routes(self.notifications),
            sign_in.routes(signing_in, views, passwords, sign_on.token_grants(self.sign_on, signing_in)),
            sign_on.routes(self.sign_on, signing_in, views),
            scim.routes(scim_users, ScimGroups(bus, views, accounts)),
        ]

    def _front(self) -> FastPath:
        """Return the first callable, which checks every request and answers the fast routes."""
        http, on_refusal = self.settings.http, self.metrics.count_refusal
        fast = {key: route for router in self.routers for key, route in router.fast_routes.items()}
        cors = Cors(http.cors_origins)
        guard = RequestGuard((*http.hosts, *self.sign_on.hosts), http.host, cors)
        limit = RefusalLimit(http.refusals_per_minute)
        stated = _HTTPS_ALONE if http.tls is not None and not is_loopback(http.host) else ()
        rate = RateLimit(http.requests_per_minute, "too_many_requests", "requests", "FAIRLEAD_HTTP_REQUESTS")
        return FastPath(self.views, fast, self.api, guard, limit, on_refusal, self.guard, stated, cors=cors, rate=rate)

    def _listen(self) -> None:
        """Let parts report to each other."""
        self.waiter.on_decided = self.metrics.decision_seconds.observe
        self.accounts.note = self.trail.note
        self.views.name_of = self.accounts.people.known_name
        self.views.silent_s = self.presence.silent_s
        self.views.outcomes.on_outcome = self._decided
        self.folding.on_folded = self._folded
        for service, gate in self._gates.items():
            for what in gate.statistics():
                self.metrics.commands.labels(service, what).set_function(_statistic(gate, what))

    def _decided(self, command_id: str, outcome: OutcomeRow) -> None:
        for gate in self._gates.values():  # a command is sent to one service, most often the queue
            if gate.decided(command_id, outcome):
                return

    def _folded(self, batch: list[Folded]) -> None:
        self.feed.extend(batch)
        self.job_waits.look()
        if self.folding.caught_up:
            self.metrics.happened.take(batch)

    async def _forward_past(self, request: Any) -> None:
        """Answer a request about the past by the process that keeps states of it, where there is one."""
        if type(self.past) is HistoricalViews:
            await self.past_client.forward(request, request.scope.get(REQUEST_ID, ""))

    def conditions(self) -> list[Condition]:
        """Return the reasons why the cluster cannot work, or not in full, worst first."""
        found, missing = self.pulse.conditions(), self.presence.missing()
        certificate = self._server.certificate if self._server is not None else None
        if certificate is not None and (expiry := certificate.condition()) is not None:
            found.append(expiry)
        if missing:
            names = ", ".join(missing[:NAMES_SHOWN]) + (", …" if len(missing) > NAMES_SHOWN else "")
            found.append(
                Condition(code="nodes_unheard", message=f"no message for {SILENT_AFTER_S:g} s or more: {names}")
            )
        return found

    def readiness(self) -> Readiness:
        """Return the body of `/readyz`."""
        found = self.conditions()
        return Readiness(
            ready=not any(each.blocks for each in found),
            bus=self.folding.bus_answers,
            sequence=self.views.sequence,
            log_end=self.folding.log_end,
            conditions=found,
            remedies={each.code: each.hint() for each in found},
            scrub=self.pulse.evidence.scrub,
            nodes=self.presence.contacts(),
        )

    async def background(self) -> None:
        """Fold, publish, listen to beats and watch the log's end until one of them fails."""
        await self.presence.listen(self._bus)
        await self.processes.listen(self._bus)
        await self._bus.serve(subjects.rpc("gateway", "tunnels"), self.tunnels.may_stay, group="gateway")
        await self._bus.serve(subjects.rpc("gateway", "apps"), self.apps.answer, group="gateway")
        questions = VolumeQuestions(self.views, has_sign_on=self.has_sign_on)
        await self._bus.serve(subjects.VOLUMES, questions.answer, group="gateway")
        async with asyncio.TaskGroup() as group:
            for work in (
                self.folding.run(),
                self.queue.run(),
                self.placer.run(),
                self.telemetry.run(),
                self.access.run(),
                self.storage.run(),
                self.rules.follow(),
                PieceRenewal(self.views, self.pieces, lambda: self.folding.caught_up).run(),
                *self._upkeep(),
                self.watch.run(),
                self.folding.watch_end(),
                self.pulse.run(),
            ):
                group.create_task(work)

    def _upkeep(self) -> list[Coroutine[Any, Any, None]]:
        """Return the background work of a gateway with sign-on."""
        if not self.has_sign_on:
            return []
        work: list[Coroutine[Any, Any, None]] = [self.upkeep.run(), self.sign_on.sessions.run(), self.trail.run()]
        if (ldap := self.settings.file.ldap if self.settings.file else None) is not None:
            work.append(LdapSync(self.views, self.accounts, ldap, lambda: self.folding.caught_up).run())
        if (path := self.settings.owner_file) is not None:
            work.append(OwnerFile(path, self.views, self.accounts, lambda: self.folding.caught_up).run())
        return work

    async def run(self) -> int:
        """Serve until stopped. 70 when the log is damaged or not valid: the gateway never shows a guess."""
        http = self.settings.http
        server = self._server = make_server(self.app, http, self.metrics.count_refusal)
        try:
            door = listen(http)
        except (OSError, OverflowError) as error:
            log.critical("cannot listen", host=http.host, port=http.port, reason=str(error))
            return 1
        background = asyncio.create_task(self.background())
        serving = asyncio.create_task(server.serve(sockets=[door]))
        upkeep = [asyncio.create_task(server.watch_deadlines())]
        if server.certificate is not None:
            upkeep.append(asyncio.create_task(server.certificate.watch()))
        log.info(
            "listening",
            host=http.host,
            port=http.port,
            sign_on=self.settings.sign_on or "off",
            tls=http.tls is not None,
        )
        try:
            await asyncio.wait((background, serving), return_when=asyncio.FIRST_COMPLETED)
            if not background.done():
                return EXIT_OK
            server.stop()
            await serving
            return self._ended(background.exception())
        finally:
            for task in upkeep:
                task.cancel()
            background.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await background
            await self.save()

    async def save(self) -> None:
        """Store what is in memory alone: the newest entries of the record of access, and the views. Bounded in time where the bus
        is away.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SAVE_S):
                await self.trail.flush(all_of_it=True)
        with contextlib.suppress(Unavailable):
            await self.folding.save()

    def _ended(self, error: BaseException | None) -> int:
        """Log why the background work failed, and return the exit code."""
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
        if isinstance(inner, KeyError):
            inner = LogDamaged(self.folding.views.sequence, f"not valid: {inner}")
        if isinstance(inner, LogDamaged):
            return bus_faults.end_service("gateway", inner)
        log.critical("gateway failed", exc_info=inner)
        return 1

    async def stop(self) -> None:
        """Let `run` return once open requests have ended, at most DRAIN_S later."""
        self.feed.close()
        self.ticks.close()
        if self._server is not None:
            self._server.stop()


def _statistic(gate: CommandPublisher, what: str) -> Callable[[], float]:
    return lambda: gate.statistics()[what]


async def build(bus: Bus, settings: GatewaySettings | None = None) -> Gateway:
    """A gateway on a connected bus, its views restored from the newest snapshot. Raises BadSetting."""
    settings = settings or GatewaySettings.from_environment(os.environ)
    check_listener(settings.sign_on, settings.http.host)
    folding = LiveViews(bus)
    await folding.restore()
    return Gateway(bus, settings, folding)
