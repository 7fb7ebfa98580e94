"""The job file: the words that people write, decoded strictly.

`decode_job` refuses unknown fields and wrong types and names the path of the error. What the words mean is
`resolving.py`. The canonical spec that the log carries is the job file re-encoded with its defaults left out, so
equal jobs have equal bytes.
"""

from typing import Annotated, Any

import msgspec

from fairlead_schemas.events import DependencyState, JobKind
from fairlead_schemas.fielderrors import FieldError, InvalidJob, field_error
from fairlead_schemas.requestrules import PACKINGS
from fairlead_schemas.topology import LEVELS

SPEC_BYTES_MAX = 64 * 1024
ARRAY_ELEMENTS_MAX = 100_000
RETRIES_MAX = 100
PRIORITY_MAX = 1000
NAME_CHARS_MAX = 128
DEPENDENCIES_MAX = 100
PROJECT_CHARS_MAX = 128
DEFAULT_GRACE = "30s"

#: Set by Fairlead or by the device runtime; a job that sets them would see devices it does not hold.
RESERVED_ENV_PREFIXES = ("NVIDIA_", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "FAIRLEAD_")

#: Words of a closed list. Any text decodes, so that a bad one is refused together with all else that is wrong.
type _Level = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(LEVELS)})]
type _Packing = Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["", *PACKINGS]})]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class GpuWanted(_Strict, frozen=True, kw_only=True):
    """What each GPU must be. `model`: a product ("NVIDIA-A100-SXM4-80GB"), a word of it ("A100"), or several, any of which
    will do. Versions such as ">=12.4" are of the node's driver and of the CUDA that it can run."""

    model: str | list[str] = ""
    memory: str | int = 0
    computeCapability: str = ""  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    ecc: bool = False
    driver: str = ""
    cuda: str = ""


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


class NodesRange(_Strict, frozen=True, kw_only=True):
    """As many nodes as can be had at once, within these bounds."""

    min: int
    max: int


class TolerationWords(_Strict, frozen=True, kw_only=True):
    """A toleration as Kubernetes writes it. operator: Equal (by default) or Exists; effect: NoSchedule, PreferNoSchedule,
    NoExecute, or "" for all of them."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class TopologyWords(_Strict, frozen=True, kw_only=True):
    """Levels within which all of the job must lie, or shall if it can be had: one word or several."""

    require: _Level | list[_Level] = ""
    prefer: _Level | list[_Level] = ""


class Group(_Strict, frozen=True, kw_only=True):
    """Further nodes of another kind, placed with the others or not at all."""

    nodes: int = 1
    resources: dict[str, str | int] = {}
    nodeSelector: dict[str, str] = {}  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    nodeAffinity: list[str] = []  # noqa: N815 -- as above
    gpu: GpuWanted = GpuWanted()


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
    #: 4, or as many as can be had: "2-8" or {min: 2, max: 8}.
    nodes: int | str | NodesRange = 1
    #: In place of nodes: so many units that may share nodes, each with these resources.
    tasks: int | None = None
    #: GPUs of a task: another word for resources."nvidia.com/gpu".
    gpusPerTask: int | str | None = None  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    #: Of a node, or of a task. GPUs are one of: nvidia.com/gpu (8; "0.5" is half of one), nvidia.com/gpu.shared (GPUs
    #: that their node slices by time), nvidia.com/mig-<profile>. Besides: cpu, memory, shm, rdma/hca.
    resources: dict[str, str | int] = {}
    nodeSelector: dict[str, str] = {}  # noqa: N815 -- as above
    #: Requirements such as "key in (a,b)", "!key" or "key>=1.2"; all must hold.
    nodeAffinity: list[str] = []  # noqa: N815 -- as above
    gpu: GpuWanted = GpuWanted()
    #: Taints that it puts up with: as Kubernetes writes them, or "key=value:NoSchedule", "key".
    tolerations: list[str | TolerationWords] = []
    topology: TopologyWords = TopologyWords()
    #: Nobody else's work on its nodes.
    exclusive: bool = False
    #: "pack" or "spread"; "": as its pool does.
    placement: _Packing = ""
    groups: list[Group] = []
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


_decoder = msgspec.json.Decoder(JobSpec)
_list_decoder = msgspec.json.Decoder(list[JobSpec])
_encoder = msgspec.json.Encoder(order="deterministic")
#: msgspec's word for "the value of some key".
_SOME_KEY = "[...]"


def decode_job(payload: bytes) -> JobSpec:
    """Decode one job from JSON. Raises InvalidJob naming the field."""
    if len(payload) > SPEC_BYTES_MAX:
        raise InvalidJob([too_large(len(payload))])
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


def too_large(size: int) -> FieldError:
    """A job file over the limit."""
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
