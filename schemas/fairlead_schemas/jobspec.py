"""The job file: what people write, decoded strictly and turned into integers.

`decode_job` refuses unknown fields and wrong types and names the path of the error; `resolve`
turns the words into a `SubmitJob` command. The canonical spec that the log carries is the job file
re-encoded with its defaults left out, so equal jobs have equal bytes.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from fairlead_schemas import quantities
from fairlead_schemas.commands import SubmitJob, digest_of
from fairlead_schemas.events import Dependency, DependencyState, JobKind
from fairlead_schemas.ids import is_job_id, is_queue_path
from fairlead_schemas.resources import Request

SPEC_BYTES_MAX = 64 * 1024
NODES_MAX = 4096
GPUS_PER_NODE_MAX = 64
ARRAY_ELEMENTS_MAX = 100_000
RETRIES_MAX = 100
PRIORITY_MAX = 1000
NAME_CHARS_MAX = 128
DEPENDENCIES_MAX = 100
PROJECT_CHARS_MAX = 128
#: A command repeats the selector beside the spec, and both must fit one message of commands.
SELECTOR_BYTES_MAX = 8 * 1024
START_YEAR_MAX = 2200  # in nanoseconds, later times leave 64 bits
DEFAULT_CPU_MILLI = 1000
DEFAULT_MEMORY_MIB = 1024
DEFAULT_GRACE = "30s"
#: Longer quantities are read each time, so that nobody can fill the memory with them.
REMEMBERED_CHARS_MAX = 32

#: Set by Fairlead or by the device runtime; a job that sets them would see devices it does not hold.
RESERVED_ENV_PREFIXES = ("NVIDIA_", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "FAIRLEAD_")


class FieldError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing wrong with what somebody sent."""

    field: str  # path, such as "resources.cpu"; "" for the whole
    message: str


class InvalidJob(ValueError):
    """A job file was refused; `errors` names each field, what was expected and what was found."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(f"{e.field}: {e.message}" if e.field else e.message for e in errors))
        self.errors = errors


class _Strict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class GpuWanted(_Strict, frozen=True, kw_only=True):
    """What each GPU must be."""

    memory: str | int = 0
    computeCapability: str = ""  # noqa: N815 -- Kubernetes' spelling is the users' spelling


class Times(_Strict, frozen=True, kw_only=True):
    """Durations: longest run time (over all slices), least run time before it may be asked to yield, and notice
    between TERM and KILL."""

    total: str | int = 0
    slice: str | int = 0
    grace: str | int = DEFAULT_GRACE


class Retries(_Strict, frozen=True, kw_only=True):
    """How often a failed exit is tried again; losses of a node are not counted here."""

    max: int = 0


class DependsOn(_Strict, frozen=True, kw_only=True):
    """Another job, and how it must have ended."""

    job: str | int
    state: DependencyState = "succeeded"


class JobSpec(_Strict, frozen=True, kw_only=True):
    """One job file. Resource words are Kubernetes': `resources: {nvidia.com/gpu: 8, cpu: "32"}`."""

    command: list[str]
    args: list[str] = []
    name: str = ""
    queue: str = "default"
    project: str = ""
    kind: JobKind = "batch"
    image: str = ""
    env: dict[str, str] = {}
    workdir: str = ""
    nodes: int = 1
    resources: dict[str, str | int] = {}
    nodeSelector: dict[str, str] = {}  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    gpu: GpuWanted = GpuWanted()
    time: Times = Times()
    priority: int = 50
    retries: Retries = Retries()
    #: An element count (8 is 0-7) or a range ("1-100"); "1-100%5" runs five of them at once.
    array: int | str | None = None
    #: RFC 3339 time before which the job is not offered.
    startAt: str = ""  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    #: RFC 3339 time by which it shall have ended: among equals the earliest that can be met goes first.
    deadline: str = ""
    #: Job ids (that must have succeeded), or {job: 12, state: succeeded | failed | ended}.
    dependsOn: list[str | int | DependsOn] = []  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    labels: dict[str, str] = {}


RESOURCE_KEYS = ("nvidia.com/gpu", "cpu", "memory", "shm")

