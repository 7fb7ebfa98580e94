"""Documents of jobs and nodes, built from rows on request (queues: `views/queue_documents.py`). Pure.

Further parts:
- a node's inside in one line, for people who look at many nodes;
- documents of maintenance windows, rollouts and the breaker, built from rows on request.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from fairlead_gateway.views.cluster_map import gpu_states, node_access, taints_of
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.idle_documents import job_idle
from fairlead_gateway.views.nodes import held_sum, node_state
from fairlead_gateway.views.rows import HealthIssueRow, JobRow, NodeRow, RolloutRow, WindowRow
from fairlead_gateway.why.dominant_reason import reason_of
from fairlead_schemas.http import api
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339, rfc3339_or_none
from fairlead_schemas.wire.health import meaning_of
from fairlead_schemas.wire.resources import UNKNOWN_TOPOLOGY, Gpu, NodeTopology

#: Different insides whose line is remembered: lists of nodes say it of each.
LINES_KEPT_MAX = 256


@lru_cache(LINES_KEPT_MAX)
def topology_summary(inside: NodeTopology) -> str:
    """Return a summary like "12 NVLinks between all 8 GPUs, on 4 of 8 NUMA nodes, 12 NICs"; "" where nothing
    is known.
    """
    if inside == UNKNOWN_TOPOLOGY:
        return ""
    parts = [_links(inside), _numa(inside), _counted(len(inside.nics), "NIC")]
    return ", ".join(part for part in parts if part)


def mig_summary(gpus: Sequence[Gpu]) -> str:
    """ "0: 4x 1g.5gb, 3g.20gb; 3: nothing": the MIG instances of each GPU in MIG mode, by its index; "" where there is none."""
    return "; ".join(f"{gpu.index}: {_instances(gpu)}" for gpu in gpus if gpu.mig)


def _instances(gpu: Gpu) -> str:
    found = Counter(instance.profile for instance in gpu.instances)
    return ", ".join(f"{count}x {name}" if count > 1 else name for name, count in sorted(found.items())) or "nothing"


def _links(inside: NodeTopology) -> str:
    pairs = [links for i, row in enumerate(inside.nvlinks) for links in row[:i]]
    linked = [links for links in pairs if links]
    if inside.gpus < 2:
        return ""
    if not linked:
        return "no NVLinks"
    least, most = min(linked), max(linked)
    count = _counted(most, "NVLink") if least == most else f"{least} to {most} NVLinks"
    if len(linked) == len(pairs):
        return f"{count} between all {inside.gpus} GPUs"
    return f"{count} between {len(linked)} of {len(pairs)} pairs of GPUs"


def _numa(inside: NodeTopology) -> str:
    held, there = {node for node in inside.numa if node >= 0}, len(inside.numa_nodes)
    if not inside.gpus or not held or held == {node.node for node in inside.numa_nodes}:
        return _counted(there, "NUMA node")
    return f"on {len(held)} of {there} NUMA nodes" if there else f"on {_counted(len(held), 'NUMA node')}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}" if count else ""


def job_document(views: Views, row: JobRow, now_ns: int, *, count_ahead: bool = False) -> api.Job:
    """Return one job as clients see it, its reason included."""
    used_ns = used(row, views.at_ns)
    return api.Job(
        id=row.id,
        name=row.name,
        kind=row.kind,
        queue=row.queue,
        user=views.name_of(row.user),
        project=row.project,
        state=row.state,
        attempt=row.attempt,
        priority=row.priority,
        reason=reason_of(views, row, now_ns, count_ahead=count_ahead),
        nodes=[part.node for part in row.parts],
        gpus={part.node: list(part.gpus) for part in row.parts if part.gpus},
        exit_code=_exit_code(row),
        submitted_at=rfc3339(row.submitted_ns),
        started_at=rfc3339_or_none(row.started_ns),
        ended_at=rfc3339_or_none(row.ended_ns),
        sequence=views.sequence,
        spec=msgspec.Raw(views.jobs.spec_of(row)),
        signal=row.signal,
        message=row.message,
        array=dict(row.elements) if row.elements is not None else None,
        deadline=rfc3339_or_none(row.deadline_ns),
        deadline_missed=row.deadline_missed,
        slice_seconds=row.slice_ns // SECOND_NS if row.slice_ns else None,
        used_seconds=used_ns // SECOND_NS,
        left_seconds=-(-max(0, row.total_ns - used_ns) // SECOND_NS) if row.total_ns else None,
        after=[{"job": one.job, "state": one.state} for one in row.after],
        preempted=row.preempted,
        preempted_for=_preempted_for(row),
        saved_at=rfc3339_or_none(row.saved_ns),
        saved_note=row.saved_note,
        lost_seconds=row.lost_ns // SECOND_NS,
        idle=job_idle(views, row),
        extended_until=rfc3339_or_none(row.extended_until_ns),
        ready_at=rfc3339_or_none(row.app_ready_ns),
        attempts=attempts_of(row),
    )


def attempts_of(row: JobRow) -> list[api.Attempt]:
    """Return the attempts before the newest one."""
    return [
        api.Attempt(
            attempt=each.attempt,
            nodes=list(each.nodes),
            started_at=rfc3339_or_none(each.started_ns),
            ended_at=rfc3339_or_none(each.ended_ns),
            reason=each.reason,
            exit_code=each.exit_code,
            signal=each.signal,
            gpu_fault=each.gpu_fault,
            message=each.message,
        )
        for each in row.attempts
    ]


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
        id=row.id,
        state=node_state(row, silent=silent_s > 0),
        reason=row.reason or row.quarantine_reason or _rest(row),
        runtime=inventory.runtime,
        simulated=inventory.simulated,
        address=inventory.address,
        hostname=inventory.hostname,
        gpu_model=inventory.gpus[0].model if inventory.gpus else "",
        gpus=len(inventory.gpus),
        gpus_free=states["free"],
        gpu_states=dict(states),
        cpu_milli=inventory.cpu_milli,
        cpu_milli_free=inventory.cpu_milli - cpu_milli,
        memory_mib=inventory.memory_mib,
        memory_mib_free=inventory.memory_mib - memory_mib,
        labels=inventory.labels,
        jobs=[run.rpartition(".")[0] for run in row.held],
        sequence=views.sequence,
        setter=row.setter,
        taints=taints_of(row),
        faulted=dict(sorted(row.faulted.items())),
        inside=topology_summary(inventory.inside),
        mig=mig_summary(inventory.gpus),
        health=[_ailment(each) for each in row.ailments],
        blamed_by=list(row.blamed_by),
        silent_seconds=silent_s,
    )


def _rest(row: NodeRow) -> str:
    if not row.rests_until_ns:
        return ""
    return f"rests until {rfc3339(row.rests_until_ns)}: {len(row.blamed_by)} different jobs failed fast here"


def _ailment(seen: HealthIssueRow) -> api.HealthIssue:
    meaning = meaning_of(seen.gpu, seen.code)
    return api.HealthIssue(
        gpu=seen.gpu,
        code=seen.code,
        severity=meaning.severity,
        words=meaning.words,
        evidence=seen.evidence,
        since=rfc3339(seen.since_ns),
        returns=meaning.returns,
    )


def window_document(views: Views, row: WindowRow) -> api.Maintenance:
    """Return the document of one maintenance window."""
    return api.Maintenance(
        name=row.name,
        state="started" if row.started else "scheduled",
        nodes=list(row.nodes),
        starts_at=rfc3339(row.starts_ns),
        ends_at=rfc3339(row.ends_ns),
        notice_seconds=row.notice_ns // SECOND_NS,
        by=row.by,
        reason=row.reason,
        sequence=views.sequence,
    )


def rollout_document(views: Views, row: RolloutRow) -> api.Rollout:
    """Return the document of one rollout."""
    by_step: dict[str, list[str]] = {}
    for node, step in sorted(row.nodes.items()):
        by_step.setdefault(step or "waiting", []).append(node)
    return api.Rollout(
        name=row.name,
        state=row.state,
        nodes=by_step,
        budget_gpus=row.budget_gpus,
        gpus_away=_gpus_away(views, row),
        nodes_max=row.nodes_max,
        want=list(row.want),
        deadline_seconds=row.deadline_ns // SECOND_NS,
        stop_long=row.stop_long,
        started_at=rfc3339(row.started_ns),
        by=row.by,
        reason=row.reason,
        sequence=views.sequence,
    )


def _gpus_away(views: Views, row: RolloutRow) -> int:
    """GPUs of its nodes that take no work now, for whatever reason."""
    nodes = [views.nodes.rows[name] for name in row.nodes if name in views.nodes.rows]
    return sum(
        len(node.inventory.gpus)
        for node in nodes
        if node.lost or node.cordoned or node.draining or node.drained or node.quarantined
    )


def breaker_document(views: Views) -> api.Breaker:
    """Return the breaker's document: the causes that have tripped it, if any."""
    tripped = [
        api.Tripped(kind=row.kind, found=row.found, allowed=row.allowed, of=row.of, at=rfc3339(row.at_ns))
        for row in views.plans.tripped.values()
    ]
    return api.Breaker(tripped=tripped, sequence=views.sequence)
