"""Settings from the environment, read and checked in one way; an invalid setting is refused by name.

An empty value counts as not given. Each module lists the settings that it reads.
"""

import os
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from fairlead_schemas.policies.storage import Backend
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.image_names import Registries, parse_registries


class BadSetting(ValueError):
    """A setting is out of its range; the message names it, what was expected and what was found."""


def one_of(env: Mapping[str, str], name: str, allowed: Sequence[str], default: str) -> str:
    """Return one of a few allowed words, in lower case whatever the environment has. Raises BadSetting."""
    text = env.get(name) or default
    if text.lower() not in allowed:
        raise BadSetting(f'{name}: expected one of {", ".join(allowed)}, found "{text}"')
    return text.lower()


def token(env: Mapping[str, str], name: str, default: str = "") -> str:
    """A word that may be part of a subject or a file name. Raises BadSetting."""
    text = env.get(name)
    if not text:
        return default
    if not is_token(text):
        raise BadSetting(f'{name}: expected 1 to 63 of a-z 0-9 _ -, found "{text}"')
    return text


def number(env: Mapping[str, str], name: str, default: float, *, unit: str, below: float = 1e6) -> float:
    """A number above 0, in `unit`. Raises BadSetting."""
    text = env.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < below:
        raise BadSetting(f'{name}: expected {unit} above 0 and below {below:.0f}, found "{text}"')
    return value


def seconds(env: Mapping[str, str], name: str, default: float) -> float:
    """Seconds above 0. Raises BadSetting."""
    return number(env, name, default, unit="seconds")


def whole(env: Mapping[str, str], name: str, default: int, *, unit: str, least: int, most: int) -> int:
    """A whole number from `least` to `most`, in `unit`. Raises BadSetting."""
    text = env.get(name) or str(default)
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise BadSetting(f'{name}: expected a whole number of {unit} from {least} to {most}, found "{text}"')
    return value


def registries(env: Mapping[str, str]) -> Registries | None:
    """FAIRLEAD_REGISTRIES: the registries that images may come from; None where it is not given. Raises BadSetting."""
    text = env.get("FAIRLEAD_REGISTRIES")
    if not text:
        return None
    try:
        return parse_registries(text)
    except ValueError as error:
        raise BadSetting(f"FAIRLEAD_REGISTRIES: {error}") from error


STORAGE = "FAIRLEAD_STORAGE"
#: Where no volumes are.
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/boot", "/run", "/var/run", "/var/lib/docker", "/var/lib/containerd")


class StoragePlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Place of a class of storage on a machine: a directory of the process's user alone, with a directory or an image for each volume."""

    path: str
    #: That of the class; a class with another one is not used here.
    backend: Backend


def storage_places(env: Mapping[str, str]) -> dict[str, StoragePlace]:
    """FAIRLEAD_STORAGE: a TOML (or, named .json, JSON) file of the places of classes on this machine; {} without it. Raises BadSetting."""
    if not env.get(STORAGE):
        return {}
    path = Path(env[STORAGE])
    decode = msgspec.json.decode if path.suffix == ".json" else msgspec.toml.decode
    try:
        places = decode(path.read_bytes(), type=dict[str, StoragePlace])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadSetting(f"{STORAGE}: {path} cannot be read: {error}") from error
    for name, place in places.items():
        if not is_token(name):
            raise BadSetting(f'{STORAGE}: expected names of 1 to 63 of a-z 0-9 _ -, found "{name}"')
        if fault := _place_fault(place.path):
            raise BadSetting(f'{STORAGE}: {name}: expected {fault}, found "{place.path}"')
    return places


def _place_fault(path: str) -> str:
    """Return what is expected of the place of a class where it is otherwise; "" where it is so."""
    if not posixpath.isabs(path) or posixpath.normpath(path) != path or path == "/" or not Path(path).is_dir():
        return "the full path of a directory that is there"
    if any(f"{path}/".startswith(f"{system}/") for system in _SYSTEM):
        return f"a directory outside of {', '.join(_SYSTEM)}"
    status = Path(path).stat()
    if status.st_mode & 0o077 or status.st_uid not in (0, os.getuid()):
        return f"a directory of this process's user that is closed to all others (chmod 700 {path})"
    return ""
