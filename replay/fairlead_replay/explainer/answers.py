"""Answers from the folded states of the queue and the placer, by their own functions. Pure."""

from collections.abc import Collection

import msgspec

from fairlead_placer.cluster.pool_facts import pool_facts
from fairlead_placer.cluster.state import NOTHING_YET
from fairlead_placer.cluster.state import ClusterState as PlacerState
from fairlead_placer.packing.policies import DEFAULT
from fairlead_placer.scheduling.defragment import plans
from fairlead_queue.explain.explain import explain
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import Array
from fairlead_schemas.queries.cluster_map import PoolPacking
from fairlead_schemas.queries.explainer import Defrag, ExplainerAnswer, Explanation
from fairlead_schemas.units.ids import array_of, is_job_id

#: Characters of a job's id that are repeated to the sender.
SHOWN_CHARS_MAX = 40


def why(state: QueueState, sequence: int, id_: str) -> ExplainerAnswer:
    """Return the reason for a job's state as of a sequence; `not_found` where the state does not know the job."""
    job = state.jobs.get(id_)
    if job is not None:
        return ExplainerAnswer(sequence=sequence, why=explain(state, job))
    ended = state.finished.get(id_)
    if ended is not None:
        return ExplainerAnswer(sequence=sequence, why=Explanation(reason="", ended=ended))
    array = state.jobs.get(array_of(id_) or "")
    if isinstance(array, Array) and array.is_unborn(id_):
        of_array = msgspec.structs.replace(explain(state, array), array=array.id)
        return ExplainerAnswer(sequence=sequence, why=of_array)
    return ExplainerAnswer(sequence=sequence, error="not_found", message=_missing(state, sequence, id_))


def _missing(state: QueueState, sequence: int, id_: str) -> str:
    shown = id_[:SHOWN_CHARS_MAX]
    if not is_job_id(id_):
        return f'"{shown}" is no id of a job: expected a number such as 812, or 812_3 for an array\'s element'
    number = int(array_of(id_) or id_)
    if number >= state.next_number:
        return f"job {shown} was not there at sequence {sequence}: the newest was {state.next_number - 1}"
    if array_of(id_) is not None:
        return f"element {shown} ended long ago, or its array does not have it"
    return f"job {shown} ended long ago; its events show how"


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
