"""Settings of the agent process, from the environment. Start here to see what can be set.

Further parts:
- labels and taints of a node's admin, from the environment and from the command line;
- grants of a node's admin to jobs, from the environment.

FAIRLEAD_NODE       this node's id (a-z 0-9 _ -; default: made from the host's name)
FAIRLEAD_RUNTIME    process | docker (default process)
DOCKER_HOST         with docker: the socket of this machine's engine (default unix:///var/run/docker.sock)
FAIRLEAD_DEVICES    nvml | simulated | recorded | none | auto, or what a package offers (default auto: NVML where it
                    works, else none)
FAIRLEAD_GPU_FREE_MIB  memory that may be in use on a free GPU (default 64; more where one drives a display)
FAIRLEAD_PROFILE    the machine to play with simulated devices (default dgx-a100)
FAIRLEAD_SIMULATION a file of what simulated devices play: docs/reference/devices.md (default: nothing happens)
FAIRLEAD_RECORDING  the recording that recorded devices replay
FAIRLEAD_SHARE_GRACE_S  seconds that a run may use more GPU memory than its share (default 10)
FAIRLEAD_DATA       directory of the journal and of the runs' files (default ./.fairlead)
FAIRLEAD_ADDRESS    where other ranks of a gang reach this node (default 127.0.0.1)
FAIRLEAD_GANG_NETWORK  bridge | host: what containers of jobs on several nodes join; other machines reach them on the
                    node's own network only (default bridge)
FAIRLEAD_POOL       the pool that this node belongs to (default: none, which is the default pool)
FAIRLEAD_NODE_LABELS, FAIRLEAD_NODE_TAINTS  what else its admin says of it: see below (default none)
FAIRLEAD_RESERVED_CPUS  CPUs kept for the system: a count ("2") or a list ("0-1"): core/cpu_pinning.py (default none)
FAIRLEAD_REQUIRE_USERNS  on | off: refuse a Docker engine that does not remap users (default off)
FAIRLEAD_STORAGE, FAIRLEAD_MOUNTS, FAIRLEAD_VOLUMES, FAIRLEAD_SECRETS  what jobs may have of this node: see below (default nothing)
FAIRLEAD_REGISTRIES  registries that images may come from, as "public, 10.0.0.5:5000, *.example.com" (default public)
FAIRLEAD_OUTPUT_RUNS, FAIRLEAD_OUTPUT_MIB, FAIRLEAD_OUTPUT_DAYS  how much output of ended runs stays here: of the newest runs
                    (200), so many MiB and so many days (0: no bound)
FAIRLEAD_BEAT_S     seconds between beats (default 2)
FAIRLEAD_SAMPLE_S   seconds between samples (default 1)
FAIRLEAD_METRICS    HOST:PORT at which Prometheus finds /metrics, or off (default 127.0.0.1:9400)
FAIRLEAD_HEALTH_S   seconds between looks at the node's health (default 5)
FAIRLEAD_PREFLIGHT_S  seconds that each GPU is tested for before the node takes work (default 5; 0: not at all)
FAIRLEAD_GPU_COUNT  GPUs that there must be (default 0: as many as were ever seen here)
FAIRLEAD_FLOORS     refuse | note: what follows from a driver, toolkit or runc that is too old (default refuse, where GPUs are real)
FAIRLEAD_MEET_NODES  gangs of so many nodes try their network before they start (default 8; 0: never)
FAIRLEAD_DRAINED_HOOK  a program for a node that is drained, such as one that installs a driver: shell/drain_hook.py (default none)
FAIRLEAD_DRAINED_HOOK_S  seconds that it may take (default 3600)
FAIRLEAD_SELF_FENCE_S  silence of the placer after which everything here is stopped (default 60)
FAIRLEAD_FENCE_GRACE_S, FAIRLEAD_FENCE_MARGIN_S  from then to the kill at most, and from the kill to the placer's lease
                    (default 30 each). All three stand on the placer, too.
FAIRLEAD_START_S    seconds from an order to its start, an image's pull included; later it is given up (default 3600)
FAIRLEAD_JOURNAL_RESERVE_MIB  room in FAIRLEAD_DATA that is kept for the journal (default 64; 0: none)

FAIRLEAD_NODE_LABELS  "fairlead/rack=r1,fairlead/block=b2": a later entry counts; it also overrides what the agent finds
FAIRLEAD_NODE_TAINTS  "team=vision:NoSchedule,drill:NoExecute"

The default is no grant.

FAIRLEAD_STORAGE  a TOML (or, named .json, JSON) file: where this node has the cluster's classes of storage, see `StoragePlace`
FAIRLEAD_MOUNTS   a TOML (or, named .json, JSON) file: directories of this node by name, see `NodeMount`
FAIRLEAD_VOLUMES  a directory below which projects may have volumes of their own, made on demand
FAIRLEAD_SECRETS  a directory, of the agent's user alone (0700), with files <project>/<name>
"""

