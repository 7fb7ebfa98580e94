"""Documents of the HTTP API: the shapes that `-o json` prints and scripts hold us to."""

import msgspec


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a job is where it is: a closed code, one sentence, and the decision's own numbers."""

    code: str
    message: str
    detail: dict[str, int | str] = {}


class Job(msgspec.Struct, kw_only=True):
    """One job (or one element of an array)."""

    id: str
    name: str
    kind: str
    queue: str
    user: str
    project: str
    state: str
    attempt: int
    priority: int
    reason: Reason | None
    nodes: list[str]
    gpus: dict[str, list[str]]
    exit_code: int | None
    submitted_at: str
    started_at: str | None
    ended_at: str | None
    sequence: int
    spec: msgspec.Raw
    signal: int | None = None
    message: str = ""
    #: For an array: how many elements are in which state ("waiting": not offered yet).
    array: dict[str, int] | None = None


class Node(msgspec.Struct, kw_only=True):
    """One node."""

    id: str
    state: str  # ready | cordoned | draining | drained | lost
    reason: str
    runtime: str
    simulated: bool
    address: str
    hostname: str
    gpu_model: str
    gpus: int
    gpus_free: int
    cpu_milli: int
    cpu_milli_free: int
    memory_mib: int
    memory_mib_free: int
    labels: dict[str, str]
    jobs: list[str]
    sequence: int


class Queue(msgspec.Struct, kw_only=True):
    """One queue."""

    path: str
    gpu_quota_milli: int | None
    gpu_milli_charged: int
    waiting: int
    running: int
    sequence: int


class Page[T](msgspec.Struct, kw_only=True):
    """A list answer. `next` continues it; `sequence` is the log sequence it is true for."""

    items: list[T]
    next: str | None
    sequence: int


class SubmitResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The answer for one submitted job: its id and state, or (202) the command that will be decided."""

    id: str = ""
    state: str = ""
    command: str = ""
    sequence: int = 0
    reason: Reason | None = None
    errors: list[dict[str, str]] = []


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An error, as RFC 9457 problem+json."""

    type: str
    title: str
    status: int
    detail: str = ""
    instance: str = ""
    errors: list[dict[str, str]] = []
    hint: str = ""
    request_id: str = ""
