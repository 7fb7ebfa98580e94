"""Decisions on commands, one by one. Every command leads to exactly one event that names it.

Rights are no matter of this service: the gateway checks them, and replay checks every event again (invariant I13).
"""

from collections.abc import Callable
from typing import Any

from fairlead_bus.core import CommandRefusal, CommitDraft, EventPosition, encoded_bytes, rejected, undecodable
from fairlead_schemas.policies.storage import (
    GROWS_ONLY,
    OWNER_UID_FIRST,
    OWNER_UID_LAST,
    StorageWordError,
    VolumeOwner,
    parse_dataset,
    parse_owner,
)
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.quantities import format_memory
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.events import StorageEvent
from fairlead_schemas.wire.trees import parse_tree_name
from fairlead_storage.apply.handlers import HANDLERS as EFFECTS
from fairlead_storage.state import (
    CLASSES_MAX,
    DATASET_FILES_MAX,
    DATASETS_MAX,
    QUOTA_BYTES_MAX,
    QUOTA_BYTES_MIN,
    REFUSAL_CHARS_MAX,
    VOLUMES_MAX,
    StorageClass,
    StorageState,
)

MIB = 2**20


class StorageDraft(CommitDraft[StorageState, StorageEvent]):
    """Events decided so far; `state` is a copy with their effects.

    A message may hold several commands, and a later one must see what an earlier one did: two volumes of a name, or a quota that is
    used up twice. So every event is applied at once to a copy of the state, by the handlers that fold it later. The tables hold tens of
    thousands of rows at most and commands are rare, so copying costs less than a second set of rules for what commands could do together.
    """

    __slots__ = ()

    def __init__(self, state: StorageState, now_ns: int) -> None:
        super().__init__(state.copy(), now_ns)

    def record(self, event: StorageEvent) -> None:
        """Emit an event and apply it to the copy."""
        self.emit(event, encoded_bytes(getattr(event, "owner", "")) + encoded_bytes(getattr(event, "by", "")))
        if handler := EFFECTS.get(type(event)):
            handler(self.state, event, EventPosition(0, len(self.events) - 1, self.now_ns))


def decide_command(draft: StorageDraft, command: cmd.StorageCommand | cmd.Undecodable) -> None:
    """Decide one command: carry it out, or record why not."""
    if isinstance(command, cmd.Undecodable):
        draft.emit(undecodable(ev.StorageCommandRejected, command))
        return
    draft.repeat(command.authority)
    answer = HANDLERS[type(command)](draft.state, command, f"cmd:{command.id}")
    if isinstance(answer, CommandRefusal):
        answer = rejected(ev.StorageCommandRejected, command, answer, chars_max=REFUSAL_CHARS_MAX)
    draft.record(answer)
    draft.repeat(None)


# ------------------------------------------------------------------------------- classes


def _set_class(state: StorageState, command: cmd.SetStorageClass, cause: str) -> ev.StorageClassSet | CommandRefusal:
    if not is_token(command.name):
        return _invalid("name", "1 to 63 of a-z 0-9 _ -", command.name)
    known = state.classes.get(command.name)
    if known is None and len(state.classes) >= CLASSES_MAX:
        return CommandRefusal("too_many", f"expected at most {CLASSES_MAX} classes of storage")
    if known is not None and known.backend != command.backend:
        return CommandRefusal(
            "conflict", f"class {known.name} has the backend {known.backend}, which cannot change: make another class"
        )
    for field in ("volume_bytes_max", "user_bytes_max"):
        found: int = getattr(command, field)
        if not 0 <= found <= QUOTA_BYTES_MAX:
            return _invalid(field, f"0 to {_size(QUOTA_BYTES_MAX)}", str(found))
    return ev.StorageClassSet(
        cause=cause,
        name=command.name,
        backend=command.backend,
        volume_bytes_max=command.volume_bytes_max,
        user_bytes_max=command.user_bytes_max,
        by=command.user,
    )


