"""What the queue decides next, in one fixed order. Reads the state, never changes it.

What is owed comes first (it frees quota and names), then commands, then time, then the tidying,
and offers take what room is left; so a full commit delays offers, never answers.
"""

from collections.abc import Sequence

from fairlead_bus.core import Input
from fairlead_queue.commands import carry_out
from fairlead_queue.jobs import Array
from fairlead_queue.limits import FINISHED_JOBS_MAX, RETIRE_CHUNK
from fairlead_queue.offers import make_offers
from fairlead_queue.outcomes import settle
from fairlead_queue.plan import Plan, encoded_bytes
from fairlead_queue.state import State
from fairlead_schemas.events import JobCancelled, JobQueued, JobsRetired, JobStopRequested, QueueConfigured, QueueEvent

DEFAULT_QUEUE = "default"


def decide(state: State, inputs: Sequence[Input], now_ns: int) -> tuple[list[QueueEvent], bool]:
    """(events, whether this commit's room kept something back for the next decision)."""
    plan = Plan(state, now_ns, sum(len(each.body) for each in inputs))
    if not state.queues:
        _configure_default(plan)
    if state.owed:
        settle(plan)
    for each in inputs:
        for command in each.body:
            carry_out(plan, command)
    if state.timers and state.timers[0][0] <= now_ns:
        _act_on_time(plan)
    if state.stopping:
        for array in sorted(state.stopping.values(), key=lambda array: array.rank):
            _stop_elements(plan, array)
    if len(state.finished) > FINISHED_JOBS_MAX:
        _retire(plan)
    make_offers(plan)
    return plan.events, plan.full


def _configure_default(plan: Plan) -> None:
    event = QueueConfigured(cause="clock", path=DEFAULT_QUEUE)
    plan.configured[DEFAULT_QUEUE] = event
    plan.emit(event)


def _act_on_time(plan: Plan) -> None:
    """Start times and delays that are over, and running attempts whose time is up."""
    for at_ns, id_ in plan.state.timers:
        if at_ns > plan.now_ns:
            return
        if plan.room() <= 0:
            plan.full = True
            return
        job = plan.state.jobs[id_]
        if id_ in plan.states:  # moved by this very decision
            continue
        if job.state == "running":
            plan.emit(JobStopRequested(cause="clock", job=id_, attempt=job.attempt, reason="time_limit"))
            plan.states[id_] = "stopping"
        else:
            plan.emit(JobQueued(cause="clock", job=id_))
            plan.states[id_] = "queued"


def _stop_elements(plan: Plan, array: Array) -> None:
    """Carry an array's stop to its live elements, as far as there is room."""
    by_bytes = encoded_bytes(array.stop_by)
    for element in array.live.values():
        state = plan.states.get(element.id, element.state)
        if state not in ("scheduled", "queued", "held", "offered", "placed", "running"):
            continue
        if plan.room() <= 0:
            plan.full = True
            return
        if state in ("queued", "held"):
            plan.emit(
                JobCancelled(cause=array.cause, job=element.id, by=array.stop_by, attempt=element.attempt), by_bytes
            )
            plan.states[element.id] = "cancelled"
        else:
            plan.emit(
                JobStopRequested(
                    cause=array.cause, job=element.id, attempt=element.attempt, reason="cancelled", by=array.stop_by
                ),
                by_bytes,
            )
            plan.states[element.id] = "stopping"


def _retire(plan: Plan) -> None:
    """The oldest finished jobs leave, a chunk at a time."""
    if plan.room() <= 0:
        plan.full = True
        return
    oldest = iter(plan.state.finished)
    jobs = tuple(next(oldest) for _ in range(RETIRE_CHUNK))
    plan.emit(JobsRetired(cause="clock", jobs=jobs), extra_bytes=sum(len(job) + 3 for job in jobs))
