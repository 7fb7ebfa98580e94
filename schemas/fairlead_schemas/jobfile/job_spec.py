"""The job file: the words that people write, decoded strictly.

`decode_job` refuses unknown fields and wrong types and names the path of each error. What the words mean is
`resolve.py`. The canonical spec that the log carries is the job file re-encoded with its defaults left out, so
equal jobs have equal bytes.
"""

from typing import Annotated, Any, ClassVar

import msgspec

from fairlead_schemas.policies.launchers import LAUNCHERS, ON_FAILURE
from fairlead_schemas.units.hardware import TOPOLOGY_LEVELS
from fairlead_schemas.units.type_errors import type_errors
from fairlead_schemas.units.validation import (
    FieldError,
    InvalidJob,
    decode,
    decode_object,
    field_error,
    repeated_keys,
)
from fairlead_schemas.wire.events import DependencyState, JobKind
from fairlead_schemas.wire.resource_requests import PACKINGS

SPEC_BYTES_MAX = 64 * 1024
ARRAY_ELEMENTS_MAX = 100_000
RETRIES_MAX = 100
NAME_CHARS_MAX = 128
DEPENDENCIES_MAX = 100
LABEL_CHARS_MAX = 256
DEFAULT_GRACE = "30s"

#: Set by Fairlead or by the device runtime; a job that sets them would see devices it does not hold.
RESERVED_ENV_PREFIXES = (
    "FAIRLEAD_",
    "NVIDIA_",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MPS_",
    "AMD_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HABANA_VISIBLE_",
    "ASCEND_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    # Loaded into every program that starts, those of a device runtime's hooks included. (LD_LIBRARY_PATH stays the job's:
    # CUDA is found by it, images set it, and it grants no device.)
    "LD_PRELOAD",
    "LD_AUDIT",
)

#: Words of a closed list. Any text decodes, so that a bad one is refused together with all else that is wrong.
type _Level = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(TOPOLOGY_LEVELS)})]
type _LevelOrNone = Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["", *TOPOLOGY_LEVELS]})]
type _Packing = Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["", *PACKINGS]})]
type _Launcher = Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["", *LAUNCHERS]})]
type _OnFailure = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(ON_FAILURE)})]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class GpuWanted(_Strict, frozen=True, kw_only=True):
    """Requirements on each GPU.

    `model` is a product ("NVIDIA-A100-SXM4-80GB"), a word of it ("A100"), or a list in which any entry is
    acceptable. Versions such as ">=12.4" refer to the node's driver and to the CUDA that it can run.
    """

    model: str | list[str] = ""
    memory: str | int = 0
    computeCapability: str = ""  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    ecc: bool = False
    driver: str = ""
    cuda: str = ""


class TimeWords(_Strict, frozen=True, kw_only=True):
    """Durations: longest run time (over all slices), least run time before it may be asked to yield, and notice
    between TERM and KILL."""

    total: str | int = 0
    slice: str | int = 0
    grace: str | int = DEFAULT_GRACE


class CheckpointWords(_Strict, frozen=True, kw_only=True):
    """Checkpoint settings of a job.

    The job is notified by `signal` (SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP) or by `command`, which runs
    alongside it. It then has `notice` before TERM (2m by default). The job itself reports when it has saved
    (FAIRLEAD_CHECKPOINT_FILE). `every`: the interval of its saves without a notice.
    """

    signal: str = ""
    command: list[str] = []
    notice: str | int = ""
    every: str | int = 0


class Retries(_Strict, frozen=True, kw_only=True):
    """Number of retries after a failed exit; losses of a node are not counted here."""

    max: int = 0


class OutputWords(_Strict, frozen=True, kw_only=True):
    """Output that its node keeps. `keep`: how long after the end of a run (1m to 365d). `max`: how much of the end of
    stdout, and of stderr (1Mi to 1Ti). The node's settings bound both: the smaller counts.

    `stdout`, `stderr`: files that the run writes the same to, relative to its working directory, with {job} {array} {index}
    {name} {user} {node} {rank} filled in; without `stderr` both go to `stdout`. `append`: to what is there from before.
    """

    keep: str | int = ""
    max: str | int = ""
    stdout: str = ""
    stderr: str = ""
    append: bool = False