def _remove_class(
    state: StorageState, command: cmd.RemoveStorageClass, cause: str
) -> ev.StorageClassRemoved | CommandRefusal:
    if command.name not in state.classes:
        return _missing("class of storage", command.name)
    if count := state.volume_counts[command.name]:
        return CommandRefusal("conflict", f"class {command.name} has {count} volumes: delete them first")
    return ev.StorageClassRemoved(cause=cause, name=command.name, by=command.user)


# ------------------------------------------------------------------------------- volumes


def _create(state: StorageState, command: cmd.CreateVolume, cause: str) -> ev.VolumeCreated | CommandRefusal:
    name = command.volume
    if not is_token(name):
        return _invalid("volume", "1 to 63 of a-z 0-9 _ -", name)
    owner = _owner_of(state, command.owner)
    if isinstance(owner, CommandRefusal):
        return owner
    kind = state.classes.get(command.storage_class)
    if kind is None:
        known = ", ".join(sorted(state.classes)[:10]) or "none; an admin sets one"
        return CommandRefusal(
            "not_found", f"class: there is no class of storage {command.storage_class[:40]} (known: {known})"
        )
    if name in state.volumes or name in state.dataset_owners:
        return CommandRefusal("conflict", f"volume: the name {name} is taken: choose another one")
    if str(owner) not in state.owner_uids and len(state.owner_uids) > OWNER_UID_LAST - OWNER_UID_FIRST:
        return CommandRefusal("too_many", "owner: no user ids are left for the volumes of another owner")
    if len(state.volumes) >= VOLUMES_MAX:
        return CommandRefusal("too_many", f"expected at most {VOLUMES_MAX} volumes")
    if refusal := _quota_fault(state, kind, owner, command.quota_bytes, held=0):
        return refusal
    return ev.VolumeCreated(
        cause=cause,
        volume=name,
        owner=str(owner),
        storage_class=kind.name,
        quota_bytes=command.quota_bytes,
        by=command.user,
        uid=state.owner_uids.get(str(owner)) or OWNER_UID_FIRST + len(state.owner_uids),
    )


def _resize(state: StorageState, command: cmd.ResizeVolume, cause: str) -> ev.VolumeResized | CommandRefusal:
    volume = state.volumes.get(command.volume)
    if volume is None:
        return _missing("volume", command.volume)
    kind = state.classes[volume.storage_class]
    if command.quota_bytes < volume.quota_bytes and kind.backend in GROWS_ONLY:
        return CommandRefusal(
            "conflict",
            f"quota: a volume of class {kind.name} ({kind.backend}) only grows, and has {_size(volume.quota_bytes)}",
        )
    owner = parse_owner(volume.owner) if volume.owner else None
    if refusal := _quota_fault(state, kind, owner, command.quota_bytes, held=volume.quota_bytes):
        return refusal
    return ev.VolumeResized(cause=cause, volume=volume.name, quota_bytes=command.quota_bytes, by=command.user)


def _delete(state: StorageState, command: cmd.DeleteVolume, cause: str) -> ev.VolumeDeleted | CommandRefusal:
    if command.volume not in state.volumes:
        return _missing("volume", command.volume)
    return ev.VolumeDeleted(cause=cause, volume=command.volume, by=command.user)


def _quota_fault(
    state: StorageState, kind: StorageClass, owner: VolumeOwner | None, quota_bytes: int, *, held: int
) -> CommandRefusal | None:
    """Return the reason for which a volume cannot have this quota. `held`: quota that it has already."""
    if not QUOTA_BYTES_MIN <= quota_bytes <= QUOTA_BYTES_MAX:
        return _invalid("quota", f"{_size(QUOTA_BYTES_MIN)} to {_size(QUOTA_BYTES_MAX)}", str(quota_bytes))
    if quota_bytes <= held:
        return None  # less than it has is never too much
    if kind.volume_bytes_max and quota_bytes > kind.volume_bytes_max:
        return CommandRefusal(
            "too_many", f"quota: a volume of class {kind.name} has at most {_size(kind.volume_bytes_max)}"
        )
    if owner is None or owner.kind != "user":
        return None
    used = state.quota_bytes[kind.name, str(owner)] - held
    if used + quota_bytes > kind.user_bytes_max:
        left = max(0, kind.user_bytes_max - used)
        return CommandRefusal(
            "too_many",
            f"quota: all volumes of a user in class {kind.name} have at most {_size(kind.user_bytes_max)}, "
            f"{_size(left)} are left",
        )
    return None


