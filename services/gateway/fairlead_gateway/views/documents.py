"""Documents of jobs and nodes, built from rows on request (queues: `queuedocs.py`). Pure."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from fairlead_gateway.moments import SECOND_NS, moment_or_none, rfc3339
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.gpustates import gpu_states, node_access, taints_of
from fairlead_gateway.views.idledocs import job_idle
from fairlead_gateway.views.insides import cut_summary, summary
from fairlead_gateway.views.nodes import held_sum, node_state
from fairlead_gateway.views.rows import Ailment, JobRow, NodeRow
from fairlead_gateway.why.reason import reason_of
from fairlead_schemas.http import api
from fairlead_schemas.wire.health import meaning_of


def job_document(views: Views, row: JobRow, now_ns: int, *, count_ahead: bool = False) -> api.Job:
    """Return one job as clients see it, its reason included."""
    used_ns = used(row, views.at_ns)
    return api.Job(
        id=row.id, name=row.name, kind=row.kind, queue=row.queue, user=row.user, project=row.project, state=row.state,
        attempt=row.attempt, priority=row.priority, reason=reason_of(views, row, now_ns, count_ahead=count_ahead),
        nodes=[part.node for part in row.parts], gpus={part.node: list(part.gpus) for part in row.parts if part.gpus},
        exit_code=_exit_code(row), submitted_at=rfc3339(row.submitted_ns), started_at=moment_or_none(row.started_ns),
        ended_at=moment_or_none(row.ended_ns), sequence=views.sequence, spec=msgspec.Raw(views.jobs.spec_of(row)),
        signal=row.signal, message=row.message, array=dict(row.elements) if row.elements is not None else None,
        deadline=moment_or_none(row.deadline_ns), deadline_missed=row.deadline_missed,
        slice_seconds=row.slice_ns // SECOND_NS if row.slice_ns else None, used_seconds=used_ns // SECOND_NS,
        left_seconds=max(0, row.total_ns - used_ns) // SECOND_NS if row.total_ns else None,
        after=[{"job": one.job, "state": one.state} for one in row.after], preempted=row.preempted,
        preempted_for=_preempted_for(row), saved_at=moment_or_none(row.saved_ns), saved_note=row.saved_note,
        lost_seconds=row.lost_ns // SECOND_NS, idle=job_idle(row), extended_until=moment_or_none(row.extended_until_ns), attempts=attempts_of(row),
    )  # fmt: skip


def attempts_of(row: JobRow) -> list[api.Attempt]:
    """Return the attempts before the newest one."""
    return [
        api.Attempt(
            attempt=each.attempt, nodes=list(each.nodes), started_at=moment_or_none(each.started_ns),
            ended_at=moment_or_none(each.ended_ns), reason=each.reason, exit_code=each.exit_code, signal=each.signal,
            gpu_fault=each.gpu_fault, message=each.message,
        )
        for each in row.attempts
    ]  # fmt: skip


def used(row: JobRow, now_ns: int) -> int:
    """Return the run time (ns), up to a moment, of the running attempt and of the earlier ones that it continues."""
    return row.used_ns + (max(0, now_ns - row.runs_since_ns) if row.runs_since_ns else 0)


def _preempted_for(row: JobRow) -> dict[str, str] | None:
    return None if row.yielding is None else {"job": row.yielding.beneficiary, "rule": row.yielding.rule}


def _exit_code(row: JobRow) -> int | None:
    if row.state == "succeeded" and row.exit_code is None and row.elements is None:
        return 0
    return row.exit_code


def node_document(views: Views, row: NodeRow) -> api.Node:
    """Return one node as clients see it."""
    return node_documents(views, [row])[0]


def node_documents(views: Views, rows: Iterable[NodeRow]) -> list[api.Node]:
    """Return nodes as outsiders see them; cheaper than one by one."""
    keepers = views.waiting.keepers()
    return [_node(views, row, keepers.get(row.id, "")) for row in rows]


def _node(views: Views, row: NodeRow, keeper: str) -> api.Node:
    inventory = row.inventory
    cpu_milli, memory_mib = held_sum(row.held)
    silent_s = views.silent_s(row.id)
    states = Counter(gpu_states(row, views.jobs, node_access(row, silent=silent_s > 0, keeper=keeper)))
    return api.Node(
        id=row.id, state=node_state(row, silent=silent_s > 0), reason=row.reason or row.quarantine_reason or _rest(row), runtime=inventory.runtime, simulated=inventory.simulated,
        address=inventory.address, hostname=inventory.hostname,
        gpu_model=inventory.gpus[0].model if inventory.gpus else "", gpus=len(inventory.gpus),
        gpus_free=states["free"], gpu_states=dict(states), cpu_milli=inventory.cpu_milli, cpu_milli_free=inventory.cpu_milli - cpu_milli,
        memory_mib=inventory.memory_mib, memory_mib_free=inventory.memory_mib - memory_mib, labels=inventory.labels,
        jobs=[run.rpartition(".")[0] for run in row.held], sequence=views.sequence, setter=row.setter,
        taints=taints_of(row), faulted=dict(sorted(row.faulted.items())),
        inside=summary(inventory.inside), mig=cut_summary(inventory.gpus),
        health=[_ailment(each) for each in row.ailments], blamed_by=list(row.blamed_by), silent_seconds=silent_s,
    )  # fmt: skip


def _rest(row: NodeRow) -> str:
    if not row.rests_until_ns:
        return ""
    return f"rests until {rfc3339(row.rests_until_ns)}: {len(row.blamed_by)} different jobs failed fast here"


def _ailment(seen: Ailment) -> api.HealthIssue:
    meaning = meaning_of(seen.gpu, seen.code)
    return api.HealthIssue(
        gpu=seen.gpu, code=seen.code, severity=meaning.severity, words=meaning.words, evidence=seen.evidence,
        since=rfc3339(seen.since_ns), returns=meaning.returns,
    )  # fmt: skip
