"""GPU counting of a queue and its pool: if they can count a job's GPUs, and the charge for a replica of a GPU."""

import msgspec

from fairlead_queue.decide.plan import Plan
from fairlead_queue.decide.refusals import Refusal
from fairlead_queue.fairness.guarantees import pool_name
from fairlead_queue.waiting.pools import model_of
from fairlead_schemas.queuefile.settings import GPU_CLASS_PREFIX, MODEL_LABEL, QueueSettings, Sharing
from fairlead_schemas.units.quantities import MILLI
from fairlead_schemas.wire.commands import SubmitJob
from fairlead_schemas.wire.resource_requests import SHARED
from fairlead_schemas.wire.resources import Request


def pool_of_queue(plan: Plan, path: str) -> str:
    """The name of the pool that a queue is in."""
    return pool_name(plan.queues() if plan.outlook is not None else _top(plan, path), path)


def _top(plan: Plan, path: str) -> dict[str, QueueSettings]:
    top = path.partition("/")[0]
    return {top: plan.state.queues[top].settings} if top in plan.state.queues else {}


def unnamed_model(plan: Plan, path: str, request: Request) -> Refusal | None:
    """Return a refusal for a job that names no GPU model although a queue above it limits GPUs by model; else None. The GPUs of
    such a job could not be counted.
    """
    if all(not (kind.gpu_milli or kind.gpu_parts) or model_of(kind) for kind in request.kinds):
        return None
    while path:
        settings = plan.settings_of(path)
        if settings is not None:
            limited = _models(settings)
            if limited:
                field = f"nodeSelector.{MODEL_LABEL}"
                return Refusal(
                    "model_needed",
                    f"queue {path[:80]} counts GPUs by model; name one in nodeSelector, such as {MODEL_LABEL}: {limited[0][:60]}",
                    field,
                )
        path = path.rpartition("/")[0]
    return None


def _models(settings: QueueSettings) -> list[str]:
    amounts = (settings.guaranteed, settings.maximum, settings.borrowing, settings.lending, *settings.users.values())
    prefix = GPU_CLASS_PREFIX
    return sorted({name.removeprefix(prefix) for each in amounts for name in each if name.startswith(prefix)})


def unshared(plan: Plan, command: SubmitJob) -> Refusal | None:
    """Replicas of GPUs that are sliced by time: only of a pool that says how it does it."""
    parts = max((kind.gpu_parts for kind in command.request.kinds if kind.replicas), default=0)
    if not parts:
        return None
    name, field = pool_of_queue(plan, command.queue), f"resources.{SHARED}"
    sharing = plan.pool_settings(name).sharing
    if sharing is None:
        cure = 'set "sharing: {replicas: 4}" for it in the queue file where its nodes slice their GPUs by time'
        return Refusal("not_shared", f"the GPUs of pool {name} are not shared by time; {cure}", field)
    if sharing.one_each and parts > 1:
        message = f"expected 1, found {parts}: two might lie on one GPU, and pool {name} gives one to each node or task"
        return Refusal("one_each", message, field)
    return None


def shared(request: Request, sharing: Sharing | None) -> Request:
    """The same with replicas charged as their pool says: a quarter of a GPU each where one GPU has four."""
    if sharing is None or not any(kind.replicas for kind in request.kinds):
        return request
    kinds = [
        msgspec.structs.replace(kind, gpu_milli=kind.gpu_parts * (MILLI // sharing.replicas)) if kind.replicas else kind
        for kind in request.kinds
    ]
    return msgspec.structs.replace(kinds[0], also=tuple(kinds[1:]))
