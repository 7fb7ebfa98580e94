"""A log written by hand, for views: events in, commits numbered and timed."""

from typing import Any

import msgspec

from fairlead_gateway.views.fold import Views
from fairlead_gateway.why.dominant_reason import reason_of
from fairlead_schemas.http.api import Reason
from fairlead_schemas.queuefile.settings import QueueSettings
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Gpu, Inventory, Request
from tests.kit.commits import commit_of

START_NS = 1_767_225_600 * SECOND_NS  # 2026-01-01T00:00:00Z


class Logbook:
    """Views fed commit by commit; one second passes with each."""

    def __init__(self) -> None:
        self.views = Views()
        self.now_ns = START_NS

    def write(self, *events: ev.Event) -> None:
        """One commit."""
        self.now_ns += SECOND_NS
        sequence = self.views.sequence + 1
        self.views.fold(
            sequence,
            commit_of(list(events), n=sequence, at_ns=self.now_ns),
        )


def gpu_request(gpus: int, nodes: int = 1) -> Request:
    """A request for whole GPUs."""
    return Request(nodes=nodes, gpu_milli=gpus * 1000, cpu_milli=1000, memory_mib=1024)


def submitted(job: str = "1", gpus: int = 1, nodes: int = 1, **fields: object) -> ev.JobSubmitted:
    """A job by ada in queue default."""
    values = {
        "cause": f"cmd:c{job}",
        "job": job,
        "name": f"job-{job}",
        "queue": "default",
        "user": "ada",
        "request": gpu_request(gpus, nodes),
        "spec": msgspec.Raw(b'{"command":["true"]}'),
        **fields,
    }
    return ev.JobSubmitted(**values)  # type: ignore[arg-type] -- a builder


def offered(job: str = "1", rank: int = 1, attempt: int = 1) -> ev.JobOffered:
    """An open offer."""
    return ev.JobOffered(cause="1.0", job=job, attempt=attempt, rank=rank)


def placed(job: str = "1", *nodes: str, gpus: int = 1, attempt: int = 1) -> ev.JobPlaced:
    """A place on the nodes named (default n1)."""
    parts = tuple(
        ev.Part(node=node, gpus=tuple(f"GPU-{node}-{i}" for i in range(gpus)), cpu_milli=1000, memory_mib=1024)
        for node in nodes or ("n1",)
    )
    return ev.JobPlaced(cause="2.0", job=job, attempt=attempt, parts=parts)


def unplaceable(
    job: str = "1", *, nodes: int = 4, fitting: int = 0, free: int = 0, total: int = 32, **reasons: int
) -> ev.JobUnplaceable:
    """A refusal with its counts; GPUs in whole."""
    return ev.JobUnplaceable(
        cause="2.0",
        job=job,
        attempt=1,
        reasons=reasons,
        nodes=nodes,
        fitting=fitting,
        gpu_milli_free=free * 1000,
        gpu_milli_total=total * 1000,
    )


def started(job: str = "1", attempt: int = 1) -> ev.RunStarted:
    """Every rank runs."""
    return ev.RunStarted(cause="report:n1:2", job=job, attempt=attempt)


def ended(job: str = "1", code: int | None = 0, *released: str, attempt: int = 1, **fields: Any) -> ev.RunEnded:
    """The run has ended; its part is back on the nodes named (default n1)."""
    return ev.RunEnded(
        cause="report:n1:3",
        job=job,
        attempt=attempt,
        outcome=fields.pop("outcome", "exited"),
        exit_code=code,
        released=released or ("n1",),
        **fields,
    )


def joined(node: str = "n1", gpus: int = 8, labels: dict[str, str] | None = None) -> ev.NodeJoined:
    """A node with GPUs."""
    devices = tuple(Gpu(uuid=f"GPU-{node}-{i}", index=i, model="A100", memory_mib=81920) for i in range(gpus))
    inventory = Inventory(gpus=devices, cpu_milli=64_000, memory_mib=512 * 1024, labels=labels or {})
    return ev.NodeJoined(cause=f"report:{node}:1", node=node, incarnation="i", boot_id="b", inventory=inventory)


def quota(gpus: int | None) -> ev.QueueConfigured:
    """The maximum of queue default, as logs had it before queues had settings."""
    return ev.QueueConfigured(cause="cmd:q", path="default", gpu_quota_milli=None if gpus is None else gpus * 1000)


def configured(path: str, **settings: Any) -> ev.QueueConfigured:
    """A queue with these settings."""
    return ev.QueueConfigured(cause="cmd:q", path=path, settings=QueueSettings(**settings))


def deferred(job: str = "1", reason: Any = "turn", queue: str = "", **numbers: Any) -> ev.JobDeferred:
    """The queue's word on why a job is not offered."""
    return ev.JobDeferred(
        cause="clock", job=job, attempt=numbers.pop("attempt", 1), reason=reason, queue=queue, **numbers
    )


def preempting(job: str, beneficiary: str, rule: Any = "lower_priority", attempt: int = 1) -> ev.PreemptionStarted:
    """A run is asked to yield."""
    return ev.PreemptionStarted(cause="3.0", job=job, attempt=attempt, beneficiary=beneficiary, rule=rule)


def requeued(job: str = "1", reason: Any = "preempted", attempt: int = 2) -> ev.JobRequeued:
    """Back to the queue for another attempt."""
    return ev.JobRequeued(cause="4.0", job=job, attempt=attempt, reason=reason)


def why(events: list[ev.Event], job: str = "1") -> Reason:
    """The reason of a job after these events, one commit each; the same after a restart from a snapshot."""
    book = Logbook()
    for event in events:
        book.write(event)
    reason = reason_of(book.views, book.views.jobs.rows[job], book.now_ns)
    again = Views.restore(book.views.snapshot())
    assert again is not None
    assert reason_of(again, again.jobs.rows[job], book.now_ns) == reason
    return reason
