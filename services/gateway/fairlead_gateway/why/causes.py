"""The dominant cause of a refusal with its numbers, and what would end it. Pure.

The counts are the placer's own (JobUnplaceable); the numbers beside them are of the nodes as the views have them. Start at
`dominant`.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, NodeRow, Refusal
from fairlead_gateway.why import pool
from fairlead_gateway.why.amounts import these
from fairlead_schemas.cpulists import parse_cpus
from fairlead_schemas.queues import MODEL_LABEL
from fairlead_schemas.queuewords import counted, number
from fairlead_schemas.requestwords import gpus as gpu_words
from fairlead_schemas.resources import Request
from fairlead_schemas.selectors import key_of, parse, suits
from fairlead_schemas.topology import INSIDE_LEVELS

Detail = dict[str, int | str]
#: Inside a node: how a sentence says it.
_TOGETHER = {
    "nvlink": "connected by NVLink", "switch": "under one PCIe switch", "numa": "on one NUMA node", "socket": "on one socket",
}  # fmt: skip


#: Causes that no end of any run mends.
LASTING = frozenset({
    "taint", "gpu_model", "selector", "sharing", "mig_profile", "mig_mode", "gpus", "gpu_memory", "compute_capability",
    "topology", "nics", "cpu", "memory", "pool",
})  # fmt: skip


class Told(NamedTuple):
    """A cause in a sentence, its numbers, and the next step ("": waiting is)."""

    message: str
    detail: Detail = {}
    next: str = ""
    #: True where waiting alone does not end it.
    lasting: bool = False


NOTHING = Told("")


def dominant(views: Views, row: JobRow, refusal: Refusal) -> Told:
    """The domain that takes too few units, where that is what is short; else the cause of most nodes."""
    asked = row.request
    if refusal.level and refusal.level != "node" and refusal.fitting >= (asked.nodes_min or asked.nodes):
        return _domain(refusal, asked)
    cause = ordered(refusal.reasons)[0] if refusal.reasons else ""
    tell = _TELL.get(cause)
    if tell is None or (asked.also and cause not in _OF_ALL_KINDS):
        return NOTHING
    return tell(views, row)


def ordered(reasons: dict[str, int]) -> list[str]:
    """The causes, that of most nodes first."""
    return sorted(reasons, key=lambda cause: (-reasons[cause], cause))


def _domain(refusal: Refusal, asked: Request) -> Told:
    units, unit = asked.nodes_min or asked.nodes, "tasks" if asked.tasks else "nodes"
    units += sum(kind.nodes for kind in asked.also)
    return Told(
        f"no {refusal.level} takes {units} {unit}, the best takes {refusal.best}",
        {"level": refusal.level, "needed": units, "best": refusal.best},
        f"ask for {refusal.best} {unit}, or only prefer one {refusal.level} (topology.prefer)" if refusal.best else "",
    )


# ---------------------------------------------------------------------------- what never fits


def _gpu_model(views: Views, row: JobRow) -> Told:
    asked = [parse(text) for text in row.request.selector if key_of(text) == MODEL_LABEL]
    wanted = " and ".join(_wanted(each.operator, each.values) for each in asked)
    found = Counter(pool.model(node) or "no" for node in pool.members(views, row.request))
    has = [f"{count} {'node' if count == 1 else 'nodes'} with {name} GPUs" for name, count in found.most_common()]
    return Told(
        f"asks for {wanted}; {_where(row)} has {these(has)}", {f"models.{name}": count for name, count in found.items()},
        "ask for a model that the pool has, or use a queue of another pool: fairlead nodes", True,
    )  # fmt: skip


def _wanted(operator: str, values: tuple[str, ...]) -> str:
    named = " or ".join(values)
    return f"not {named}" if operator in ("!=", "notin") else named or "a model"


def _selector(views: Views, row: JobRow) -> Told:
    nodes = pool.members(views, row.request)
    lack = {text: sum(not suits(node.inventory.labels, (text,)) for node in nodes) for text in row.request.selector}
    text = max(lack, key=lambda each: (lack[each], each), default="")
    has = Counter(node.inventory.labels.get(key_of(text), "") or "none" for node in nodes)
    told = these([f"{value} ({count})" for value, count in has.most_common()])
    return Told(
        f"asks for {text}, which {lack.get(text, 0)} of {len(nodes)} nodes do not have; of {key_of(text)} there are {told}",
        {"selector": text, "lack": lack.get(text, 0)}, f"drop {text} from nodeSelector, or label a node so", True,
    )  # fmt: skip


def _taint(views: Views, row: JobRow) -> Told:
    found = Counter(text for node in pool.members(views, row.request) for text in pool.barring(node, row.request))
    if not found:
        return NOTHING
    taint, count = found.most_common(1)[0]
    more = f" and {len(found) - 1} more taints" if len(found) > 1 else ""
    have = "has" if count == 1 else "have"
    return Told(
        f"{count} node{'' if count == 1 else 's'} {have} the taint {taint}{more}", {"taint": taint, "tainted": count},
        f'it may go there with the toleration "{taint}": submit --toleration {taint}, or tolerations in the job file', True,
    )  # fmt: skip


def _sharing(_views: Views, row: JobRow) -> Told:
    if row.request.replicas:
        return Told(
            "asks for shared GPUs, and these nodes give theirs out whole", {},
            "ask for whole GPUs or a share of one (nvidia.com/gpu)", True,
        )  # fmt: skip
    return Told(
        "these nodes slice their GPUs by time and give them out as replicas alone", {},
        "ask for nvidia.com/gpu.shared, or use a queue of another pool", True,
    )  # fmt: skip


def _topology(views: Views, row: JobRow) -> Told:
    asked, inside = row.request, [level for level in INSIDE_LEVELS if level in row.request.require]
    if not inside:
        return NOTHING
    what, nodes = _unit_of(asked), pool.members(views, asked)
    message = f"asks for {what} {' and '.join(_TOGETHER[level] for level in inside)}"
    fewer = f"ask for fewer, or only prefer it (topology.prefer: {inside[0]})"
    if "numa" in inside:
        gpus = max((max(Counter(node.inventory.inside.numa).values(), default=0) for node in nodes), default=0)
        cpus = max((_cpus(node) for node in nodes), default=0)
        told = f"; no NUMA node of {_where(row)} has more than {gpus} GPUs and {cpus} CPUs"
        return Told(message + told, {"numa_gpus": gpus, "numa_cpus": cpus}, fewer, True)
    if "nvlink" in inside:
        most = max(map(pool.linked, nodes), default=0)
        told = (
            f"; of {_where(row)} no more than {most} are so on one node"
            if most > 1
            else f"; {_where(row)} has no such GPUs"
        )
        return Told(message + told, {"linked_gpus": most}, fewer, True)
    return Told(f"{message}; no node of {_where(row)} has them so", {}, fewer, True)


def _cpus(row: NodeRow) -> int:
    """CPUs of its largest NUMA node."""
    return max((len(parse_cpus(numa.cpus)) for numa in row.inventory.inside.numa_nodes), default=0)


def _largest(
    what: str, asked: Callable[[Request], int], has: Callable[[NodeRow], int], said: Callable[[int], str]
) -> Callable[[Views, JobRow], Told]:
    """A cause that an amount is more than any node of those has."""

    def tell(views: Views, row: JobRow) -> Told:
        most = max((has(node) for node in pool.members(views, row.request)), default=0)
        wanted = asked(row.request)
        if most >= wanted:
            return NOTHING
        return Told(
            f"asks for {said(wanted)} {what}, the most of {_where(row)} is {said(most)}", {"largest": most},
            "ask for less, or use a queue of another pool", True,
        )  # fmt: skip

    return tell


# ---------------------------------------------------------------------------- what waiting may mend


def _free_gpus(views: Views, row: JobRow) -> Told:
    asked = row.request
    nodes = pool.takers(views, asked, row.id)
    if asked.profile or asked.replicas:
        return NOTHING
    if asked.gpu_parts:
        return _share(asked, nodes)
    need = asked.gpu_milli // pool.MILLI
    free = {node.id: len(pool.free_gpus(node, asked)) for node in nodes}
    total, most = sum(free.values()), max(free.values(), default=0)
    if not total:
        return Told("no GPU that would do is free", {"free_gpus": 0})
    by_free = sorted((name for name in free if free[name]), key=lambda name: (-free[name], name))
    named = these([f"{name} {free[name]}" for name in by_free])
    are = "GPU is" if total == 1 else "GPUs are"
    detail: Detail = {"free_gpus": total, "most_free_gpus": most}
    if most < need:
        unit = "task" if asked.tasks else "node"
        no = f"no node has {need} together" if need > 1 else f"not for this {unit}"
        return Told(f"{total} {are} free, {no}: {named}", detail)
    fits = sum(count >= need for count in free.values())
    return Told(
        f"{total} {are} free, {need} or more on {fits} of the nodes: {named}", {**detail, "nodes_with_enough": fits}
    )


def _share(asked: Request, nodes: Iterable[NodeRow]) -> Told:
    most = max(
        ((max(pool.rests(node, asked), default=0), node.id) for node in nodes),
        default=(0, ""),
        key=lambda each: each[0],
    )
    if not most[0]:
        return Told("nothing is left of any GPU that would do", {"most_left_gpu_milli": 0})
    return Told(
        f"the most that is left of one GPU is {number('gpu', most[0])}, on {most[1]}",
        {"most_left_gpu_milli": most[0]},
        f"a share of {number('gpu', most[0])} could start now" if most[0] < asked.gpu_milli else "",
    )


def _apart(views: Views, row: JobRow) -> Told:
    """Free GPUs on different NUMA nodes, or not linked."""
    asked, lying = row.request, list[str]()
    need = asked.gpu_milli // pool.MILLI
    inside = [level for level in INSIDE_LEVELS if level in asked.require]
    for node in pool.takers(views, asked, row.id):
        free, numa = pool.free_gpus(node, asked), node.inventory.inside.numa
        if len(free) >= need and need and numa:
            counts = Counter(numa[at] for at in free)
            lying.append(f"{node.id} {' + '.join(str(counts[each]) for each in sorted(counts))}")
    where = " and ".join(_TOGETHER[level] for level in inside) or "with CPUs beside them"
    told = f", free on NUMA nodes: {these(lying)}" if lying else ""
    return Told(
        f"no node has {_unit_of(asked)} free {where}{told}",
        {"nodes_with_enough": len(lying)},
        f"it starts when they come free together; to start sooner, only prefer it (topology.prefer: {inside[0]})"
        if inside
        else "",
    )


def _not_empty(views: Views, row: JobRow) -> Told:
    nodes = pool.takers(views, row.request, row.id)
    runs = {node.id: len(node.held) for node in nodes if node.held}
    fewest = sorted(runs, key=lambda name: (runs[name], name))
    named = these([f"{name} {runs[name]} run{'' if runs[name] == 1 else 's'}" for name in fewest])
    return Told(
        f"asks for nodes to itself; {len(nodes) - len(runs)} of {len(nodes)} are empty: {named}",
        {"empty": len(nodes) - len(runs)}, "it starts when nodes have become empty; without exclusive it may share them",
    )  # fmt: skip


def _named(is_such: Callable[[NodeRow], bool], next: str) -> Callable[[Views, JobRow], Told]:  # noqa: A002 -- as in Told
    """A cause that lies in the nodes' own state: which ones, and why somebody made them so."""

    def tell(views: Views, row: JobRow) -> Told:
        such = [node for node in pool.members(views, row.request) if is_such(node)]
        texts = [f"{node.id}{f' ({why})' if (why := node.quarantine_reason or node.reason) else ''}" for node in such]
        return Told(these(texts), {}, next) if such else NOTHING

    return tell


