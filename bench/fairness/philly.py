"""Four Philly virtual clusters as four queues of equal weight on one cluster: waits and fairness by sequencer."""

import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from bench import table
from bench.fairness import traces
from bench.table import percentile
from fairlead_replay.virtual import figures
from fairlead_replay.virtual.load import Setting, TraceJob, machines
from fairlead_replay.virtual.play import play
from fairlead_schemas.queuefile.settings import PoolEntry, PoolSettings, QueueEntry, QueueSettings
from fairlead_schemas.units.timestamps import MINUTE_NS, SECOND_NS

#: Clusters of so many nodes of 8 GPUs.
NODES = (64, 48)
GPUS = 8
#: What every start costs; a job that was asked to yield continues from there.
RESTART_NS = MINUTE_NS
#: Jobs whose work is less are left out of one column: a second of waiting is nothing to anybody else.
LONG_NS = 600 * SECOND_NS

#: The crowded row, which always has a queue: nodes, jobs, and the goal in jobs per CPU second.
CROWDED_NODES, CROWDED_JOBS, CROWDED_GOAL = 16, 300, 450

#: The built-in map, or that of a pool of processes.
type Map = Callable[[Callable[[Any], Any], Sequence[Any]], Any]


class Variant(NamedTuple):
    """Row to be played."""

    nodes: int
    sequencer: str
    #: Equal guarantees of the whole cluster; what others hold beyond theirs is asked back.
    guaranteed: bool = False

    @property
    def name(self) -> str:
        """Name in the table."""
        return f"{self.sequencer}, guaranteed" if self.guaranteed else self.sequencer


class Row(NamedTuple):
    """Result of one row."""

    name: str
    mean_wait_s: float
    p95_wait_s: float
    worst: float
    above_1: float
    worst_long: float
    jain: float
    #: What the queue that got least of its entitlement got of it.
    least: float
    makespan_s: float
    in_use: float


HEAD = (
    "sequencer",
    "mean wait",
    "p95 wait",
    "worst FTF",
    "jobs above 1",
    "worst FTF, work ≥ 10 min",
    "Jain",
    "least served queue",
    "makespan",
    "GPUs in use",
)


def variants(nodes: int) -> list[Variant]:
    """The rows for a cluster."""
    plain = [Variant(nodes, sequencer) for sequencer in ("fifo", "fairshare", "drf")]
    return [*plain, Variant(nodes, "drf", guaranteed=True)]


def setting(variant: Variant, queues: Sequence[str] = traces.PHILLY) -> Setting:
    """The cluster of a row."""
    guaranteed = {"gpu": variant.nodes * GPUS * 1000 // len(queues)} if variant.guaranteed else {}
    return Setting(
        nodes=machines(variant.nodes, GPUS),
        queues=tuple(QueueEntry(path=queue, settings=QueueSettings(guaranteed=guaranteed)) for queue in queues),
        pools=(PoolEntry(pool="default", settings=PoolSettings(sequencer=variant.sequencer)),),
        restart_ns=RESTART_NS,
    )


def alone(jobs: Sequence[TraceJob], nodes: int, queue: str) -> dict[int, int]:
    """{place of the job in `jobs`: its completion time in ns} of one queue's jobs on so many nodes of their own, first
    come, first served. Jobs that do not fit there are not played."""
    places = [at for at, job in enumerate(jobs) if job.queue == queue and job.request.nodes <= nodes]
    played = play([jobs[at] for at in places], setting(Variant(nodes, "fifo"), [queue]))
    return {at: life.jct_ns for at, life in zip(places, played.lives, strict=True)}


def row(jobs: Sequence[TraceJob], variant: Variant, isolated: dict[int, int]) -> Row:
    """Play one row."""
    played = play(jobs, setting(variant))
    lives = played.lives
    waits = figures.waits_s(lives)
    fairness = figures.isolated_fairness(played, isolated)
    long = [value for value, at in zip(fairness, isolated, strict=True) if jobs[at].work_ns >= LONG_NS]
    shares = [each.share for each in figures.service(played, dict.fromkeys(traces.PHILLY, 1)).values()]
    return Row(
        variant.name,
        fmean(waits),
        percentile(waits, 0.95),
        max(fairness),
        figures.share_above(fairness, 1),
        max(long),
        figures.jain(shares),
        min(shares),
        figures.makespan_s(lives),
        figures.utilisation(played),
    )


def rows(nodes: int, each: Map = map) -> list[Row]:
    """All rows for a cluster; one play of each takes a minute at most."""
    share = nodes // len(traces.PHILLY)
    isolated: dict[int, int] = {}
    for found in each(_alone, [(share, queue) for queue in traces.PHILLY]):
        isolated |= found
    return list(each(_row, [(variant, isolated) for variant in variants(nodes)]))


def _alone(arguments: tuple[int, str]) -> dict[int, int]:
    return alone(traces.philly(), *arguments)


def _row(arguments: tuple[Variant, dict[int, int]]) -> Row:
    return row(traces.philly(), *arguments)


def cells(row: Row) -> tuple[str, ...]:
    """Return the row as the table shows it."""
    return (
        row.name,
        _hours(row.mean_wait_s),
        _hours(row.p95_wait_s),
        f"{row.worst:,.2f}",
        f"{row.above_1:.1%}",
        f"{row.worst_long:,.2f}",
        f"{row.jain:.4f}",
        f"{row.least:.1%}",
        _hours(row.makespan_s),
        f"{row.in_use:.1%}",
    )


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f} h"


def crowded_row() -> table.Row:
    """Measure the row `player` of `python -m bench`: both cores in virtual time, with guarantees. CPU counts: nearly all of it is the
    order of the open offers, the help for starving jobs, and the placer's search for places.
    """
    load = [job for job in traces.philly() if job.request.nodes <= CROWDED_NODES][:CROWDED_JOBS]
    cluster = setting(Variant(CROWDED_NODES, "drf", guaranteed=True))
    began = time.process_time()
    played = play(load, cluster)
    rate = len(load) / (time.process_time() - began)
    return table.Row(
        f"crowded, player: jobs per CPU second (Philly, {CROWDED_NODES} nodes, guarantees, {CROWDED_JOBS} jobs)",
        f"{rate:,.0f}/s",
        f"≥ {CROWDED_GOAL}/s",
        rate >= CROWDED_GOAL,
        f"{sum(played.events.values()) / len(load):,.0f} events per job",
    )
