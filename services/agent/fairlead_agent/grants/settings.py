"""What a node's admin grants to jobs, from the environment. Nothing, unless said.

FAIRLEAD_MOUNTS   a TOML (or, named .json, JSON) file: directories of this node by name, see `NodeMount`
FAIRLEAD_VOLUMES  a directory below which projects may have volumes of their own, made on demand
FAIRLEAD_SECRETS  a directory, of the agent's user alone (0700), with files <project>/<name>
"""

import os
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from fairlead_bus.settings import BadSetting
from fairlead_schemas.ids import is_token

MOUNTS, VOLUMES, SECRETS = "FAIRLEAD_MOUNTS", "FAIRLEAD_VOLUMES", "FAIRLEAD_SECRETS"
#: Whoever has one of these, or writes below it, has the machine: no mistake in a file shall give them away.
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


def from_environment(env: Mapping[str, str]) -> Grants:
    """Read and check; the mounts' file is read now, and again when the agent is started anew. Raises BadSetting."""
    mounts = read_mounts(Path(env[MOUNTS])) if env.get(MOUNTS) else {}
    return Grants(mounts, _directory(env, VOLUMES), _private_directory(env, SECRETS))


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
