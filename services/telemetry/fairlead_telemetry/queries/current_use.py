"""The verb `use`: what running jobs' GPUs do now, from the newest batch of samples of each node.

use  JobUseRequest  -> fairlead_schemas.queries.telemetry.JobUses

The values of now come from memory, since clients that look every second should not query the warehouse; those of a past moment from
the samples that it keeps. Start at `NewestBatches`, which is pure.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from fairlead_schemas.queries.telemetry import JobUse, JobUseRequest, JobUses, QueryCaller
from fairlead_schemas.wire.samples import GpuSample, RunUse, SampleBatch, SampleColumns, rows_of
from fairlead_telemetry.idle.limits import FUTURE_NS, UNSEEN_NS
from fairlead_telemetry.ingest import Ingest
from fairlead_telemetry.sql.member_copy import scope_of
from fairlead_telemetry.warehouse.warehouse import Warehouse

_WHOLE_MILLI = 1000


class HeldDevices(NamedTuple):
    """Devices of a run on one node; `gpu_milli` counts all of these GPUs together."""

    job: str
    attempt: int
    node: str
    gpus: tuple[str, ...]
    gpu_milli: int


class MeasuredGpu(NamedTuple):
    """Measurements of one GPU for one run."""

    at_ns: int
    utilization_pct: int | None
    memory_used_mib: int | None
    power_mw: int | None


class NewestBatches:
    """Latest batch of each node. Its memory is one batch for each node that reported lately."""

    def __init__(self) -> None:
        self._batches: dict[str, SampleColumns] = {}

    def feed(self, batch: SampleColumns) -> None:
        """A batch that came just now; after a restart older ones come, too."""
        before = self._batches.get(batch.node)
        if before is None or before.at_ns <= batch.at_ns:
            self._batches[batch.node] = batch

    def uses(self, held: Sequence[HeldDevices], now_ns: int) -> list[JobUse]:
        """Return the present use by these runs, one entry for each run, in the order of their first parts."""
        self._batches = {node: batch for node, batch in self._batches.items() if _is_new(batch, now_ns)}
        batches = {node: rows_of(self._batches[node]) for node in {part.node for part in held} if node in self._batches}
        return uses_of(held, batches)


def uses_of(held: Sequence[HeldDevices], batches: dict[str, SampleBatch]) -> list[JobUse]:
    """Return the use by these runs, one entry for each run, in the order of their first parts. `batches`: {node: its newest}."""
    runs: dict[tuple[str, int], list[HeldDevices]] = {}
    for part in held:
        runs.setdefault((part.job, part.attempt), []).append(part)
    return [_use(job, attempt, parts, batches) for (job, attempt), parts in runs.items()]


def _is_new(batch: SampleColumns, now_ns: int) -> bool:
    """Return True if the batch is as new as the idle policies require."""
    return now_ns - UNSEEN_NS <= batch.at_ns <= now_ns + FUTURE_NS


def _use(job: str, attempt: int, parts: Sequence[HeldDevices], batches: dict[str, SampleBatch]) -> JobUse:
    there = [batches[part.node] for part in parts if part.node in batches]
    seen = [one for part in parts if part.node in batches for one in _of_part(part, batches[part.node])]
    busy = _known([one.utilization_pct for one in seen])
    memory, power = _known([one.memory_used_mib for one in seen]), _known([one.power_mw for one in seen])
    return JobUse(
        job=job,
        attempt=attempt,
        gpus=sum(len(part.gpus) for part in parts),
        measured=len(seen),
        utilization_pct=round(sum(busy) / len(busy), 1) if busy else None,
        memory_used_mib=sum(memory) if memory else None,
        power_mw=sum(power) if power else None,
        at_ns=min((one.at_ns for one in seen), default=None),
        simulated=any(batch.simulated for batch in there),
    )


def _of_part(part: HeldDevices, batch: SampleBatch) -> list[MeasuredGpu]:
    """Return the measurements of each of the part's GPUs and instances that was measured."""
    run = f"{part.job}.{part.attempt}"
    cut = {sample.parent for sample in batch.gpus}
    own = [sample for sample in batch.gpus if sample.parent in part.gpus and sample.run == run]
    whole = [sample for sample in batch.gpus if sample.uuid in part.gpus and sample.uuid not in cut]
    if part.gpu_milli >= _WHOLE_MILLI * len(part.gpus):
        return [_whole(batch.at_ns, sample) for sample in (*own, *whole)]
    uses = {use.uuid: use for use in batch.uses if use.run == run}
    # 0 is also what a driver says that does not know; where it knows of one process, it knows of all on that GPU.
    reported = {use.uuid for use in batch.uses if use.utilization_pct}
    shares = [_share(batch.at_ns, uses.get(sample.uuid), sample.uuid in reported) for sample in whole]
    return [*(_whole(batch.at_ns, sample) for sample in own), *shares]


def _whole(at_ns: int, sample: GpuSample) -> MeasuredGpu:
    """All that the GPU or instance does is this run's doing."""
    return MeasuredGpu(at_ns, sample.utilization_pct, sample.memory_used_mib, sample.power_mw)


def _share(at_ns: int, use: RunUse | None, is_reported: bool) -> MeasuredGpu:
    """Return the measurements of a run on a shared GPU: only the driver's values for the run's own processes. Power drawn by the
    GPU belongs to no single run.
    """
    if use is None:
        return MeasuredGpu(at_ns, None, None, None)
    return MeasuredGpu(at_ns, use.utilization_pct if is_reported else None, use.memory_mib, None)


