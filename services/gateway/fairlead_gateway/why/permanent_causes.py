"""Causes that waiting does not end: what no node of the pool is or has. Pure.

Each says what the job asks for, what there is, and what to ask for instead.
"""

from collections import Counter
from collections.abc import Callable

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, NodeRow
from fairlead_gateway.why import free_resources
from fairlead_gateway.why.nodes import where
from fairlead_gateway.why.sentences import NO_CAUSE, TOGETHER, CauseMessage, name_list, unit_of
from fairlead_schemas.queuefile.settings import MODEL_LABEL
from fairlead_schemas.units.hardware import INSIDE_LEVELS, parse_cpus
from fairlead_schemas.units.selectors import key_of, parse, suits
from fairlead_schemas.wire.resources import Request


def gpu_model(views: Views, row: JobRow) -> CauseMessage:
    asked = [parse(text) for text in row.request.selector if key_of(text) == MODEL_LABEL]
    wanted = " and ".join(_wanted(each.operator, each.values) for each in asked)
    found = Counter(free_resources.gpu_model(node) or "no" for node in free_resources.pool_nodes(views, row.request))
    has = [f"{count} {'node' if count == 1 else 'nodes'} with {name} GPUs" for name, count in found.most_common()]
    return CauseMessage(
        f"asks for {wanted}; {where(row.request)} has {name_list(has)}",
        {f"models.{name}": count for name, count in found.items()},
        "ask for a model that the pool has, or use a queue of another pool: fairlead nodes",
        True,
    )


def _wanted(operator: str, values: tuple[str, ...]) -> str:
    named = " or ".join(values)
    return f"not {named}" if operator in ("!=", "notin") else named or "a model"


def selector(views: Views, row: JobRow) -> CauseMessage:
    nodes = free_resources.pool_nodes(views, row.request)
    lack = {text: sum(not suits(node.inventory.labels, (text,)) for node in nodes) for text in row.request.selector}
    text = max(lack, key=lambda each: (lack[each], each), default="")
    has = Counter(node.inventory.labels.get(key_of(text), "") or "none" for node in nodes)
    told = name_list([f"{value} ({count})" for value, count in has.most_common()])
    return CauseMessage(
        f"asks for {text}, which {lack.get(text, 0)} of {len(nodes)} nodes do not have; of {key_of(text)} there are {told}",
        {"selector": text, "lack": lack.get(text, 0)},
        f"drop {text} from nodeSelector, or label a node so",
        True,
    )


#: {setter of a taint that goes by itself: when it does}
_GOES_BY_ITSELF = {
    "health": "it is removed when the node is healthy again, or restored: fairlead nodes",
    "silence": "it is removed when the node's agent reports again: look at the agent's log there",
}


def taint(views: Views, row: JobRow) -> CauseMessage:
    nodes = free_resources.pool_nodes(views, row.request)
    found = Counter(text for node in nodes for text in free_resources.untolerated_taints(node, row.request))
    if not found:
        return NO_CAUSE
    taint, count = found.most_common(1)[0]
    more = f" and {len(found) - 1} more taints" if len(found) > 1 else ""
    have = "has" if count == 1 else "have"
    setters = {setter for node in nodes for each, setter in node.taints if each == taint}
    mend = next((words for setter, words in _GOES_BY_ITSELF.items() if setter in setters), "")
    return CauseMessage(
        f"{count} node{'' if count == 1 else 's'} {have} the taint {taint}{more}",
        {"taint": taint, "tainted": count},
        mend or f"with --toleration {taint} it may go there (in a job file: tolerations)",
        not mend,
    )


def sharing(_views: Views, row: JobRow) -> CauseMessage:
    if row.request.replicas:
        return CauseMessage(
            "asks for shared GPUs, and these nodes give theirs out whole",
            {},
            "ask for whole GPUs or a share of one (nvidia.com/gpu)",
            True,
        )
    return CauseMessage(
        "these nodes slice their GPUs by time and give them out as replicas alone",
        {},
        "ask for nvidia.com/gpu.shared, or use a queue of another pool",
        True,
    )


def topology(views: Views, row: JobRow) -> CauseMessage:
    asked, inside = row.request, [level for level in INSIDE_LEVELS if level in row.request.require]
    if not inside:
        return NO_CAUSE
    what, nodes = unit_of(asked), free_resources.pool_nodes(views, asked)
    message = f"asks for {what} {' and '.join(TOGETHER[level] for level in inside)}"
    fewer = f"ask for fewer, or only prefer it (topology.prefer: {inside[0]})"
    if "numa" in inside:
        gpus = max((max(Counter(node.inventory.inside.numa).values(), default=0) for node in nodes), default=0)
        cpus = max((_cpus(node) for node in nodes), default=0)
        told = f"; no NUMA node of {where(row.request)} has more than {gpus} GPUs and {cpus} CPUs"
        return CauseMessage(message + told, {"numa_gpus": gpus, "numa_cpus": cpus}, fewer, True)
    if "nvlink" in inside:
        most = max(map(free_resources.nvlinked_gpus, nodes), default=0)
        told = (
            f"; of {where(row.request)} no more than {most} are so on one node"
            if most > 1
            else f"; {where(row.request)} has no such GPUs"
        )
        return CauseMessage(message + told, {"linked_gpus": most}, fewer, True)
    return CauseMessage(f"{message}; no node of {where(row.request)} has them so", {}, fewer, True)


def _cpus(row: NodeRow) -> int:
    """CPUs of its largest NUMA node."""
    return max((len(parse_cpus(numa.cpus)) for numa in row.inventory.inside.numa_nodes), default=0)


def largest(
    what: str, asked: Callable[[Request], int], has: Callable[[NodeRow], int], said: Callable[[int], str]
) -> Callable[[Views, JobRow], CauseMessage]:
    """A cause that an amount is more than any node of those has."""

    def tell(views: Views, row: JobRow) -> CauseMessage:
        most = max((has(node) for node in free_resources.pool_nodes(views, row.request)), default=0)
        wanted = asked(row.request)
        if most >= wanted:
            return NO_CAUSE
        return CauseMessage(
            f"asks for {said(wanted)} {what}, the most of {where(row.request)} is {said(most)}",
            {"largest": most},
            "ask for less, or use a queue of another pool",
            True,
        )

    return tell