import argparse
import os
import posixpath
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec

from fairlead_agent.core.cpu_pinning import BadReservation, Reserved, parse_reserved
from fairlead_agent.core.output_retention import KEEP_ENDED, Keep
from fairlead_agent.core.run_stop import FENCE_GRACE_NS, START_NS
from fairlead_bus.environment_settings import (
    STORAGE,
    BadSetting,
    StoragePlace,
    one_of,
    registries,
    seconds,
    storage_places,
    token,
    whole,
)
from fairlead_schemas.policies.storage import STORAGE_LABEL
from fairlead_schemas.queuefile.settings import POOL_LABEL
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.image_names import Registries
from fairlead_schemas.units.taints import TAINTS_MAX, NodeLabelError, parse_label, parse_taint
from fairlead_schemas.units.timestamps import MINUTE_NS, SECOND_NS

LABELS = "FAIRLEAD_NODE_LABELS"
TAINTS = "FAIRLEAD_NODE_TAINTS"
LABELS_MAX = 64
#: Labels for facts that the agent gets from elsewhere or detects itself, and how to change each.
OWN = {
    POOL_LABEL: "set FAIRLEAD_POOL",
    "fairlead/runtime": "set FAIRLEAD_RUNTIME",
    "fairlead/devices": "set FAIRLEAD_DEVICES",
    "fairlead/simulated": "set FAIRLEAD_DEVICES",
    "fairlead/gpu-injection": "set FAIRLEAD_RUNTIME, or write CDI specifications (nvidia-ctk cdi generate --format=json)",
}


class Admin(NamedTuple):
    """Labels, and taints as an inventory has them, each once."""

    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()


def admin_from_environment(env: Mapping[str, str]) -> Admin:
    """Read and check. Raises BadSetting."""
    labels = dict(_read(env, LABELS, parse_label))
    if len(labels) > LABELS_MAX:
        raise BadSetting(f"{LABELS}: expected at most {LABELS_MAX} labels, found {len(labels)}")
    for key in labels:
        how = f"set {STORAGE}" if key.startswith(STORAGE_LABEL) else OWN.get(key)
        if how is not None:
            raise BadSetting(f'{LABELS}: "{key}" is the agent\'s own; {how}')
    taints = sorted({taint.text for taint in _read(env, TAINTS, parse_taint)})
    if len(taints) > TAINTS_MAX:
        raise BadSetting(f"{TAINTS}: expected at most {TAINTS_MAX} taints, found {len(taints)}")
    return Admin(labels, tuple(taints))


