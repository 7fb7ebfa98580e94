"""The view of storage: classes, volumes and datasets, with the targets of rights on them."""

import msgspec

from fairlead_rights.access_list import Target
from fairlead_schemas.policies.storage import Backend, StorageWordError, parse_owner
from fairlead_schemas.wire import events as ev


class StorageClassRow(msgspec.Struct, frozen=True):
    """Class of storage; `StorageClassSet` defines the fields."""

    name: str
    backend: Backend
    volume_bytes_max: int
    user_bytes_max: int


class StoredRow(msgspec.Struct, frozen=True):
    """Volume, or version of a dataset: whose it is, and since when."""

    name: str
    #: "user:ann", "project:llm" or "queue:research"; "" once the queue is gone.
    owner: str
    by: str
    at_ns: int
    #: Sequence of the event that made it.
    sequence: int
    #: Of a volume.
    storage_class: str = ""
    quota_bytes: int = 0
    uid: int = 0
    #: Of a dataset.
    digest: str = ""
    size_bytes: int = 0
    files: int = 0
    retired: bool = False


class StorageRows(msgspec.Struct):
    """All rows, for a snapshot."""

    classes: list[StorageClassRow]
    volumes: list[StoredRow]
    datasets: list[StoredRow]


class StorageView:
    """Classes, volumes and datasets by name."""

    def __init__(self) -> None:
        self.classes: dict[str, StorageClassRow] = {}
        self.volumes: dict[str, StoredRow] = {}
        #: {"imagenet@1": version}
        self.datasets: dict[str, StoredRow] = {}
        #: Derived: {name of a dataset: owner of all its versions}
        self._dataset_owners: dict[str, str] = {}
        self.handlers = {
            ev.StorageClassSet: self._set_class,
            ev.StorageClassRemoved: self._remove_class,
            ev.VolumeCreated: self._create,
            ev.VolumeResized: self._resize,
            ev.VolumeDeleted: self._delete,
            ev.DatasetAdded: self._add,
            ev.DatasetRetired: self._retire,
            ev.QueueRemoved: self._leave_queue,
        }

    def target(self, name: str) -> Target | None:
        """Return the target of a volume or dataset without its pool; None where there is none of the name."""
        row = self.volumes.get(name)
        owner = row.owner if row is not None else self._dataset_owners.get(name)
        return None if owner is None else owned_target(owner, name)

    def rows(self) -> StorageRows:
        """Return all rows."""
        return StorageRows([*self.classes.values()], [*self.volumes.values()], [*self.datasets.values()])

    def fill(self, rows: StorageRows) -> None:
        """The inverse of `rows`."""
        self.classes = {row.name: row for row in rows.classes}
        self.volumes = {row.name: row for row in rows.volumes}
        self.datasets = {row.name: row for row in rows.datasets}
        self._dataset_owners = {row.name.partition("@")[0]: row.owner for row in rows.datasets}

    def _set_class(self, event: ev.StorageClassSet, _seq: int, _at_ns: int) -> None:
        self.classes[event.name] = StorageClassRow(
            event.name, event.backend, event.volume_bytes_max, event.user_bytes_max
        )

    def _remove_class(self, event: ev.StorageClassRemoved, _seq: int, _at_ns: int) -> None:
        self.classes.pop(event.name, None)

    def _create(self, event: ev.VolumeCreated, seq: int, at_ns: int) -> None:
        self.volumes[event.volume] = StoredRow(
            event.volume, event.owner, event.by, at_ns, seq, event.storage_class, event.quota_bytes, event.uid
        )

    def _resize(self, event: ev.VolumeResized, _seq: int, _at_ns: int) -> None:
        row = self.volumes[event.volume]
        self.volumes[event.volume] = msgspec.structs.replace(row, quota_bytes=event.quota_bytes)

    def _delete(self, event: ev.VolumeDeleted, _seq: int, _at_ns: int) -> None:
        del self.volumes[event.volume]

    def _add(self, event: ev.DatasetAdded, seq: int, at_ns: int) -> None:
        owner = self._dataset_owners.setdefault(event.dataset.partition("@")[0], event.owner)
        self.datasets[event.dataset] = StoredRow(
            event.dataset,
            owner,
            event.by,
            at_ns,
            seq,
            digest=event.digest,
            size_bytes=event.size_bytes,
            files=event.files,
        )

    def _retire(self, event: ev.DatasetRetired, _seq: int, _at_ns: int) -> None:
        self.datasets[event.dataset] = msgspec.structs.replace(self.datasets[event.dataset], retired=True)

    def _leave_queue(self, event: ev.QueueRemoved, _seq: int, _at_ns: int) -> None:
        """A removed queue owns nothing: what it had is the cluster's admins'."""
        owner = f"queue:{event.path}"
        for table in (self.volumes, self.datasets):
            for name, row in [*table.items()]:
                if row.owner == owner:
                    table[name] = msgspec.structs.replace(row, owner="")
        self._dataset_owners = {name: "" if of == owner else of for name, of in self._dataset_owners.items()}


def owned_target(owner: str, volume: str = "") -> Target:
    """Return the target of what belongs to an owner, without its queue's pool; the cluster for text that names no owner."""
    try:
        kind, name = parse_owner(owner)
    except StorageWordError:
        return Target(volume=volume)
    return Target(
        queue=name if kind == "queue" else "",
        project=name if kind == "project" else "",
        volume=volume,
        owner=name if kind == "user" else "",
    )
