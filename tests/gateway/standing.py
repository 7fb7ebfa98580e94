"""A gateway that is at one sequence of a recorded log, and the routes whose answers it gives: what `at` must answer later."""

import contextlib
import random
import re
from collections.abc import Iterable, Mapping
from typing import Self

import httpx

from fairlead_bus.log import NO_HEAD, Chain, LogHead
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import LogDamaged, Stored
from fairlead_gateway.service import Gateway, GatewaySettings
from fairlead_gateway.sources.live_views import LiveViews
from fairlead_gateway.views.fold import Views
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import VERSION, Commit, CommitUndecodable, commit_hash, decode_commit, encode_commit

#: Routes with `at` that a gateway answers alone; names in braces stand for each one of the moment.
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
    "/v1/storage-classes",
    "/v1/volumes",
    "/v1/volumes/{volume}",
    "/v1/datasets",
    "/v1/datasets/{dataset}",
    "/v1/tokens",
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


def continued(begin: list[Stored], commits: Iterable[tuple[str, int, ev.Event]]) -> list[Stored]:
    """Return a log and further commits of one event: (writer, ns after the newest time of the log so far, event)."""
    known = heads(begin)
    at_ns = max(decode_commit(stored.payload).at_ns for stored in begin)
    found = list(begin)
    for writer, after_ns, event in commits:
        head, sequence = known.get(writer, NO_HEAD), len(found) + 1
        commit = Commit(
            v=VERSION,
            writer=writer,
            n=head.n + 1,
            basis=sequence - 1,
            at_ns=at_ns + after_ns,
            cursors={},
            prev=head.hash,
            events=[event],
        )
        at_ns, payload = max(at_ns, commit.at_ns), encode_commit(commit)
        known[writer] = LogHead(head.n + 1, commit_hash(payload), sequence)
        found.append(Stored(sequence, subjects.log(writer), payload))
    return found


def furnished(begin: list[Stored], seed: int) -> list[Stored]:
    """Return a log with what simulated worlds have not, appended: volumes and datasets that come and go, prices, a queue that goes. The
    clocks of the writers cross.
    """
    chance = random.Random(seed)
    work = ("storage", ev.StorageClassSet(cause="clock", name="fast", backend="xfs-project", user_bytes_max=2**40))
    found: list[tuple[str, ev.Event]] = [work, ("queue", ev.QueueConfigured(cause="clock", path="furnished"))]
    for n in range(12):
        owner = chance.choice(("user:ann", "project:llm", "queue:furnished"))
        name, version = f"v{n}", f"d{n % 3}@{n // 3 + 1}"
        bytes_ = 2**30 * chance.randint(1, 9)
        price = ev.PriceSet(cause="clock", model=f"m{n % 2}", micro=bytes_, currency="EUR", from_ns=n * 10**15)
        made = ev.VolumeCreated(cause="clock", volume=name, owner=owner, storage_class="fast", quota_bytes=bytes_)
        added = ev.DatasetAdded(
            cause="clock", dataset=version, owner="user:ann", digest="0" * 64, size_bytes=bytes_, files=n
        )
        found += [("queue", price), ("storage", made), ("storage", added)]
        found.append(("storage", ev.VolumeResized(cause="clock", volume=name, quota_bytes=bytes_ + 1)))
        if chance.random() < 0.4:
            found.append(("storage", ev.VolumeDeleted(cause="clock", volume=name)))
        if chance.random() < 0.4:
            found.append(("storage", ev.DatasetRetired(cause="clock", dataset=version)))
    found.append(("queue", ev.QueueRemoved(cause="clock", path="furnished")))
    return continued(begin, [(writer, chance.randint(-(10**8), 10**9), event) for writer, event in found])


def paths_at(views: Views) -> list[str]:
    """Return every route with what there was at the moment of some views."""
    jobs = [*views.jobs.rows]
    known: Mapping[str, list[str]] = {
        "job": [*dict.fromkeys([*jobs[: JOBS_MAX // 2], *jobs[-JOBS_MAX // 2 :]])],
        "node": [*views.nodes.rows],
        "queue": [row.path for row in views.queues.existing()],
        "rollout": [*views.plans.rollouts],
        "volume": [*views.storage.volumes],
        "dataset": [*views.storage.datasets],
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
