"""Requests about jobs: submit, look, wait, cancel; and about idle ones.

Owns the API's paths, the types of their answers, and waiting; knows nothing of terminals.
"""

import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any
from urllib.parse import quote

from fairlead.client.answers import decode, if_match, query_of
from fairlead.client.async_link import pause
from fairlead.client.asynchronous.transport import AsyncTransport
from fairlead.errors import InputRefused, Unreachable, WaitTimedOut, hint_for
from fairlead_schemas.http.api import (
    DryRun,
    Estimates,
    IdleFileResult,
    IdleOverview,
    IdleScope,
    Job,
    MissingPieces,
    Page,
    RunDirectory,
    SubmitResult,
)
from fairlead_schemas.http.tunnels import NewEntry, NewTunnel
from fairlead_schemas.queries.telemetry import JobMetrics, JobUses
from fairlead_schemas.wire.lifecycle import END_STATES

POLL_FIRST_S, POLL_LAST_S = 0.05, 1.0
#: A wait for jobs outlasts a gateway that does not answer for so long.
WAIT_AWAY_S = 60.0
#: A node that is silent for so long ends an archive, and the gateway notices sooner.
ARCHIVE_SILENCE_S = 60.0
#: States in which there may be output.
STARTED_STATES = END_STATES | {"running", "stopping"}
#: The status of an answer to a command that is stored and decided later.
LATER = 202

type JobFile = dict[str, Any]


