"""The storage core's state as canonical bytes, and back: equal states have equal bytes."""

import msgspec

from fairlead_bus.snapshot_codec import SnapshotCodec
from fairlead_storage.state import DatasetRow, StorageClass, StorageState, VolumeRow

#: Increase when the meaning of a field changes.
VERSION = 1


class StorageSnapshot(msgspec.Struct, frozen=True):
    """All rows, sorted by their names, with the version of their meaning."""

    v: int
    classes: list[StorageClass]
    volumes: list[VolumeRow]
    datasets: list[DatasetRow]
    #: (name of a dataset, owner of all its versions)
    dataset_owners: list[tuple[str, str]]
    queues: list[str]
    #: (owner, user id of its volumes' files)
    owner_uids: list[tuple[str, int]] = []


_CODEC = SnapshotCodec(StorageSnapshot, VERSION)
SCHEMA = _CODEC.schema


def dump(state: StorageState) -> bytes:
    """Canonical bytes of the state."""
    return _CODEC.encode(
        StorageSnapshot(
            VERSION,
            [row for _, row in sorted(state.classes.items())],
            [row for _, row in sorted(state.volumes.items())],
            [row for _, row in sorted(state.datasets.items())],
            sorted(state.dataset_owners.items()),
            sorted(state.queues),
            sorted(state.owner_uids.items()),
        )
    )


def load(data: bytes) -> StorageState:
    """The state that was dumped. Raises msgspec.MsgspecError."""
    document = _CODEC.decode(data)
    if document.v != VERSION:
        raise msgspec.ValidationError(f"storage snapshot has version {document.v}, this reader knows {VERSION}")
    state = StorageState()
    state.classes = {row.name: row for row in document.classes}
    for row in document.volumes:
        state.put_volume(row)
    state.datasets = {row.id: row for row in document.datasets}
    state.dataset_owners = dict(document.dataset_owners)
    state.queues = set(document.queues)
    state.owner_uids = dict(document.owner_uids)
    return state
