"""Rows of the warehouse that a caller may see, in the form in which telemetry takes them. Reads only.

Telemetry knows no grants: it gets queues, projects and the owner. A pool becomes its queues.
"""

from fairlead_gateway.access.caller import CLUSTER, Caller
from fairlead_gateway.access.targets import pool_of_queue
from fairlead_gateway.views.fold import Views
from fairlead_rights.access_list import Reach
from fairlead_schemas.queries import telemetry


def warehouse_caller(views: Views, caller: Caller) -> telemetry.QueryCaller:
    """Return the caller as telemetry sees it: everything for those who hold `sql:read` on the cluster."""
    if caller.is_open:
        return telemetry.ANONYMOUS_ADMIN
    if caller.may("sql:read", CLUSTER) and caller.may("job:read", CLUSTER):
        role = "admin" if caller.may("rights:grant", CLUSTER) else "auditor"
        return telemetry.QueryCaller(user=caller.user, role=role)
    reaches = caller.reaches("sql:read")
    parts = [_scope(views, reach) for reach in reaches]
    whole = telemetry.RowScope(queues=_top_queues(views))
    held, limits = (parts[0] if parts else telemetry.RowScope()), parts[1:]
    return telemetry.QueryCaller(
        user=caller.user,
        role="member",
        projects=held.projects,
        queues=whole.queues if reaches and reaches[0].cluster else held.queues,
        within=limits[0] if limits and not reaches[1].cluster else None,
        totals=caller.may("queue:read", CLUSTER) and caller.may("node:read", CLUSTER),
    )


def _scope(views: Views, reach: Reach) -> telemetry.RowScope:
    named = {kind: sorted(name for each, name in reach.others if each == kind) for kind in ("pool", "project", "job")}
    pools = frozenset(named["pool"])
    of_pools = [path for path in _top_queues(views) if pool_of_queue(views, path) in pools]
    return telemetry.RowScope(
        queues=tuple(sorted({*reach.queues, *of_pools})),
        projects=tuple(named["project"]),
        jobs=tuple(named["job"]),
    )


def _top_queues(views: Views) -> tuple[str, ...]:
    return tuple(sorted(path for path in views.queues.rows if "/" not in path))
