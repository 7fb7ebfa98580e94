"""The changes that an explanation proposes, held against the nodes. Pure.

The queue counts a pool as one machine: that much is free, but perhaps on no one node. So what "could start now" is asked
of the nodes as the views show them, and what a refused job waits for is named by what the placer found short. It proposes
only; who is placed where the placer alone decides.
"""

from collections.abc import Iterator

import msgspec

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, NodeRow, Refusal
from fairlead_schemas.ask import Change, Explanation
from fairlead_schemas.queues import DEFAULT_POOL, POOL_LABEL
from fairlead_schemas.queuewords import counted, is_are
from fairlead_schemas.resources import Request

MILLI = 1000
#: {what the placer found short on nodes: the resource}
_SHORT = {"free_gpus": "gpu", "free_cpu": "cpu", "free_memory": "memory"}


def proposals(views: Views, row: JobRow, told: Explanation) -> list[Change]:
    """Those of the explanation that nodes do not contradict; fewer GPUs where that many are free nowhere."""
    request, free = row.request, list(_free(views, row.request))
    refusal = views.waiting.refusals.get(request) if told.reason == "place" else None
    found = [_wait(request, refusal)] if refusal is not None else []
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


def _free(views: Views, request: Request) -> Iterator[tuple[int, int, int]]:
    """(GPUs that would do, milli-CPU, MiB) free on each node that may take the request."""
    for row in views.nodes.rows.values():
        if not (row.lost or row.draining or row.cordoned) and _may(row, request):
            held = {gpu for part in row.held.values() for gpu in part.gpus}
            gpus = sum(
                gpu.uuid not in held
                and gpu.memory_mib >= request.gpu_memory_mib
                and gpu.compute_capability >= request.compute_capability
                for gpu in row.inventory.gpus
            )
            cpu_milli = row.inventory.cpu_milli - sum(part.cpu_milli for part in row.held.values())
            memory_mib = row.inventory.memory_mib - sum(part.memory_mib for part in row.held.values())
            yield gpus, cpu_milli, memory_mib


def _may(row: NodeRow, request: Request) -> bool:
    labels = row.inventory.labels
    if (labels.get(POOL_LABEL) or DEFAULT_POOL) != (request.pool or DEFAULT_POOL):
        return False
    return all(labels.get(key) == value for key, _, value in (label.partition("=") for label in request.selector))


def _fits(request: Request, free: list[tuple[int, int, int]]) -> bool:
    """Whether as many nodes have that much free as it asks for."""
    fitting = sum(
        gpus * MILLI >= request.gpu_milli and cpu_milli >= request.cpu_milli and memory_mib >= request.memory_mib
        for gpus, cpu_milli, memory_mib in free
    )
    return fitting >= request.nodes


def _smaller(request: Request, most: int, free: list[tuple[int, int, int]]) -> Change | None:
    """The most GPUs (in milli-GPU, `most` of them at most) with which nodes could take it."""
    asked = request.gpu_milli // MILLI
    for fewer in range(most // MILLI, 0, -1):
        if _fits(msgspec.structs.replace(request, gpu_milli=fewer * MILLI), free):
            each = " on each node" if request.nodes > 1 else ""
            message = f"could start now with {fewer} GPU{'' if fewer == 1 else 's'} instead of {asked}{each}"
            return Change(kind="smaller", message=message, resource="gpu", amount=fewer * MILLI)
    return None


def _wait(request: Request, refusal: Refusal) -> Change:
    """What must come free on nodes: its GPUs, and what else the placer found short."""
    amounts = {"gpu": request.gpu_milli, "cpu": request.cpu_milli, "memory": request.memory_mib}
    short = {_SHORT[reason] for reason in refusal.reasons if reason in _SHORT}
    named = [r for r, amount in amounts.items() if amount and (r in short or r == "gpu")] or ["cpu"]
    told = " and ".join(counted(resource, amounts[resource]) for resource in named)
    verb = is_are(named[0], amounts[named[0]]) if len(named) == 1 else "are"
    nodes = f"each of {request.nodes} nodes" if request.nodes > 1 else "one node"
    may = "" if all(reason in _SHORT for reason in refusal.reasons) else " that may take it"
    return Change(
        kind="wait", message=f"starts when {told} {verb} free on {nodes}{may}", resource=named[0],
        amount=amounts[named[0]] * request.nodes,
    )  # fmt: skip
