"""Whether a submit may enter. A refusal names the field, what was expected and what was found."""

from typing import NamedTuple

from fairlead_queue.plan import Plan
from fairlead_queue.state import Shape
from fairlead_schemas.commands import SubmitJob
from fairlead_schemas.jobspec import ARRAY_ELEMENTS_MAX, NODES_MAX, PRIORITY_MAX, RETRIES_MAX
from fairlead_schemas.quantities import format_memory, format_milli
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
    return _invalid(command) or _unknown_queue(plan, command.queue) or _too_large(plan.state.shapes, command.request)


def _invalid(command: SubmitJob) -> Refusal | None:
    """Numbers out of range: the gateway refuses them too, but commands come from elsewhere as well."""
    request = command.request
    if not 0 <= command.priority <= PRIORITY_MAX:
        return Refusal("invalid", f"expected 0 to {PRIORITY_MAX}, found {command.priority}", "priority")
    if not 0 <= command.retries <= RETRIES_MAX:
        return Refusal("invalid", f"expected 0 to {RETRIES_MAX}, found {command.retries}", "retries.max")
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


def _unknown_queue(plan: Plan, path: str) -> Refusal | None:
    if path in plan.state.queues or path in plan.configured:
        return None
    known = sorted(plan.state.queues.keys() | plan.configured.keys())
    named = known[:NAMED_QUEUES_MAX]
    while len(", ".join(named)) > NAMED_CHARS_MAX:
        named.pop()
    names = ", ".join(named) + (f" and {len(known) - len(named)} more" if len(known) > len(named) else "")
    return Refusal("unknown_queue", f'no queue "{path[:80]}"; expected one of: {names}', "queue")


def _too_large(shapes: list[Shape], request: Request) -> Refusal | None:
    """Per node more than any node known has. Without any node known, everything is accepted."""
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


def _largest_words(shapes: list[Shape], request: Request) -> tuple[str, str]:
    """(message, field) for a request that no node can hold."""
    gpu, cpu, memory = (max(amounts) for amounts in zip(*shapes, strict=True))
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
