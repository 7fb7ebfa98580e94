"""The nodes of a job's pool as the views have them: which there are, and which take its work. Pure.

Only for sentences about what the placer has refused already: who is placed where the placer alone decides.
"""

from collections import Counter

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.gpustates import barring_taints, is_open
from fairlead_gateway.views.rows import NodeRow
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, MODEL_LABEL, POOL_LABEL
from fairlead_schemas.units.hardware import DOMAIN_LABELS, domain_of
from fairlead_schemas.units.selectors import suits
from fairlead_schemas.units.taints import tolerated
from fairlead_schemas.wire.resources import Request


def members(views: Views, request: Request) -> list[NodeRow]:
    """Every node of the pool, by name."""
    pool = request.pool or DEFAULT_POOL
    rows = (row for row in views.nodes.rows.values() if (row.inventory.labels.get(POOL_LABEL) or DEFAULT_POOL) == pool)
    return sorted(rows, key=lambda row: row.id)


def takers(views: Views, request: Request, job: str) -> list[NodeRow]:
    """Return the nodes that take work of this job, judged by state, selectors, taints and reservations only."""
    kept = views.waiting.kept_nodes(job)
    return [
        row for row in members(views, request)
        if is_open(row) and row.id not in kept and suits(row.inventory.labels, request.selector)
        and not barring(row, request)
    ]  # fmt: skip


def barring(row: NodeRow, request: Request) -> list[str]:
    """The node's taints that keep the job from starting there."""
    return [taint.text for taint in barring_taints(row) if not tolerated(request.tolerations, *taint)]


def largest_domain(views: Views, request: Request, level: str) -> int:
    """Nodes of the largest domain of the level; 0 where no label names one."""
    domains = (
        (domain_of(node.inventory.labels, level) for node in members(views, request)) if level in DOMAIN_LABELS else ()
    )
    return max(Counter(domain for domain in domains if domain).values(), default=0)


def model(row: NodeRow) -> str:
    """Return the model of the node's GPUs, "" without GPUs."""
    gpus = row.inventory.gpus
    return (row.inventory.labels.get(MODEL_LABEL) or gpus[0].model) if gpus else ""


def linked(row: NodeRow) -> int:
    """Return the size of the node's largest group of GPUs that NVLink connects, directly or through each other."""
    links, best, seen = row.inventory.inside.nvlinks, 0, set[int]()
    for first in range(len(links)):
        group, todo = set[int](), [first]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                group.add(at)
                todo += [other for other, count in enumerate(links[at]) if count]
        best = max(best, len(group))
    return best
