"""Tasks of SkyPilot and dstack as Fairlead job files, where the words allow; other words are named.

Pure. Both run lines of a shell on one or several nodes. What is about clouds, prices and machines to be rented has no meaning here, and is
noted. Start at `read`.
"""

import copy
import re
from typing import Any, NamedTuple

from fairlead.errors import InputRefused
from fairlead.jobfile.job_draft import JobDraft, take
from fairlead_schemas.jobfile.request import GPU

_SKY_FIELDS = frozenset(
    [
        "name",
        "workdir",
        "num_nodes",
        "resources",
        "envs",
        "secrets",
        "volumes",
        "file_mounts",
        "setup",
        "run",
        "config",
        "experimental",
        "service",
        "inputs",
        "outputs",
    ]
)
_SKY_RESOURCES = frozenset(
    [
        "accelerators",
        "cpus",
        "memory",
        "use_spot",
        "infra",
        "cloud",
        "region",
        "zone",
        "any_of",
        "ordered",
        "image_id",
        "instance_type",
    ]
)
_DSTACK_TYPES = frozenset({"task", "service", "dev-environment", "fleet", "volume", "gateway"})
#: {variable of SkyPilot: a shell's word for its value here}
_SKY_VARIABLES = {
    "SKYPILOT_NODE_RANK": '"$NODE_RANK"',
    "SKYPILOT_NUM_NODES": '"$NNODES"',
    "SKYPILOT_NUM_GPUS_PER_NODE": '"$GPUS_PER_NODE"',
    "SKYPILOT_TASK_ID": '"$FAIRLEAD_JOB"',
    "SKYPILOT_NODE_IPS": '"$(cut -d\' \' -f1 "$FAIRLEAD_HOSTFILE" 2>/dev/null || echo 127.0.0.1)"',
}
#: The same of dstack.
_DSTACK_VARIABLES = {
    "DSTACK_NODE_RANK": '"$NODE_RANK"',
    "DSTACK_NODES_NUM": '"$NNODES"',
    "DSTACK_GPUS_PER_NODE": '"$GPUS_PER_NODE"',
    "DSTACK_GPUS_NUM": '"$((NNODES * GPUS_PER_NODE))"',
    "DSTACK_MASTER_NODE_IP": '"$MASTER_ADDR"',
    "DSTACK_RUN_NAME": '"$FAIRLEAD_JOB"',
    "DSTACK_MPI_HOSTFILE": '"$FAIRLEAD_HOSTFILE"',
    "DSTACK_NODES_IPS": _SKY_VARIABLES["SKYPILOT_NODE_IPS"],
}
#: Words about machines to be rented, by system: {beginning of a path}. They change nothing on nodes that are there.
_SKY_NOTED = (
    "resources.use_spot",
    "resources.infra",
    "resources.cloud",
    "resources.region",
    "resources.zone",
    "resources.disk",
    "resources.network_tier",
    "resources.ports",
    "resources.autostop",
    "resources.spot_recovery",
    "resources.max_hourly_cost",
    "resources.priority",
    "config",
    "experimental",
)
_DSTACK_NOTED = (
    "backends",
    "regions",
    "availability_zones",
    "spot_policy",
    "max_price",
    "idle_duration",
    "creation_policy",
    "ports",
    "ide",
    "resources.disk",
    "utilization_policy",
    "tags",
    "single_branch",
    "reservation",
)


class TranslatedTask(NamedTuple):
    """A job file, remarks about how it was read, the fields that cannot be kept ({path: why}), and {field: path in the file}."""

    job: dict[str, Any]
    notes: list[str]
    unkept: dict[str, str]
    renamed: dict[str, str]


def is_task(document: dict[str, Any]) -> bool:
    """True for a task of SkyPilot or dstack. A job file of Fairlead has a command."""
    return "command" not in document and (_is_dstack(document) or _is_sky(document))


def _is_dstack(document: dict[str, Any]) -> bool:
    kind = document.get("type")
    return isinstance(kind, str) and kind in _DSTACK_TYPES


def _is_sky(document: dict[str, Any]) -> bool:
    resources = document.get("resources")
    asks = isinstance(resources, dict) and bool(_SKY_RESOURCES & set(resources))
    return set(document) <= _SKY_FIELDS and ("run" in document or asks)


def read(document: dict[str, Any]) -> TranslatedTask:
    """Translate a task. Raises InputRefused for what is no task, and for one without commands."""
    rest, draft = copy.deepcopy(document), JobDraft()
    system, translate, noted = (
        ("dstack", _dstack, _DSTACK_NOTED) if _is_dstack(document) else ("SkyPilot", _sky, _SKY_NOTED)
    )
    draft.note(f"read as a task of {system}; its job file here: --dry-run -o yaml")
    try:
        translate(rest, draft)
    except (AttributeError, TypeError, ValueError) as error:
        raise InputRefused(f"expected a valid task of {system}, found values of another kind") from error
    draft.leave(rest, "", noted)
    return TranslatedTask(draft.job, draft.notes, draft.unkept, draft.renamed)