def _read[T](env: Mapping[str, str], name: str, parse: Callable[[str], T]) -> list[T]:
    try:
        return [parse(text.strip()) for text in env.get(name, "").split(",") if text.strip()]
    except NodeLabelError as error:
        raise BadSetting(f"{name}: {error}") from error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The same on a command line, after what the environment says."""
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", help="a label of the node")
    parser.add_argument("--taint", action="append", default=[], metavar="KEY=VALUE:EFFECT", help="a taint of the node")


def with_arguments(env: Mapping[str, str], arguments: Any) -> dict[str, str]:
    """The environment with what the command line adds."""
    values = dict(env)
    for name, texts in ((LABELS, arguments.label), (TAINTS, arguments.taint)):
        if texts:
            values[name] = ",".join([values.get(name, ""), *texts])
    return values


MOUNTS, VOLUMES, SECRETS = "FAIRLEAD_MOUNTS", "FAIRLEAD_VOLUMES", "FAIRLEAD_SECRETS"
#: A job that has one of these paths, or writes below it, has the machine: no mistake in a file may give them
#: away.
NEVER = (
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/etc",
    "/boot",
    "/root",
    "/var/lib/docker",
    "/var/lib/containerd",
)


class NodeMount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A directory of the node that jobs may name."""

    path: str
    #: Jobs may write to it, unless they ask for it read-only.
    writable: bool = False
    #: Projects that may have it; []: all of them.
    projects: list[str] = []


class Grants(NamedTuple):
    """Everything that jobs may have. An empty path: there is none."""

    mounts: Mapping[str, NodeMount] = {}
    volumes: str = ""
    secrets: str = ""
    #: {class of storage: its place}
    storage: Mapping[str, StoragePlace] = {}


def grants_from_environment(env: Mapping[str, str]) -> Grants:
    """Read and check the grants. The mounts' file is read now, and again when the agent restarts. Raises BadSetting."""
    mounts = read_mounts(Path(env[MOUNTS])) if env.get(MOUNTS) else {}
    return Grants(mounts, _directory(env, VOLUMES), _private_directory(env, SECRETS), storage_places(env))


def read_mounts(path: Path) -> dict[str, NodeMount]:
    """A file of mounts. Raises BadSetting naming what is wrong."""
    decode = msgspec.json.decode if path.suffix == ".json" else msgspec.toml.decode
    try:
        mounts = decode(path.read_bytes(), type=dict[str, NodeMount])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadSetting(f"{MOUNTS}: {path} cannot be read: {error}") from error
    for name, mount in mounts.items():
        if not is_token(name):
            raise BadSetting(f'{MOUNTS}: expected names of 1 to 63 of a-z 0-9 _ -, found "{name}"')
        if fault := _host_path_fault(mount.path):
            raise BadSetting(f'{MOUNTS}: {name}: {fault}, found "{mount.path}"')
    return mounts


def _host_path_fault(path: str) -> str:
    if not path.startswith("/") or posixpath.normpath(path) != path or "\0" in path:
        return 'expected the full path of a directory, without "." and ".." parts and without a slash at its end'
    if path == "/" or any(path == never or path.startswith(never + "/") for never in NEVER):
        return f"expected a directory outside of {', '.join(NEVER)}"
    if any(never.startswith(path + "/") for never in NEVER):
        return "expected a directory that does not hold the engine's own"
    return ""


def _directory(env: Mapping[str, str], setting: str) -> str:
    path = env.get(setting, "")
    if path and not (posixpath.isabs(path) and Path(path).is_dir()):
        raise BadSetting(f'{setting}: expected the full path of a directory that is there, found "{path}"')
    return posixpath.normpath(path) if path else ""


def _private_directory(env: Mapping[str, str], setting: str) -> str:
    path = _directory(env, setting)
    if path:
        status = Path(path).stat()
        if status.st_mode & 0o077 or status.st_uid not in (0, os.getuid()):
            raise BadSetting(
                f"{setting}: expected {path} to be of the agent's user and closed to all others (chmod 700 {path}), "
                f"found mode {status.st_mode & 0o777:o} of user {status.st_uid}"
            )
    return path


RuntimeName = Literal["process", "docker"]
GangNetwork = Literal["bridge", "host"]
#: Default address at which an engine listens.
DOCKER_SOCKET = "/var/run/docker.sock"

