"""The Python client: one class over the gateway's HTTP API. httpx does not show through it.

Owns the API's paths, what their answers are, resuming and waiting; knows nothing of terminals. How requests are sent, sent
again and turned into typed errors: `transport.py`. Start at `Client.submit`; errors are those of `errors.py`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from fairlead.errors import Conflict, FairleadError, InputRefused, Unreachable, WaitTimedOut, hint_for
from fairlead.http_library import httpx
from fairlead.transport import PAGE_ITEMS, RESENDS_MAX, TIMEOUT_S, Transport, decode, decode_page, query_of, raise_for
from fairlead_schemas.http.api import (
    Breaker,
    DryRun,
    IdleFileResult,
    IdleOverview,
    IdleScope,
    Job,
    Maintenance,
    Node,
    Page,
    Pool,
    Queue,
    QueueFileResult,
    Rollout,
    SubmitResult,
)
from fairlead_schemas.http.cloudevents import CloudEventOut
from fairlead_schemas.queries.cluster_map import ClusterMap, PoolPacking
from fairlead_schemas.queries.telemetry import JobMetrics, JobUses, SqlFormat, UsageStatement
from fairlead_schemas.wire.conditions import Readiness
from fairlead_schemas.wire.lifecycle import END_STATES

if TYPE_CHECKING:
    from fairlead_schemas.queries.explainer import Defrag

#: A watch hears at least a comment every few seconds; longer silence is a broken connection.
WATCH_SILENCE_S = 60.0
POLL_FIRST_S, POLL_LAST_S = 0.05, 1.0
#: A query waits its turn and works; the gateway gives up before.
SQL_TIMEOUT_S = 90.0
#: A wait for jobs outlasts a gateway that does not answer for so long.
WAIT_AWAY_S = 60.0

#: The status of an answer to a command that is stored and decided later.
_LATER = 202

type JobFile = dict[str, Any]


class Client(Transport):
    """View of one cluster for one user.

    `url` may name several gateways of one cluster, separated by commas. `url`, `token` and `user` default to FAIRLEAD_URL,
    FAIRLEAD_TOKEN and FAIRLEAD_USER (else the login name). `transport` replaces the network in tests. Usable as a context
    manager.
    """

    # ------------------------------------------------------------------ jobs

    def submit(self, job: JobFile, *, key: str = "") -> SubmitResult:
        """Submit one job file. `key` makes repeating safe across programs. Raises Refused with the fields."""
        answer = self._post("/v1/jobs", job, key=key)
        result = decode(answer.content, SubmitResult)
        if result.state == "rejected":
            code, message = (
                (result.reason.code, result.reason.message) if result.reason else ("", "the job was refused")
            )
            raise InputRefused(message, hint=hint_for(code))
        return result

    def submit_many(self, jobs: Sequence[JobFile], *, key: str = "") -> list[SubmitResult]:
        """Submit a list in one request; one result per job, in order (a refused one says so in its state)."""
        answer = self._post("/v1/jobs", list(jobs), key=key)
        return decode(answer.content, list[SubmitResult])

    def dry_run(self, jobs: Sequence[JobFile]) -> list[DryRun]:
        """Return the outcome of each job if it were submitted now; nothing is sent to the queue. For a single job that would be
        refused, raises the error that its submit would raise; for several jobs, the refusal is in the job's own result.
        """
        if len(jobs) == 1:
            return [decode(self._post("/v1/jobs:dryrun", jobs[0]).content, DryRun)]
        return decode(self._post("/v1/jobs:dryrun", list(jobs)).content, list[DryRun])

    def jobs(self, *, state: str = "", queue: str = "", user: str = "", limit: int = 0) -> Page[Job]:
        """Jobs, newest first as the gateway gives them, all pages joined (`limit` 0: all)."""
        return self._pages("/v1/jobs", {"state": state, "queue": queue, "user": user}, Job, limit)

    def job(self, job_id: str) -> Job:
        """Return one job. Raises NotFound."""
        return decode(self._get(f"/v1/jobs/{job_id}").content, Job)

    def why(self, job_id: str, *, at: str = "") -> dict[str, Any]:
        """Return the reason for a job's state now, or at a log sequence or an RFC 3339 time."""
        return decode(self._get(f"/v1/jobs/{job_id}/why", {"at": at}).content, dict[str, Any])

    def job_metrics(
        self, job_id: str, *, start: str = "", end: str = "", step: str = "", attempt: int = 0
    ) -> JobMetrics:
        """Return the metrics of a job's GPUs over time, of the whole newest attempt by default. Times are RFC 3339. Raises
        NotFound.
        """
        query = {"from": start, "to": end, "step": step, "attempt": attempt or None}
        return decode(self._get(f"/v1/jobs/{job_id}/metrics", query).content, JobMetrics)

    def use(self, job_ids: Sequence[str]) -> JobUses:
        """Return the present GPU use of those of these jobs that run and that the user may see. Raises Unreachable without
        telemetry.
        """
        if not job_ids:
            return JobUses(sequence=0, items=[])
        return decode(self._get("/v1/use", {"jobs": ",".join(job_ids)}).content, JobUses)

    def cancel(self, job_id: str, *, save: bool = False) -> dict[str, Any]:
        """Ask for a job's end; with `save` it has its notice first."""
        return self._verb("jobs", job_id, "cancel", {"save": True} if save else None)

    def hold(self, job_id: str) -> dict[str, Any]:
        """Keep a waiting job from starting."""
        return self._verb("jobs", job_id, "hold")

    def release(self, job_id: str) -> dict[str, Any]:
        """End a hold."""
        return self._verb("jobs", job_id, "release")

    def move(self, job_id: str, queue: str) -> dict[str, Any]:
        """Put a waiting job into another queue."""
        return self._verb("jobs", job_id, "move", {"queue": queue})

    def extend(self, job_id: str, for_: str = "") -> dict[str, Any]:
        """Let no idle policy act on what runs of the job for a while ("": as long as its policy allows)."""
        return self._verb("jobs", job_id, "extend", {"for": for_} if for_ else None)

    def idle(self) -> IdleOverview:
        """Return the idle jobs, the policies under which they are idle, and the savings that dry runs would have made."""
        return decode(self._get("/v1/idle").content, IdleOverview)

    def set_idle_policies(self, scope: str, policies: list[Any]) -> IdleScope | SubmitResult:
        """Set all policies of a scope, in the words of a policy file; a `SubmitResult` names the command where it is decided
        later."""
        answer = self._send("PUT", f"/v1/idle/{quote(scope, safe=':')}", json={"policies": policies})
        return decode(answer.content, SubmitResult if answer.status_code == _LATER else IdleScope)

    def apply_idle_policies(self, scopes: dict[str, list[Any]]) -> IdleFileResult | SubmitResult:
        """Set all policies of these scopes, in the words of a policy file, all or none; a `SubmitResult` names the command where it is
        decided later. Raises Refused with each problem."""
        answer = self._post("/v1/idle:apply", {"scopes": scopes})
        return decode(answer.content, SubmitResult if answer.status_code == _LATER else IdleFileResult)

    def logs(
        self, job_id: str, *, follow: bool = False, rank: int | None = None, attempt: int | None = None, tail: int = 0
    ) -> Iterator[bytes]:
        """A job's output as it comes, or its last lines; with `follow` until the job has ended."""
        query = query_of({"follow": "true" if follow else "", "rank": rank, "attempt": attempt, "tail": tail or None})
        with self._stream(f"/v1/jobs/{job_id}/logs", query) as answer:
            try:
                yield from answer.iter_bytes()
            except httpx.RequestError as error:
                raise Unreachable(f"the output broke off: {error}") from error

    def wait(
        self, job_ids: Iterable[str], *, timeout_s: float | None = None, seen: Callable[[Job], None] | None = None
    ) -> list[Job]:
        """Wait until all have ended; `seen` is called at every look. Raises WaitTimedOut naming those still going.

        It asks again and again instead of following events: a broken stream and a quiet one look alike,
        and an answer is the truth either way. A gateway that is away meanwhile is waited for, WAIT_AWAY_S at most.
        """
        ids = list(job_ids)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        ended: dict[str, Job] = {}
        pause = POLL_FIRST_S
        answered = time.monotonic()
        while True:
            try:
                self._look(ids, ended, seen)
                answered = time.monotonic()
            except Unreachable:
                if time.monotonic() - answered > WAIT_AWAY_S:
                    raise
            open_ids = [i for i in ids if i not in ended]
            if not open_ids:
                return [ended[i] for i in ids]
            if deadline is not None and time.monotonic() >= deadline:
                raise WaitTimedOut(f"not ended within {timeout_s:g} s: {', '.join(open_ids)}")
            time.sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
            pause = min(pause * 1.5, POLL_LAST_S)

    def _look(self, ids: list[str], ended: dict[str, Job], seen: Callable[[Job], None] | None) -> None:
        """Fetch each job that has not ended yet, and put newly ended ones into `ended`."""
        for job_id in [i for i in ids if i not in ended]:
            job = self.job(job_id)
            if seen is not None:
                seen(job)
            if job.state in END_STATES:
                ended[job_id] = job

    # ------------------------------------------------------------------ cluster

    def nodes(self) -> Page[Node]:
        """All nodes."""
        return self._pages("/v1/nodes", {}, Node, 0)

    def node(self, node: str) -> Node:
        """Return one node."""
        return decode(self._get(f"/v1/nodes/{quote(node, safe='')}").content, Node)

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
        return decode(self._get(f"/v1/rollouts/{name}").content, Rollout)

    def start_rollout(self, rollout: dict[str, Any]) -> dict[str, Any]:
        """Begin a rollout; `rollout` as the API takes it."""
        return decode(self._post("/v1/rollouts", rollout).content, dict[str, Any])

    def ask_rollout(self, name: str, verb: str, **fields: str) -> dict[str, Any]:
        """`pause`, `resume`, `cancel` a rollout, or say that one `node` is `done`."""
        return self._verb("rollouts", name, verb, {field: value for field, value in fields.items() if value})

    def windows(self) -> Page[Maintenance]:
        """Maintenance windows that are not over."""
        return self._pages("/v1/maintenance", {}, Maintenance, 0)

    def schedule(self, window: dict[str, Any]) -> dict[str, Any]:
        """Schedule a maintenance window; `window` as the API takes it."""
        return decode(self._post("/v1/maintenance", window).content, dict[str, Any])

    def cancel_window(self, name: str) -> dict[str, Any]:
        """Forget a maintenance window."""
        return self._verb("maintenance", name, "cancel")

    def breaker(self) -> Breaker:
        """Return the state of the breaker, with the causes that stopped automatic action on nodes, if any."""
        return decode(self._get("/v1/breaker").content, Breaker)

    def reset_breaker(self) -> dict[str, Any]:
        """Let nodes be acted upon again."""
        return decode(self._post("/v1/breaker:reset", {}).content, dict[str, Any])

    def queues(self) -> Page[Queue]:
        """All queues."""
        return self._pages("/v1/queues", {}, Queue, 0)

    def pools(self) -> Page[Pool]:
        """All pools of nodes and queues."""
        return self._pages("/v1/pools", {}, Pool, 0)

    def defrag(self, pool: str) -> "Defrag":
        """Return the runs of the pool that would be moved so that big jobs start; nothing is moved."""
        from fairlead_schemas.queries.explainer import Defrag

        return decode(self._get(f"/v1/pools/{quote(pool, safe='')}/defrag").content, Defrag)

    def packing(self, pool: str, *, at: str = "") -> PoolPacking:
        """Return how the pool is packed, its usable remainder, and the largest jobs that could start; now or at a sequence or
        time.
        """
        return decode(self._get(f"/v1/pools/{quote(pool, safe='')}/packing", {"at": at}).content, PoolPacking)

    def apply_queues(
        self, file: dict[str, Any], *, prune: bool = False, reclaim: bool = False, key: str = ""
    ) -> QueueFileResult | SubmitResult:
        """Apply a queue file (its plain values) as a whole; a `SubmitResult` names the command where it is decided
        later. `prune` removes what it does not name, `reclaim` asks runs beyond a lowered maximum to yield."""
        query = query_of({"prune": "true" if prune else "", "reclaim": "true" if reclaim else ""})
        answer = self._post("/v1/queues:apply", file, key=key, query=query)
        return decode(answer.content, SubmitResult if answer.status_code == _LATER else QueueFileResult)

    def configure_queue(self, path: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Create a queue or replace its settings, in the words of a queue file."""
        return decode(self._send("PUT", f"/v1/queues/{path}", json=settings).content, dict[str, Any])

    def delete_queue(self, path: str, *, move_to: str = "") -> dict[str, Any]:
        """Remove a queue; its waiting jobs go to `move_to` ("": it must have none)."""
        answer = self._send("DELETE", f"/v1/queues/{path}", params=query_of({"moveTo": move_to}))
        return decode(answer.content, dict[str, Any])

    def cluster(self, *, at: str = "") -> dict[str, Any]:
        """Totals of the cluster, now or at a sequence or time."""
        return decode(self._get("/v1/cluster", {"at": at}).content, dict[str, Any])

    def cluster_map(self, *, pool: str = "", rack: str = "", at: str = "") -> ClusterMap:
        """Every GPU and who holds it, of all nodes or of one pool or rack; now or at a sequence or time."""
        return decode(self._get("/v1/map", {"pool": pool, "rack": rack, "at": at}).content, ClusterMap)

    def ready(self) -> bool:
        """True when the gateway answers and jobs are accepted and run."""
        try:
            return self._http.get("/readyz", timeout=2.0).status_code == 200
        except httpx.HTTPError:
            return False

    def readiness(self) -> Readiness | None:
        """Return the answer of `/readyz`, with the conditions that hold; None where the gateway is away."""
        try:
            return msgspec.json.decode(self._http.get("/readyz", timeout=2.0).content, type=Readiness)
        except (httpx.HTTPError, msgspec.MsgspecError):
            return None

    # ------------------------------------------------------------------ the log

    def events(self, *, start: int | None = 1, follow: bool = False, job: str = "") -> Iterator[CloudEventOut]:
        """Yield events of the log in order from sequence `start`; with `follow` without end (`start` None: from now on).

        A watch resumes automatically after a broken connection, behind the last event yielded: no event is lost or repeated.
        `job` keeps the events about one job (for an array: and its elements).
        """
        if not follow:
            yield from self._events_stored(start, job)
            return
        last, failures = "", 0
        while True:
            try:
                for event in self._watch(start, last, job):
                    last, failures = event.id, 0
                    yield event
            except (httpx.TransportError, Unreachable) as error:
                failures += 1
                if failures > RESENDS_MAX:
                    raise Unreachable(f"{self.url} cannot be reached: {error}", hint="fairlead doctor") from error
                self._turn_to_next()
            # The gateway also ends a watch that is too slow, or when it stops; both are resumed.
            time.sleep(min(0.2 * 2**failures, 2.0))

    def _events_stored(self, start: int | None, job: str) -> Iterator[CloudEventOut]:
        query = query_of({"from": start or 1, "job": job, "limit": PAGE_ITEMS})
        while True:
            page = decode_page(self._get("/v1/events", query).content, CloudEventOut)
            yield from page.items
            if page.next is None:
                return
            query["continue"] = page.next

    def _watch(self, start: int | None, last: str, job: str) -> Iterator[CloudEventOut]:
        import httpx_sse

        query = query_of({"from": None if last else start, "follow": "true", "job": job})
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        timeout = httpx.Timeout(TIMEOUT_S, read=WATCH_SILENCE_S)
        with self._http.stream("GET", "/v1/events", params=query, headers=headers, timeout=timeout) as answer:
            raise_for(answer, stream=True)
            for message in httpx_sse.EventSource(answer).iter_sse():
                if message.data:
                    yield decode(message.data, CloudEventOut)

    def sql(self, query: str, *, limit: int | None = None, timeout_s: float | None = None) -> dict[str, Any]:
        """Rows of one SELECT over the warehouse: `{columns, rows, …}`, `truncated` and `cut` where they are not all, `left_out` where the
        tables lack some that are the caller's."""
        return decode(self._sql(query, "json", limit, timeout_s).content, dict[str, Any])

    def sql_bytes(
        self, query: str, form: SqlFormat, *, limit: int | None = None, timeout_s: float | None = None
    ) -> tuple[bytes, dict[str, str]]:
        """The same as CSV, or as Arrow's IPC stream; and `cut` and `left_out` ("": it is whole)."""
        answer = self._sql(query, form, limit, timeout_s)
        heads = {"cut": "X-Fairlead-Truncated", "left_out": "X-Fairlead-Left-Out"}
        return answer.content, {word: answer.headers.get(head, "") for word, head in heads.items()}

    def _sql(self, query: str, form: SqlFormat, limit: int | None, timeout_s: float | None) -> httpx.Response:
        body = {"query": query, **query_of({"limit": limit, "timeout_s": timeout_s})}
        return self._send("POST", "/v1/sql", json=body, params={"format": form}, timeout=SQL_TIMEOUT_S)

    def usage(self, month: str = "", by: str = "user") -> UsageStatement:
        """A month's ("2026-11"; "": this one, so far) GPU time and its cost, by one of `fairlead_schemas.queries.telemetry.BYS`."""
        return decode(self._get("/v1/usage", {"statement": month, "by": by}).content, UsageStatement)

    def _verb(self, kind: str, name: str, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return decode(self._post(f"/v1/{kind}/{name}:{verb}", body or {}).content, dict[str, Any])


__all__ = ["Client", "Conflict", "FairleadError", "Unreachable"]