# ---------------------------------------------------------------------------- SkyPilot


def _sky(rest: dict[str, Any], draft: JobDraft) -> None:
    draft.put("name", take(rest, "name"), "name")
    draft.put("nodes", take(rest, "num_nodes"), "num_nodes")
    setup, lines = take(rest, "setup"), str(take(rest, "run") or "")
    text = (
        f"set -e\n{str(setup).rstrip()}\nset +e\n{lines}" if setup else lines
    )  # an error ends the setup, and not the run
    _script(text, "run", _SKY_VARIABLES, ["bash", "-c"], draft)
    if setup:
        draft.note("setup runs at each start of the job: put what it installs into an image, where that takes long")
    _environment(take(rest, "envs"), "envs", draft)
    for name in take(rest, "secrets") or {}:
        draft.unkept[f"secrets.{name}"] = (
            f"a secret is a file of the nodes here: secrets: [{name.lower()}], without its value"
        )
    _workdir(take(rest, "workdir"), "workdir", draft)
    for path, volume in (take(rest, "volumes") or {}).items():
        _volume(str(volume), str(path), draft)
    for path in take(rest, "file_mounts") or {}:
        draft.unkept[f"file_mounts.{path}"] = (
            "files are not sent: name a volume of the nodes (volumes), or fetch them in the command"
        )
    _sky_resources(rest, draft)


def _sky_resources(rest: dict[str, Any], draft: JobDraft) -> None:
    accelerators = take(rest, "resources.accelerators")
    if isinstance(accelerators, dict):
        accelerators = [f"{model}:{count}" for model, count in accelerators.items()]
    _gpus(accelerators, "resources.accelerators", draft)
    _amounts(take(rest, "resources.cpus"), take(rest, "resources.memory"), None, draft)
    if image := take(rest, "resources.image_id"):
        if str(image).startswith("docker:"):
            draft.put("image", str(image).removeprefix("docker:"), "resources.image_id")
        else:
            draft.unkept["resources.image_id"] = (
                "a machine's image is not chosen here: write docker:IMAGE for a container's"
            )
    draft.put("labels", take(rest, "resources.labels"), "resources.labels")
    recovery = take(rest, "resources.job_recovery")
    if isinstance(recovery, dict) and (most := recovery.get("max_restarts_on_errors")) is not None:
        draft.put("retries", {"max": most}, "resources.job_recovery")
    for word in ("any_of", "ordered"):
        if take(rest, f"resources.{word}"):
            draft.unkept[f"resources.{word}"] = (
                "one set of resources is taken: gpu: {model: [A100, H100]} accepts several models"
            )


# ---------------------------------------------------------------------------- dstack


def _dstack(rest: dict[str, Any], draft: JobDraft) -> None:
    kind = take(rest, "type")
    if kind not in ("task", "service"):
        raise InputRefused(
            f"type: expected a task of dstack, found {kind}",
            hint="nodes, volumes and people are set up by an admin here",
        )
    if kind == "service":
        draft.unkept["type"] = "a service gets no address here; it would run as a job of kind service"
        draft.put("kind", "service", "type")
        take(rest, "port")
    draft.put("name", take(rest, "name"), "name")
    draft.put("image", take(rest, "image"), "image")
    draft.put("nodes", take(rest, "nodes"), "nodes")
    draft.put("priority", take(rest, "priority"), "priority")
    lines = "\n".join(str(line) for line in take(rest, "commands") or [])
    shell = str(take(rest, "shell") or "sh").rpartition("/")[2]
    _script(lines, "commands", _DSTACK_VARIABLES, [shell, "-ec"], draft)
    _environment(take(rest, "env"), "env", draft)
    _workdir(take(rest, "working_dir"), "working_dir", draft)
    times = {"total": take(rest, "max_duration"), "grace": take(rest, "stop_duration")}
    draft.put(
        "time", {key: str(value) for key, value in times.items() if value not in (None, "off", False)}, "max_duration"
    )
    retry = take(rest, "retry")
    if retry:
        draft.put("retries", {"max": 3}, "retry")
        draft.note("retry is taken as three retries after a failure; a lost node is no failure, and is always retried")
    for volume in take(rest, "volumes") or []:
        name, _, path = str(volume.get("name") if isinstance(volume, dict) else volume).partition(":")
        _volume(name, str(volume.get("path")) if isinstance(volume, dict) else path, draft)
    _gpus(take(rest, "resources.gpu"), "resources.gpu", draft)
    _amounts(take(rest, "resources.cpu"), take(rest, "resources.memory"), take(rest, "resources.shm_size"), draft)


# ---------------------------------------------------------------------------- words of both


def _script(text: str, at: str, known: dict[str, str], shell: list[str], draft: JobDraft) -> None:
    """Set the command: a shell that runs the lines. Variables of the system are set if the lines use them."""
    if not text.strip():
        raise InputRefused(f"{at}: expected commands, found none")
    used = [f"export {name}={value}" for name, value in known.items() if name in text]
    draft.put("command", [*shell, "\n".join([*used, text.rstrip()])], at)


