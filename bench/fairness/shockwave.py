"""Shockwave's 120 jobs on 32 GPUs, in slices of two minutes with restarts at ten seconds, compared with the published table."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from bench.fairness import traces
from fairlead_replay.virtual import figures
from fairlead_replay.virtual.load import Setting, TraceJob, machines
from fairlead_replay.virtual.play import play
from fairlead_schemas.queuefile.settings import PoolEntry, PoolSettings, Preemption, QueueEntry, QueueSettings
from fairlead_schemas.units.timestamps import HOUR_NS, SECOND_NS

NODES, GPUS = 4, 8
#: The aim for the sequencer that is made for it.
AIM, WORST_MAX, JCT_MAX_S = "promised", 1.8, 10_000


class Variant(NamedTuple):
    """Row to be played."""

    sequencer: str
    #: Every job in a queue of its own, so that shares are those of jobs.
    apart: bool = False

    @property
    def name(self) -> str:
        """Name in the table."""
        return f"{self.sequencer}, a queue for each job" if self.apart else self.sequencer


VARIANTS = (Variant(AIM), Variant("drf"), Variant("fifo"), Variant("drf", apart=True), Variant("fairshare", apart=True))


class Row(NamedTuple):
    """Result of one row; `starts` 0: not known."""

    name: str
    makespan_s: float
    mean_jct_s: float
    worst: float
    above_1: float
    in_use: float
    starts: int


HEAD = ("order", "makespan", "mean JCT", "worst FTF", "jobs above 1", "GPUs in use", "starts")


def setting(variant: Variant, jobs: Sequence[TraceJob]) -> Setting:
    """The cluster of a row. Runs are safe for their slice and no longer; past use counts half after an hour."""
    settings = QueueSettings(preemption=Preemption(protect_ns=0))
    pool = PoolSettings(sequencer=variant.sequencer, half_life_ns=HOUR_NS)
    return Setting(
        nodes=machines(NODES, GPUS),
        queues=tuple(QueueEntry(path=queue, settings=settings) for queue in sorted({job.queue for job in jobs})),
        pools=(PoolEntry(pool="default", settings=pool),),
        restart_ns=traces.RESTART_S * SECOND_NS,
    )


def row(variant: Variant) -> Row:
    """Play one row."""
    jobs = traces.shockwave()
    if variant.apart:
        jobs = [job._replace(queue=f"job-{at:03}") for at, job in enumerate(jobs)]
    played = play(jobs, setting(variant, jobs))
    assert {life.end for life in played.lives} == {"JobSucceeded"}
    fairness = figures.static_fairness(played)
    return Row(
        variant.name,
        figures.makespan_s(played.lives),
        fmean(figures.jcts_s(played.lives)),
        max(fairness),
        figures.share_above(fairness, 1),
        figures.utilisation(played),
        sum(len(life.runs) for life in played.lives),
    )


def published() -> list[Row]:
    """The rows of others."""
    return [
        Row(f"published: {each.policy}", each.makespan_s, each.mean_jct_s, each.worst, each.above_1, each.in_use, 0)
        for each in traces.shockwave_published()
    ]


def rows(each: Callable[[Callable[[Any], Any], Sequence[Any]], Any] = map) -> list[Row]:
    """Ours, then theirs."""
    return [*each(row, VARIANTS), *published()]


def met(rows: Sequence[Row]) -> bool:
    """Return True if the aim is reached."""
    own = next(row for row in rows if row.name == AIM)
    return own.worst <= WORST_MAX and own.mean_jct_s <= JCT_MAX_S


def cells(row: Row) -> tuple[str, ...]:
    """Return the row as the table shows it."""
    return (
        row.name,
        f"{row.makespan_s:,.0f} s",
        f"{row.mean_jct_s:,.0f} s",
        f"{row.worst:.2f}",
        f"{row.above_1:.1%}",
        f"{row.in_use:.1%}",
        f"{row.starts:,}" if row.starts else "–",
    )
