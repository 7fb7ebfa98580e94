"""Documents of maintenance windows, rollouts and the breaker, built from rows on request. Pure."""

from fairlead_gateway.moments import SECOND_NS, rfc3339
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import RolloutRow, WindowRow
from fairlead_schemas.http import api


def window_document(views: Views, row: WindowRow) -> api.Maintenance:
    """Return the document of one maintenance window."""
    return api.Maintenance(
        name=row.name, state="started" if row.started else "scheduled", nodes=list(row.nodes),
        starts_at=rfc3339(row.starts_ns), ends_at=rfc3339(row.ends_ns), notice_seconds=row.notice_ns // SECOND_NS,
        by=row.by, reason=row.reason, sequence=views.sequence,
    )  # fmt: skip


def rollout_document(views: Views, row: RolloutRow) -> api.Rollout:
    """Return the document of one rollout."""
    by_step: dict[str, list[str]] = {}
    for node, step in sorted(row.nodes.items()):
        by_step.setdefault(step or "waiting", []).append(node)
    return api.Rollout(
        name=row.name, state=row.state, nodes=by_step, budget_gpus=row.budget_gpus,
        gpus_away=_gpus_away(views, row), nodes_max=row.nodes_max, want=list(row.want),
        deadline_seconds=row.deadline_ns // SECOND_NS, stop_long=row.stop_long, started_at=rfc3339(row.started_ns),
        by=row.by, reason=row.reason, sequence=views.sequence,
    )  # fmt: skip


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
