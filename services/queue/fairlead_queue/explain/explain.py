"""Explanation of a job's wait, in numbers; the changes that would start it are in `remedies.py`. Pure: the same gates that
decide.

Only the placer knows if the nodes have room in the right places. "Could start" means that the job would be offered at
once and that its pool has as much left as it needs.
"""

from collections.abc import Sequence
from itertools import islice

from fairlead_queue.decide.gates import Closed, Gates
from fairlead_queue.explain.jobs_ahead import AHEAD_MAX, ahead_of
from fairlead_queue.explain.remedies import changes_of, for_place
from fairlead_queue.fairness.users import user_of
from fairlead_queue.state import State
from fairlead_queue.waiting.jobs import Job
from fairlead_queue.waiting.lanes import Lane
from fairlead_schemas.queries.explainer import Explanation, SuggestedChange
from fairlead_schemas.queuefile.amounts import counted, number

#: Jobs ahead that are named.
NAMED_MAX = 10


def explain(state: State, job: Job) -> Explanation:
    """Explain the present state of this live job from the queue's side."""
    if job.open:
        return _offered(state, job)
    if job.wait not in ("line", "returned"):
        return Explanation(reason="")
    lane = job.lane
    closed = gate(state, lane)
    if job.wait == "returned" and closed is None:
        message = "it fitted nowhere, and its quota went to others; it has its turn again when capacity or limits have changed"
        return Explanation(reason="place", message=message, changes=tuple(for_place(job)))
    ahead = ahead_of(state, job, AHEAD_MAX).jobs if job.wait == "line" else []
    numbers: dict[str, int | str] = {"ahead": len(ahead)}
    changes: list[SuggestedChange] = []
    if closed is None:
        message = "it is next" if not ahead else f"{_jobs(len(ahead))} before it"
        reason = "next" if not ahead else "turn"
    else:
        reason, message = closed.reason, _message(closed)
        numbers |= _numbers(closed)
        if closed.refusal is not None:
            changes = list(changes_of(state, job, closed.refusal, ahead))
        elif reason == "turn":
            message = f"the placer has as many offers as it looks ahead over; {_jobs(len(ahead))} before it"
    return Explanation(
        reason=reason, message=message, numbers=numbers, changes=tuple(changes), ahead=len(ahead),
        first_ahead=_first(ahead),
    )  # fmt: skip


def gate(state: State, lane: Lane) -> Closed | None:
    """Return the gate that is closed for the lane's jobs now; None if they could be offered."""
    gates = Gates(state, lane.klass.pool)
    gates.pool.forget_refused()
    return gates.closed(lane)


def _offered(state: State, job: Job) -> Explanation:
    ahead = ahead_of(state, job, AHEAD_MAX).jobs
    numbers: dict[str, int | str] = {"ahead": len(ahead)}
    changes = list(for_place(job))
    message = f"it has its turn and waits for a place; {_jobs(len(ahead))} before it"
    if job.yielders:
        numbers["asked_to_yield"] = job.yielders
        asked = "1 job was" if job.yielders == 1 else f"{job.yielders} jobs were"
        message += f"; {asked} asked to yield to it"
    return Explanation(
        reason="place", message=message, numbers=numbers, changes=tuple(changes), ahead=len(ahead),
        first_ahead=_first(ahead),
    )  # fmt: skip


def _first(ahead: Sequence[Job]) -> tuple[str, ...]:
    """The first of them; an array once, however many of its elements go before."""
    return tuple(islice(dict.fromkeys(other.id for other in ahead), NAMED_MAX))


def _jobs(count: int) -> str:
    if count >= AHEAD_MAX:
        return f"{AHEAD_MAX} jobs or more are"
    return "1 job is" if count == 1 else f"{count} jobs are"


# ---------------------------------------------------------------------------------------- words


def _message(closed: Closed) -> str:
    refusal = closed.refusal
    if closed.reason == "budget":
        return f"the budget of queue {closed.queue} is spent"
    if refusal is None:
        return "others go first"
    held, needed = number(refusal.resource, refusal.held), number(refusal.resource, refusal.needed)
    ceiling = counted(refusal.resource, refusal.ceiling)
    match closed.reason:
        case "user_limit":
            user = user_of(refusal.node)
            return f"{user} holds {held} of the {ceiling} that one user may hold in {closed.queue}; this needs {needed}"
        case "reserved":
            where = f"queue {closed.queue}" if closed.queue else "the pool"
            return f"what {where} has left of {ceiling} is kept for queues that do not lend it; this needs {needed}"
        case "claimed":
            return f"what is free is kept for job {refusal.holder}, which has waited longer"
        case _:
            return f"queue {closed.queue} holds {held} of {ceiling}; this needs {needed}"


def _numbers(closed: Closed) -> dict[str, int | str]:
    refusal = closed.refusal
    if refusal is None:
        return {"queue": closed.queue} if closed.queue else {}
    numbers: dict[str, int | str] = {
        "queue": closed.queue, "resource": refusal.resource, "held": refusal.held, "needed": refusal.needed,
        "ceiling": refusal.ceiling,
    }  # fmt: skip
    if refusal.holder:
        numbers["holder"] = refusal.holder
    return numbers
