"""The idle core's state as canonical bytes, and back: equal states have equal bytes."""

import msgspec

from fairlead_bus.snapshot_codec import SnapshotCodec
from fairlead_schemas.policies.idle import IdlePolicy
from fairlead_telemetry.idle.state import IdleState, JobOwner, TrackedRun

#: Increase when the meaning of a field changes.
VERSION = 1


class IdleSnapshot(msgspec.Struct, frozen=True, rename={"owners": "births"}):
    """All of it, sorted."""

    v: int
    policies: list[tuple[str, tuple[IdlePolicy, ...]]]
    owners: list[tuple[str, JobOwner]]
    runs: list[TrackedRun]


_CODEC = SnapshotCodec(IdleSnapshot, VERSION)
SCHEMA = _CODEC.schema


def dump(state: IdleState) -> bytes:
    """Canonical bytes of the state."""
    runs = [run for _, run in sorted(state.runs.items())]
    return _CODEC.encode(IdleSnapshot(VERSION, sorted(state.policies.items()), sorted(state.owners.items()), runs))


def load(data: bytes) -> IdleState:
    """The state that was dumped. Raises msgspec.MsgspecError."""
    document = _CODEC.decode(data)
    if document.v != VERSION:
        raise msgspec.ValidationError(f"idle snapshot has version {document.v}, this reader knows {VERSION}")
    state = IdleState()
    state.policies, state.owners = dict(document.policies), dict(document.owners)
    state.runs = {run.job: run for run in document.runs}
    return state