class PartitionWords(_Strict, frozen=True, kw_only=True):
    """Rules for the silence of a job's node: the time after which its program is stopped there ("60s" unless the
    cluster sets another), and the time after which it is started elsewhere ("120s"). Either may be "never".
    """

    stopAfter: str | int = ""  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    replaceAfter: str | int = ""  # noqa: N815 -- as above


class DependsOn(_Strict, frozen=True, kw_only=True):
    """Another job, and how it must have ended."""

    job: str | int
    state: DependencyState = "succeeded"


class NodesRange(_Strict, frozen=True, kw_only=True):
    """Number of nodes within bounds: as many as are available at once."""

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

    require: _LevelOrNone | list[_Level] = ""
    prefer: _LevelOrNone | list[_Level] = ""


class VolumeWords(_Strict, frozen=True, kw_only=True):
    """A directory in the job's containers. `name`: a volume of the cluster that its submitter may read, else what the admin of the
    node has listed, or (create: true) a volume of the job's project on that node, made where it is missing. Short: "name:/path" or
    "name:/path:ro"."""

    name: str
    mountPath: str  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    readOnly: bool = False  # noqa: N815 -- as above
    create: bool = False
    #: Sequence at which the cluster's volume was made, which the gateway sets; 0 for a directory of the nodes.
    made: int = 0


class SecretWords(_Strict, frozen=True, kw_only=True):
    """A secret of the job's project, which the node has: a file in memory that only the job can read."""

    name: str
    #: The file; "": /run/secrets/<name>.
    mountPath: str = ""  # noqa: N815 -- Kubernetes' spelling is the users' spelling


class AliveWords(_Strict, frozen=True, kw_only=True):
    """When an application that has served counts as dead, so that its run is ended."""

    #: Path that answers; "": taking a connection is enough. Any status but 5xx is an answer.
    path: str = "/"
    every: str | int = "10s"
    #: Looks in a row without an answer.
    failures: int = 3


class ServiceWords(_Strict, frozen=True, kw_only=True):
    """Replicas of a service, and how they are replaced."""

    #: 2, or from and to: "0-4", by the requests in flight.
    replicas: int | str = 1
    #: Requests in flight for which one replica is wanted.
    requests: int = 0
    #: While replicas are replaced: how many more there may be, and how many fewer may serve.
    surge: int = 1
    unavailable: int = 0
    #: Between the last new request to a replica and its end.
    drain: str | int = "5s"
    #: For so long fewer replicas must be enough before one is ended.
    calm: str | int = "5m"


class AppWords(_Strict, frozen=True, kw_only=True):
    """An application that people open in a browser. Short: the name of a profile (policies/apps.py)."""

    profile: str = "http"
    #: Where it listens, on 127.0.0.1; 0: on FAIRLEAD_APP_PORT, which its node chooses. Or the path of a unix socket.
    port: int = 0
    socket: str = ""
    #: Path whose answer shows that it serves; the profile's without it.
    ready: str | None = None
    #: Beginnings of paths that its page asks for by itself: no sign of a person (docs/how-to/idle.md).
    background: list[str] = []
    #: Ends a run whose application answers no more; without it, it may be silent for as long as it likes.
    alive: AliveWords | None = None


class GroupWords(_Strict, frozen=True, kw_only=True):
    """Further nodes of another kind, placed with the others or not at all."""

    nodes: int = 1
    resources: dict[str, str | int] = {}
    nodeSelector: dict[str, str] = {}  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    nodeAffinity: list[str] = []  # noqa: N815 -- as above
    gpu: GpuWanted = GpuWanted()


