"""The Python client: one class over the gateway's HTTP API. httpx does not show through it.

Owns addresses, headers, paging, resuming and the mapping of problem+json to typed errors; knows nothing of
terminals. Every POST carries an Idempotency-Key, so it is safe to send again when the connection
breaks before the answer: the client does so by itself, a bounded number of times.
Start at `Client.submit`; errors are those of `errors.py`.
"""

import getpass
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import httpx
import httpx_sse
import msgspec

from fairlead.errors import Conflict, FairleadError, Refused, Unreachable, WaitTimedOut, from_problem, hint_for
from fairlead_schemas.api import (
    Breaker,
    DryRun,
    Job,
    Maintenance,
    Node,
    Page,
    Pool,
    Problem,
    Queue,
    QueuesApplied,
    Rollout,
    SubmitResult,
)
from fairlead_schemas.cloudevents import CloudEventOut
from fairlead_schemas.ids import TOKEN_CHARS_MAX, is_token
from fairlead_schemas.lifecycle import END_STATES

DEFAULT_URL = "http://127.0.0.1:8080"
PORT_MAX = 65535
TIMEOUT_S = 30.0
#: How often one request is sent again when the connection breaks.
RESENDS_MAX = 3
#: A 503 that asks for at most this many seconds of patience gets them.
SOON_S = 2
PAGE_ITEMS = 1000
#: A watch hears at least a comment every few seconds; longer silence is a broken connection.
WATCH_SILENCE_S = 60.0
POLL_FIRST_S, POLL_LAST_S = 0.05, 1.0
#: A wait for jobs outlasts a gateway that does not answer for so long.
WAIT_AWAY_S = 60.0

#: The status of an answer to a command that is stored and decided later.
_LATER = 202
USER_HINT = "name yourself with --as or FAIRLEAD_USER"
#: What an answer looks like that no gateway gave.
NO_GATEWAY_HINT = "is this the address of a gateway, of this version? Set FAIRLEAD_URL"

type JobFile = dict[str, Any]


