"""Admission of submits, and the event of a job that enters; and GPU counting of a queue and its pool: if they can count a job's GPUs, and the charge for a
replica of a GPU. A refusal names the field, the expectation and the finding.
"""

from collections.abc import Collection

import msgspec

from fairlead_bus.core import CommandRefusal
from fairlead_queue.decide.draft import AcceptedJob, QueueDraft
from fairlead_queue.fairness.budgets import refusing_account
from fairlead_queue.fairness.quota import is_user_node, pool_name
from fairlead_queue.waiting.nodes import NodeCapacity
from fairlead_queue.waiting.pending import model_of
from fairlead_schemas.jobfile.job_spec import ARRAY_ELEMENTS_MAX, DEPENDENCIES_MAX, RETRIES_MAX
from fairlead_schemas.policies import partitions
from fairlead_schemas.policies.checkpoints import fault_of
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, GPU_CLASS_PREFIX, MODEL_LABEL, QueueSettings, Sharing
from fairlead_schemas.units.ids import PRIORITY_MAX
from fairlead_schemas.units.quantities import MILLI, format_duration, format_memory, format_milli
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.wire.commands import SubmitJob
from fairlead_schemas.wire.events import JobSubmitted
from fairlead_schemas.wire.resource_requests import SHARED, faults
from fairlead_schemas.wire.resources import Request


def pool_of_queue(draft: QueueDraft, path: str) -> str:
    """The name of the pool that a queue is in."""
    return pool_name(draft.queues() if draft.outlook is not None else _top(draft, path), path)


def _top(draft: QueueDraft, path: str) -> dict[str, QueueSettings]:
    top = path.partition("/")[0]
    return {top: draft.state.queues[top].settings} if top in draft.state.queues else {}