class JobSpec(_Strict, frozen=True, kw_only=True):
    """Job file. Resource words are Kubernetes': `resources: {nvidia.com/gpu: 8, cpu: "32"}`."""

    #: {word of another system, or a word at the wrong level: what a job file has for it}
    ELSEWHERE: ClassVar[dict[str, str]] = {
        "cpu": "resources: {cpu: 8}",
        "cpus": "resources: {cpu: 8}",
        "memory": "resources: {memory: 64Gi}",
        "mem": "resources: {memory: 64Gi}",
        "shm": "resources: {shm: 16Gi}",
        "shm_size": "resources: {shm: 16Gi}",
        "gpus": "resources: {nvidia.com/gpu: 8}",
        "accelerators": "resources: {nvidia.com/gpu: 8} and gpu: {model: H100}",
        "model": "gpu: {model: H100}",
        "partition": "queue",
        "qos": "queue",
        "account": "project",
        "namespace": "project",
        "run": "command: [sh, -c, …]",
        "script": "command: [sh, -c, …]",
        "commands": "command: [sh, -c, …]",
        "cmd": "command",
        "entrypoint": "command",
        "environment": "env",
        "envs": "env",
        "cwd": "workdir",
        "working_dir": "workdir",
        "workingDir": "workdir",
        "chdir": "workdir",
        "code": "sync",
        "syncDir": "sync",
        "mounts": "volumes",
        "volumeMounts": "volumes",
        "walltime": "time: {total: 4h}",
        "timeout": "time: {total: 4h}",
        "max_duration": "time: {total: 4h}",
        "total": "time: {total: 4h}",
        "grace": "time: {grace: 1m}",
        "signal": "checkpoint: {signal: USR1, notice: 2m}",
        "max_retries": "retries: {max: 3}",
        "backoffLimit": "retries: {max: 3}",
        "hold": "held: true",
        "suspend": "held: true",
        "begin": "startAt",
        "start_after": "startAt",
        "dependency": "dependsOn",
        "depends": "dependsOn",
        "needs": "dependsOn",
        "affinity": "nodeAffinity",
        "constraint": "nodeAffinity",
        "num_nodes": "nodes",
        "ntasks": "tasks",
        "replicas": "nodes",
    }

    #: May be left out with an `app` whose profile has a command.
    command: list[str] = []
    args: list[str] = []
    name: str = ""
    queue: str = "default"
    project: str = ""
    kind: JobKind = "batch"
    #: Of a session or service: the application that people open, such as "jupyterlab".
    app: str | AppWords = ""
    #: Makes it a service with replicas behind one name; sent by `fairlead service apply`.
    service: ServiceWords | None = None
    image: str = ""
    env: dict[str, str] = {}
    workdir: str = ""
    #: A directory that goes with the job and is where it runs, on every node. `fairlead submit` sends it; the cluster knows it by the
    #: digest that it then has: "sha256:…".
    sync: str = ""
    #: Volumes, or directories of its nodes; a text is short for {name, mountPath, readOnly}: "datasets:/data:ro". Also by name:
    #: {datasets: /data:ro}.
    volumes: list[str | VolumeWords] | dict[str, str] = []
    #: Files with secrets, by name; a text is the name.
    secrets: list[str | SecretWords] = []
    #: 4, or as many as can be had: "2-8" or {min: 2, max: 8}.
    nodes: int | str | NodesRange = 1
    #: In place of nodes: so many units that may share nodes, each with these resources.
    tasks: int | None = None
    #: GPUs of a task: another word for resources."nvidia.com/gpu".
    gpusPerTask: int | str | None = None  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    #: Of a node, or of a task. GPUs are one of: nvidia.com/gpu (8; "0.5" is half of one), nvidia.com/gpu.shared
    #: (GPUs that their node slices by time), nvidia.com/mig-<profile>. Also: cpu, memory, shm, rdma/hca.
    resources: dict[str, str | int] = {}
    nodeSelector: dict[str, str] = {}  # noqa: N815 -- as above
    #: Requirements such as "key in (a,b)", "!key" or "key>=1.2"; all must hold.
    nodeAffinity: list[str] = []  # noqa: N815 -- as above
    gpu: GpuWanted = GpuWanted()
    #: Taints that it puts up with: as Kubernetes writes them, or "key=value:NoSchedule", "key".
    tolerations: list[str | TolerationWords] = []
    topology: TopologyWords = TopologyWords()
    #: True: no other job runs on its nodes.
    exclusive: bool = False
    #: "pack" or "spread"; "": as its pool does.
    placement: _Packing = ""
    groups: list[GroupWords] = []
    #: Who starts the processes: torchrun, mpi, env, slurm, none; "": as the command's name says (torchrun, mpirun), else none.
    launcher: _Launcher = ""
    #: What a launcher starts on each node; without it one per task, or GPU, or one.
    processesPerNode: int | None = None  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    #: What becomes of the other ranks when one fails: "stop" or "continue".
    onFailure: _OnFailure = "stop"  # noqa: N815 -- as above
    time: TimeWords = TimeWords()
    checkpoint: CheckpointWords | None = None
    priority: int = 50
    retries: Retries = Retries()
    #: An element count (8 is 0-7) or a range ("1-100"); "1-100%5" runs five of them at once.
    array: int | str | None = None
    #: True: it waits until a person releases it.
    held: bool = False
    #: RFC 3339 time before which the job is not offered.
    startAt: str = ""  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    #: RFC 3339 time by which it shall have ended: among equals the earliest that can be met goes first.
    deadline: str = ""
    #: Job ids (that must have succeeded), or {job: 12, state: succeeded | failed | ended}.
    dependsOn: list[str | int | DependsOn] = []  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    labels: dict[str, str] = {}
    #: How long, and how much of, its output stays on its nodes.
    output: OutputWords = OutputWords()
    #: Files that its nodes keep by name when a run has ended: {model: "checkpoints/*.pt"}, relative to the job's own directory.
    outputs: dict[str, str | list[str]] = {}
    onPartition: PartitionWords = PartitionWords()  # noqa: N815 -- Kubernetes' spelling is the users' spelling
    #: Never two of it: started elsewhere only with proof that it has ended. The same as replaceAfter: never.
    strict: bool = False


