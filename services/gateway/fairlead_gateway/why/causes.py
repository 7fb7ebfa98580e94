"""The dominant cause of a refusal with its numbers, and what would end it. Pure.

The counts are the placer's own (JobUnplaceable); the other numbers are of the nodes as the views have them. Start
at `dominant`.
"""

from collections.abc import Callable

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, Refusal
from fairlead_gateway.why import busy, never, pool
from fairlead_gateway.why.room import MILLI, least
from fairlead_gateway.why.told import NOTHING, Told
from fairlead_schemas.queuefile.amounts import counted

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


def no_domain(views: Views, refusal: Refusal) -> Told:
    """Return the cause for a gang that must fit in one domain: how many units the best domain takes, or that all domains
    are too small, which waiting for runs to end cannot change.
    """
    asked, level = refusal.request, refusal.level
    if not level or asked.units == 1:
        return NOTHING
    units, unit = least(asked), "task" if asked.tasks else "node"
    largest = pool.largest_domain(views, asked, level)
    too_small = not asked.tasks and largest < units
    most = largest if too_small else refusal.best
    prefer = f"only prefer one {level} (topology.prefer: {level})"
    return Told(
        f"no {level} takes {units} {unit}s: the {f'largest has {most}' if too_small else f'best takes {most}'}",
        {"level": level, "needed": units, "best": refusal.best},
        f"ask for {most} {unit}{'' if most == 1 else 's'}, or {prefer}" if most else prefer, too_small,
    )  # fmt: skip


_WAIT_FOR_IT = "it is tried when they take work again: fairlead nodes"
_TELL: dict[str, Callable[[Views, JobRow], Told]] = {
    "gpu_model": never.gpu_model, "selector": never.selector, "taint": never.taint, "sharing": never.sharing, "topology": never.topology,
    "gpus": never.largest("on a node", lambda r: r.gpu_milli, lambda n: len(n.inventory.gpus) * MILLI, lambda m: counted("gpu", m)),
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
    "free_cpu": busy.most_left("cpu", lambda left: left.cpu_milli), "free_memory": busy.most_left("memory", lambda left: left.memory_mib),
    "free_gpus": busy.free_gpus, "free_links": busy.apart, "free_numa": busy.apart, "not_empty": busy.not_empty, "gpu_faulted": busy.faulted,
    "draining": busy.in_state("draining", "drained", then=_WAIT_FOR_IT), "cordoned": busy.in_state("cordoned", then=_WAIT_FOR_IT),
    "quarantined": busy.in_state("quarantined", then="a person releases them: fairlead nodes"),
    "suspect": busy.in_state("suspect", then="it is tried when the run that a suspect node has does well"),
    "lost": busy.in_state("lost", then="it is tried when they are heard of again: fairlead doctor"),
}  # fmt: skip
_OF_ALL_KINDS = frozenset({"taint", "draining", "cordoned", "quarantined", "suspect", "lost"})
