"""Storage in one simulated world, where a test asks for it: commands about classes, volumes and datasets, and books that judge the answers.

A quarter of the commands name what does not exist, several of a message want the same name or the rest of one bound, and queues come
and go under the volumes that they own. The books share no code with the storage service.
"""

import asyncio
from collections import Counter
from random import Random
from typing import NamedTuple

from fairlead_replay.sim.context import SimContext
from fairlead_replay.sim.workload import LEAVES, People
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit

WRITER = "storage"
NAMES = ("data", "scratch", "set", "ckpt")
OWNERS = ("user:p1", "user:p2", "project:llm", "queue:gone", *(f"queue:{leaf}" for leaf in LEAVES))
CLASSES = ("shared", "fast")
GIB = 2**30
#: Of all volumes of one user in a class.
USER_GIB = 10


class VolumesPlan(NamedTuple):
    """Habits of one world: seconds at which a message of commands is sent, and the commands of each."""

    moments: list[float]
    at_once: tuple[int, ...]


def plan(seed: int, until_s: float) -> VolumesPlan | None:
    """Return the plan of this seed."""
    rng = Random(f"storage {seed}")  # noqa: S311 -- repeatable is what it must be
    moments = sorted(rng.uniform(0.5, until_s) for _ in range(rng.choice((8, 20, 50))))
    return VolumesPlan(moments, rng.choice(((1,), (1, 1, 3), (2, 5, 12))))


def absent(seed: int, until_s: float) -> VolumesPlan | None:
    """Return None: the world has no storage service."""
    return None


class SimulatedVolumes:
    """Carries out the plan of one world."""

    def __init__(self, context: SimContext, planned: VolumesPlan) -> None:
        self.context, self.planned = context, planned
        self.rng = Random(f"storage commands {context.seed}")  # noqa: S311 -- as all of a seed
        self._commands = 0

    async def carry_out(self, people: People) -> None:
        """Set the classes, then send the planned messages until the world's faults are over."""
        await people.send(WRITER, [self._class(name) for name in CLASSES])
        loop = asyncio.get_running_loop()
        for moment in self.planned.moments:
            await asyncio.sleep(max(0.0, moment - loop.time()))
            if self.context.faults.quiet:
                return
            await people.send(WRITER, [self._draw() for _ in range(self.rng.choice(self.planned.at_once))])

    def _draw(self) -> cmd.StorageCommand:
        draw, name = self.rng.random(), self.rng.choice(NAMES)
        if draw < 0.4:
            return cmd.CreateVolume(
                id=self._id(),
                volume=name,
                owner=self.rng.choice(OWNERS),
                storage_class=self.rng.choice((*CLASSES, "none")),
                quota_bytes=self.rng.randint(0, USER_GIB) * GIB,
            )
        if draw < 0.55:
            return cmd.ResizeVolume(id=self._id(), volume=name, quota_bytes=self.rng.randint(1, 2 * USER_GIB) * GIB)
        if draw < 0.75:
            return cmd.DeleteVolume(id=self._id(), volume=name)
        dataset = f"{name}@{self.rng.randint(1, 3)}"
        if draw < 0.87:
            digest = f"sha256:{self.rng.choice('ab') * 64}"
            return cmd.AddDataset(
                id=self._id(), dataset=dataset, owner=self.rng.choice(OWNERS), digest=digest, size_bytes=5, files=1
            )
        if draw < 0.95:
            return cmd.RetireDataset(id=self._id(), dataset=dataset)
        if draw < 0.98:
            return self._class(self.rng.choice(CLASSES))
        return cmd.RemoveStorageClass(id=self._id(), name=self.rng.choice(CLASSES))

    def _class(self, name: str) -> cmd.SetStorageClass:
        backend = "ext4-image" if name == "fast" else "directory"
        return cmd.SetStorageClass(id=self._id(), name=name, backend=backend, user_bytes_max=USER_GIB * GIB)

    def _id(self) -> str:
        self._commands += 1
        return f"v{self._commands}"


class StorageBooks:
    """Books of volumes and datasets."""

    def __init__(self) -> None:
        #: {volume: (class, owner, quota)}
        self.volumes: dict[str, tuple[str, str, int]] = {}
        #: {dataset: True until it is retired}
        self.datasets: dict[str, bool] = {}
        self.answered: dict[str, int] = {}
        #: {type: events}
        self.counts: Counter[str] = Counter()

    def take(self, sequence: int, commit: Commit) -> str:
        """Book a commit. Returns a description of the first error, "" if there is none."""
        for event in commit.events:
            if isinstance(event, ev.QueueRemoved):
                self._leave(f"queue:{event.path}")
            if commit.writer != WRITER:
                continue
            self.counts[type(event).__name__] += 1
            if event.cause.startswith("cmd:") and self.answered.setdefault(event.cause, sequence) != sequence:
                return f"I3: {event.cause} was answered at sequence {self.answered[event.cause]} already"
            if wrong := self._take(event):
                return f"{type(event).__name__}: {wrong}"
        return ""

    def _leave(self, owner: str) -> None:
        for name, (kind, of, quota) in self.volumes.items():
            if of == owner:
                self.volumes[name] = kind, "", quota

    def _take(self, event: ev.Event) -> str:
        match event:
            case ev.VolumeCreated():
                if event.volume in self.volumes or any(each.startswith(f"{event.volume}@") for each in self.datasets):
                    return f"the name {event.volume} is taken"
                self.volumes[event.volume] = event.storage_class, event.owner, event.quota_bytes
                return self._beyond(event.volume)
            case ev.VolumeResized():
                if event.volume not in self.volumes:
                    return f"there is no volume {event.volume}"
                kind, owner, before = self.volumes[event.volume]
                self.volumes[event.volume] = kind, owner, event.quota_bytes
                if event.quota_bytes < before:
                    return "an image shrank" if kind == "fast" else ""
                return self._beyond(event.volume) if event.quota_bytes > before else ""
            case ev.VolumeDeleted():
                return "" if self.volumes.pop(event.volume, None) else f"there is no volume {event.volume}"
            case ev.DatasetAdded():
                if event.dataset in self.datasets or event.dataset.partition("@")[0] in self.volumes:
                    return f"{event.dataset} is taken"
                self.datasets[event.dataset] = True
            case ev.DatasetRetired():
                if not self.datasets.get(event.dataset, False):
                    return f"{event.dataset} is no dataset in use"
                self.datasets[event.dataset] = False
            case _:
                pass
        return ""

    def _beyond(self, volume: str) -> str:
        kind, owner, _ = self.volumes[volume]
        total = sum(quota for of, whose, quota in self.volumes.values() if (of, whose) == (kind, owner))
        beyond = owner.startswith("user:") and total > USER_GIB * GIB
        return f"{owner} has {total} bytes in class {kind}" if beyond else ""