def _known(values: Sequence[int | None]) -> list[int]:
    """All of them; none where any is not known: a sum over some of them would be another's."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


_OWNED = """SELECT p.job, p.attempt, p.node, p.gpus, p.gpu_milli, j."user", j.project, j.queue FROM fold.open_parts p JOIN fold.jobs j ON j.job = p.job
WHERE p.released_ns IS NULL AND p.gpu_count > 0 AND p.job IN (SELECT unnest($1::VARCHAR[]))
ORDER BY list_position($1::VARCHAR[], p.job), p.attempt, p.rank"""

#: Of the log up to a sequence: the placer's clock, and the newest time.
_THEN = "SELECT max(at_ns) FILTER (writer = 'placer'), max(at_ns) FROM events WHERE sequence <= ?"
_HELD_THEN = """
WITH part AS (SELECT job, attempt, rank, node, gpus, gpu_milli, gpu_count, placed_ns, released_ns FROM fold.done_parts
  UNION ALL SELECT job, attempt, rank, node, gpus, gpu_milli, gpu_count, placed_ns, released_ns FROM fold.open_parts)
SELECT p.job, p.attempt, p.node, p.gpus, p.gpu_milli, j."user", j.project, j.queue FROM part p JOIN fold.jobs j ON j.job = p.job
WHERE p.placed_ns <= $2 AND (p.released_ns IS NULL OR p.released_ns > $2) AND p.gpu_count > 0 AND p.job IN (SELECT unnest($1::VARCHAR[]))
ORDER BY list_position($1::VARCHAR[], p.job), p.attempt, p.rank"""
#: What was measured in the newest batch of each of some nodes up to a time.
_MEASURED_THEN = """
WITH newest AS (SELECT node, max(time) AS time FROM samples WHERE node IN (SELECT unnest($1::VARCHAR[]))
  AND time >= make_timestamp($2::BIGINT // 1000) AND time <= make_timestamp($3::BIGINT // 1000) GROUP BY node)
SELECT node, at_ns, incarnation, n, simulated, uuid, parent, run, utilization_pct, memory_used_mib, power_mw
FROM samples JOIN newest USING (node, time)"""
_USED_THEN = """
SELECT node, incarnation, n, uuid, run, rank, memory_mib, utilization_pct FROM uses WHERE node IN (SELECT unnest($1::VARCHAR[]))
  AND time >= make_timestamp($2::BIGINT // 1000) AND time <= make_timestamp($3::BIGINT // 1000)"""


class CurrentUseQueries:
    """Answers for one warehouse, from what `newest` was fed."""

    def __init__(
        self, warehouse: Warehouse, ingest: Ingest, newest: NewestBatches, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._warehouse, self._ingest, self._newest, self._clock = warehouse, ingest, newest, clock

    async def ask(self, request: bytes) -> bytes:
        """Return the known use of the requested jobs' GPUs, or {"error": …}."""
        try:
            query = msgspec.json.decode(request, type=JobUseRequest)
        except msgspec.MsgspecError as error:
            problem = {"code": "bad_request", "message": str(error), "hint": 'send {"caller": {…}, "jobs": ["812"]}'}
            return msgspec.json.encode({"error": problem})
        if query.at:
            found = await self._ingest.ask(uses_then, self._warehouse, query)
            return msgspec.json.encode(JobUses(sequence=query.at, items=found))
        held = await self._ingest.ask(held_by, self._warehouse, query.caller, query.jobs)
        uses = self._newest.uses(held, self._clock())
        return msgspec.json.encode(JobUses(sequence=self._ingest.cursor.sequence, items=uses))


def held_by(warehouse: Warehouse, caller: QueryCaller, jobs: list[str]) -> list[HeldDevices]:
    """Return the devices that these jobs hold now, for those that the caller may see; in the jobs' order, ranks in theirs."""
    return _seen(caller, warehouse.rows(_OWNED, [jobs]))


def _seen(caller: QueryCaller, rows: list[tuple[Any, ...]]) -> list[HeldDevices]:
    scope = scope_of(caller)
    return [
        HeldDevices(job, attempt, node, tuple(gpus), gpu_milli)
        for job, attempt, node, gpus, gpu_milli, *facts in rows
        if scope is None or scope.sees(job, *(fact or "" for fact in facts))
    ]


def uses_then(warehouse: Warehouse, query: JobUseRequest) -> list[JobUse]:
    """Return the use by the runs of a log sequence, from the samples up to its time; null where none of them is new enough or kept."""
    ((placer_ns, at_ns),) = warehouse.rows(_THEN, [query.at])
    held = _seen(query.caller, warehouse.rows(_HELD_THEN, [query.jobs, placer_ns or 0]))
    parameters = [sorted({part.node for part in held}), (at_ns or 0) - UNSEEN_NS, at_ns or 0]
    uses: dict[tuple[str, str, int], list[RunUse]] = {}
    for node, incarnation, n, uuid, run, rank, memory, utilization in warehouse.rows(_USED_THEN, parameters):
        use = RunUse(uuid=uuid, run=run, rank=rank, memory_mib=memory, utilization_pct=utilization)
        uses.setdefault((node, incarnation, n), []).append(use)
    batches: dict[str, SampleBatch] = {}
    for node, sampled_ns, incarnation, n, simulated, *gpu in warehouse.rows(_MEASURED_THEN, parameters):
        uuid, parent, run, utilization, memory, power = gpu
        sample = GpuSample(
            uuid=uuid, parent=parent, run=run, utilization_pct=utilization, memory_used_mib=memory or 0, power_mw=power
        )
        if node not in batches:
            batches[node] = SampleBatch(
                node=node,
                incarnation=incarnation,
                n=n,
                at_ns=sampled_ns,
                uses=uses.get((node, incarnation, n), []),
                simulated=simulated,
            )
        batches[node].gpus.append(sample)
    return uses_of(held, batches)