def _faulted(views: Views, row: JobRow) -> Told:
    such = [node for node in pool.members(views, row.request) if node.faulted]
    named = these([f"{node.id} {len(node.faulted)} of {len(node.inventory.gpus)}" for node in such])
    return (
        Told(f"GPUs that are faulted: {named}", {}, "it starts when these GPUs are well again: fairlead nodes")
        if such
        else NOTHING
    )


def _where(row: JobRow) -> str:
    return f"pool {row.request.pool}" if row.request.pool else "the cluster"


def _unit_of(asked: Request) -> str:
    gpus = gpu_words(asked)
    return " and ".join(each for each in (gpus, counted("cpu", asked.cpu_milli) if asked.cpu_milli else "") if each)


_WAIT_FOR_IT = "it is tried when they take work again: fairlead nodes"
_TELL: dict[str, Callable[[Views, JobRow], Told]] = {
    "gpu_model": _gpu_model, "selector": _selector, "taint": _taint, "sharing": _sharing, "topology": _topology,
    "gpus": _largest("on a node", lambda r: r.gpu_milli, lambda n: len(n.inventory.gpus) * pool.MILLI, lambda m: counted("gpu", m)),
    "nics": _largest("network devices on a node", lambda r: r.nics, lambda n: len(n.inventory.inside.nics), str),
    "cpu": _largest("on a node", lambda r: r.cpu_milli, lambda n: n.inventory.cpu_milli, lambda m: counted("cpu", m)),
    "memory": _largest("on a node", lambda r: r.memory_mib, lambda n: n.inventory.memory_mib, lambda m: counted("memory", m)),
    "gpu_memory": _largest(
        "of each GPU", lambda r: r.gpu_memory_mib, lambda n: max((gpu.memory_mib for gpu in n.inventory.gpus), default=0),
        lambda m: counted("memory", m),
    ),
    "compute_capability": _largest(
        "as compute capability", lambda r: r.compute_capability,
        lambda n: max((gpu.compute_capability for gpu in n.inventory.gpus), default=0), lambda m: f"{m // 10}.{m % 10}",
    ),
    "free_gpus": _free_gpus, "free_links": _apart, "free_numa": _apart, "not_empty": _not_empty, "gpu_faulted": _faulted,
    "draining": _named(lambda node: node.draining or node.drained, _WAIT_FOR_IT),
    "cordoned": _named(lambda node: node.cordoned and not node.draining and not node.drained, _WAIT_FOR_IT),
    "quarantined": _named(lambda node: node.quarantined, "a person releases them: fairlead nodes"),
    "suspect": _named(lambda node: node.suspect, "it is tried when the run that a suspect node has does well"),
    "lost": _named(lambda node: node.lost, "it is tried when they are heard of again: fairlead doctor"),
}  # fmt: skip
_OF_ALL_KINDS = frozenset({"taint", "draining", "cordoned", "quarantined", "suspect", "lost"})