_decoder = msgspec.json.Decoder(JobSpec)
_encoder = msgspec.json.Encoder(order="deterministic")


def decode_job(payload: bytes) -> JobSpec:
    """Decode one job from JSON. Raises InvalidJob naming every field of a wrong type."""
    if len(payload) > SPEC_BYTES_MAX:
        raise InvalidJob([too_large(len(payload))])
    try:
        spec = decode(_decoder, payload)
    except msgspec.MsgspecError as error:
        try:
            found = type_errors(decode_object(payload), JobSpec)
        except msgspec.MsgspecError:
            found = []  # no JSON: the decoder's first error is all that can be reported
        raise InvalidJob(found or [field_error(error)]) from error
    if not spec.command and spec.app == "":
        _check_command(decode_object(payload))
    if twice := repeated_keys(payload):
        raise InvalidJob(
            [FieldError(field=path, message="this key is given twice; keep one of them") for path in twice]
        )
    return spec


def job_from(value: Any) -> JobSpec:
    """Return a job from already decoded YAML or JSON values. Raises InvalidJob naming every field of a wrong type."""
    try:
        spec = msgspec.convert(value, JobSpec)
    except msgspec.MsgspecError as error:
        raise InvalidJob(type_errors(value, JobSpec) or [field_error(error)]) from error
    if not spec.command and spec.app == "":
        _check_command(value)
    return spec


#: Message for a job without a command, which names no application that may bring one.
COMMAND_MISSING = "required field is missing; add it with a list of words"


def _check_command(value: Any) -> None:
    """Raise InvalidJob for the values of a job that has no command; one that is empty is refused with the other fields' values."""
    if not isinstance(value, dict) or "command" not in value:
        raise InvalidJob([FieldError(field="command", message=COMMAND_MISSING)])


def too_large(size: int) -> FieldError:
    """A job file over the limit."""
    return FieldError(
        field="", message=f"expected at most {SPEC_BYTES_MAX} bytes, found {size}; keep scripts and data in files"
    )


def canonical(spec: JobSpec) -> bytes:
    """The bytes that the log carries."""
    return _encoder.encode(spec)
