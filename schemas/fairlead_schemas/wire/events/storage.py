"""Events of the storage service: classes of storage, volumes and datasets. The bytes themselves are never in the log."""

from fairlead_schemas.policies.storage import Backend
from fairlead_schemas.wire.events.base import EventBase


class StorageClassSet(EventBase, tag=True, frozen=True, kw_only=True):
    """Volumes may be made in this class from here on, new or with other bounds. What exists stays as it is."""

    name: str
    #: What keeps its volumes; it never changes for a class.
    backend: Backend
    #: Largest quota of one volume; 0: no bound.
    volume_bytes_max: int = 0
    #: Most that all volumes of one user may have as quotas; 0: users have none of their own here.
    user_bytes_max: int = 0
    by: str = ""


class StorageClassRemoved(EventBase, tag=True, frozen=True, kw_only=True):
    """No volume may be made in this class any more; it has none."""

    name: str
    by: str = ""


class VolumeCreated(EventBase, tag=True, frozen=True, kw_only=True):
    """A volume exists, empty. Roles that were given at this name before end here."""

    volume: str
    owner: str  # "user:ann", "project:llm" or "queue:research/vision"
    storage_class: str
    quota_bytes: int
    by: str = ""
    #: User id of its files on disk, one for all volumes of an owner; 0: made before nodes mounted volumes, which they do not mount.
    uid: int = 0


class VolumeResized(EventBase, tag=True, frozen=True, kw_only=True):
    """The quota of a volume is another one."""

    volume: str
    quota_bytes: int
    by: str = ""


class VolumeDeleted(EventBase, tag=True, frozen=True, kw_only=True):
    """A volume is gone, and all roles at it end here. Nodes remove its files; runs that have it keep it until they end."""

    volume: str
    by: str = ""


class DatasetAdded(EventBase, tag=True, frozen=True, kw_only=True):
    """A version of a dataset exists, and its content never changes."""

    dataset: str
    owner: str  # as of a volume; all versions of a name have the same
    digest: str
    size_bytes: int
    files: int
    by: str = ""


class DatasetRetired(EventBase, tag=True, frozen=True, kw_only=True):
    """No job may name this version any more. Its name and version are never used again for another content."""

    dataset: str
    by: str = ""


class StorageCommandRejected(EventBase, tag=True, frozen=True, kw_only=True):
    """A command to the storage service was not carried out (or could not be read; then `digest` names its bytes)."""

    command: str
    code: str
    message: str
    digest: str = ""
    #: As of CommandRejected.
    verb: str = ""
    #: The volume, dataset or class that it names; "" where it names none.
    about: str = ""
