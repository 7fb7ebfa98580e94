"""Answers from the folded states of the queue and the placer, by their own functions. Pure."""

from collections.abc import Collection, Iterable

from fairlead_bus.core import Input
from fairlead_placer.cluster.pool_facts import pool_facts
from fairlead_placer.cluster.state import NOTHING_YET
from fairlead_placer.cluster.state import ClusterState as PlacerState
from fairlead_placer.packing.policies import DEFAULT
from fairlead_placer.scheduling.defragment import plans
from fairlead_queue.core import QueueCore
from fairlead_queue.explain.explain import explain
from fairlead_queue.state import QueueState
from fairlead_schemas.queries.cluster_map import PoolPacking
from fairlead_schemas.queries.explainer import (
    CONCERNED_MAX,
    ConcernedJob,
    Defrag,
    ExplainerAnswer,
    QueueChangeOutcome,
)
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import ApplyQueues
from fairlead_schemas.wire.commit import VERSION, Commit

#: Decisions that follow a change and are looked at: what they stop, withdraw and offer.
DECISIONS_MAX = 20


def why(state: QueueState, sequence: int, id_: str) -> ExplainerAnswer:
    """Return the explanation of a job or array that has not ended by a sequence. `not_found` for other ids, which the queue does
    not keep: the gateway's views and the log's events show how they ended.
    """
    job = state.jobs.get(id_)
    if job is None:
        found = f'expected a job or array that has not ended at sequence {sequence}, found "{id_[:40]}"'
        return ExplainerAnswer(sequence=sequence, error="not_found", message=found)
    return ExplainerAnswer(sequence=sequence, why=explain(state, job))


def defrag(state: PlacerState, sequence: int, pool: str, now_ns: int) -> ExplainerAnswer:
    """Return the runs that would be moved in a pool for its first big jobs; no plans if no job waits or the pool has no nodes."""
    found = tuple(plans(state, pool, now_ns))
    answer = Defrag(pool=pool, on=pool in state.defragmented, plans=found, sequence=sequence)
    return ExplainerAnswer(sequence=sequence, defrag=answer)


def packing(state: PlacerState, sequence: int, pool: str, away: Collection[str] = ()) -> ExplainerAnswer:
    """The facts; of a pool without nodes, its policy alone. Nodes `away` take no work, whatever the log says."""
    policy, index = state.packings.get(pool, DEFAULT), state.pools.each().get(pool)
    facts = PoolPacking(pool=pool, policy=policy, sequence=sequence)
    if index is not None:
        work = state.arrivals.get(pool, NOTHING_YET)
        facts = pool_facts(pool, index, work, away, policy=policy, sequence=sequence)
    return ExplainerAnswer(sequence=sequence, packing=facts)


def queue_change(core: QueueCore, sequence: int, command: ApplyQueues, now_ns: int) -> ExplainerAnswer:
    """Return what a change of queues would do at once: the queue's own decisions, upon a copy of its state."""
    copy = QueueCore.restore(core.snapshot())
    inputs = [Input("CMD", 0, [command])]
    applied, found = ev.QueuesApplied(cause="clock", command=command.id), list[ev.Event]()
    for number in range(1, DECISIONS_MAX + 1):
        events = list[ev.Event](copy.decide(inputs, now_ns).events)
        refused = next((each for each in events if isinstance(each, ev.CommandRejected)), None)
        if refused is not None:
            return ExplainerAnswer(
                sequence=sequence, change=QueueChangeOutcome(code=refused.code, message=refused.message)
            )
        if not events:
            break
        applied = next((each for each in events if isinstance(each, ev.QueuesApplied)), applied)
        found += events
        copy.evolve(sequence + number, _commit(events, number, sequence, now_ns))
        inputs = []
    outcome = QueueChangeOutcome(
        configured=applied.configured,
        removed=applied.removed,
        unchanged=applied.unchanged,
        yields=_concerned(
            copy, (each for each in found if isinstance(each, ev.JobStopRequested) and each.reason == "reclaimed")
        ),
        withdrawn=_concerned(copy, (each for each in found if isinstance(each, ev.OfferWithdrawn))),
        offered=_concerned(copy, (each for each in found if isinstance(each, ev.JobOffered))),
    )
    return ExplainerAnswer(sequence=sequence, change=outcome)


def _commit(events: list[ev.Event], number: int, sequence: int, now_ns: int) -> Commit:
    return Commit(
        v=VERSION,
        writer=QueueCore.writer,
        n=number,
        basis=sequence + number - 1,
        at_ns=now_ns,
        cursors={},
        prev="",
        events=events,
    )


def _concerned(
    core: QueueCore, events: Iterable[ev.JobStopRequested | ev.OfferWithdrawn | ev.JobOffered]
) -> tuple[ConcernedJob, ...]:
    """Return the jobs that events are about, each once."""
    found: dict[str, ConcernedJob] = {}
    for event in events:
        job = core.state.jobs.get(event.job)
        request = None if job is None else job.lane.request_class.request
        milli = 0 if request is None else request.gpu_milli_total
        found.setdefault(event.job, ConcernedJob(job=event.job, attempt=event.attempt, gpu_milli=milli))
        if len(found) >= CONCERNED_MAX:
            break
    return tuple(found.values())
