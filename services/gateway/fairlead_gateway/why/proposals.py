"""The changes that an explanation proposes, held against the nodes. Pure.

The queue counts a pool as one machine: that much is free, but perhaps on no one node. So what "could start now" is asked
of the nodes as the views show them, and what a refused job waits for is named by what the placer found short. It proposes
only; who is placed where the placer alone decides.
"""

from collections.abc import Iterable, Iterator, Sequence, Set

import msgspec

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, Refusal
from fairlead_gateway.why.causes import LASTING, dominant, no_domain
from fairlead_gateway.why.pool import members, takers
from fairlead_gateway.why.room import MILLI, Room, fits, fitting, is_judged, room, scarce
from fairlead_schemas.queries.explainer import Explanation, SuggestedChange
from fairlead_schemas.queuefile.amounts import counted, is_are, number
from fairlead_schemas.units.hardware import DOMAIN_LABELS
from fairlead_schemas.units.selectors import suits
from fairlead_schemas.wire.resource_requests import gpus, needs, places
from fairlead_schemas.wire.resources import Request

#: {what the placer found short on nodes: the resource}
_SHORT = {"free_gpus": "gpu", "free_gpu_memory": "gpu", "free_cpu": "cpu", "free_memory": "memory"}


def proposals(views: Views, row: JobRow, told: Explanation) -> list[SuggestedChange]:
    """Return the explanation's changes that nodes do not contradict. Propose fewer GPUs where no node has that many free."""
    request, free = row.request, _free(views, row)
    refusal = views.waiting.refusals.get(request) if told.reason in ("place", "turn") else None
    found: list[SuggestedChange] = []
    if refusal is not None:
        found = list(_for_refused(views, row, refusal))
        if "gpu" in _short(refusal) and all(change.kind != "smaller" for change in told.changes):
            found += _smaller(request, request.gpu_milli - 1, free)
    elif told.reason == "next" and no_room(views, row):
        found = [_wait(request, scarce(request, free), bool(free)), *_smaller(request, request.gpu_milli - 1, free)]
    for change in told.changes:
        match change.kind:
            case "wait" if refusal is not None:
                continue
            case "smaller" if views.nodes.rows:
                found += _smaller(request, change.amount, free)
            case "other_queue" | "quota" if views.nodes.rows and not fits(request, free):
                continue
            case _:
                found.append(change)
    return found


def _for_refused(views: Views, row: JobRow, refusal: Refusal) -> Iterator[SuggestedChange]:
    """Another request, where waiting does not end what is in the way; what it waits for, where it may end."""
    domain, cause = no_domain(views, refusal), dominant(views, row, refusal)
    for told in (domain, cause):
        if told.lasting:
            yield SuggestedChange(kind="request", message=told.next)
    if not domain.lasting and (not refusal.reasons or any(each not in LASTING for each in refusal.reasons)):
        yield _wait(row.request, _short(refusal), all(each in _SHORT for each in refusal.reasons))


def _short(refusal: Refusal) -> set[str]:
    return {_SHORT[cause] for cause in refusal.reasons if cause in _SHORT}


def too_few_nodes(views: Views, request: Request) -> str:
    """Return why the nodes that have joined could not take the job even if they were empty; "" where they could, or no
    node is known.
    """
    able = [node for node in members(views, request) if suits(node.inventory.labels, request.selector)]
    rooms = [room(node, request, {}) for node in able]
    if fits(request, rooms) or not views.nodes.rows:
        return ""
    count = fitting(request, rooms)
    if request.tasks:
        return f"needs {needs(request)}; the nodes that have joined could take {count} of them, even if nothing ran"
    verb = "have" if count > 1 else "has"
    return f"needs {needs(request)}; {_nodes(count)} that {verb} joined could take it, even if nothing ran"


def no_room(views: Views, row: JobRow) -> str:
    """Return why nodes could not take the job now, whatever its queue allows; "" where they could, or no node is known."""
    request, free = row.request, _free(views, row)
    if fits(request, free) or not views.nodes.rows:
        return ""
    count = fitting(request, free)
    if request.tasks:
        left = f"the nodes that may take it have as much left for {count} of them"
    else:
        left = f"{_nodes(count)} that may take it {'have' if count > 1 else 'has'} as much left"
    return too_few_nodes(views, request) or f"needs {needs(request)}; {left}"


def _nodes(count: int) -> str:
    return f"only {count} node{'s' if count > 1 else ''}" if count else "no node"


def _free(views: Views, row: JobRow) -> list[Room]:
    """Return the room left on each node that may take the job now."""
    return [room(node, row.request, node.held) for node in takers(views, row.request, row.id)]


def _smaller(request: Request, most: int, free: Sequence[Room]) -> Iterator[SuggestedChange]:
    """The most GPUs of a unit, or the largest share, with which nodes could take it: `most` milli-GPU at most."""
    for milli in _less(request, most, free) if is_judged(request) else ():
        if fits(msgspec.structs.replace(request, gpu_milli=milli), free):
            each = f" {'for each task' if request.tasks else 'on each node'}" if request.nodes > 1 else ""
            message = (
                f"could start now with {counted('gpu', milli)} instead of {number('gpu', request.gpu_milli)}{each}"
            )
            yield SuggestedChange(kind="smaller", message=message, resource="gpu", amount=milli)
            return


def _less(request: Request, most: int, free: Sequence[Room]) -> Iterable[int]:
    """milli-GPU of a unit, the most first: whole GPUs, or shares as large as what is left of some GPU."""
    if not request.gpu_parts:
        return range(most // MILLI * MILLI, 0, -MILLI)
    shares = {gpu.milli * request.gpu_parts for each in free for gpu in each.gpus}
    return sorted((milli for milli in shares if 0 < milli <= most), reverse=True)


def _wait(request: Request, short: Set[str], any_node: bool) -> SuggestedChange:
    """Return the change that must come free on nodes: its GPUs, and other scarce resources. `any_node`: nothing else keeps
    nodes from the job.
    """
    amounts = {"gpu": request.gpu_milli, "cpu": request.cpu_milli, "memory": request.memory_mib}
    named = [r for r, amount in amounts.items() if amount and (r in short or r == "gpu")] or ["cpu"]
    told = " and ".join((gpus(request) if r == "gpu" else "") or counted(r, amounts[r]) for r in named)
    verb = is_are(named[0], amounts[named[0]]) if len(named) == 1 else "are"
    domain = next((level for level in DOMAIN_LABELS if level in request.require), "")
    where = places(request, tasks=request.tasks) + (f" of one {domain}" if domain and request.nodes > 1 else "")
    return SuggestedChange(
        kind="wait", message=f"starts when {told} {verb} free {where}{'' if any_node else ' that may take it'}",
        resource=named[0], amount=amounts[named[0]] * request.nodes,
    )  # fmt: skip
