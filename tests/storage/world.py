"""A world of the storage core: commands go in, events come out and are folded, and every state is held against the invariants, a
snapshot and a twin that only folds.
"""

from typing import Any

from fairlead_bus.core import Input
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit, decode_commit, encode_commit
from fairlead_storage.core import StorageCore
from fairlead_storage.state import broken

GIB = 2**30


class StorageWorld:
    """One core and its log, with a class `shared` (directory) and a class `fast` (ext4-image), and the queue `research`."""

    def __init__(self) -> None:
        self.core, self.twin = StorageCore(), StorageCore()
        self.sequence = 0
        self._commands = 0
        self.queue_events(ev.QueueConfigured(cause="c", path="research", settings=None))
        for name, backend in (("shared", "directory"), ("fast", "ext4-image")):
            self.send(self.make(cmd.SetStorageClass, name=name, backend=backend, user_bytes_max=10 * GIB))

    def make(self, kind: type[Any], **fields: Any) -> Any:
        """Return a command with an id of its own."""
        self._commands += 1
        return kind(id=f"c{self._commands}", **fields)

    def volume(self, name: str, owner: str = "queue:research", gib: int = 1, storage_class: str = "shared") -> Any:
        """Return the command that makes a volume."""
        return self.make(cmd.CreateVolume, volume=name, owner=owner, storage_class=storage_class, quota_bytes=gib * GIB)

    def dataset(self, dataset: str, owner: str = "queue:research", digit: str = "a") -> Any:
        """Return the command that adds a version of a dataset."""
        digest = f"sha256:{digit * 64}"
        return self.make(cmd.AddDataset, dataset=dataset, owner=owner, digest=digest, size_bytes=5, files=1)

    def send(self, *commands: Any) -> list[Any]:
        """Decide these commands in one message, fold the commit, and return its events."""
        before = self.core.snapshot()
        decision = self.core.decide([Input("CMD", self.sequence + 1, list(commands))], 1_000)
        assert self.core.snapshot() == before, "a decision changed the state"
        assert [each.cause for each in decision.events] == [f"cmd:{each.id}" for each in commands]
        self._fold("storage", decision.events, decision.cursors)
        return decision.events

    def queue_events(self, *events: Any) -> None:
        """Fold a commit of the queue."""
        self._fold("queue", list(events), {})

    def _fold(self, writer: str, events: list[Any], cursors: dict[str, int]) -> None:
        self.sequence += 1
        commit = Commit(
            v=VERSION,
            writer=writer,
            n=self.sequence,
            basis=self.sequence - 1,
            at_ns=1_000,
            cursors=cursors,
            prev=GENESIS,
            events=events,
        )
        stored = decode_commit(encode_commit(commit))
        for core in (self.core, self.twin):
            core.evolve(self.sequence, stored)
        assert list(broken(self.core.state)) == []
        data = self.core.snapshot()
        restored = StorageCore.restore(data)
        assert data == self.twin.snapshot() == restored.snapshot()
        assert list(broken(restored.state)) == []


def refused(events: list[Any]) -> tuple[str, str]:
    """Return code and message of the only event, which is a refusal."""
    (event,) = events
    assert isinstance(event, ev.StorageCommandRejected), event
    return event.code, event.message