def _environment(words: Any, at: str, draft: JobDraft) -> None:
    """Set `env` from a map, or from a list of NAME=VALUE. A name alone would be of the sender's environment."""
    pairs = (
        words.items()
        if isinstance(words, dict)
        else [str(each).partition("=")[::2] if "=" in str(each) else (each, None) for each in words or []]
    )
    env = {str(name): value for name, value in pairs}
    for name in [name for name, value in env.items() if value is None]:
        draft.unkept[f"{at}.{name}"] = f"your own environment is not sent: write {name}: VALUE"
        del env[name]
    draft.put(
        "env",
        {name: ("true" if value is True else "false" if value is False else str(value)) for name, value in env.items()},
        at,
    )


def _workdir(value: Any, at: str, draft: JobDraft) -> None:
    if value is None:
        return
    if str(value).startswith("/"):
        draft.put("workdir", str(value), at)
        draft.note(f"{at}: {value} is a directory of the nodes: nothing is copied to it")
    else:
        draft.unkept[at] = "a directory is not sent: on a shared disk name it with --workdir /PATH"


def _volume(name: str, path: str, draft: JobDraft) -> None:
    if not re.fullmatch(r"[a-z0-9_-]{1,63}", name):
        draft.unkept[f"volumes.{name or path}"] = "a volume has a name, and the nodes list its directory"
        return
    draft.put("volumes", [*draft.job.get("volumes", []), {"name": name, "mountPath": path}], "volumes")


def _gpus(words: Any, at: str, draft: JobDraft) -> None:
    """Read GPUs such as "H100:8", "A100,H100:2", "24GB..:1..2", 8, {name, count, memory}; a list is one of several models."""
    if words is None:
        return
    if isinstance(words, dict):
        names = words.get("name") or []
        parts = [
            ",".join(names if isinstance(names, list) else [str(names)]),
            str(words.get("memory") or ""),
            str(words.get("count", 1)),
        ]
        words = ":".join(part for part in parts if part)
    texts = [str(each) for each in words] if isinstance(words, list) else [str(words)]
    models: list[str] = []
    for part in (part.strip() for text in texts for part in text.split(":")):
        if re.fullmatch(r"\d+(?:\.\.\d*)?", part):
            _put_resource(GPU, int(part.partition(".")[0]), at, draft)
            if ".." in part:
                draft.note(f"{at}: {part} GPUs are taken as {part.partition('.')[0]}, the fewest")
        elif match := re.fullmatch(r"(\d+)\s*GB?(?:\.\.(?:\d+GB?)?)?", part, re.IGNORECASE):
            draft.put("gpu", {**draft.job.get("gpu", {}), "memory": f"{match[1]}G"}, at)
        elif part.lower() not in ("", "nvidia", "amd", "tpu"):
            models += [name.strip() for name in part.split(",")]
    if GPU not in draft.job.get("resources", {}):
        _put_resource(GPU, 1, at, draft)
    if models:
        names, memory_gb = _sized(models)
        sizes = {"memory": f"{memory_gb}G"} if memory_gb else {}
        draft.put("gpu", {**draft.job.get("gpu", {}), **sizes, "model": names[0] if len(names) == 1 else names}, at)


def _sized(models: list[str]) -> tuple[list[str], int]:
    """(names without their memory, the least of that in GB): SkyPilot calls a GPU `A100-80GB`, whose product is NVIDIA-A100-SXM4-80GB."""
    found = [re.fullmatch(r"(.+?)(?:-(\d+)GB)?", model) for model in models]
    sizes = [int(each[2]) for each in found if each is not None and each[2]]
    names = list(dict.fromkeys(each[1] for each in found if each is not None))
    return names, min(sizes) if len(sizes) == len(models) else 0


def _amounts(cpu: Any, memory: Any, shm: Any, draft: JobDraft) -> None:
    """Read amounts such as 4, "4+", "8..", "64GB..128GB" (plain memory is GB): the least of them is asked for."""
    for word, value, at in (
        ("cpu", cpu, "resources.cpus"),
        ("memory", memory, "resources.memory"),
        ("shm", shm, "resources.shm_size"),
    ):
        if value is None:
            continue
        match = re.match(r"(?:x86:|arm:)?(\d+(?:\.\d+)?)\s*(MB|GB|TB|M|G|T)?(.*)", str(value), re.IGNORECASE)
        if match is None or (match[3] not in ("", "+") and not match[3].startswith("..")):
            draft.unkept[at] = f'expected an amount such as 8, "8+" or "64GB", found "{value}"'
            continue
        unit = "" if word == "cpu" else (match[2] or "G")[0].upper()
        _put_resource(word, f"{match[1]}{unit}", at, draft)


def _put_resource(word: str, value: Any, at: str, draft: JobDraft) -> None:
    draft.put("resources", {**draft.job.get("resources", {}), word: value}, at)