RESERVED_CPUS = "FAIRLEAD_RESERVED_CPUS"
_TAINT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?(?:=[A-Za-z0-9._-]{1,63})?:(?:NoSchedule|PreferNoSchedule|NoExecute)"
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of the agent process."""

    node: str
    runtime: RuntimeName = "process"
    docker_socket: str = DOCKER_SOCKET
    devices: str = "auto"
    profile: str = "dgx-a100"
    simulation: Path | None = None
    recording: Path | None = None
    share_grace_ns: int = 10 * SECOND_NS
    gpu_free_mib: int = 64
    data: Path = Path(".fairlead")
    address: str = "127.0.0.1"
    gang_network: GangNetwork = "bridge"
    pool: str = ""
    admin: Admin = Admin()
    reserved: Reserved = Reserved()
    require_userns: bool = False
    grants: Grants = Grants()
    registries: Registries = Registries()
    keep: Keep = Keep()
    beat_s: float = 2.0
    sample_s: float = 1.0
    #: Host and port; None: nowhere.
    metrics: tuple[str, int] | None = None
    health_s: float = 5.0
    preflight_s: float = 5.0
    gpu_count: int = 0
    refuses_old: bool = True
    meet_nodes: int = 8
    drained_hook: Path | None = None
    drained_hook_s: float = 3600.0
    desired_s: float = 5.0
    start_ns: int = START_NS
    fence_ns: int = MINUTE_NS
    fence_grace_ns: int = FENCE_GRACE_NS
    fence_margin_ns: int = 30 * SECOND_NS
    reserve_mib: int = 0

    def floors(self, *, real_gpus: bool) -> bool:
        """Return True if versions that are too old keep the node from work."""
        return self.refuses_old and real_gpus

    @property
    def directory(self) -> Path:
        """Directory of this node's journal and run files."""
        return self.data / f"agent-{self.node}"


def from_environment(env: Mapping[str, str]) -> Settings:
    """Read and check. Raises BadSetting."""
    node = env.get("FAIRLEAD_NODE") or re.sub(r"[^a-z0-9_-]", "-", socket.gethostname().lower()).strip("-_")[:63]
    if not is_token(node):
        raise BadSetting(f'FAIRLEAD_NODE: expected 1 to 63 of a-z 0-9 _ -, found "{node}"')
    return Settings(
        node=node,
        runtime=cast(RuntimeName, one_of(env, "FAIRLEAD_RUNTIME", ("process", "docker"), "process")),
        docker_socket=_docker_socket(env),
        devices=env.get("FAIRLEAD_DEVICES") or "auto",
        profile=env.get("FAIRLEAD_PROFILE") or "dgx-a100",
        simulation=_file(env, "FAIRLEAD_SIMULATION"),
        recording=_file(env, "FAIRLEAD_RECORDING"),
        share_grace_ns=int(seconds(env, "FAIRLEAD_SHARE_GRACE_S", 10.0) * SECOND_NS),
        gpu_free_mib=whole(env, "FAIRLEAD_GPU_FREE_MIB", 64, unit="MiB", least=1, most=2**20),
        data=Path(env.get("FAIRLEAD_DATA") or ".fairlead").absolute(),
        address=env.get("FAIRLEAD_ADDRESS") or "127.0.0.1",
        gang_network=cast(GangNetwork, one_of(env, "FAIRLEAD_GANG_NETWORK", ("bridge", "host"), "bridge")),
        pool=token(env, "FAIRLEAD_POOL"),
        admin=admin_from_environment(env),
        reserved=_reserved(env),
        require_userns=one_of(env, "FAIRLEAD_REQUIRE_USERNS", ("on", "off"), "off") == "on",
        grants=grants_from_environment(env),
        registries=registries(env) or Registries(),
        keep=_keep(env),
        beat_s=seconds(env, "FAIRLEAD_BEAT_S", 2.0),
        sample_s=seconds(env, "FAIRLEAD_SAMPLE_S", 1.0),
        metrics=_address(env, "FAIRLEAD_METRICS", "127.0.0.1:9400"),
        health_s=seconds(env, "FAIRLEAD_HEALTH_S", 5.0),
        preflight_s=whole(env, "FAIRLEAD_PREFLIGHT_S", 5, unit="seconds", least=0, most=3600),
        gpu_count=whole(env, "FAIRLEAD_GPU_COUNT", 0, unit="GPUs", least=0, most=256),
        refuses_old=one_of(env, "FAIRLEAD_FLOORS", ("refuse", "note"), "refuse") == "refuse",
        drained_hook=_program(env, "FAIRLEAD_DRAINED_HOOK"),
        drained_hook_s=seconds(env, "FAIRLEAD_DRAINED_HOOK_S", 3600.0),
        meet_nodes=whole(env, "FAIRLEAD_MEET_NODES", 8, unit="nodes", least=0, most=100_000),
        start_ns=int(seconds(env, "FAIRLEAD_START_S", START_NS / SECOND_NS) * SECOND_NS),
        fence_ns=int(seconds(env, "FAIRLEAD_SELF_FENCE_S", 60.0) * SECOND_NS),
        fence_grace_ns=int(seconds(env, "FAIRLEAD_FENCE_GRACE_S", 30.0) * SECOND_NS),
        reserve_mib=whole(env, "FAIRLEAD_JOURNAL_RESERVE_MIB", 64, unit="MiB", least=0, most=2**20),
        fence_margin_ns=int(seconds(env, "FAIRLEAD_FENCE_MARGIN_S", 30.0) * SECOND_NS),
    )


