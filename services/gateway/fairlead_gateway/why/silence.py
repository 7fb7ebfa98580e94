"""Reason of a job that is stuck because its node is silent: what is known of it, when it continues elsewhere, and who
may permit that. Pure.
"""

from fairlead_gateway.moments import rfc3339
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.nodes import run_name
from fairlead_gateway.views.rows import JobRow, NodeRow
from fairlead_schemas.http.api import Reason
from fairlead_schemas.policies.partitions import OnPartition


def of_a_node(views: Views, row: JobRow) -> Reason | None:
    """Return the reason of a job that is placed on a lost node; None where none of its nodes is lost."""
    run = run_name(row.id, row.attempt)
    for part in row.parts:
        node = views.nodes.rows.get(part.node)
        if node is not None and node.lost and not node.dead and run in node.held and not row.run_ended:
            return _silent(views, row, node)
    return None


def _silent(views: Views, row: JobRow, node: NodeRow) -> Reason:
    policy, since = row.on_partition, rfc3339(node.heard_ns)
    told, then = _what_follows(views, policy, node)
    return Reason(
        code="node_silent", message=f"its node {node.id} is silent since {since}; {told}",
        detail={"node": node.id, "silent_since": since, "strict": int(policy.strict), "next": then},
    )  # fmt: skip


def _what_follows(views: Views, policy: OnPartition, node: NodeRow) -> tuple[str, str]:
    """In words, and what a person can do."""
    if "loss" in views.plans.tripped:
        return (
            "so many nodes are at once that nothing is started elsewhere before somebody has looked",
            "fairlead breaker",
        )
    if policy.strict:
        told = "strict: it is not started elsewhere before its node, or an admin, says that it has ended there"
        return told, f"fairlead declare-dead {node.id}, once you have seen that nothing runs there"
    if policy.replace_after_ns:
        return f"it is started elsewhere at {rfc3339(node.heard_ns + policy.replace_after_ns)} at the earliest", "wait"
    return "it is about to be started elsewhere", "wait"
