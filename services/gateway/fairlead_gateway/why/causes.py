"""The dominant cause of a refusal with its numbers, and what would end it. Pure.

The counts are the placer's own (JobUnplaceable); the numbers beside them are of the nodes as the views have them. Start at
`dominant`.
"""

from collections.abc import Callable

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, Refusal
from fairlead_gateway.why import busy, never, pool
from fairlead_gateway.why.told import NOTHING, Told
from fairlead_schemas.queuewords import counted
from fairlead_schemas.resources import Request

#: Causes that no end of any run mends.
LASTING = frozenset({
    "taint", "gpu_model", "selector", "sharing", "mig_profile", "mig_mode", "gpus", "gpu_memory", "compute_capability",
    "topology", "nics", "cpu", "memory", "pool",
})  # fmt: skip


def dominant(views: Views, row: JobRow, refusal: Refusal) -> Told:
    """The cause of most nodes; nothing where enough nodes fit, and lie in no one domain."""
    asked = row.request
    if refusal.level and refusal.fitting >= least(asked):
        return NOTHING
    cause = ordered(refusal.reasons)[0] if refusal.reasons else ""
    tell = _TELL.get(cause)
    if tell is None or (asked.also and cause not in _OF_ALL_KINDS):
        return NOTHING
    return tell(views, row)


def ordered(reasons: dict[str, int]) -> list[str]:
    """The causes, that of most nodes first."""
    return sorted(reasons, key=lambda cause: (-reasons[cause], cause))


def least(asked: Request) -> int:
    """Units of all kinds without which it does not start."""
    return (asked.nodes_min or asked.nodes) + sum(kind.nodes for kind in asked.also)


def domain(refusal: Refusal) -> Told:
    """Of a gang that must lie in one domain: how many units the best one takes."""
    asked = refusal.request
    if not refusal.level or asked.units == 1:
        return NOTHING
    units, unit = least(asked), "tasks" if asked.tasks else "nodes"
    return Told(
        f"no {refusal.level} takes {units} {unit}, the best takes {refusal.best}",
        {"level": refusal.level, "needed": units, "best": refusal.best},
        f"ask for {refusal.best} {unit}, or only prefer one {refusal.level} (topology.prefer)" if refusal.best else "",
    )


_WAIT_FOR_IT = "it is tried when they take work again: fairlead nodes"
_TELL: dict[str, Callable[[Views, JobRow], Told]] = {
    "gpu_model": never.gpu_model, "selector": never.selector, "taint": never.taint, "sharing": never.sharing, "topology": never.topology,
    "gpus": never.largest("on a node", lambda r: r.gpu_milli, lambda n: len(n.inventory.gpus) * pool.MILLI, lambda m: counted("gpu", m)),
    "nics": never.largest("network devices on a node", lambda r: r.nics, lambda n: len(n.inventory.inside.nics), str),
    "cpu": never.largest("on a node", lambda r: r.cpu_milli, lambda n: n.inventory.cpu_milli, lambda m: counted("cpu", m)),
    "memory": never.largest("on a node", lambda r: r.memory_mib, lambda n: n.inventory.memory_mib, lambda m: counted("memory", m)),
    "gpu_memory": never.largest(
        "of each GPU", lambda r: r.gpu_memory_mib, lambda n: max((gpu.memory_mib for gpu in n.inventory.gpus), default=0),
        lambda m: counted("memory", m),
    ),
    "compute_capability": never.largest(
        "as compute capability", lambda r: r.compute_capability,
        lambda n: max((gpu.compute_capability for gpu in n.inventory.gpus), default=0), lambda m: f"{m // 10}.{m % 10}",
    ),
    "free_gpus": busy.free_gpus, "free_links": busy.apart, "free_numa": busy.apart, "not_empty": busy.not_empty, "gpu_faulted": busy.faulted,
    "draining": busy.named(lambda node: node.draining or node.drained, _WAIT_FOR_IT),
    "cordoned": busy.named(lambda node: node.cordoned and not node.draining and not node.drained, _WAIT_FOR_IT),
    "quarantined": busy.named(lambda node: node.quarantined, "a person releases them: fairlead nodes"),
    "suspect": busy.named(lambda node: node.suspect, "it is tried when the run that a suspect node has does well"),
    "lost": busy.named(lambda node: node.lost, "it is tried when they are heard of again: fairlead doctor"),
}  # fmt: skip
_OF_ALL_KINDS = frozenset({"taint", "draining", "cordoned", "quarantined", "suspect", "lost"})