def _owner_of(state: StorageState, text: str) -> VolumeOwner | CommandRefusal:
    try:
        owner = parse_owner(text)
    except StorageWordError as error:
        return CommandRefusal("invalid", f"owner: {error}")
    if owner.kind == "queue" and owner.name not in state.queues:
        return _missing("queue", owner.name)
    return owner


# ------------------------------------------------------------------------------- datasets


def _add(state: StorageState, command: cmd.AddDataset, cause: str) -> ev.DatasetAdded | CommandRefusal:
    try:
        dataset = parse_dataset(command.dataset)
    except StorageWordError as error:
        return CommandRefusal("invalid", f"dataset: {error}")
    owner = _owner_of(state, command.owner)
    if isinstance(owner, CommandRefusal):
        return owner
    if parse_tree_name(command.digest) is None:
        return _invalid("digest", '"sha256:" and 64 hex digits', command.digest)
    if command.size_bytes < 0 or not 0 < command.files <= DATASET_FILES_MAX:
        return _invalid("files", f"1 to {DATASET_FILES_MAX}", str(command.files))
    if dataset.name in state.volumes:
        return CommandRefusal("conflict", f"dataset: {dataset.name} is a volume: choose another name")
    if state.dataset_owners.get(dataset.name, str(owner)) != str(owner):
        return CommandRefusal("conflict", f"owner: dataset {dataset.name} is of another owner: choose another name")
    if command.dataset in state.datasets:
        return CommandRefusal(
            "conflict", f"dataset: {command.dataset} exists, and its content never changes: add another version"
        )
    if len(state.datasets) >= DATASETS_MAX:
        return CommandRefusal("too_many", f"expected at most {DATASETS_MAX} versions of datasets")
    return ev.DatasetAdded(
        cause=cause,
        dataset=command.dataset,
        owner=str(owner),
        digest=command.digest,
        size_bytes=command.size_bytes,
        files=command.files,
        by=command.user,
    )


def _retire(state: StorageState, command: cmd.RetireDataset, cause: str) -> ev.DatasetRetired | CommandRefusal:
    dataset = state.datasets.get(command.dataset)
    if dataset is None:
        return _missing("dataset", command.dataset)
    if dataset.retired:
        return CommandRefusal("conflict", f"dataset {dataset.id} is retired already")
    return ev.DatasetRetired(cause=cause, dataset=dataset.id, by=command.user)


# ------------------------------------------------------------------------------- words


def _size(count: int) -> str:
    return f"{count} bytes" if count % MIB else format_memory(count // MIB)


def _invalid(field: str, expected: str, found: str) -> CommandRefusal:
    return CommandRefusal("invalid", f'{field}: expected {expected}, found "{found[:40]}"', field)


def _missing(kind: str, name: str) -> CommandRefusal:
    return CommandRefusal("not_found", f"there is no {kind} {name[:80]}")


HANDLERS: dict[type, Callable[[StorageState, Any, str], ev.StorageEvent | CommandRefusal]] = {
    cmd.SetStorageClass: _set_class,
    cmd.RemoveStorageClass: _remove_class,
    cmd.CreateVolume: _create,
    cmd.ResizeVolume: _resize,
    cmd.DeleteVolume: _delete,
    cmd.AddDataset: _add,
    cmd.RetireDataset: _retire,
}
