"""Small traces for the player, and the clusters that they are played on."""

from typing import Any

from fairlead_replay.virtual.load import Setting, TraceJob, machines, request_of
from fairlead_schemas.queuefile.settings import PoolEntry, PoolSettings, Preemption, QueueEntry, QueueSettings
from fairlead_schemas.units.timestamps import SECOND_NS


def setting(sequencer: str = "drf", *, nodes: int = 1, gpus: int = 4, **more: Any) -> Setting:
    """Queues a and b on equal nodes, without protection from preemption."""
    queues = QueueSettings(preemption=Preemption(protect_ns=0))
    return Setting(
        nodes=machines(nodes, gpus),
        queues=tuple(QueueEntry(path=path, settings=queues) for path in ("a", "b")),
        pools=(PoolEntry(pool="default", settings=PoolSettings(sequencer=sequencer)),),
        **more,
    )


def job(queue: str, at_s: int, gpus: int, work_s: int, *, on: int = 4, **more: Any) -> TraceJob:
    """A job in whole seconds, for nodes of `on` GPUs."""
    return TraceJob(queue, at_s * SECOND_NS, work_s * SECOND_NS, request_of(gpus, on), **more)


def mixed(count: int = 60) -> list[TraceJob]:
    """Jobs of one GPU to two nodes of 8, some in slices, in two queues."""
    return [
        job(
            "ab"[at % 3 == 0],
            at * 37,
            (1, 2, 8, 16, 4)[at % 5],
            20 + at * 53 % 900,
            on=8,
            slice_ns=at % 4 * 60 * SECOND_NS,
        )
        for at in range(count)
    ]
