"""State of storage: classes, volumes, datasets, and the queues that exist, with their bounds and the conditions that hold after every
commit. Only `apply/handlers.py` changes it.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Self

import msgspec

from fairlead_schemas.policies.storage import Backend

CLASSES_MAX = 100
VOLUMES_MAX = 20_000
#: Versions of datasets, retired ones included: their ids are never used again.
DATASETS_MAX = 20_000
QUOTA_BYTES_MIN = 1 << 20
QUOTA_BYTES_MAX = 1 << 60
DATASET_FILES_MAX = 10_000_000
#: Characters of the reason of a refusal: four hundred of them must fit a commit.
REFUSAL_CHARS_MAX = 200


class StorageClass(msgspec.Struct, frozen=True):
    """Class in which volumes may be made. `StorageClassSet` defines the fields."""

    name: str
    backend: Backend
    volume_bytes_max: int
    user_bytes_max: int


class VolumeRow(msgspec.Struct, frozen=True):
    """Volume that exists."""

    name: str
    #: "user:ann", "project:llm", "queue:research/vision"; "" once the queue is gone: it is the cluster's admins' then.
    owner: str
    storage_class: str
    quota_bytes: int
    #: Sequence of its creation, by which it differs from an earlier volume of the name.
    created: int


class DatasetRow(msgspec.Struct, frozen=True):
    """Version of a dataset."""

    id: str
    digest: str
    size_bytes: int
    files: int
    retired: bool = False


class StorageState:
    """Tables of storage."""

    def __init__(self) -> None:
        self.classes: dict[str, StorageClass] = {}
        self.volumes: dict[str, VolumeRow] = {}
        self.datasets: dict[str, DatasetRow] = {}
        #: {name of a dataset: owner of all its versions}; a name is never free again.
        self.dataset_owners: dict[str, str] = {}
        self.queues: set[str] = set()
        #: {owner that has had a volume: user id of its files}; never given to another, who could then open them. That of a queue that is
        #: gone stands under "queue:PATH#ID".
        self.owner_uids: dict[str, int] = {}
        #: Derived: {(class, owner): sum of the quotas}, {class: its volumes}
        self.quota_bytes: Counter[tuple[str, str]] = Counter()
        self.volume_counts: Counter[str] = Counter()

    def copy(self) -> Self:
        """Return a state that changes by itself; the rows, which never change, are shared."""
        made = type(self)()
        for name, table in vars(self).items():
            setattr(made, name, table.copy())
        return made

    def put_volume(self, volume: VolumeRow) -> None:
        """Add a volume, or replace the one of its name."""
        self.drop_volume(volume.name)
        self.volumes[volume.name] = volume
        self.quota_bytes[volume.storage_class, volume.owner] += volume.quota_bytes
        self.volume_counts[volume.storage_class] += 1

    def drop_volume(self, name: str) -> None:
        """Remove a volume; no effect if there is none."""
        volume = self.volumes.pop(name, None)
        if volume is None:
            return
        key = volume.storage_class, volume.owner
        self.quota_bytes[key] -= volume.quota_bytes
        if not self.quota_bytes[key]:
            del self.quota_bytes[key]
        self.volume_counts[volume.storage_class] -= 1
        if not self.volume_counts[volume.storage_class]:
            del self.volume_counts[volume.storage_class]


def broken(state: StorageState) -> Iterator[str]:
    """Yield a sentence for each condition that does not hold."""
    quota_bytes: Counter[tuple[str, str]] = Counter()
    counts: Counter[str] = Counter()
    for name, volume in state.volumes.items():
        quota_bytes[volume.storage_class, volume.owner] += volume.quota_bytes
        counts[volume.storage_class] += 1
        if name != volume.name or volume.storage_class not in state.classes:
            yield f"volume {name} is of class {volume.storage_class}, which does not exist"
        if volume.owner.startswith("queue:") and volume.owner.removeprefix("queue:") not in state.queues:
            yield f"volume {name} is of {volume.owner}, which does not exist"
    if quota_bytes != state.quota_bytes or counts != state.volume_counts:
        yield "the sums of quotas or volumes are wrong"
    if taken := state.volumes.keys() & state.dataset_owners.keys():
        yield f"names of both a volume and a dataset: {sorted(taken)}"
    if {each.partition("@")[0] for each in state.datasets} != state.dataset_owners.keys():
        yield "datasets and their owners differ in names"
