"""The changes that an explanation proposes, held against the nodes. Pure.

The queue counts a pool as one machine: that much is free, but perhaps on no one node. So what "could start now" is asked
of the nodes as the views show them, and what a refused job waits for is named by what the placer found short. It proposes
only; who is placed where the placer alone decides.
"""

from collections.abc import Iterator, Mapping, Set

import msgspec

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, NodeRow, Refusal
from fairlead_gateway.why.causes import LASTING, dominant
from fairlead_schemas.ask import Change, Explanation
from fairlead_schemas.events import Part
from fairlead_schemas.queues import DEFAULT_POOL, POOL_LABEL
from fairlead_schemas.queuewords import counted, is_are
from fairlead_schemas.requestwords import gpus, needs, places
from fairlead_schemas.resources import Request
from fairlead_schemas.selectors import suits

MILLI = 1000
#: {what the placer found short on nodes: the resource}
_SHORT = {"free_gpus": "gpu", "free_cpu": "cpu", "free_memory": "memory"}

#: Of one node: (GPUs that would do, milli-CPU, MiB).
type _Room = tuple[int, int, int]


def proposals(views: Views, row: JobRow, told: Explanation) -> list[Change]:
    """Those of the explanation that nodes do not contradict; fewer GPUs where that many are free nowhere."""
    request, free = row.request, list(_free(views, row))
    refusal = views.waiting.refusals.get(request) if told.reason in ("place", "turn") else None
    found: list[Change] = []
    if refusal is not None:
        found = _for_refused(views, row, refusal)
        if "free_gpus" in refusal.reasons and all(change.kind != "smaller" for change in told.changes):
            smaller = _smaller(request, request.gpu_milli - MILLI, free)
            found += [smaller] if smaller is not None else []
    elif told.reason == "next" and no_room(views, row):
        smaller = _smaller(request, request.gpu_milli - MILLI, free)
        found = [_wait(request, _scarce(request, free), bool(free)), *([smaller] if smaller is not None else [])]
    for change in told.changes:
        match change.kind:
            case "wait" if refusal is not None:
                continue
            case "smaller" if views.nodes.rows:
                smaller = _smaller(request, change.amount, free)
                found += [smaller] if smaller is not None else []
            case "other_queue" | "quota" if views.nodes.rows and not _fits(request, free):
                continue
            case _:
                found.append(change)
    return found


def _for_refused(views: Views, row: JobRow, refusal: Refusal) -> list[Change]:
    """Another request, where the dominant cause is one that waiting does not end; what it waits for, where it may end."""
    found, told = list[Change](), dominant(views, row, refusal)
    if told.lasting and told.next:
        found.append(Change(kind="request", message=told.next))
    if not refusal.reasons or any(reason not in LASTING for reason in refusal.reasons):
        short = {_SHORT[reason] for reason in refusal.reasons if reason in _SHORT}
        found.append(_wait(row.request, short, all(reason in _SHORT for reason in refusal.reasons)))
    return found


def too_few_nodes(views: Views, request: Request) -> str:
    """Why the nodes that have joined could not take it if nothing ran on them; "" where they could, or none is known."""
    fitting = sum(_units(_room(row, request, {}), request) for row in views.nodes.rows.values() if _may(row, request))
    if fitting >= least(request) or not views.nodes.rows or not is_judged(request):
        return ""
    if request.tasks:
        return f"needs {needs(request)}; the nodes that have joined could take {fitting} of them, even if nothing ran"
    could = f"only {fitting} node{'s' if fitting > 1 else ''}" if fitting else "no node"
    verb = "have" if fitting > 1 else "has"
    return f"needs {needs(request)}; {could} that {verb} joined could take it, even if nothing ran"


def no_room(views: Views, row: JobRow) -> str:
    """Why nodes could not take it now, whatever its queue says; "" where they could, or none is known."""
    request, fitting = row.request, sum(_units(room, row.request) for room in _free(views, row))
    if fitting >= least(request) or not views.nodes.rows or not is_judged(request):
        return ""
    if request.tasks:
        left = f"the nodes that may take it have as much left for {fitting} of them"
        return too_few_nodes(views, request) or f"needs {needs(request)}; {left}"
    who = f"only {fitting} node{'s' if fitting > 1 else ''}" if fitting else "no node"
    left = f"{who} that may take it {'have' if fitting > 1 else 'has'}"
    return too_few_nodes(views, request) or f"needs {needs(request)}; {left} as much left"


