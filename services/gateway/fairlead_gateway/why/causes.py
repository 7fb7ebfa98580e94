"""Causes of a placer's refusal with their numbers, as of the views, and what would end them. Pure.

The placer counts the nodes by cause (JobUnplaceable); `placement_causes.CAUSES` has the words for these counts. Here the
cause of most nodes gets its numbers. A new one is one function and one entry in `_EXPLAINED`. Start at `dominant`.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from fairlead_gateway.views.nodes import node_state
from fairlead_gateway.views.rows import NodeRow, PlacementRefusal
from fairlead_gateway.why.free_resources import (
    JobPool,
    NodeFreeResources,
    scarce_resources,
    units_min,
    untolerated_taints,
)
from fairlead_gateway.why.sentences import Detail, name_list, numbers, several
from fairlead_schemas.queries.cluster_map import WHOLE_MILLI
from fairlead_schemas.queuefile.amounts import counted, number
from fairlead_schemas.queuefile.settings import MODEL_LABEL
from fairlead_schemas.units.hardware import DOMAIN_LABELS, INSIDE_LEVELS, domain_of, linked_groups, parse_cpus
from fairlead_schemas.units.selectors import Requirement, key_of, parse, suits
from fairlead_schemas.wire.placement_causes import CAUSES, by_frequency
from fairlead_schemas.wire.resource_requests import gpus
from fairlead_schemas.wire.resources import Request


class CauseMessage(NamedTuple):
    """A cause in a sentence, the next step ("": waiting is), and its numbers."""

    message: str
    next: str = ""
    detail: Detail = {}
    #: False where waiting ends it, although it does not end other causes of this name.
    lasting: bool = True


NO_CAUSE = CauseMessage("", lasting=False)


def cause_of(message: str, then: str = "", lasting: bool = True, /, **numbers: int | str) -> CauseMessage:
    """Return a cause with its numbers."""
    return CauseMessage(message, then, numbers, lasting)


def dominant(pool: JobPool, refusal: PlacementRefusal) -> CauseMessage:
    """Return the cause of most nodes; NO_CAUSE where enough nodes fit, though in no one domain."""
    if not refusal.reasons or (refusal.level and refusal.fitting >= units_min(pool.request)):
        return NO_CAUSE
    name = by_frequency(refusal.reasons)[0]
    if name not in _EXPLAINED or (pool.request.also and not CAUSES[name].of_node):
        return NO_CAUSE
    cause = _EXPLAINED[name](pool)
    return cause._replace(lasting=cause.lasting and CAUSES[name].lasting)


def no_domain(pool: JobPool, refusal: PlacementRefusal) -> CauseMessage:
    """Return the cause for a gang that must fit in one domain: how many units the best domain takes, or that all domains
    are too small, which waiting for runs to end cannot change.
    """
    asked, level = pool.request, refusal.level
    if not level or asked.units == 1:
        return NO_CAUSE
    units, unit = units_min(asked), "task" if asked.tasks else "node"
    domains = (domain_of(node.inventory.labels, level) for node in pool.nodes) if level in DOMAIN_LABELS else ()
    largest = max(Counter(domain for domain in domains if domain).values(), default=0)
    too_small = not asked.tasks and largest < units
    most = largest if too_small else refusal.best
    message = f"no {level} takes {units} {unit}s: the {'largest has' if too_small else 'best takes'} {most}"
    prefer = f"only prefer one {level} (topology.prefer: {level})"
    then = f"ask for {several(most, unit)}, or {prefer}" if most else prefer
    return cause_of(message, then, too_small, level=level, needed=units, best=refusal.best)


# ---------------------------------------------------------------------------------------- causes that waiting does not end


def _largest(
    what: str, asked: Callable[[Request], int], has: Callable[[NodeRow], int], words: Callable[[int], str]
) -> Callable[[JobPool], CauseMessage]:
    """Return a cause that an amount is more than any node of the pool has."""

    def explained(pool: JobPool) -> CauseMessage:
        most, wanted = max(map(has, pool.nodes), default=0), asked(pool.request)
        if most >= wanted:
            return NO_CAUSE
        message = f"asks for {words(wanted)} {what}, the most of {pool.name} is {words(most)}"
        return cause_of(message, "ask for less, or use a queue of another pool", largest=most)

    return explained


def _gpu_model(pool: JobPool) -> CauseMessage:
    wanted = " and ".join(_wanted(parse(text)) for text in pool.request.selector if key_of(text) == MODEL_LABEL)
    found = Counter(_model(node) for node in pool.nodes)
    has = name_list([f"{several(count, 'node')} with {name} GPUs" for name, count in found.most_common()])
    then = "ask for a model that the pool has, or use a queue of another pool: fairlead nodes"
    models = {f"models.{name}": count for name, count in found.items()}
    return cause_of(f"asks for {wanted}; {pool.name} has {has}", then, **models)


def _wanted(asked: Requirement) -> str:
    named = " or ".join(asked.values)
    return f"not {named}" if asked.operator in ("!=", "notin") else named or "a model"


def _model(node: NodeRow) -> str:
    gpus = node.inventory.gpus
    return (node.inventory.labels.get(MODEL_LABEL) or gpus[0].model or "no") if gpus else "no"


def _selector(pool: JobPool) -> CauseMessage:
    lacking = {text: sum(not suits(node.labels, (text,)) for node in pool.nodes) for text in pool.request.selector}
    text = max(lacking, key=lambda each: (lacking[each], each), default="")
    lack, key = lacking.get(text, 0), key_of(text)
    has = Counter(node.labels.get(key, "") or "none" for node in pool.nodes)
    values = name_list([f"{value} ({count})" for value, count in has.most_common()])
    message = f"asks for {text}, which {lack} of {len(pool.nodes)} nodes do not have; of {key} there are {values}"
    return cause_of(message, f"drop {text} from nodeSelector, or label a node so", selector=text, lack=lack)


#: {setter of a taint that goes by itself: when it does}
_GOES_BY_ITSELF = {
    "health": "it is removed when the node is healthy again, or restored: fairlead nodes",
    "silence": "it is removed when the node's agent reports again: look at the agent's log there",
}


def _taint(pool: JobPool) -> CauseMessage:
    found = Counter(text for node in pool.nodes for text in untolerated_taints(node, pool.request))
    if not found:
        return NO_CAUSE
    taint, count = found.most_common(1)[0]
    more = f" and {len(found) - 1} more taints" if len(found) > 1 else ""
    setters = {setter for node in pool.nodes for each, setter in node.taints if each == taint}
    removal = next((words for setter, words in _GOES_BY_ITSELF.items() if setter in setters), "")
    message = f"{several(count, 'node')} {'has' if count == 1 else 'have'} the taint {taint}{more}"
    then = removal or f"with --toleration {taint} it may go there (in a job file: tolerations)"
    return cause_of(message, then, not removal, taint=taint, tainted=count)


def _sharing(pool: JobPool) -> CauseMessage:
    if pool.request.replicas:
        message = "asks for shared GPUs, and these nodes give theirs out whole"
        return cause_of(message, "ask for whole GPUs or a share of one (nvidia.com/gpu)")
    message = "these nodes slice their GPUs by time and give them out as replicas alone"
    return cause_of(message, "ask for nvidia.com/gpu.shared, or use a queue of another pool")


#: {level inside a node: how a sentence states it}
_TOGETHER = {
    "nvlink": "connected by NVLink",
    "switch": "under one PCIe switch",
    "numa": "on one NUMA node",
    "socket": "on one socket",
}


def _inside(request: Request) -> list[str]:
    return [level for level in INSIDE_LEVELS if level in request.require]


def _unit(request: Request) -> str:
    """ "2 GPUs and 1 CPU"."""
    cpus = counted("cpu", request.cpu_milli) if request.cpu_milli else ""
    return " and ".join(each for each in (gpus(request), cpus) if each)


def _topology(pool: JobPool) -> CauseMessage:
    inside, nodes = _inside(pool.request), [node.inventory.inside for node in pool.nodes]
    if not inside:
        return NO_CAUSE
    detail: Detail = {}
    if "numa" in inside:
        most = max((max(Counter(node.numa).values(), default=0) for node in nodes), default=0)
        cpus = max((len(parse_cpus(numa.cpus)) for node in nodes for numa in node.numa_nodes), default=0)
        found = f"no NUMA node of {pool.name} has more than {most} GPUs and {cpus} CPUs"
        detail = {"numa_gpus": most, "numa_cpus": cpus}
    elif "nvlink" in inside:
        most = max((size for node in nodes for size in linked_groups(node.nvlinks)), default=0)
        none = f"{pool.name} has no such GPUs"
        found = f"of {pool.name} no more than {most} are so on one node" if most > 1 else none
        detail = {"linked_gpus": most}
    else:
        found = f"no node of {pool.name} has them so"
    message = f"asks for {_unit(pool.request)} {' and '.join(_TOGETHER[level] for level in inside)}; {found}"
    return cause_of(message, f"ask for fewer, or only prefer it (topology.prefer: {inside[0]})", **detail)


# ---------------------------------------------------------------------------------------- causes that waiting may end


def _free_gpus(pool: JobPool) -> CauseMessage:
    asked = pool.request
    if asked.profile or asked.replicas:
        return NO_CAUSE
    if asked.gpu_parts:
        return _share(pool)
    need, free = asked.gpu_milli // WHOLE_MILLI, {name: len(left.whole_gpus) for name, left in pool.free.items()}
    total, most = sum(free.values()), max(free.values(), default=0)
    enough = sum(count >= need for count in free.values())
    # Without free GPUs, the count of nodes already states it. With enough nodes by now, it is tried again.
    if not total or (most >= need and enough >= asked.nodes):
        return NO_CAUSE
    by_free = sorted((name for name in free if free[name]), key=lambda name: (-free[name], name))
    named = name_list([f"{name} {free[name]}" for name in by_free])
    message = f"{total} {'GPU is' if total == 1 else 'GPUs are'} free"
    counts = {"free_gpus": total, "most_free_gpus": most}
    if most >= need:
        on = f"{need} or more on {enough} of the nodes"
        return cause_of(f"{message}, {on}: {named}", **counts, nodes_with_enough=enough)
    unit = "task" if asked.tasks else "node"
    no = f"no node has {need} together" if need > 1 else f"not for this {unit}"
    return cause_of(f"{message}, {no}: {named}", **counts)


def _share(pool: JobPool) -> CauseMessage:
    left = [(gpu.milli, name) for name, free in pool.free.items() for gpu in free.gpus.values()]
    most, on = max(left, key=lambda each: each[0], default=(0, ""))
    message = f"the most that is left of one GPU is {number('gpu', most)}, on {on}"
    none = "nothing is left of any GPU that would do"
    return cause_of(message if most else none, most_left_gpu_milli=most)


def _most_left(resource: str, left_of: Callable[[NodeFreeResources], int]) -> Callable[[JobPool], CauseMessage]:
    """Return a cause that CPUs or memory are short where GPUs are free: how much the best of those nodes has left."""

    def explained(pool: JobPool) -> CauseMessage:
        scarce = {name: scarce_resources(pool.request, [left]) for name, left in pool.free.items()}
        short = {name: left_of(pool.free[name]) for name, of in scarce.items() if resource in of and "gpu" not in of}
        if not short:
            return NO_CAUSE
        best = max(short, key=lambda name: short[name])
        where = " with free GPUs" if pool.request.gpu_milli else ""
        message = f"the most that is left on one of them{where} is {counted(resource, short[best])}, on {best}"
        return cause_of(message, **numbers(resource, most_left=short[best]))

    return explained


def _apart(pool: JobPool) -> CauseMessage:
    """Return the cause that free GPUs are on different NUMA nodes, or not linked."""
    asked, spread = pool.request, list[str]()
    need, inside = asked.gpu_milli // WHOLE_MILLI, _inside(asked)
    for node in pool.eligible:
        free, numa = pool.free[node.id].whole_gpus, node.inventory.inside.numa
        if len(free) >= need and need and numa:
            counts = Counter(numa[at] for at in free)
            spread.append(f"{node.id} {' + '.join(str(counts[each]) for each in sorted(counts))}")
    where = " and ".join(_TOGETHER[level] for level in inside) or "with CPUs close to them"
    on = f", free on NUMA nodes: {name_list(spread)}" if spread else ""
    prefer = f"to start sooner, only prefer it (topology.prefer: {inside[0]})" if inside else ""
    then = f"it starts when they come free together; {prefer}" if inside else ""
    return cause_of(f"no node has {_unit(asked)} free {where}{on}", then, nodes_with_enough=len(spread))


def _not_empty(pool: JobPool) -> CauseMessage:
    runs = {node.id: len(node.held) for node in pool.eligible if node.held}
    fewest = sorted(runs, key=lambda name: (runs[name], name))
    named = name_list([f"{name} {several(runs[name], 'run')}" for name in fewest])
    empty = len(pool.eligible) - len(runs)
    message = f"asks for nodes to itself; {empty} of {len(pool.eligible)} are empty: {named}"
    then = "it starts when nodes have become empty; without exclusive it may share them"
    return cause_of(message, then, empty=empty)


def _in_state(
    *states: str, then: str = "it is tried when they take work again: fairlead nodes"
) -> Callable[[JobPool], CauseMessage]:
    """Return a cause that is due to the nodes' own state. It names the nodes, which of several states each is in, and the
    reason recorded for it.
    """

    def explained(pool: JobPool) -> CauseMessage:
        named: list[str] = []
        for node in pool.nodes:
            if (state := node_state(node)) in states:
                why = node.quarantine_reason if state == "quarantined" else node.reason
                named.append(node.id + (f" is {state}" if len(states) > 1 else "") + (f" ({why})" if why else ""))
        return cause_of(name_list(named), then) if named else NO_CAUSE

    return explained


def _gpu_faulted(pool: JobPool) -> CauseMessage:
    """Return the nodes with faulted GPUs, and the number on each."""
    faulted = [node for node in pool.nodes if node.faulted]
    named = name_list([f"{node.id} {len(node.faulted)} of {len(node.inventory.gpus)}" for node in faulted])
    then = "it starts when these GPUs are well again: fairlead nodes"
    return cause_of(f"GPUs that are faulted: {named}", then) if faulted else NO_CAUSE


_EXPLAINED: dict[str, Callable[[JobPool], CauseMessage]] = {
    "draining": _in_state("draining", "drained"),
    "cordoned": _in_state("cordoned"),
    "quarantined": _in_state("quarantined", then="a person releases them: fairlead nodes"),
    "suspect": _in_state("suspect", then="it is tried when the run that a suspect node has does well"),
    "lost": _in_state("lost", then="it is tried when they report again: fairlead doctor"),
    "taint": _taint,
    "gpu_model": _gpu_model,
    "selector": _selector,
    "sharing": _sharing,
    "gpus": _largest(
        "on a node", lambda r: r.gpu_milli, lambda n: len(n.inventory.gpus) * WHOLE_MILLI, partial(counted, "gpu")
    ),
    "gpu_memory": _largest(
        "of each GPU",
        lambda r: r.gpu_memory_mib,
        lambda n: max((gpu.memory_mib for gpu in n.inventory.gpus), default=0),
        partial(counted, "memory"),
    ),
    "compute_capability": _largest(
        "as compute capability",
        lambda r: r.compute_capability,
        lambda n: max((gpu.compute_capability for gpu in n.inventory.gpus), default=0),
        lambda m: f"{m // 10}.{m % 10}",
    ),
    "topology": _topology,
    "nics": _largest("network devices on a node", lambda r: r.nics, lambda n: len(n.inventory.inside.nics), str),
    "cpu": _largest("on a node", lambda r: r.cpu_milli, lambda n: n.inventory.cpu_milli, partial(counted, "cpu")),
    "memory": _largest(
        "on a node", lambda r: r.memory_mib, lambda n: n.inventory.memory_mib, partial(counted, "memory")
    ),
    "gpu_faulted": _gpu_faulted,
    "free_gpus": _free_gpus,
    "free_cpu": _most_left("cpu", lambda left: left.cpu_milli),
    "free_memory": _most_left("memory", lambda left: left.memory_mib),
    "not_empty": _not_empty,
    "free_links": _apart,
    "free_numa": _apart,
}
