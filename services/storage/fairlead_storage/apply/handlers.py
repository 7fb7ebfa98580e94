"""Table of event handlers for the storage core's state. No rules, no refusals."""

import msgspec

from fairlead_bus.core import EventHandlers, EventPosition, apply_events
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit
from fairlead_storage.state import DatasetRow, StorageClass, StorageState, VolumeRow

WRITER = "storage"


def _class_set(state: StorageState, event: ev.StorageClassSet, at: EventPosition) -> None:
    state.classes[event.name] = StorageClass(event.name, event.backend, event.volume_bytes_max, event.user_bytes_max)


def _class_removed(state: StorageState, event: ev.StorageClassRemoved, at: EventPosition) -> None:
    state.classes.pop(event.name, None)


def _created(state: StorageState, event: ev.VolumeCreated, at: EventPosition) -> None:
    state.put_volume(VolumeRow(event.volume, event.owner, event.storage_class, event.quota_bytes, at.sequence))
    if event.uid:
        state.owner_uids[event.owner] = event.uid


def _resized(state: StorageState, event: ev.VolumeResized, at: EventPosition) -> None:
    state.put_volume(msgspec.structs.replace(state.volumes[event.volume], quota_bytes=event.quota_bytes))


def _deleted(state: StorageState, event: ev.VolumeDeleted, at: EventPosition) -> None:
    state.drop_volume(event.volume)


def _added(state: StorageState, event: ev.DatasetAdded, at: EventPosition) -> None:
    state.datasets[event.dataset] = DatasetRow(event.dataset, event.digest, event.size_bytes, event.files)
    state.dataset_owners.setdefault(event.dataset.partition("@")[0], event.owner)


def _retired(state: StorageState, event: ev.DatasetRetired, at: EventPosition) -> None:
    state.datasets[event.dataset] = msgspec.structs.replace(state.datasets[event.dataset], retired=True)


def _queue_configured(state: StorageState, event: ev.QueueConfigured, at: EventPosition) -> None:
    state.queues.add(event.path)


def _queue_removed(state: StorageState, event: ev.QueueRemoved, at: EventPosition) -> None:
    """Take what the queue owned from it: a new queue of the name must not have it by accident."""
    state.queues.discard(event.path)
    owner = f"queue:{event.path}"
    for volume in [each for each in state.volumes.values() if each.owner == owner]:
        state.put_volume(msgspec.structs.replace(volume, owner=""))
    if owner in state.owner_uids:  # its volumes keep the id, and a new queue of the name gets another
        uid = state.owner_uids.pop(owner)
        state.owner_uids[f"{owner}#{uid}"] = uid
    for name in [name for name, of in state.dataset_owners.items() if of == owner]:
        state.dataset_owners[name] = ""


HANDLERS: EventHandlers[StorageState] = {
    ev.StorageClassSet: _class_set,
    ev.StorageClassRemoved: _class_removed,
    ev.VolumeCreated: _created,
    ev.VolumeResized: _resized,
    ev.VolumeDeleted: _deleted,
    ev.DatasetAdded: _added,
    ev.DatasetRetired: _retired,
    ev.QueueConfigured: _queue_configured,
    ev.QueueRemoved: _queue_removed,
}


def fold(state: StorageState, seq: int, commit: Commit) -> None:
    """Fold one commit of any writer: others' queues own volumes."""
    apply_events(HANDLERS, state, seq, commit)
