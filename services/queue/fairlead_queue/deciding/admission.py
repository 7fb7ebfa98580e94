"""Whether a submit may enter. A refusal names the field, what was expected and what was found."""

from collections.abc import Collection
from typing import NamedTuple

from fairlead_queue.budgets import refusing
from fairlead_queue.deciding.plan import Plan
from fairlead_queue.fairness.guarantees import pool_name
from fairlead_queue.fairness.users import is_users
from fairlead_queue.waiting.nodes import Shape
from fairlead_queue.waiting.pools import model_of
from fairlead_schemas.commands import SubmitJob
from fairlead_schemas.jobspec import ARRAY_ELEMENTS_MAX, DEPENDENCIES_MAX, NODES_MAX, PRIORITY_MAX, RETRIES_MAX
from fairlead_schemas.quantities import format_duration, format_memory, format_milli
from fairlead_schemas.queues import GPU_CLASS_PREFIX, MODEL_LABEL, QueueSettings
from fairlead_schemas.resources import Request

#: Queues named in a refusal.
NAMED_QUEUES_MAX = 20
#: Characters of their names: four hundred such refusals must fit a commit.
NAMED_CHARS_MAX = 160
#: Larger numbers than any machine has; a bound so that sums stay ordinary integers.
AMOUNT_MAX = 1 << 40
TIME_MAX_NS = 1 << 62


#: A JobPlaced names every node and GPU of a gang, alone in its commit, and must fit a message of the log (1 MiB).
PLACEMENT_BYTES_MAX = 960 * 1024
#: So much one node takes in it at most, and one GPU.
NODE_BYTES, GPU_BYTES = 150, 44


class Refusal(NamedTuple):
    """Why a submit is refused."""

    code: str
    message: str
    field: str


def refusal(plan: Plan, command: SubmitJob) -> Refusal | None:
    """Why this submit cannot enter, or None."""
    return _invalid(command) or _late(plan, command) or _unwelcome(plan, command) or _unknown_dependency(plan, command)


def _unwelcome(plan: Plan, command: SubmitJob) -> Refusal | None:
    """What is the same for all such jobs of one decision; who sends one mostly sends many."""
    kind = (command.queue, command.user, command.project, command.request)
    if kind in plan.welcome:
        return None
    refused = (
        unknown_queue(plan, command.queue)
        or _not_allowed(plan, command)
        or unnamed_model(plan, command.queue, command.request)
        or _too_large(plan, command)
        or spent(plan, command.queue)
    )
    if refused is None:
        plan.welcome.add(kind)
    return refused


def _invalid(command: SubmitJob) -> Refusal | None:
    """Numbers out of range: the gateway refuses them too, but commands come from elsewhere as well."""
    request = command.request
    if not 0 <= command.priority <= PRIORITY_MAX:
        return Refusal("invalid", f"expected 0 to {PRIORITY_MAX}, found {command.priority}", "priority")
    if not 0 <= command.retries <= RETRIES_MAX:
        return Refusal("invalid", f"expected 0 to {RETRIES_MAX}, found {command.retries}", "retries.max")
    if command.array_limit < 0:
        return Refusal("invalid", f"expected 0 or more, found {command.array_limit}", "array")
    if not 1 <= request.nodes <= NODES_MAX:
        return Refusal("invalid", f"expected 1 to {NODES_MAX}, found {request.nodes}", "nodes")
    for field, amount in (
        ("nvidia.com/gpu", request.gpu_milli),
        ("cpu", request.cpu_milli),
        ("memory", request.memory_mib),
    ):
        if not 0 <= amount <= AMOUNT_MAX:
            return Refusal("invalid", f"expected 0 to {AMOUNT_MAX}, found {amount}", f"resources.{field}")
    size = placement_bytes(request)
    if size > PLACEMENT_BYTES_MAX:
        message = f"expected a gang that one event can name, found {request.nodes} nodes"
        return Refusal("invalid", f"{message} with {request.gpu_milli // 1000} GPUs each", "nodes")
    if not 0 <= command.grace_ns <= TIME_MAX_NS:
        return Refusal("invalid", f"expected 0 to {TIME_MAX_NS} ns, found {command.grace_ns}", "time.grace")
    if not 0 <= command.total_ns <= TIME_MAX_NS or not 0 <= command.start_at_ns <= TIME_MAX_NS:
        return Refusal(
            "invalid", f"expected 0 to {TIME_MAX_NS} ns", "time.total" if command.start_at_ns == 0 else "startAt"
        )
    if not 0 <= command.slice_ns <= TIME_MAX_NS:
        return Refusal("invalid", f"expected 0 to {TIME_MAX_NS} ns, found {command.slice_ns}", "time.slice")
    if len(command.after) > DEPENDENCIES_MAX:
        return Refusal("invalid", f"expected at most {DEPENDENCIES_MAX} jobs, found {len(command.after)}", "dependsOn")
    if command.array is not None:
        first, last = command.array
        if first < 0 or not 0 <= last - first < ARRAY_ELEMENTS_MAX:
            return Refusal(
                "invalid",
                f"expected at most {ARRAY_ELEMENTS_MAX} elements in rising order, found {first}-{last}",
                "array",
            )
    return None