def _free(views: Views, row: JobRow) -> Iterator[_Room]:
    """What is free on each node that may take the job now."""
    kept = views.waiting.kept_nodes(row.id)
    for node in views.nodes.rows.values():
        if not (node.lost or node.draining or node.cordoned or node.id in kept) and _may(node, row.request):
            yield _room(node, row.request, node.held)


def _room(row: NodeRow, request: Request, held: Mapping[str, Part]) -> _Room:
    """What a node has left beside what it holds."""
    taken = {gpu for part in held.values() for gpu in part.gpus}
    gpus = sum(
        gpu.uuid not in taken
        and gpu.memory_mib >= request.gpu_memory_mib
        and gpu.compute_capability >= request.compute_capability
        for gpu in row.inventory.gpus
    )
    cpu_milli = row.inventory.cpu_milli - sum(part.cpu_milli for part in held.values())
    return gpus, cpu_milli, row.inventory.memory_mib - sum(part.memory_mib for part in held.values())


def _may(row: NodeRow, request: Request) -> bool:
    labels = row.inventory.labels
    if (labels.get(POOL_LABEL) or DEFAULT_POOL) != (request.pool or DEFAULT_POOL):
        return False
    return suits(labels, request.selector)


def is_judged(request: Request) -> bool:
    """Whether free amounts of nodes say anything: not of parts of GPUs, of several kinds, or where it matters which nodes
    they are and what else is on them."""
    return not (request.gpu_parts or request.also or request.exclusive or request.require or request.nics)


def least(request: Request) -> int:
    """Units without which it does not start."""
    return request.nodes_min or request.nodes


def _units(room: _Room, request: Request) -> int:
    """Units that so much room holds: one, or as many tasks as fit."""
    amounts = ((room[0] * MILLI, request.gpu_milli), (room[1], request.cpu_milli), (room[2], request.memory_mib))
    if not all(free >= amount for free, amount in amounts):
        return 0
    return min((free // amount for free, amount in amounts if amount), default=request.nodes) if request.tasks else 1


def _fits(request: Request, free: list[_Room]) -> bool:
    """Whether nodes have that much free as it asks for, as far as that can be told."""
    return not is_judged(request) or sum(_units(room, request) for room in free) >= least(request)


def _smaller(request: Request, most: int, free: list[_Room]) -> Change | None:
    """The most GPUs (in milli-GPU, `most` of them at most) with which nodes could take it."""
    asked = request.gpu_milli // MILLI if is_judged(request) else 0
    for fewer in range(min(most // MILLI, asked - 1), 0, -1):
        if _fits(msgspec.structs.replace(request, gpu_milli=fewer * MILLI), free):
            each = f" {'for each task' if request.tasks else 'on each node'}" if request.nodes > 1 else ""
            message = f"could start now with {fewer} GPU{'' if fewer == 1 else 's'} instead of {asked}{each}"
            return Change(kind="smaller", message=message, resource="gpu", amount=fewer * MILLI)
    return None


def _scarce(request: Request, free: list[_Room]) -> set[str]:
    """Of what it needs, what some node has too little left of."""
    needs = {"gpu": (request.gpu_milli, MILLI), "cpu": (request.cpu_milli, 1), "memory": (request.memory_mib, 1)}
    return {
        resource
        for at, (resource, (amount, unit)) in enumerate(needs.items())
        if any(room[at] * unit < amount for room in free)
    }


def _wait(request: Request, short: Set[str], any_node: bool) -> Change:
    """What must come free on nodes: its GPUs, and what else is short. `any_node`: nothing else keeps nodes from it."""
    amounts = {"gpu": request.gpu_milli, "cpu": request.cpu_milli, "memory": request.memory_mib}
    named = [r for r, amount in amounts.items() if amount and (r in short or r == "gpu")] or ["cpu"]
    told = " and ".join((gpus(request) if r == "gpu" else "") or counted(r, amounts[r]) for r in named)
    verb = is_are(named[0], amounts[named[0]]) if len(named) == 1 else "are"
    where = places(request, tasks=request.tasks)
    return Change(
        kind="wait", message=f"starts when {told} {verb} free {where}{'' if any_node else ' that may take it'}",
        resource=named[0], amount=amounts[named[0]] * request.nodes,
    )  # fmt: skip