def _keep(env: Mapping[str, str]) -> Keep:
    return Keep(
        whole(env, "FAIRLEAD_OUTPUT_RUNS", KEEP_ENDED, unit="runs", least=1, most=1_000_000),
        whole(env, "FAIRLEAD_OUTPUT_MIB", 0, unit="MiB", least=0, most=2**30) * 2**20,
        whole(env, "FAIRLEAD_OUTPUT_DAYS", 0, unit="days", least=0, most=36500) * 86400.0,
        whole(env, "FAIRLEAD_WORK_MIB", Keep().work_bytes_max >> 20, unit="MiB", least=0, most=2**30) * 2**20,
        whole(env, "FAIRLEAD_OUTPUTS_MIB", Keep().outputs_bytes_max >> 20, unit="MiB", least=0, most=2**30) * 2**20,
    )


def _reserved(env: Mapping[str, str]) -> Reserved:
    try:
        return parse_reserved(env.get(RESERVED_CPUS, "").strip())
    except BadReservation as error:
        raise BadSetting(f"{RESERVED_CPUS}: {error}") from error


def _address(env: Mapping[str, str], name: str, default: str) -> tuple[str, int] | None:
    text = env.get(name) or default
    host, _, port = text.rpartition(":")
    if text == "off":
        return None
    if not host or not port.isdecimal() or int(port) > 65535:
        raise BadSetting(f'{name}: expected HOST:PORT, as 0.0.0.0:9400, or off, found "{text}"')
    return host.strip("[]"), int(port)


def _docker_socket(env: Mapping[str, str]) -> str:
    """Return the path of the engine's socket. Raise BadSetting for an engine on another machine: the agent needs this
    machine's files, devices and processes.
    """
    host = env.get("DOCKER_HOST") or f"unix://{DOCKER_SOCKET}"
    path = host.removeprefix("unix://")
    if path == host or not path.startswith("/"):
        raise BadSetting(f'DOCKER_HOST: expected unix:///PATH of an engine on this machine, found "{host}"')
    return path


def _program(env: Mapping[str, str], name: str) -> Path | None:
    """Return the path of a program, None when it is not set. The program runs as the agent's user, so raise BadSetting
    when other users can write it.
    """
    path = _file(env, name)
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError as error:
        raise BadSetting(f"{name}: expected a program, found none at {path}: {error.strerror}") from error
    if not os.access(path, os.X_OK) or not path.is_file():
        raise BadSetting(f"{name}: expected a file that can be executed, found {path}: chmod +x it")
    if found.st_mode & 0o022 or found.st_uid not in (0, os.geteuid()):
        raise BadSetting(f"{name}: expected a file that only root or the agent's user can write, found {path}")
    return path


def _file(env: Mapping[str, str], name: str) -> Path | None:
    return Path(env[name]).absolute() if env.get(name) else None
