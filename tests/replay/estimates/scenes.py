"""Small clusters for tests of estimates: a load that is played, and folded by the estimator as it goes."""

from typing import Any

import msgspec

from fairlead_bus.port import Stored
from fairlead_replay.estimates.core import EstimatorCore
from fairlead_replay.virtual.load import BEGIN_NS, Setting, TraceJob, machines, request_of
from fairlead_replay.virtual.play import TracePlayer
from fairlead_schemas.queuefile.settings import PoolEntry, PoolSettings, QueueEntry, QueueSettings
from fairlead_schemas.units.timestamps import MINUTE_NS, SECOND_NS
from fairlead_schemas.wire.commands import SubmitJob
from fairlead_schemas.wire.commit import decode_commit

SPEC = msgspec.Raw(b'{"command":["true"]}')


def queue(path: str, **settings: Any) -> QueueEntry:
    """Return a queue with these settings."""
    return QueueEntry(path=path, settings=QueueSettings(**settings))


def job(submit_s: float, work_s: float, gpus: int = 8, *, path: str = "a", limit_s: float = 0) -> TraceJob:
    """Return a job of a load."""
    return TraceJob(
        path,
        int(submit_s * SECOND_NS),
        int(work_s * SECOND_NS),
        request_of(gpus),
        declared_ns=int(limit_s * SECOND_NS),
    )


def recorded(
    jobs: list[TraceJob], *, nodes: int = 1, queues: tuple[QueueEntry, ...] = (), pools: tuple[str, ...] = ()
) -> list[Stored]:
    """Return the log of a load that is played to its end."""
    log: list[Stored] = []
    entries = tuple([PoolEntry(pool=name, settings=PoolSettings()) for name in pools])
    setting = Setting(nodes=machines(nodes), queues=queues or (queue("a"),), pools=entries)
    TracePlayer(jobs, setting, log.append).play()
    return log


def folded(log: list[Stored], until_s: float = 1e9, *, keeps_ledger: bool = True) -> EstimatorCore:
    """Return the estimator at a moment of a log."""
    core = EstimatorCore(keeps_ledger=keeps_ledger)
    for stored in log:
        commit = decode_commit(stored.payload)
        if commit.at_ns > BEGIN_NS + int(until_s * SECOND_NS):
            break
        core.evolve(stored.sequence, commit)
    return core


def submit(gpus: int = 8, path: str = "a", **more: Any) -> SubmitJob:
    """Return the submit that is asked about."""
    return SubmitJob(id="x", user="play", name="new", queue=path, request=request_of(gpus), spec=SPEC, **more)


def many(count: int, work_s: float = 600, every_s: float = 60, gpus: int = 8) -> list[TraceJob]:
    """Return a load of equal jobs that are submitted faster than they end."""
    return [job(at * every_s, work_s + at % 7, gpus) for at in range(count)]


def minutes(wait_ns: int) -> float:
    """Return a wait in minutes."""
    return wait_ns / MINUTE_NS
