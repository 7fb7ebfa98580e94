"""A gateway that stands at one sequence of a recorded log, and the routes whose answers it gives: what `at` must answer later."""

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Self

import httpx

from fairlead_bus.log import Chain, LogHead
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import LogDamaged, Stored
from fairlead_gateway.service import Gateway, GatewaySettings
from fairlead_gateway.sources.live_views import LiveViews
from fairlead_gateway.views.fold import Views
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import CommitUndecodable, decode_commit

#: Routes with `at` that a gateway answers alone; {job}, {node}, {queue} and {rollout} stand for each one of the moment.
ROUTES = (
    "/v1/jobs?limit=1000",
    "/v1/jobs?limit=1000&elements=false&state=running,queued",
    "/v1/jobs/{job}",
    "/v1/jobs/{job}/why",
    "/v1/nodes",
    "/v1/nodes/{node}",
    "/v1/queues",
    "/v1/queues/{queue}",
    "/v1/pools",
    "/v1/cluster",
    "/v1/map",
    "/v1/idle",
    "/v1/rollouts",
    "/v1/rollouts/{rollout}",
    "/v1/maintenance",
    "/v1/breaker",
    "/v1/access",
    "/v1/groups",
    "/v1/prices",
)
#: Jobs of a moment that are asked about: the oldest and the newest.
JOBS_MAX = 6


def fold(messages: Iterable[Stored]) -> Views:
    """Return live views of these commits."""
    views = Views()
    for stored in messages:
        views.fold(stored.sequence, decode_commit(stored.payload))
    return views


def heads(messages: Iterable[Stored]) -> dict[str, LogHead]:
    """Return each writer's newest commit."""
    chain = Chain()
    with contextlib.suppress(LogDamaged, CommitUndecodable):
        for stored in messages:
            chain.extend(stored, decode_commit(stored.payload))
    return chain.heads


def paths_at(views: Views) -> list[str]:
    """Return every route with what there was at the moment of some views."""
    jobs = [*views.jobs.rows]
    known: Mapping[str, list[str]] = {
        "job": [*dict.fromkeys([*jobs[: JOBS_MAX // 2], *jobs[-JOBS_MAX // 2 :]])],
        "node": [*views.nodes.rows],
        "queue": [row.path for row in views.queues.existing()],
        "rollout": [*views.plans.rollouts],
    }
    found: list[str] = []
    for path in ROUTES:
        if (name := re.search(r"\{(\w+)\}", path)) is None:
            found.append(path)
        else:
            found += [path.replace(name[0], each) for each in known[name[1]]]
    return found


class StandingGateway:
    """A gateway over a log, which nothing writes any more. `async with StandingGateway(messages) as gateway`.

    Its clock is the log's, so that it answers what it answered when it had folded its last commit.
    """

    def __init__(self, messages: Iterable[Stored], *, restored: Views | None = None) -> None:
        self.hub = MemoryHub()
        log = self.hub.streams[subjects.LOG]
        for stored in messages:
            log.store(stored.subject, stored.payload, 0)
        self.bus = self.hub.connect()
        folding = LiveViews(self.bus)
        folding.views = restored or fold(log.messages)
        folding._heads = heads(log.messages)
        self.gateway = Gateway(self.bus, GatewaySettings(), folding)
        self.views = self.gateway.views
        self.views.silent_s = lambda _node: 0
        self.gateway.past.clock = lambda: self.views.at_ns

    async def __aenter__(self) -> Self:
        transport = httpx.ASGITransport(self.gateway.app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def get(self, path: str, at: int | str = "") -> httpx.Response:
        """GET a path, at a moment if one is named."""
        joint = "&" if "?" in path else "?"
        return await self.http.get(f"{path}{joint}at={at}" if at else path)

    async def document(self, path: str, at: int | str = "") -> bytes:
        """GET the body of a path, of an answer without an error."""
        answer = await self.get(path, at)
        assert answer.status_code == 200, (path, at, answer.text)
        return answer.content
