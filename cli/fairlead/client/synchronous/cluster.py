# Made by docs/synchronous.py of asynchronous/cluster.py; `make docs` writes it again.
"""Requests about the cluster: nodes, rollouts, maintenance, queues, pools, the map."""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from fairlead.client.answers import decode, if_match, query_of
from fairlead.client.synchronous.jobs import LATER, JobsRequests
from fairlead_schemas.http.api import (
    Breaker,
    Maintenance,
    Node,
    Page,
    Pool,
    Queue,
    QueueFilePreview,
    QueueFileResult,
    Rollout,
    SubmitResult,
    Version,
)
from fairlead_schemas.queries.cluster_map import ClusterMap, PoolPacking
from fairlead_schemas.wire.conditions import Readiness

if TYPE_CHECKING:
    from fairlead_schemas.http.status import ClusterStatus
    from fairlead_schemas.queries.explainer import Defrag

#: A probe of readiness waits so long, s.
PROBE_S = 2.0


class ClusterRequests(JobsRequests):
    """Requests about nodes, queues and pools."""

    def status(self) -> "ClusterStatus":
        """Return the processes of services, the bus's servers and streams, and the level of the log's format."""
        from fairlead_schemas.http.status import ClusterStatus

        return decode((self._get("/v1/status")).content, ClusterStatus)

    def raise_level(self, level: int) -> "ClusterStatus":
        """Let events of a newer level of the log's format be written. Raises Conflict while a process does not know it."""
        from fairlead_schemas.http.status import ClusterStatus

        return decode((self._post("/v1/status:raise", {"level": level})).content, ClusterStatus)

    def nodes(self) -> Page[Node]:
        """All nodes."""
        return self._pages("/v1/nodes", {}, Node, 0)

    def node(self, node: str) -> Node:
        """Return one node."""
        return decode((self._get(f"/v1/nodes/{quote(node, safe='')}")).content, Node)

    def cordon(self, node: str, reason: str = "") -> dict[str, Any]:
        """Give the node no new work."""
        return self._verb("nodes", node, "cordon", {"reason": reason} if reason else {})

    def uncordon(self, node: str) -> dict[str, Any]:
        """Give the node work again."""
        return self._verb("nodes", node, "uncordon")

    def drain(self, node: str, reason: str = "", deadline: str = "") -> dict[str, Any]:
        """Give the node no new work and, after `deadline` (a duration), move what runs there."""
        return self._verb("nodes", node, "drain", {k: v for k, v in (("reason", reason), ("deadline", deadline)) if v})

    def ask_node(self, node: str, verb: str, **fields: str) -> dict[str, Any]:
        """`taint`, `untaint` (with `taint`), `quarantine`, `unquarantine`, `declare-dead`, `remove`, `restore` (with `gpu`) a node."""
        return self._verb("nodes", node, verb, {name: value for name, value in fields.items() if value})

    def rollouts(self) -> Page[Rollout]:
        """Rollouts under way, and the last that ended."""
        return self._pages("/v1/rollouts", {}, Rollout, 0)

    def rollout(self, name: str) -> Rollout:
        """Return one rollout. Raises NotFound."""
        return decode((self._get(f"/v1/rollouts/{name}")).content, Rollout)

    def start_rollout(self, rollout: dict[str, Any]) -> dict[str, Any]:
        """Begin a rollout; `rollout` as the API takes it."""
        return decode((self._post("/v1/rollouts", rollout)).content, dict[str, Any])

    def ask_rollout(self, name: str, verb: str, **fields: str) -> dict[str, Any]:
        """`pause`, `resume`, `cancel` a rollout, or say that one `node` is `done`."""
        return self._verb("rollouts", name, verb, {field: value for field, value in fields.items() if value})

    def windows(self) -> Page[Maintenance]:
        """Maintenance windows that are not over."""
        return self._pages("/v1/maintenance", {}, Maintenance, 0)

    def schedule(self, window: dict[str, Any]) -> dict[str, Any]:
        """Schedule a maintenance window; `window` as the API takes it."""
        return decode((self._post("/v1/maintenance", window)).content, dict[str, Any])

    def cancel_window(self, name: str) -> dict[str, Any]:
        """Forget a maintenance window."""
        return self._verb("maintenance", name, "cancel")

    def breaker(self) -> Breaker:
        """Return the state of the breaker, with the causes that stopped automatic action on nodes, if any."""
        return decode((self._get("/v1/breaker")).content, Breaker)

    def reset_breaker(self) -> dict[str, Any]:
        """Let nodes be acted upon again."""
        return decode((self._post("/v1/breaker:reset", {})).content, dict[str, Any])

    def queues(self, *, shares: bool = False) -> Page[Queue]:
        """All queues; with `shares` also fair shares, past use and exact budgets, where the explainer answers."""
        return self._pages("/v1/queues", query_of({"shares": "true" if shares else ""}), Queue, 0)

    def pools(self) -> Page[Pool]:
        """All pools of nodes and queues."""
        return self._pages("/v1/pools", {}, Pool, 0)

    def defrag(self, pool: str) -> "Defrag":
        """Return the runs of the pool that would be moved so that big jobs start; nothing is moved."""
        from fairlead_schemas.queries.explainer import Defrag

        return decode((self._get(f"/v1/pools/{quote(pool, safe='')}/defrag")).content, Defrag)

    def packing(self, pool: str, *, at: str = "") -> PoolPacking:
        """Return how the pool is packed, its usable remainder, and the largest jobs that could start; now or at a sequence or
        time.
        """
        return decode((self._get(f"/v1/pools/{quote(pool, safe='')}/packing", {"at": at})).content, PoolPacking)

    def apply_queues(
        self,
        file: dict[str, Any],
        *,
        prune: bool = False,
        reclaim: bool = False,
        key: str = "",
        unchanged_since: int | None = None,
    ) -> QueueFileResult | SubmitResult:
        """Apply a queue file (its plain values) as a whole; a `SubmitResult` names the command where it is decided
        later. `prune` removes what it does not name, `reclaim` asks runs beyond a lowered maximum to yield. With
        `unchanged_since` nothing is changed if what it names has changed after that sequence. Raises Conflict."""
        query = query_of({"prune": "true" if prune else "", "reclaim": "true" if reclaim else ""})
        answer = self._post("/v1/queues:apply", file, key=key, query=query, headers=if_match(unchanged_since))
        return decode(answer.content, SubmitResult if answer.status == LATER else QueueFileResult)

    def preview_queues(self, file: dict[str, Any], *, prune: bool = False, reclaim: bool = False) -> QueueFilePreview:
        """Return what a queue file would do if it were applied now, refusals included: which runs would be asked to yield (with
        `reclaim`), and which jobs would be offered next. Nothing is changed."""
        query = query_of({"prune": "true" if prune else "", "reclaim": "true" if reclaim else ""})
        return decode((self._send("POST", "/v1/queues:dryrun", json=file, query=query)).content, QueueFilePreview)

    def configure_queue(self, path: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Create a queue or replace its settings, in the words of a queue file."""
        return decode((self._send("PUT", f"/v1/queues/{path}", json=settings)).content, dict[str, Any])

    def delete_queue(self, path: str, *, move_to: str = "") -> dict[str, Any]:
        """Remove a queue; its waiting jobs go to `move_to` ("": it must have none)."""
        answer = self._send("DELETE", f"/v1/queues/{path}", query=query_of({"moveTo": move_to}))
        return decode(answer.content, dict[str, Any])

    def hold_queue(self, path: str, reason: str = "") -> dict[str, Any]:
        """Start nothing new of a queue and of those below it."""
        return self._verb("queues", path, "hold", {"reason": reason} if reason else {})

    def drain_queue(self, path: str, reason: str = "") -> dict[str, Any]:
        """Accept no further jobs in a queue and in those below it."""
        return self._verb("queues", path, "drain", {"reason": reason} if reason else {})

    def release_queue(self, path: str) -> dict[str, Any]:
        """End the hold and the drain of a queue."""
        return self._verb("queues", path, "release")

    def cluster(self, *, at: str = "") -> dict[str, Any]:
        """Totals of the cluster, now or at a sequence or time."""
        return decode((self._get("/v1/cluster", {"at": at})).content, dict[str, Any])

    def cluster_map(self, *, pool: str = "", rack: str = "", at: str = "") -> ClusterMap:
        """Every GPU and who holds it, of all nodes or of one pool or rack; now or at a sequence or time."""
        return decode((self._get("/v1/map", {"pool": pool, "rack": rack, "at": at})).content, ClusterMap)

    def version(self) -> Version | None:
        """Return the gateway's version; None where none answers, or one that has no such page."""
        answer = self._try("/version", PROBE_S)
        return decode(answer.content, Version) if answer is not None and answer.status == 200 else None

    def ready(self) -> bool:
        """True when the gateway answers and jobs are accepted and run."""
        answer = self._try("/readyz", PROBE_S)
        return answer is not None and answer.status == 200

    def readiness(self) -> Readiness | None:
        """Return the answer of `/readyz`, with the conditions that hold; None where the gateway is away."""
        answer = self._try("/readyz", PROBE_S)
        if answer is None:
            return None
        try:
            return msgspec.json.decode(answer.content, type=Readiness)
        except msgspec.MsgspecError:
            return None