class AsyncJobsRequests(AsyncTransport):
    """Requests about jobs."""

    async def submit(self, job: JobFile, *, key: str = "") -> SubmitResult:
        """Submit one job file. `key` makes repeating safe across programs. Raises Refused with the fields."""
        answer = await self._post("/v1/jobs", job, key=key)
        result = decode(answer.content, SubmitResult)
        if result.state == "rejected":
            code, message = (
                (result.reason.code, result.reason.message) if result.reason else ("", "the job was refused")
            )
            raise InputRefused(message, hint=hint_for(code))
        return result

    async def submit_many(self, jobs: Sequence[JobFile], *, key: str = "") -> list[SubmitResult]:
        """Submit a list in one request; one result per job, in order (a refused one says so in its state)."""
        answer = await self._post("/v1/jobs", list(jobs), key=key)
        return decode(answer.content, list[SubmitResult])

    async def dry_run(self, jobs: Sequence[JobFile]) -> list[DryRun]:
        """Return the outcome of each job if it were submitted now; nothing is sent to the queue. For a single job that would be
        refused, raises the error that its submit would raise; for several jobs, the refusal is in the job's own result.
        """
        if len(jobs) == 1:
            return [decode((await self._post("/v1/jobs:dryrun", jobs[0])).content, DryRun)]
        return decode((await self._post("/v1/jobs:dryrun", list(jobs))).content, list[DryRun])

    async def missing_pieces(self, digests: Sequence[str]) -> list[str]:
        """Return those pieces of a directory that the cluster lacks, by their SHA-256 in hex digits; 500 at once at most."""
        answer = await self._post("/v1/pieces:missing", {"digests": list(digests)})
        return decode(answer.content, MissingPieces).missing

    async def send_piece(self, digest: str, data: bytes) -> None:
        """Send a piece of a directory under its SHA-256."""
        await self._send("PUT", f"/v1/pieces/{digest}", content=data)

    async def files(self, job_id: str, path: str = "", *, rank: int = 0, attempt: int | None = None) -> RunDirectory:
        """Return what is at a path of a job's own directory, with all entries; "/" for the outputs that were kept by name. Raises
        NotFound.
        """
        query = {"path": path, "rank": rank or None, "attempt": attempt}
        found = decode((await self._get(f"/v1/jobs/{job_id}/files", query)).content, RunDirectory)
        while found.next is not None:
            rest = decode(
                (await self._get(f"/v1/jobs/{job_id}/files", {**query, "after": found.next})).content, RunDirectory
            )
            found.entries += rest.entries
            found.next = rest.next if rest.entries else None
        return found

    async def archive(
        self, job_id: str, path: str = "", *, rank: int = 0, attempt: int | None = None
    ) -> AsyncIterator[bytes]:
        """Yield what is at a path of a job's own directory as a tar archive. Raises NotFound."""
        query = query_of({"path": path, "rank": rank or None, "attempt": attempt})
        async with self._stream(f"/v1/jobs/{job_id}/archive", query, read_s=ARCHIVE_SILENCE_S) as answer:
            async for piece in answer.aiter_bytes():
                yield piece

    async def jobs(
        self,
        *,
        state: str = "",
        queue: str = "",
        user: str = "",
        name: str = "",
        label: str = "",
        project: str = "",
        since: str = "",
        elements: bool = True,
        limit: int = 0,
    ) -> Page[Job]:
        """Jobs, newest first as the gateway gives them, all pages joined (`limit` 0: all).

        Each filter is one value or several joined by commas. `since`: without jobs that had ended before, an RFC 3339 time or "1d";
        without `elements`, arrays stand for theirs.
        """
        given = {"state": state, "queue": queue, "user": user, "name": name, "label": label, "project": project}
        filters = query_of({**given, "since": since, "elements": None if elements else "false"})
        return await self._pages("/v1/jobs", filters, Job, limit)

    async def job(self, job_id: str, *, until: str = "", wait_s: int = 0) -> Job:
        """Return one job; with `until` ("started" or "ended") once it is so, or as it is after `wait_s` seconds (20 at most).
        Raises NotFound.
        """
        query = {"until": until, "wait_s": wait_s} if until and wait_s else {}
        return decode((await self._get(f"/v1/jobs/{job_id}", query)).content, Job)

    async def why(self, job_id: str, *, at: str = "", estimate: bool = False) -> dict[str, Any]:
        """Return the reason for a job's state now, or at a log sequence or an RFC 3339 time. `estimate`: add when a waiting job
        starts, which takes up to some seconds.
        """
        query = {"at": at, "estimate": "true" if estimate and not at else ""}
        return decode((await self._get(f"/v1/jobs/{job_id}/why", query)).content, dict[str, Any])

    async def estimates(self) -> Estimates:
        """Return how right the estimates of starts were, by queue, and the worst of them."""
        return decode((await self._get("/v1/estimates", {})).content, Estimates)

    async def job_metrics(
        self, job_id: str, *, start: str = "", end: str = "", step: str = "", attempt: int = 0
    ) -> JobMetrics:
        """Return the metrics of a job's GPUs over time, of the whole newest attempt by default. Times are RFC 3339. Raises
        NotFound.
        """
        query = {"from": start, "to": end, "step": step, "attempt": attempt or None}
        return decode((await self._get(f"/v1/jobs/{job_id}/metrics", query)).content, JobMetrics)

    async def use(self, job_ids: Sequence[str]) -> JobUses:
        """Return the present GPU use of those of these jobs that run and that the user may see. Raises Unreachable without
        telemetry.
        """
        if not job_ids:
            return JobUses(sequence=0, items=[])
        return decode((await self._get("/v1/use", {"jobs": ",".join(job_ids)})).content, JobUses)

    async def cancel(self, job_id: str, *, save: bool = False) -> dict[str, Any]:
        """Ask for a job's end; with `save` it has its notice first."""
        return await self._verb("jobs", job_id, "cancel", {"save": True} if save else None)

    async def requeue(self, job_id: str) -> dict[str, Any]:
        """End a job's present run; the job waits for another one."""
        return await self._verb("jobs", job_id, "requeue")

    async def signal(self, job_id: str, name: str) -> dict[str, Any]:
        """Send a signal, such as "USR1", to the programs of a running job, once."""
        return await self._verb("jobs", job_id, "signal", {"signal": name})

    async def hold(self, job_id: str) -> dict[str, Any]:
        """Keep a waiting job from starting."""
        return await self._verb("jobs", job_id, "hold")

    async def release(self, job_id: str) -> dict[str, Any]:
        """End a hold."""
        return await self._verb("jobs", job_id, "release")

    async def move(self, job_id: str, queue: str) -> dict[str, Any]:
        """Put a waiting job into another queue."""
        return await self._verb("jobs", job_id, "move", {"queue": queue})

    async def update(
        self, job_id: str, changes: dict[str, Any], *, unchanged_since: int | None = None
    ) -> dict[str, Any]:
        """Change fields of a job's file: name, priority, labels (None removes one), {"time": {"total": "4h" or None}}; with
        `unchanged_since` only if it has not changed after that sequence. Raises Conflict.
        """
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        headers |= if_match(unchanged_since)
        answer = await self._send("PATCH", f"/v1/jobs/{job_id}", json=changes, headers=headers)
        return decode(answer.content, dict[str, Any])

    async def extend(self, job_id: str, for_: str = "") -> dict[str, Any]:
        """Let no idle policy act on what runs of the job for a while ("": as long as its policy allows)."""
        return await self._verb("jobs", job_id, "extend", {"for": for_} if for_ else None)

    async def open_tunnel(self, job_id: str, port: int, *, rank: int = 0) -> NewTunnel:
        """Open a connection to a port inside a running job, for `fairlead.tunnel_link.connect_tunnel`. Raises Conflict where the job
        does not run, or nothing listens there.
        """
        answer = await self._post(f"/v1/jobs/{quote(job_id, safe='')}/tunnels", {"port": port, "rank": rank})
        return decode(answer.content, NewTunnel)

    async def open_terminal(self, job_id: str, *, rank: int = 0) -> NewTunnel:
        """Open a connection to a command inside a running job, which `fairlead.terminal_link` names. Raises Conflict where the job does
        not run.
        """
        answer = await self._post(f"/v1/jobs/{quote(job_id, safe='')}/tunnels", {"to": "terminal", "rank": rank})
        return decode(answer.content, NewTunnel)

    async def open_ssh(self, job_id: str, public_key: str, *, rank: int = 0) -> NewTunnel:
        """Open a connection to an SSH server that leads into a running job, for the owner of a public key ("ssh-ed25519 AAAA…"). Raises
        Conflict.
        """
        body = {"to": "ssh", "rank": rank, "public_key": public_key}
        return decode((await self._post(f"/v1/jobs/{quote(job_id, safe='')}/tunnels", body)).content, NewTunnel)

    async def enter_app(self, job_id: str) -> NewEntry:
        """Make a way into the application of a running job, for a browser: a code that is good once. Raises Conflict where the job does not
        run, or has none.
        """
        answer = await self._post(f"/v1/jobs/{quote(job_id, safe='')}/entries", {})
        return decode(answer.content, NewEntry)

    async def idle(self) -> IdleOverview:
        """Return the idle jobs, the policies under which they are idle, and the savings that dry runs would have made."""
        return decode((await self._get("/v1/idle")).content, IdleOverview)

    async def set_idle_policies(self, scope: str, policies: list[Any]) -> IdleScope | SubmitResult:
        """Set all policies of a scope, in the words of a policy file; a `SubmitResult` names the command where it is decided
        later."""
        answer = await self._send("PUT", f"/v1/idle/{quote(scope, safe=':')}", json={"policies": policies})
        return decode(answer.content, SubmitResult if answer.status == LATER else IdleScope)

    async def apply_idle_policies(self, scopes: dict[str, list[Any]]) -> IdleFileResult | SubmitResult:
        """Set all policies of these scopes, in the words of a policy file, all or none; a `SubmitResult` names the command where it is
        decided later. Raises Refused with each problem."""
        answer = await self._post("/v1/idle:apply", {"scopes": scopes})
        return decode(answer.content, SubmitResult if answer.status == LATER else IdleFileResult)

    async def logs(
        self,
        job_id: str,
        *,
        follow: bool = False,
        rank: int | None = None,
        attempt: int | None = None,
        tail: int = 0,
        skip: int = 0,
    ) -> AsyncIterator[bytes]:
        """A job's output as it comes, without its first `skip` bytes, or its last lines; with `follow` until the job has ended. Output that is
        followed from its start continues at another gateway, behind what was yielded, if one ends; it is waited for, WAIT_AWAY_S at most.
        """
        query = query_of({"follow": "true" if follow else "", "rank": rank, "attempt": attempt, "tail": tail or None})
        answered: float | None = None
        while True:
            left = skip
            try:
                async with self._stream(f"/v1/jobs/{job_id}/logs", query) as answer:
                    async for piece in answer.aiter_bytes():
                        answered = time.monotonic()
                        if len(piece) > left:
                            skip += len(piece) - left
                            yield piece[left:]
                        left = max(0, left - len(piece))
                return
            except Unreachable:
                if not follow or tail or answered is None or time.monotonic() - answered > WAIT_AWAY_S:
                    raise
                self._turn_to_next()
                await pause(POLL_LAST_S)

    async def follow(self, job_id: str, *, seen: Callable[[Job], None] | None = None) -> AsyncIterator[bytes]:
        """Yield a job's output, of one attempt after another, until it has ended. `seen` is called at every look, for the last time
        once the job has ended.

        A gateway that is away meanwhile is waited for, WAIT_AWAY_S at most; the output continues behind what was yielded.
        """
        attempt, shown, answered = 1, 0, time.monotonic()
        is_whole = False
        while True:
            try:
                # The output of an attempt has ended before its job has.
                job = await self.job(job_id, until="ended" if is_whole else "started", wait_s=1)
                answered = time.monotonic()
                if seen is not None:
                    seen(job)
                if not is_whole and (job.attempt > attempt or job.state in STARTED_STATES):
                    async for piece in self.logs(job_id, follow=True, attempt=attempt, skip=shown):
                        shown += len(piece)
                        yield piece
                    is_whole = True
                if is_whole and job.attempt > attempt:
                    attempt, shown, is_whole = attempt + 1, 0, False
                elif job.state in END_STATES:
                    return
            except Unreachable:
                if time.monotonic() - answered > WAIT_AWAY_S:
                    raise
                await pause(POLL_LAST_S)

    async def wait(
        self, job_ids: Iterable[str], *, timeout_s: float | None = None, seen: Callable[[Job], None] | None = None
    ) -> list[Job]:
        """Wait until all have ended; `seen` is called at every look. Raises WaitTimedOut naming those still going.

        It asks again and again instead of following events: a broken stream and a quiet one look alike,
        and an answer is the truth either way. The end of the first open one is answered as it comes. A gateway that is away
        meanwhile is waited for, WAIT_AWAY_S at most.
        """
        ids = list(job_ids)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        ended: dict[str, Job] = {}
        wait_s = POLL_FIRST_S
        answered = time.monotonic()
        while True:
            began = time.monotonic()
            try:
                await self._look(ids, ended, seen, deadline)
                answered = time.monotonic()
            except Unreachable:
                if time.monotonic() - answered > WAIT_AWAY_S:
                    raise
            open_ids = [i for i in ids if i not in ended]
            if not open_ids:
                return [ended[i] for i in ids]
            if deadline is not None and time.monotonic() >= deadline:
                raise WaitTimedOut(f"not ended within {timeout_s:g} s: {', '.join(open_ids)}")
            now = time.monotonic()
            await pause(max(0.0, min(began + wait_s, now + wait_s if deadline is None else deadline) - now))
            wait_s = min(wait_s * 1.5, POLL_LAST_S)

    async def _look(
        self, ids: list[str], ended: dict[str, Job], seen: Callable[[Job], None] | None, deadline: float | None
    ) -> None:
        """Fetch each job that has not ended yet, and put newly ended ones into `ended`. The first is waited for a second."""
        wait_s = 1 if deadline is None or deadline - time.monotonic() > 1 else 0
        for job_id in [i for i in ids if i not in ended]:
            job = await self.job(job_id, until="ended", wait_s=wait_s)
            wait_s = 0
            if seen is not None:
                seen(job)
            if job.state in END_STATES:
                ended[job_id] = job

    async def _verb(self, kind: str, name: str, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return decode((await self._post(f"/v1/{kind}/{name}:{verb}", body or {})).content, dict[str, Any])
