"""Words of storage: backends of classes with what each promises about quotas, owners of volumes, and ids of datasets.

A class is a place for volumes that the cluster's admins name; nodes know by a map of their own where it is. Whether a volume can
grow beyond its quota depends on the backend alone: `enforced` means that a write beyond it fails, `counted` that it is seen.
"""

import re
from typing import Literal, NamedTuple

from fairlead_schemas.units.ids import is_queue_path, is_token

Backend = Literal["directory", "ext4-image", "xfs-project", "nfs", "cephfs"]
Enforcement = Literal["enforced", "counted"]

#: A directory knows no quota, and what an NFS server does about one is not known here.
ENFORCEMENT: dict[Backend, Enforcement] = {
    "directory": "counted",
    "ext4-image": "enforced",
    "xfs-project": "enforced",
    "nfs": "counted",
    "cephfs": "enforced",
}
#: Backends whose volumes only grow: a mounted ext4 cannot be made smaller.
GROWS_ONLY: frozenset[Backend] = frozenset({"ext4-image"})

#: Backends whose volumes are on one node at a time: two kernels that write to one file system destroy it.
ONE_NODE: frozenset[Backend] = frozenset({"ext4-image"})
#: User ids of the owners of volumes, on disk: above those that shadow and systemd give to people and containers.
OWNER_UID_FIRST, OWNER_UID_LAST = 2_000_000_000, 2_147_483_000
#: Label of a node that mounts volumes of a class, with the class's backend as its value.
STORAGE_LABEL = "fairlead/storage."

OwnerKind = Literal["user", "project", "queue"]
USER_CHARS_MAX = 128
_FORMS = '"user:NAME", "project:NAME" or "queue:PATH"'


class StorageWordError(ValueError):
    """A text about storage cannot be read. The message states what was expected and found."""


def volume_variable(name: str) -> str:
    """Return the variable of a run with the path of a volume: FAIRLEAD_VOLUME_MY_DATA for my-data."""
    return "FAIRLEAD_VOLUME_" + name.upper().replace("-", "_")


def volume_directory(name: str, made: int) -> str:
    """Return the name of a volume's directory in the place of its class."""
    return f"{made}-{name}"


class VolumeOwner(NamedTuple):
    """Owner of a volume or dataset: a user, a project, or a queue with all queues below it."""

    kind: OwnerKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def parse_owner(text: str) -> VolumeOwner:
    """Read "user:ann", "project:llm" or "queue:research/vision". Raises StorageWordError."""
    kind, _, name = text.partition(":")
    if kind == "user" and 0 < len(name) <= USER_CHARS_MAX and name.isprintable():
        return VolumeOwner("user", name)
    if kind == "project" and is_token(name):
        return VolumeOwner("project", name)
    if kind == "queue" and is_queue_path(name):
        return VolumeOwner("queue", name)
    raise StorageWordError(f'expected {_FORMS}, found "{text[:80]}"')


class DatasetId(NamedTuple):
    """Name and version of a dataset, as in "imagenet@2012.1"."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z", re.ASCII)


def parse_dataset(text: str) -> DatasetId:
    """Read "imagenet@2012.1". Raises StorageWordError."""
    name, _, version = text.partition("@")
    if not is_token(name) or not _VERSION.match(version):
        raise StorageWordError(
            f'expected NAME@VERSION, of a-z 0-9 _ - and of letters, digits and . _ -, found "{text[:80]}"'
        )
    return DatasetId(name, version)