class Client:
    """One user's view of one cluster.

    `url`, `token` and `user` default to FAIRLEAD_URL, FAIRLEAD_TOKEN and FAIRLEAD_USER (else the login name).
    `transport` replaces the network in tests. Usable as a context manager.
    """

    def __init__(
        self, url: str = "", token: str = "", user: str = "", *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url = (url or os.environ.get("FAIRLEAD_URL") or DEFAULT_URL).rstrip("/")
        self.user = user or os.environ.get("FAIRLEAD_USER") or _login()
        if not is_token(self.user):
            raise Refused(f'user: expected 1 to {TOKEN_CHARS_MAX} of a-z 0-9 _ -, found "{self.user}"', hint=USER_HINT)
        token = _header("FAIRLEAD_TOKEN", token or os.environ.get("FAIRLEAD_TOKEN", ""))
        headers = {"X-Fairlead-User": self.user, **({"Authorization": f"Bearer {token}"} if token else {})}
        self._http = httpx.Client(
            base_url=_address(self.url), headers=headers, timeout=TIMEOUT_S, transport=transport, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # ------------------------------------------------------------------ jobs

    def submit(self, job: JobFile, *, key: str = "") -> SubmitResult:
        """Submit one job file. `key` makes repeating safe across programs. Raises Refused with the fields."""
        answer = self._post("/v1/jobs", job, key=key)
        result = _decode(answer.content, SubmitResult)
        if result.state == "rejected":
            code, message = (
                (result.reason.code, result.reason.message) if result.reason else ("", "the job was refused")
            )
            raise Refused(message, hint=hint_for(code))
        return result

    def submit_many(self, jobs: Sequence[JobFile], *, key: str = "") -> list[SubmitResult]:
        """Submit a list in one request; one result per job, in order (a refused one says so in its state)."""
        answer = self._post("/v1/jobs", list(jobs), key=key)
        return _decode(answer.content, list[SubmitResult])

    def dry_run(self, jobs: Sequence[JobFile]) -> list[DryRun]:
        """What would become of each job if it were submitted now; nothing is sent to the queue. A single one that would
        be refused raises what its submit would raise; one of several says so in its place."""
        if len(jobs) == 1:
            return [_decode(self._post("/v1/jobs:dryrun", jobs[0]).content, DryRun)]
        return _decode(self._post("/v1/jobs:dryrun", list(jobs)).content, list[DryRun])

    def jobs(self, *, state: str = "", queue: str = "", user: str = "", limit: int = 0) -> Page[Job]:
        """Jobs, newest first as the gateway gives them, all pages joined (`limit` 0: all)."""
        return self._pages("/v1/jobs", {"state": state, "queue": queue, "user": user}, Job, limit)

    def job(self, job_id: str) -> Job:
        """One job. Raises NotFound."""
        return _decode(self._get(f"/v1/jobs/{job_id}").content, Job)

    def why(self, job_id: str, *, at: str = "") -> dict[str, Any]:
        """Why a job is where it is (or was, at a log sequence or an RFC 3339 time)."""
        return _decode(self._get(f"/v1/jobs/{job_id}/why", {"at": at}).content, dict[str, Any])

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Ask for a job's end."""
        return self._verb("jobs", job_id, "cancel")

    def hold(self, job_id: str) -> dict[str, Any]:
        """Keep a waiting job from starting."""
        return self._verb("jobs", job_id, "hold")

    def release(self, job_id: str) -> dict[str, Any]:
        """End a hold."""
        return self._verb("jobs", job_id, "release")

    def move(self, job_id: str, queue: str) -> dict[str, Any]:
        """Put a waiting job into another queue."""
        return self._verb("jobs", job_id, "move", {"queue": queue})

    def logs(
        self, job_id: str, *, follow: bool = False, rank: int | None = None, attempt: int | None = None
    ) -> Iterator[bytes]:
        """A job's output as it comes; with `follow` until the job has ended."""
        query = _query({"follow": "true" if follow else "", "rank": rank, "attempt": attempt})
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
        """One look at each job that has not ended yet; those that have go into `ended`."""
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

    def cordon(self, node: str, reason: str = "") -> dict[str, Any]:
        """Give the node no new work."""
        return self._verb("nodes", node, "cordon", {"reason": reason} if reason else {})

    def uncordon(self, node: str) -> dict[str, Any]:
        """Give the node work again."""
        return self._verb("nodes", node, "uncordon")

    def drain(self, node: str, reason: str = "", deadline: str = "") -> dict[str, Any]:
        """Give the node no new work and, after `deadline` (a duration), move what runs there."""
        return self._verb("nodes", node, "drain", {k: v for k, v in (("reason", reason), ("deadline", deadline)) if v})

    def ask_node(self, node: str, verb: str, **wish: str) -> dict[str, Any]:
        """`taint`, `untaint` (with `taint`), `quarantine`, `unquarantine`, `restore` (with `gpu`) a node."""
        return self._verb("nodes", node, verb, {name: value for name, value in wish.items() if value})

    def rollouts(self) -> Page[Rollout]:
        """Rollouts under way, and the last that ended."""
        return self._pages("/v1/rollouts", {}, Rollout, 0)

    def rollout(self, name: str) -> Rollout:
        """One rollout. Raises NotFound."""
        return _decode(self._get(f"/v1/rollouts/{name}").content, Rollout)

    def start_rollout(self, wish: dict[str, Any]) -> dict[str, Any]:
        """Begin a rollout; `wish` as the API takes it."""
        return _decode(self._post("/v1/rollouts", wish).content, dict[str, Any])

    def ask_rollout(self, name: str, verb: str, **wish: str) -> dict[str, Any]:
        """`pause`, `resume`, `cancel` a rollout, or say that one `node` is `done`."""
        return self._verb("rollouts", name, verb, {field: value for field, value in wish.items() if value})

    def windows(self) -> Page[Maintenance]:
        """Maintenance windows that are not over."""
        return self._pages("/v1/maintenance", {}, Maintenance, 0)

    def schedule(self, wish: dict[str, Any]) -> dict[str, Any]:
        """Schedule a maintenance window; `wish` as the API takes it."""
        return _decode(self._post("/v1/maintenance", wish).content, dict[str, Any])

    def cancel_window(self, name: str) -> dict[str, Any]:
        """Forget a maintenance window."""
        return self._verb("maintenance", name, "cancel")

    def breaker(self) -> Breaker:
        """What has made automatic action on nodes stop, if anything has."""
        return _decode(self._get("/v1/breaker").content, Breaker)

    def reset_breaker(self) -> dict[str, Any]:
        """Let nodes be acted upon again."""
        return _decode(self._post("/v1/breaker:reset", {}).content, dict[str, Any])

    def queues(self) -> Page[Queue]:
        """All queues."""
        return self._pages("/v1/queues", {}, Queue, 0)

    def pools(self) -> Page[Pool]:
        """All pools of nodes and queues."""
        return self._pages("/v1/pools", {}, Pool, 0)

    def apply_queues(
        self, file: dict[str, Any], *, prune: bool = False, reclaim: bool = False, key: str = ""
    ) -> QueuesApplied | SubmitResult:
        """Apply a queue file (its plain values) as a whole; a `SubmitResult` names the command where it is decided
        later. `prune` removes what it does not name, `reclaim` asks runs beyond a lowered maximum to yield."""
        query = _query({"prune": "true" if prune else "", "reclaim": "true" if reclaim else ""})
        answer = self._post("/v1/queues:apply", file, key=key, query=query)
        return _decode(answer.content, SubmitResult if answer.status_code == _LATER else QueuesApplied)

    def configure_queue(self, path: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Create a queue or replace its settings, in the words of a queue file."""
        return _decode(self._send("PUT", f"/v1/queues/{path}", json=settings).content, dict[str, Any])

    def delete_queue(self, path: str, *, move_to: str = "") -> dict[str, Any]:
        """Remove a queue; its waiting jobs go to `move_to` ("": it must have none)."""
        answer = self._send("DELETE", f"/v1/queues/{path}", params=_query({"moveTo": move_to}))
        return _decode(answer.content, dict[str, Any])

    def cluster(self, *, at: str = "") -> dict[str, Any]:
        """Totals of the cluster, now or at a sequence or time."""
        return _decode(self._get("/v1/cluster", {"at": at}).content, dict[str, Any])

    def ready(self) -> bool:
        """True when the gateway answers and has caught up with the log."""
        try:
            return self._http.get("/readyz", timeout=2.0).status_code == 200
        except httpx.HTTPError:
            return False

    # ------------------------------------------------------------------ the log

    def events(self, *, start: int | None = 1, follow: bool = False, job: str = "") -> Iterator[CloudEventOut]:
        """Events of the log from sequence `start` on, in order; with `follow` for ever (`start` None: from now on).

        A watch resumes by itself after a broken connection, behind the last event given: nothing is lost,
        nothing comes twice. `job` keeps those about one job (an array: and its elements).
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
            # The gateway also ends a watch that is too slow, or when it stops; both are resumed.
            time.sleep(min(0.2 * 2**failures, 2.0))

    def _events_stored(self, start: int | None, job: str) -> Iterator[CloudEventOut]:
        query = _query({"from": start or 1, "job": job, "limit": PAGE_ITEMS})
        while True:
            page = _decode_page(self._get("/v1/events", query).content, CloudEventOut)
            yield from page.items
            if page.next is None:
                return
            query["continue"] = page.next

    def _watch(self, start: int | None, last: str, job: str) -> Iterator[CloudEventOut]:
        query = _query({"from": None if last else start, "follow": "true", "job": job})
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        timeout = httpx.Timeout(TIMEOUT_S, read=WATCH_SILENCE_S)
        with self._http.stream("GET", "/v1/events", params=query, headers=headers, timeout=timeout) as answer:
            _raise_for(answer, stream=True)
            for message in httpx_sse.EventSource(answer).iter_sse():
                if message.data:
                    yield _decode(message.data, CloudEventOut)

    def sql(self, query: str) -> dict[str, Any]:
        """Rows of one SELECT over the warehouse: `{columns, rows, …}`."""
        return _decode(self._post("/v1/sql", {"query": query}).content, dict[str, Any])

    # ------------------------------------------------------------------ the wire

    def _verb(self, kind: str, name: str, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return _decode(self._post(f"/v1/{kind}/{name}:{verb}", body or {}).content, dict[str, Any])

    def _pages[T](self, path: str, filters: dict[str, Any], item: type[T], limit: int) -> Page[T]:
        """All pages joined. The sequence is that of the first, so `events --from` misses nothing."""
        joined: Page[T] | None = None
        query = {**filters, "limit": min(limit, PAGE_ITEMS) if limit else PAGE_ITEMS}
        while True:
            page = _decode_page(self._get(path, query).content, item)
            if joined is None:
                joined = page
            else:
                joined.items += page.items
            if page.next is None or (limit and len(joined.items) >= limit):
                return Page(items=joined.items[: limit or None], next=page.next, sequence=joined.sequence)
            query["continue"] = page.next

    def _get(self, path: str, query: dict[str, Any] | None = None) -> httpx.Response:
        return self._send("GET", path, params=_query(query or {}))

    def _post(self, path: str, body: Any, *, key: str = "", query: dict[str, Any] | None = None) -> httpx.Response:
        headers = {"Idempotency-Key": _header("key", key) or uuid.uuid4().hex}
        return self._send("POST", path, json=body, params=query or {}, headers=headers)

    def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        for attempt in range(RESENDS_MAX + 1):
            try:
                answer = self._http.request(method, path, **arguments)
            except httpx.TransportError as error:
                if attempt == RESENDS_MAX:
                    raise self._unreachable(error) from error
            except httpx.RequestError as error:  # it answers, but not in a way that asking again would mend
                raise self._unreachable(error) from error
            except httpx.InvalidURL as error:
                raise Refused(f"a name that cannot stand in an address: {error}") from error
            else:
                if attempt == RESENDS_MAX or not _soon_better(answer):
                    _raise_for(answer)
                    return answer
            time.sleep(0.1 * 2**attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _unreachable(self, error: Exception) -> FairleadError:
        return Unreachable(
            f"{self.url} cannot be reached: {error}",
            hint="start a local cluster with `fairlead up`, or set FAIRLEAD_URL",
        )

    @contextmanager
    def _stream(self, path: str, query: dict[str, Any]) -> Iterator[httpx.Response]:
        try:
            with self._http.stream("GET", path, params=query, timeout=httpx.Timeout(TIMEOUT_S, read=None)) as answer:
                _raise_for(answer, stream=True)
                yield answer
        except httpx.RequestError as error:
            raise self._unreachable(error) from error


def _soon_better(answer: httpx.Response) -> bool:
    """True for a gateway that says itself that it will answer in a moment (it has just started, or is busy)."""
    wait = answer.headers.get("Retry-After", "")
    return answer.status_code == 503 and wait.isdecimal() and int(wait) <= SOON_S


def _address(url: str) -> str:
    """The address itself, once it can be one. Raises Refused."""
    try:
        parts = httpx.URL(url)
        fits = parts.scheme in ("http", "https") and bool(parts.host) and (parts.port or 0) <= PORT_MAX
    except httpx.InvalidURL:
        fits = False
    if not fits:
        raise Refused(
            f'url: expected an address such as "{DEFAULT_URL}", found "{url}"',
            hint="name it with --url or FAIRLEAD_URL",
        )
    return url


def _header(name: str, value: str) -> str:
    """What a header can carry. Raises Refused, without the value: it may be a secret."""
    if not (value.isascii() and value.isprintable()):
        raise Refused(f"{name}: expected printable ASCII characters only")
    return value


def _decode[T](content: bytes | str, kind: type[T]) -> T:
    """An answer as what it must be. Raises Unreachable: what answers otherwise is no gateway."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unreachable(
            f"what answers is not the gateway that was expected: {error}", hint=NO_GATEWAY_HINT
        ) from error


def _decode_page[T](content: bytes, item: type[T]) -> Page[T]:
    return _decode(content, Page[item])  # type: ignore[valid-type] -- a type made at run time


def _query(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "")}


def _raise_for(answer: httpx.Response, *, stream: bool = False) -> None:
    """The typed error of an answer that is none. An answer without problem+json still names its status."""
    if answer.status_code < 400:
        return
    if stream:
        answer.read()
    try:
        problem = msgspec.json.decode(answer.content, type=Problem)
    except msgspec.MsgspecError:
        text = answer.text.strip()[:200]
        problem = Problem(
            type="about:blank", title=f"HTTP {answer.status_code}", status=answer.status_code, detail=text
        )
    raise from_problem(problem)


def _login() -> str:
    """The login name as a user name of Fairlead: lower case, other characters replaced by "-"."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # no passwd entry, as in many containers
        return "unknown"
    return re.sub(r"[^a-z0-9_-]", "-", name.lower()).strip("-_")[:TOKEN_CHARS_MAX] or "unknown"


__all__ = ["Client", "Conflict", "FairleadError", "Unreachable"]