def placement_bytes(request: Request) -> int:
    """About what naming a gang's nodes and GPUs takes."""
    return request.nodes * (NODE_BYTES + GPU_BYTES * -(-request.gpu_milli // 1000))


def _late(plan: Plan, command: SubmitJob) -> Refusal | None:
    if not command.deadline_ns:
        return None
    if not 0 <= command.deadline_ns <= TIME_MAX_NS:
        return Refusal("invalid", f"expected 0 to {TIME_MAX_NS} ns", "deadline")
    earliest = max(plan.now_ns, command.start_at_ns) + command.total_ns
    if earliest > command.deadline_ns:
        short = format_duration(earliest - command.deadline_ns)
        return Refusal(
            "deadline", f"cannot be met: {short} too little time until then; move it or shorten time.total", "deadline"
        )
    return None


def unknown_queue(plan: Plan, path: str) -> Refusal | None:
    """Why no job can enter this queue by its name: it is not there, or others are below it."""
    if plan.settings_of(path) is not None:
        below = [] if plan.outlook is None and not _is_inner(plan, path) else _below(plan, path)
        if not below:
            return None
        return Refusal(
            "not_a_leaf", f"queue {path[:80]} has queues below it; expected one of: {_named(below)}", "queue"
        )
    known = sorted(path for path in plan.queues() if not _below(plan, path))
    return Refusal("unknown_queue", f'no queue "{path[:80]}"; expected one of: {_named(known)}', "queue")


def _is_inner(plan: Plan, path: str) -> bool:
    return any(not is_users(child) for child in plan.state.queues[path].node.children.values())


def _below(plan: Plan, path: str) -> list[str]:
    return sorted(other for other in plan.queues() if other.startswith(f"{path}/"))


def _named(known: list[str]) -> str:
    named = known[:NAMED_QUEUES_MAX]
    while len(", ".join(named)) > NAMED_CHARS_MAX:
        named.pop()
    return ", ".join(named) + (f" and {len(known) - len(named)} more" if len(known) > len(named) else "")


def _not_allowed(plan: Plan, command: SubmitJob) -> Refusal | None:
    """A pool may be for some users and projects only."""
    name = pool_name(plan.queues() if plan.outlook is not None else _top(plan, command.queue), command.queue)
    settings = plan.pool_settings(name)
    if not settings.users and not settings.projects:
        return None
    if command.user in settings.users or command.project in settings.projects:
        return None
    who = f"user {command.user[:40] or '(nobody)'}" + (
        f" and project {command.project[:40]}" if command.project else ""
    )
    return Refusal(
        "not_allowed", f"{who} may not use pool {name}; ask its administrator, or use a queue of another pool", "queue"
    )


def _top(plan: Plan, path: str) -> dict[str, QueueSettings]:
    top = path.partition("/")[0]
    return {top: plan.state.queues[top].settings} if top in plan.state.queues else {}


def unnamed_model(plan: Plan, path: str, request: Request) -> Refusal | None:
    """Where GPUs are limited by model, a job must say which it means: nobody could count it otherwise."""
    if not request.gpu_milli or model_of(request):
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


def spent(plan: Plan, path: str) -> Refusal | None:
    """A budget above the queue (or its own) that is spent and refuses."""
    account = refusing(plan.state.accounts, path)
    if account is None:
        return None
    return Refusal(
        "budget", f"the budget of queue {account.path[:80]} is spent for this {account.budget.period}", "queue"
    )


def _unknown_dependency(plan: Plan, command: SubmitJob) -> Refusal | None:
    state = plan.state
    named: set[str] = set()
    for at, each in enumerate(command.after):
        if each.job in named:
            return Refusal("invalid", f"job {each.job[:40]} is named twice; keep one of them", f"dependsOn[{at}]")
        named.add(each.job)
        if each.job in state.jobs or each.job in state.finished or each.job in plan.accepted:
            continue
        message = f'no job "{each.job[:40]}" is known here; it may have ended long ago'
        return Refusal("unknown_job", message, f"dependsOn[{at}]")
    return None


def _too_large(plan: Plan, command: SubmitJob) -> Refusal | None:
    """Per node more than any known node of the pool has. Without any node known, everything is accepted."""
    pool = pool_name(plan.queues() if plan.outlook is not None else _top(plan, command.queue), command.queue)
    shapes, request = plan.state.nodes.count(pool), command.request
    if not shapes:
        return None
    for shape in shapes:
        if (
            request.gpu_milli <= shape.gpu_milli
            and request.cpu_milli <= shape.cpu_milli
            and request.memory_mib <= shape.memory_mib
        ):
            return None
    return Refusal("larger_than_any_node", *_largest_words(shapes, request))


def _largest_words(shapes: Collection[Shape], request: Request) -> tuple[str, str]:
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