def unnamed_model_refusal(draft: QueueDraft, path: str, request: Request) -> CommandRefusal | None:
    """Return a refusal for a job that names no GPU model although a queue above it limits GPUs by model; else None. The GPUs of
    such a job could not be counted.
    """
    if all(not (kind.gpu_milli or kind.gpu_parts) or model_of(kind) for kind in request.kinds):
        return None
    queue = draft.state.queues.get(path)
    if draft.outlook is None and queue is not None and not queue.pool.models():
        return None
    while path:
        settings = draft.settings_of(path)
        if settings is not None:
            limited = _models(settings)
            if limited:
                field = f"nodeSelector.{MODEL_LABEL}"
                return CommandRefusal(
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


def unshared_refusal(draft: QueueDraft, command: SubmitJob) -> CommandRefusal | None:
    """Replicas of GPUs that are sliced by time: only of a pool that says how it does it."""
    parts = max((kind.gpu_parts for kind in command.request.kinds if kind.replicas), default=0)
    if not parts:
        return None
    name, field = pool_of_queue(draft, command.queue), f"resources.{SHARED}"
    sharing = draft.pool_settings(name).sharing
    if sharing is None:
        cure = 'set "sharing: {replicas: 4}" for it in the queue file where its nodes slice their GPUs by time'
        return CommandRefusal("not_shared", f"the GPUs of pool {name} are not shared by time; {cure}", field)
    if sharing.one_each and parts > 1:
        message = f"expected 1, found {parts}: two might lie on one GPU, and pool {name} gives one to each node or task"
        return CommandRefusal("one_each", message, field)
    return None


def shared_request(request: Request, sharing: Sharing | None) -> Request:
    """The same with replicas charged as their pool says: a quarter of a GPU each where one GPU has four."""
    if sharing is None or not any(kind.replicas for kind in request.kinds):
        return request
    kinds = [
        msgspec.structs.replace(kind, gpu_milli=kind.gpu_parts * (MILLI // sharing.replicas)) if kind.replicas else kind
        for kind in request.kinds
    ]
    return msgspec.structs.replace(kinds[0], also=tuple(kinds[1:]))


#: Queues named in a refusal.
NAMED_QUEUES_MAX = 20
#: Characters of their names: four hundred such refusals must fit a commit.
NAMED_CHARS_MAX = 160
TIME_MAX_NS = 1 << 62


def submit_refusal(draft: QueueDraft, command: SubmitJob) -> CommandRefusal | None:
    """Return the reason that this submit cannot enter, or None."""
    return (
        _invalid(command) or _late(draft, command) or _unwelcome(draft, command) or _unknown_dependency(draft, command)
    )


def _unwelcome(draft: QueueDraft, command: SubmitJob) -> CommandRefusal | None:
    """Return a refusal that holds for all equal jobs of one decision; most senders submit many alike."""
    kind = (command.queue, command.user, command.project, command.request)
    if kind in draft.welcome:
        return None
    refused = (
        _impossible(command.request)
        or unknown_queue(draft, command.queue)
        or _not_allowed(draft, command)
        or unnamed_model_refusal(draft, command.queue, command.request)
        or unshared_refusal(draft, command)
        or _too_large(draft, command)
        or drained_refusal(draft, command.queue)
        or spent_budget(draft, command.queue)
    )
    if refused is None:
        draft.welcome.add(kind)
    return refused


def _invalid(command: SubmitJob) -> CommandRefusal | None:
    """Numbers out of range: the gateway refuses them too, but commands come from elsewhere as well."""
    if not 0 <= command.priority <= PRIORITY_MAX:
        return CommandRefusal("invalid", f"expected 0 to {PRIORITY_MAX}, found {command.priority}", "priority")
    if not 0 <= command.retries <= RETRIES_MAX:
        return CommandRefusal("invalid", f"expected 0 to {RETRIES_MAX}, found {command.retries}", "retries.max")
    if command.array_limit < 0:
        return CommandRefusal("invalid", f"expected 0 or more, found {command.array_limit}", "array")
    if not 0 <= command.grace_ns <= TIME_MAX_NS:
        return CommandRefusal("invalid", f"expected 0 to {TIME_MAX_NS} ns, found {command.grace_ns}", "time.grace")
    if not 0 <= command.total_ns <= TIME_MAX_NS or not 0 <= command.start_at_ns <= TIME_MAX_NS:
        return CommandRefusal(
            "invalid", f"expected 0 to {TIME_MAX_NS} ns", "time.total" if command.start_at_ns == 0 else "startAt"
        )
    if not 0 <= command.slice_ns <= TIME_MAX_NS:
        return CommandRefusal("invalid", f"expected 0 to {TIME_MAX_NS} ns, found {command.slice_ns}", "time.slice")
    if fault := partitions.fault_of(command.on_partition):
        return CommandRefusal("invalid", fault.message, fault.field)
    if command.checkpoint is not None and (wrong := fault_of(command.checkpoint, command.total_ns)) is not None:
        return CommandRefusal("invalid", wrong.message, wrong.field)
    if len(command.after) > DEPENDENCIES_MAX:
        return CommandRefusal(
            "invalid", f"expected at most {DEPENDENCIES_MAX} jobs, found {len(command.after)}", "dependsOn"
        )
    if command.array is not None:
        first, last = command.array
        if first < 0 or not 0 <= last - first < ARRAY_ELEMENTS_MAX:
            return CommandRefusal(
                "invalid",
                f"expected at most {ARRAY_ELEMENTS_MAX} elements in rising order, found {first}-{last}",
                "array",
            )
    return None


def _impossible(request: Request) -> CommandRefusal | None:
    """A request that could be placed nowhere, whatever the cluster."""
    found = faults(request)
    return CommandRefusal("invalid", found[0].message, found[0].field) if found else None


def _late(draft: QueueDraft, command: SubmitJob) -> CommandRefusal | None:
    if not command.deadline_ns:
        return None
    if not 0 <= command.deadline_ns <= TIME_MAX_NS:
        return CommandRefusal("invalid", f"expected 0 to {TIME_MAX_NS} ns", "deadline")
    earliest = max(draft.now_ns, command.start_at_ns) + command.total_ns
    if earliest > command.deadline_ns:
        short = format_duration(earliest - command.deadline_ns)
        return CommandRefusal(
            "deadline", f"cannot be met: {short} too little time until then; move it or shorten time.total", "deadline"
        )
    return None


def unknown_queue(draft: QueueDraft, path: str) -> CommandRefusal | None:
    """Return the refusal of a job for this queue's name, None if it may enter: the queue is missing, or others are below it."""
    if draft.settings_of(path) is not None:
        below = [] if draft.outlook is None and not _is_inner(draft, path) else _below(draft, path)
        if not below:
            return None
        return CommandRefusal(
            "not_a_leaf", f"queue {path[:80]} has queues below it; expected one of: {_named(below)}", "queue"
        )
    known = sorted(path for path in draft.queues() if not _below(draft, path))
    return CommandRefusal(
        "unknown_queue", f'no queue "{path[:80]}"; expected one of: {_named(known)}{did_you_mean(path, known)}', "queue"
    )


def _is_inner(draft: QueueDraft, path: str) -> bool:
    return any(not is_user_node(child) for child in draft.state.queues[path].node.children.values())


def _below(draft: QueueDraft, path: str) -> list[str]:
    return sorted(other for other in draft.queues() if other.startswith(f"{path}/"))


def _named(known: list[str]) -> str:
    named = known[:NAMED_QUEUES_MAX]
    while len(", ".join(named)) > NAMED_CHARS_MAX:
        named.pop()
    return ", ".join(named) + (f" and {len(known) - len(named)} more" if len(known) > len(named) else "")


def _not_allowed(draft: QueueDraft, command: SubmitJob) -> CommandRefusal | None:
    """Return the refusal if the pool is for certain users and projects only, and the submit's are not among them."""
    name = pool_of_queue(draft, command.queue)
    settings = draft.pool_settings(name)
    if not settings.users and not settings.projects:
        return None
    if command.user in settings.users or command.project in settings.projects:
        return None
    who = f"user {command.user[:40] or '(none)'}" + (f" and project {command.project[:40]}" if command.project else "")
    return CommandRefusal(
        "not_allowed", f"{who} may not use pool {name}; ask its administrator, or use a queue of another pool", "queue"
    )


def drained_refusal(draft: QueueDraft, path: str) -> CommandRefusal | None:
    """Return the refusal if the queue, or one above it, is drained."""
    drained = draft.closures.draining(path)
    if not drained:
        return None
    message = f"queue {drained[:80]} is drained: it accepts no further jobs until it is released; use another queue"
    return CommandRefusal("queue_drained", message, "queue")


def spent_budget(draft: QueueDraft, path: str) -> CommandRefusal | None:
    """Return the refusal if the budget of the queue, or of one above it, is spent and refuses."""
    account = refusing_account(draft.state.accounts, path)
    if account is None:
        return None
    return CommandRefusal(
        "budget", f"the budget of queue {account.path[:80]} is spent for this {account.budget.period}", "queue"
    )


def _unknown_dependency(draft: QueueDraft, command: SubmitJob) -> CommandRefusal | None:
    state = draft.state
    named: set[str] = set()
    for at, each in enumerate(command.after):
        if each.job in named:
            return CommandRefusal(
                "invalid", f"job {each.job[:40]} is named twice; keep one of them", f"dependsOn[{at}]"
            )
        named.add(each.job)
        if each.job in state.jobs or each.job in state.finished or each.job in draft.accepted:
            continue
        message = f'no job "{each.job[:40]}" is known here; it may have ended long ago'
        return CommandRefusal("unknown_job", message, f"dependsOn[{at}]")
    return None


def _too_large(draft: QueueDraft, command: SubmitJob) -> CommandRefusal | None:
    """Per node more than any known node of the pool has. Without any node known, everything is accepted."""
    shapes = draft.state.nodes.count(pool_of_queue(draft, command.queue))
    for at, kind in enumerate(command.request.kinds if shapes else ()):
        if not any(_holds(shape, kind) for shape in shapes):
            message, field = _largest_words(shapes, kind)
            return CommandRefusal("larger_than_any_node", message, f"groups[{at - 1}].{field}" if at else field)
    return None


def _holds(shape: NodeCapacity, kind: Request) -> bool:
    """Return True if an empty node of this shape has the resources of one unit."""
    return (
        kind.gpu_milli <= shape.gpu_milli and kind.cpu_milli <= shape.cpu_milli and kind.memory_mib <= shape.memory_mib
    )


def _largest_words(shapes: Collection[NodeCapacity], request: Request) -> tuple[str, str]:
    """(message, field) for a request that no node can hold."""
    gpu = max(shape.gpu_milli for shape in shapes)
    cpu, memory = max(shape.cpu_milli for shape in shapes), max(shape.memory_mib for shape in shapes)
    if request.gpu_milli > gpu:
        found = format_milli(request.gpu_milli)
        return f"asks for {found} GPUs per node; the largest node has {format_milli(gpu)}", "resources.nvidia.com/gpu"
    if request.cpu_milli > cpu:
        found = format_milli(request.cpu_milli)
        return f"asks for {found} CPUs per node; the largest node has {format_milli(cpu)}", "resources.cpu"
    if request.memory_mib > memory:
        found = format_memory(request.memory_mib)
        return f"asks for {found} of memory per node; the largest node has {format_memory(memory)}", "resources.memory"
    asked = f"{format_milli(request.gpu_milli)} GPUs, {format_milli(request.cpu_milli)} CPUs and {format_memory(request.memory_mib)}"
    return f"asks for {asked} per node; no single node has all of it", "resources"


# -- entry of an admitted job


def accepted_job(
    draft: QueueDraft, command: SubmitJob, cause: str, service: str = "", revision: int = 0
) -> JobSubmitted:
    """Return the event of a job that enters. `service`: the one whose replica it is, of a revision."""
    number = draft.next_number
    draft.next_number = number + 1
    job = str(number)
    if command.key:
        draft.keys[command.key] = (job, command.digest)
    draft.entered.add(command.queue)
    draft.accepted.add(job)
    request = request_in_pool(draft, command)
    if command.array is None and command.start_at_ns <= draft.commit_ns and not (command.after or command.held):
        order = future_order(draft, command, draft.next_place)
        draft.fresh.append(AcceptedJob(order, job, command.queue, command.user, request, cause))
    draft.next_place += 1
    return JobSubmitted(
        cause=cause,
        job=job,
        name=command.name,
        queue=command.queue,
        user=command.user,
        request=request,
        spec=command.spec,
        project=command.project,
        kind=command.kind,
        priority=command.priority,
        array=command.array,
        retries=command.retries,
        total_ns=command.total_ns,
        grace_ns=command.grace_ns,
        start_at_ns=command.start_at_ns,
        deadline_ns=command.deadline_ns,
        slice_ns=command.slice_ns,
        after=command.after,
        array_limit=command.array_limit,
        on_partition=command.on_partition,
        checkpoint=command.checkpoint,
        key=command.key,
        digest=command.digest,
        gang=command.gang,
        held=command.held,
        authority=command.authority,
        service=service,
        revision=revision,
    )


def request_in_pool(draft: QueueDraft, command: SubmitJob) -> Request:
    """The request, for the pool that the queue is in and charged as that says."""
    queue = draft.state.queues.get(command.queue)
    pool = queue.pool.name if queue is not None and draft.outlook is None else pool_name(draft.queues(), command.queue)
    wanted = "" if pool == DEFAULT_POOL else pool
    request = shared_request(command.request, draft.pool_settings(pool).sharing)
    return request if request.pool == wanted else msgspec.structs.replace(request, pool=wanted)


def future_order(draft: QueueDraft, command: SubmitJob, place: int) -> int:
    """Return the future order of the job in its line."""
    queue = draft.state.queues.get(command.queue)
    pool = queue.pool if queue is not None else draft.state.pools[DEFAULT_POOL]
    return pool.order(
        command.priority,
        place,
        deadline_ns=command.deadline_ns,
        submitted_ns=draft.commit_ns,
        total_ns=command.total_ns,
    )
