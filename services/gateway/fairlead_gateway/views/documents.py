"""Documents of the API, built from rows when somebody asks. Pure."""

import msgspec

from fairlead_gateway.moments import moment_or_none, rfc3339
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.nodes import held_sum
from fairlead_gateway.views.rows import JobRow, NodeRow, QueueRow
from fairlead_gateway.why import reason_of
from fairlead_schemas import api


def job_document(views: Views, row: JobRow, now_ns: int, *, count_ahead: bool = False) -> api.Job:
    """One job as outsiders see it, its reason included."""
    return api.Job(
        id=row.id, name=row.name, kind=row.kind, queue=row.queue, user=row.user, project=row.project, state=row.state,
        attempt=row.attempt, priority=row.priority, reason=reason_of(views, row, now_ns, count_ahead=count_ahead),
        nodes=[part.node for part in row.parts], gpus={part.node: list(part.gpus) for part in row.parts if part.gpus},
        exit_code=_exit_code(row), submitted_at=rfc3339(row.submitted_ns), started_at=moment_or_none(row.started_ns),
        ended_at=moment_or_none(row.ended_ns), sequence=views.sequence, spec=msgspec.Raw(views.jobs.spec_of(row)),
        signal=row.signal, message=row.message, array=dict(row.elements) if row.elements is not None else None,
    )  # fmt: skip


def _exit_code(row: JobRow) -> int | None:
    if row.state == "succeeded" and row.exit_code is None and row.elements is None:
        return 0
    return row.exit_code


def node_state(row: NodeRow) -> str:
    """The one word for a node: the strongest of what holds."""
    if row.lost:
        return "lost"
    if row.drained:
        return "drained"
    if row.draining:
        return "draining"
    return "cordoned" if row.cordoned else "ready"


def node_document(views: Views, row: NodeRow) -> api.Node:
    """One node as outsiders see it."""
    inventory = row.inventory
    gpus, cpu_milli, memory_mib = held_sum(row.held)
    return api.Node(
        id=row.id, state=node_state(row), reason=row.reason, runtime=inventory.runtime, simulated=inventory.simulated,
        address=inventory.address, hostname=inventory.hostname,
        gpu_model=inventory.gpus[0].model if inventory.gpus else "", gpus=len(inventory.gpus),
        gpus_free=len(inventory.gpus) - gpus, cpu_milli=inventory.cpu_milli, cpu_milli_free=inventory.cpu_milli - cpu_milli,
        memory_mib=inventory.memory_mib, memory_mib_free=inventory.memory_mib - memory_mib, labels=inventory.labels,
        jobs=[run.rpartition(".")[0] for run in row.held], sequence=views.sequence,
    )  # fmt: skip


def queue_document(views: Views, row: QueueRow) -> api.Queue:
    """One queue as outsiders see it; elements not offered yet count as waiting."""
    count = row.states.get
    return api.Queue(
        path=row.path, gpu_quota_milli=row.gpu_quota_milli, gpu_milli_charged=row.gpu_milli_charged,
        waiting=count("scheduled", 0) + count("queued", 0) + count("held", 0) + count("offered", 0) + row.unborn,
        running=count("placed", 0) + count("running", 0) + count("stopping", 0), sequence=views.sequence,
    )  # fmt: skip
