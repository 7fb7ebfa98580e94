"""Decisions of the idle core: answers to commands first, in a commit of their own; else the events due for runs.

Runs that are due for a look, and the times at which the clock alone makes them due. Derived, no state: a restart looks
at all runs once.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fairlead_bus.core import Decision, Input
from fairlead_schemas.policies.idle import IdleRule
from fairlead_telemetry.idle.decide.commands import IdleDraft, decide_command
from fairlead_telemetry.idle.decide.policy_evaluation import NOTIFY_ONLY, due_ns, evaluate
from fairlead_telemetry.idle.limits import JUDGED_EVENTS_MAX
from fairlead_telemetry.idle.questions import SOURCE, ActivityAnswer
from fairlead_telemetry.idle.scopes import PolicyInForce
from fairlead_telemetry.idle.state import IdleState, TrackedRun


class ReviewSchedule:
    """Jobs of which something was folded, and jobs by their next moment. Moments that have passed by are skipped when they come.

    A decision that raises keeps what it has done here, so each method takes its steps in an order in which an exception
    between two of them costs a needless look and never a missed one: a mark is set before the one that led to it goes.
    """

    def __init__(self) -> None:
        self.looks: dict[str, None] = {}
        self._moments: list[tuple[int, str]] = []
        self._next: dict[str, int] = {}

    def look(self, job: str) -> None:
        """Mark the job for review, because an event of its run was folded."""
        self.looks[job] = None

    def wake(self, now_ns: int) -> None:
        """Mark the runs that are due now for a look."""
        while self._moments and self._moments[0][0] <= now_ns:
            at_ns, job = self._moments[0]
            if self._next.get(job) == at_ns:
                self.looks[job] = None
                del self._next[job]
            heapq.heappop(self._moments)

    def settled(self, job: str, next_ns: int | None) -> None:
        """Record that the job needs no further event before this time."""
        if next_ns is None:
            self._next.pop(job, None)
        elif self._next.get(job) != next_ns:
            heapq.heappush(self._moments, (next_ns, job))
            self._next[job] = next_ns
        self.looks.pop(job, None)

    def next_ns(self) -> int | None:
        """The next moment of any job; 0 while some are to be looked at."""
        if self.looks:
            return 0
        while self._moments and self._next.get(self._moments[0][1]) != self._moments[0][0]:
            heapq.heappop(self._moments)
        return self._moments[0][0] if self._moments else None


def next_moment(run: TrackedRun, policies: Mapping[IdleRule, PolicyInForce]) -> int | None:
    """Return the next time at which the clock alone changes a run without an event now. Changes that samples decide come with
    the samples.
    """
    return min(_moments(run, policies), default=None)


def _moments(run: TrackedRun, policies: Mapping[IdleRule, PolicyInForce]) -> Iterator[int]:
    if not run.started_ns or run.stopping or any(idle.is_final for idle in run.idle.values()):
        return
    for idle in run.idle.values():
        if idle.step == "shrunk":
            yield idle.until_ns
        elif idle.policy.rule == "lifetime" and idle.step == "told" and idle.policy.action not in NOTIFY_ONLY:
            yield due_ns(idle)
    lifetime = policies.get("lifetime")
    if lifetime is not None and "lifetime" not in run.idle:
        yield max(run.started_ns + lifetime.policy.after_ns, run.extended_ns)


type Resolve = Callable[[TrackedRun], Mapping[IdleRule, PolicyInForce]]


def decide(
    state: IdleState, schedule: ReviewSchedule, resolve: Resolve, inputs: Sequence[Input], now_ns: int
) -> Decision:
    """Return the events to commit now. The effect of commands on runs is decided next, on the state of that time."""
    draft = IdleDraft(state, now_ns)
    commands = [each for each in inputs if each.source != SOURCE]
    for command in (command for each in commands for command in each.body):
        decide_command(draft, command)
    if not commands:
        _review_runs(draft, schedule, resolve, (each for item in inputs for each in item.body))
    return Decision([*draft.events], {each.source: each.position for each in commands})


def _review_runs(
    draft: IdleDraft, schedule: ReviewSchedule, resolve: Resolve, answers: Iterable[ActivityAnswer]
) -> None:
    """Emit the events due for runs that were touched, are due or were answered for. Events that do not fit wait: folded
    changes and moments stay in the schedule, answers stay with the watch, which repeats them.
    """
    state, now_ns = draft.state, draft.now_ns
    schedule.wake(now_ns)
    seen: dict[str, dict[IdleRule, ActivityAnswer]] = {}
    for each in answers:
        run = state.runs.get(each.job)
        if run is not None and run.attempt == each.attempt:
            seen.setdefault(each.job, {})[each.rule] = each
    for job in [*schedule.looks, *(job for job in seen if job not in schedule.looks)]:
        if len(draft.events) >= JUDGED_EVENTS_MAX:
            break
        run = state.runs.get(job)
        if run is None or not (state.policies or run.idle):  # nothing applies to it, as in most clusters
            schedule.settled(job, None)
            continue
        policies = resolve(run)
        due = list(evaluate(run, policies, seen.get(job, {}), now_ns))
        for event in due:
            draft.emit(event)
        if not due:
            schedule.settled(job, next_moment(run, policies))