_decoder = msgspec.json.Decoder(JobSpec)
_list_decoder = msgspec.json.Decoder(list[JobSpec])
_encoder = msgspec.json.Encoder(order="deterministic")
_PATH = re.compile(r"^(.*?)(?: - at `(.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
#: msgspec's word for "the value of some key".
_SOME_KEY = "[...]"
_ARRAY = re.compile(r"(?:(\d{1,7})-(\d{1,7})|(\d{1,7}))(?:%(\d{1,6}))?\Z", re.ASCII)


def field_error(error: msgspec.MsgspecError, prefix: str = "", *, known: Sequence[str] = ()) -> FieldError:
    """The path and the words of a decoding error: `$.resources.cpu` becomes "resources.cpu".

    `known`: the fields of what was decoded, where that is no job file.
    """
    match = _PATH.match(str(error))
    message, path = (match[1], match[2] or "$") if match else (str(error), "$")
    path = path.removeprefix("$").removeprefix(".")
    unknown, missing = _UNKNOWN.match(message), _MISSING.match(message)
    if missing:
        path = f"{path}.{missing[1]}" if path else missing[1]
        message = "required field is missing"
    if unknown:
        path = f"{path}.{unknown[1]}" if path else unknown[1]
        there = f"expected {', '.join(known)}" if known else "see GET /v1/schemas/job for the fields of a job file"
        message = f"unknown field; {there}"
    return FieldError(field=_join(prefix, path), message=message)


def _join(prefix: str, path: str) -> str:
    if not prefix or not path or path.startswith("["):
        return prefix + path
    return f"{prefix}.{path}"


def decode_job(payload: bytes) -> JobSpec:
    """Decode one job from JSON. Raises InvalidJob naming the field."""
    if len(payload) > SPEC_BYTES_MAX:
        raise InvalidJob([_too_large(len(payload))])
    try:
        return _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _with_key(_invalid(error), payload) from error


def decode_jobs(payload: bytes) -> list[JobSpec]:
    """Decode a list of jobs from JSON. Raises InvalidJob naming the element and the field."""
    try:
        return _list_decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid(error) from error


def job_from(value: Any) -> JobSpec:
    """A job from already decoded YAML or JSON values. Raises InvalidJob."""
    try:
        return msgspec.convert(value, JobSpec)
    except msgspec.MsgspecError as error:
        raise _invalid(error) from error


def _with_key(error: InvalidJob, payload: bytes) -> InvalidJob:
    """The same with the key named whose value is of a wrong type: the decoder names only the map."""
    field, message = error.errors[0].field, error.errors[0].message
    if not field.endswith(_SOME_KEY):
        return error
    name = field.removesuffix(_SOME_KEY)
    allowed = (str, int) if name == "resources" else (str,)
    try:
        values: dict[str, Any] = msgspec.json.decode(payload).get(name, {})
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return error  # worse is wrong further on
    bad = next((key for key, value in values.items() if not isinstance(value, allowed) or value is True), "")
    return InvalidJob([FieldError(field=f"{name}.{bad}", message=message)]) if bad else error


def _too_large(size: int) -> FieldError:
    return FieldError(
        field="", message=f"expected at most {SPEC_BYTES_MAX} bytes, found {size}; keep scripts and data in files"
    )


def _invalid(error: Exception) -> InvalidJob:
    if isinstance(error, msgspec.MsgspecError):
        return InvalidJob([field_error(error)])
    return InvalidJob(
        [FieldError(field="", message=f"expected JSON in UTF-8 of ordinary depth: {type(error).__name__}")]
    )


def canonical(spec: JobSpec) -> bytes:
    """The bytes that the log carries."""
    return _encoder.encode(spec)


def resolve(spec: JobSpec, *, command_id: str, user: str, key: str = "") -> SubmitJob:
    """The command that submits this job, its words turned into integers.

    `command_id` and `key` come from the caller; nothing is invented here. Raises InvalidJob with
    every field that is out of range.
    """
    errors: list[FieldError] = []
    request = _request(spec, errors)
    array, array_limit = _array(spec.array, errors)
    total_ns = _read(errors, "time.total", quantities.parse_duration, spec.time.total)
    grace_ns = _read(errors, "time.grace", quantities.parse_duration, spec.time.grace)
    slice_ns = _read(errors, "time.slice", quantities.parse_duration, spec.time.slice)
    start_at_ns = _moment("startAt", spec.startAt, errors)
    deadline_ns = _moment("deadline", spec.deadline, errors)
    after = _after(spec.dependsOn, errors)
    _check_fields(spec, errors)
    if errors:  # before encoding, which cannot write integers beyond 64 bits
        raise InvalidJob(errors)
    body = canonical(spec)
    if len(body) > SPEC_BYTES_MAX:
        raise InvalidJob([_too_large(len(body))])
    return SubmitJob(
        id=command_id, user=user, name=spec.name or spec.command[0].rpartition("/")[2][:NAME_CHARS_MAX],
        queue=spec.queue, request=request, spec=msgspec.Raw(body), project=spec.project, kind=spec.kind,
        priority=spec.priority, array=array, retries=spec.retries.max, total_ns=total_ns, grace_ns=grace_ns,
        start_at_ns=start_at_ns, deadline_ns=deadline_ns, slice_ns=slice_ns, after=after, array_limit=array_limit, key=key, digest=digest_of(body)[:16] if key else "",
    )  # fmt: skip


def _check_fields(spec: JobSpec, errors: list[FieldError]) -> None:
    def expect(ok: bool, field: str, message: str) -> None:
        if not ok:
            errors.append(FieldError(field=field, message=message))

    expect(
        bool(spec.command) and bool(spec.command[0]),
        "command",
        "expected at least the program to run, found an empty list",
    )
    expect(
        all("\0" not in word for word in [*spec.command, *spec.args]),
        "command",
        "expected words without NUL characters",
    )
    expect(
        len(spec.name) <= NAME_CHARS_MAX and spec.name.isprintable(),
        "name",
        f"expected at most {NAME_CHARS_MAX} printable characters",
    )
    expect(
        len(spec.project) <= PROJECT_CHARS_MAX and spec.project.isprintable(),
        "project",
        f"expected at most {PROJECT_CHARS_MAX} printable characters",
    )
    for field in ("workdir", "image"):
        expect("\0" not in getattr(spec, field), field, "expected no NUL characters")
    selector = [*spec.nodeSelector.keys(), *spec.nodeSelector.values()]
    expect(
        all(word.isprintable() for word in selector)
        and not any("=" in key for key in spec.nodeSelector)
        and sum(len(word.encode()) for word in selector) <= SELECTOR_BYTES_MAX,
        "nodeSelector",
        f'expected printable labels without "=" in a key, of at most {SELECTOR_BYTES_MAX} bytes in all',
    )
    expect(
        is_queue_path(spec.queue), "queue", f'expected names of a-z 0-9 _ - joined by "/", found "{spec.queue[:80]}"'
    )
    expect(0 <= spec.priority <= PRIORITY_MAX, "priority", f"expected 0 to {PRIORITY_MAX}, found {spec.priority}")
    expect(
        0 <= spec.retries.max <= RETRIES_MAX, "retries.max", f"expected 0 to {RETRIES_MAX}, found {spec.retries.max}"
    )
    for name, value in spec.env.items():
        reserved = name.startswith(RESERVED_ENV_PREFIXES)
        expect(not reserved, f"env.{name}", "this variable is set by Fairlead; leave it out")
        expect(
            bool(name) and "=" not in name and "\0" not in name + value,
            f"env.{name}",
            'expected a name without "=" and no NUL characters',
        )


def _request(spec: JobSpec, errors: list[FieldError]) -> Request:
    for key in spec.resources.keys() - set(RESOURCE_KEYS):
        errors.append(
            FieldError(
                field=f"resources.{key}", message=f"unknown resource; expected one of {', '.join(RESOURCE_KEYS)}"
            )
        )
    if not 1 <= spec.nodes <= NODES_MAX:
        errors.append(FieldError(field="nodes", message=f"expected 1 to {NODES_MAX}, found {spec.nodes}"))
    get = spec.resources.get
    gpu_milli = _read(errors, "resources.nvidia.com/gpu", quantities.parse_gpu, get("nvidia.com/gpu", 0))
    if gpu_milli > GPUS_PER_NODE_MAX * quantities.MILLI:
        errors.append(
            FieldError(
                field="resources.nvidia.com/gpu",
                message=f"expected at most {GPUS_PER_NODE_MAX} per node, found {gpu_milli // 1000}; ask for more nodes instead",
            )
        )
    cpu_milli = _read(errors, "resources.cpu", quantities.parse_cpu, get("cpu", f"{DEFAULT_CPU_MILLI}m"))
    before = len(errors)
    shm_mib = _read(errors, "resources.shm", quantities.parse_memory, get("shm", 0))
    memory_mib = _read(errors, "resources.memory", quantities.parse_memory, get("memory", DEFAULT_MEMORY_MIB * 2**20))
    # A size that could not be read is one error, not two.
    if shm_mib > memory_mib and len(errors) == before:
        errors.append(
            FieldError(
                field="resources.shm",
                message=f"expected at most resources.memory ({memory_mib} MiB), in which it is counted; found {shm_mib} MiB",
            )
        )
    gpu_memory_mib = _read(errors, "gpu.memory", quantities.parse_memory, spec.gpu.memory)
    return Request(
        nodes=spec.nodes, gpu_milli=gpu_milli, cpu_milli=cpu_milli, memory_mib=memory_mib, shm_mib=shm_mib,
        selector=tuple(sorted(f"{key}={value}" for key, value in spec.nodeSelector.items())),
        gpu_memory_mib=gpu_memory_mib, compute_capability=_capability(spec.gpu.computeCapability, errors),
    )  # fmt: skip


@lru_cache(4096)
def _remembered(parse: Callable[[str | int], int], value: str | int) -> int:
    """A cluster's jobs write the same few quantities; reading one costs as much as decoding a small job."""
    return parse(value)


def _read(errors: list[FieldError], field: str, parse: Callable[[str | int], int], value: str | int) -> int:
    try:
        if isinstance(value, int) or len(value) <= REMEMBERED_CHARS_MAX:
            return _remembered(parse, value)
        return parse(value)
    except quantities.QuantityError as error:
        errors.append(FieldError(field=field, message=str(error)))
        return 0


def _capability(text: str, errors: list[FieldError]) -> int:
    if not text:
        return 0
    match = re.match(r"(?:>=\s*)?(\d{1,2})\.(\d)\Z", text.strip(), re.ASCII)
    if match is None:
        errors.append(
            FieldError(
                field="gpu.computeCapability", message=f'expected a least version such as ">=8.0", found "{text[:40]}"'
            )
        )
        return 0
    return int(match[1]) * 10 + int(match[2])


def _array(value: int | str | None, errors: list[FieldError]) -> tuple[tuple[int, int] | None, int]:
    """(first and last index, how many at once: 0 for all)."""
    if value is None:
        return None, 0
    match = _ARRAY.match(str(value))
    first, last, limit = 1, 0, None
    if match:
        first, last = (0, int(match[3]) - 1) if match[3] else (int(match[1]), int(match[2]))
        limit = match[4]
    if not 0 <= last - first < ARRAY_ELEMENTS_MAX or limit == "0":
        errors.append(
            FieldError(
                field="array",
                message=f'expected a count or a range such as "0-7" or "0-7%2" of at most {ARRAY_ELEMENTS_MAX} elements, found "{str(value)[:40]}"',
            )
        )
        return None, 0
    return (first, last), int(limit or 0)


def _after(wanted: list[str | int | DependsOn], errors: list[FieldError]) -> tuple[Dependency, ...]:
    found: dict[str, Dependency] = {}
    for at, each in enumerate(wanted):
        job, state = (each.job, each.state) if isinstance(each, DependsOn) else (each, "succeeded")
        if not is_job_id(str(job)):
            message = f'expected a job id such as "12" or "12_3", found "{str(job)[:40]}"'
            errors.append(FieldError(field=f"dependsOn[{at}]", message=message))
        found[str(job)] = Dependency(job=str(job), state=state)
    if len(wanted) > DEPENDENCIES_MAX:
        message = f"expected at most {DEPENDENCIES_MAX} jobs, found {len(wanted)}"
        errors.append(FieldError(field="dependsOn", message=message))
    return tuple(found.values())


def _moment(field: str, text: str, errors: list[FieldError]) -> int:
    """Unix ns of an RFC 3339 time; 0 for none."""
    if not text:
        return 0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or not 1971 <= moment.year <= START_YEAR_MAX:
        errors.append(
            FieldError(
                field=field,
                message=f'expected an RFC 3339 time with zone such as "2027-01-31T10:00:00+01:00", found "{text[:40]}"',
            )
        )
        return 0
    return int(moment.timestamp()) * quantities.SECOND_NS + moment.microsecond * 1000
