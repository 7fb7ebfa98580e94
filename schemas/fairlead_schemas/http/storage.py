"""Documents of the HTTP API about storage: classes, volumes and datasets. Times are RFC 3339, UTC."""

import msgspec

from fairlead_schemas.policies.storage import Backend, Enforcement


class StorageClassInfo(msgspec.Struct, kw_only=True):
    """Class of storage, in which volumes are made."""

    name: str
    backend: Backend
    #: "enforced": a write beyond a volume's quota fails; "counted": it is seen, and nothing stops it.
    quota: Enforcement
    #: Largest quota of one volume, and of all volumes of one user together; null for no bound, 0: users have none.
    volume_bytes_max: int | None
    user_bytes_max: int
    sequence: int


class VolumeInfo(msgspec.Struct, kw_only=True, rename={"storage_class": "class"}):
    """Volume, and what the caller may do with it."""

    name: str
    #: "user:<id>", "project:<name>", "queue:<path>"; "cluster" once its queue is gone. The name is for people.
    owner: str
    owner_name: str
    storage_class: str
    quota: Enforcement
    quota_bytes: int
    created_at: str
    created_by: str
    #: Verbs of the caller on it, such as volume:write.
    may: list[str]
    sequence: int


class DatasetInfo(msgspec.Struct, kw_only=True):
    """Version of a dataset."""

    id: str
    name: str
    version: str
    owner: str
    owner_name: str
    #: SHA-256 of its directory's root piece, as job files write it after `sync`.
    digest: str
    size_bytes: int
    files: int
    retired: bool
    added_at: str
    added_by: str
    sequence: int


class StorageChanged(msgspec.Struct, kw_only=True):
    """Answer to a removal: what is gone."""

    name: str
    sequence: int


class UploadInfo(msgspec.Struct, kw_only=True):
    """Upload of a file into a volume that is not whole yet: the next byte is that at `offset`."""

    id: str
    path: str
    length: int
    offset: int
