"""What a change of queues and pools would do, told before it is made: the queue's own decisions, upon a copy of its state. Pure.

The change is decided, folded, and followed by the decisions that the queue would make next without any further input. So it
is refused in the words of the refusal, and it names the runs that would be stopped and the jobs that would be offered.
"""

from collections.abc import Iterable

from fairlead_bus.core import Input
from fairlead_queue.core import QueueCore
from fairlead_schemas.queries.explainer import CONCERNED_MAX, JobOfChange, QueueChangeOutcome
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import ApplyQueues
from fairlead_schemas.wire.commit import VERSION, Commit

#: Decisions that follow a change and are looked at: what they stop, withdraw and offer.
DECISIONS_MAX = 20


def queue_change(core: QueueCore, sequence: int, command: ApplyQueues, now_ns: int) -> QueueChangeOutcome:
    """Return what a change of queues would do at once. `sequence`: of the core's state; `now_ns`: as for the queue's own clock, it counts
    as the newest commit's time where it is before that.
    """
    now_ns = max(now_ns, core.state.at_ns)
    copy = QueueCore.restore(core.snapshot())
    inputs = [Input("CMD", 0, [command])]
    applied, found = ev.QueuesApplied(cause="clock", command=command.id), list[ev.Event]()
    for number in range(1, DECISIONS_MAX + 1):
        events = list[ev.Event](copy.decide(inputs, now_ns).events)
        refused = next((each for each in events if isinstance(each, ev.CommandRejected)), None)
        if refused is not None:
            return QueueChangeOutcome(code=refused.code, message=refused.message)
        if not events:
            break
        applied = next((each for each in events if isinstance(each, ev.QueuesApplied)), applied)
        found += events
        copy.evolve(sequence + number, _commit(events, number, sequence, now_ns))
        inputs = []
    return QueueChangeOutcome(
        configured=applied.configured,
        removed=applied.removed,
        unchanged=applied.unchanged,
        yields=_concerned(
            copy, (each for each in found if isinstance(each, ev.JobStopRequested) and each.reason == "reclaimed")
        ),
        withdrawn=_concerned(copy, (each for each in found if isinstance(each, ev.OfferWithdrawn))),
        offered=_concerned(copy, (each for each in found if isinstance(each, ev.JobOffered))),
    )


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
) -> tuple[JobOfChange, ...]:
    """Return the jobs that events are about, each once."""
    found: dict[str, JobOfChange] = {}
    for event in events:
        job = core.state.jobs.get(event.job)
        request = None if job is None else job.lane.request_class.request
        milli = 0 if request is None else request.gpu_milli_total
        found.setdefault(event.job, JobOfChange(job=event.job, attempt=event.attempt, gpu_milli=milli))
        if len(found) >= CONCERNED_MAX:
            break
    return tuple(found.values())
