"""Core of the telemetry service: decides which runs are idle and are to be reclaimed. Pure: no clock, no bus, no samples
of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

from fairlead_bus.core import NOTHING, Decision, Input
from fairlead_schemas.policies.idle import IdleRule
from fairlead_schemas.wire.commit import Commit
from fairlead_telemetry.idle import snapshot
from fairlead_telemetry.idle.apply.handlers import WRITER, fold
from fairlead_telemetry.idle.decide.decision import ReviewSchedule, decide
from fairlead_telemetry.idle.decide.policy_evaluation import asked_signals
from fairlead_telemetry.idle.questions import SOURCE, ActivityQuestion
from fairlead_telemetry.idle.scopes import PolicyInForce, policies_in_force
from fairlead_telemetry.idle.state import IdleState, TrackedRun


class IdleCore:
    """Implements `fairlead_bus.core.Core` for the writer "telemetry".

    Inputs are CMD messages, and "activity": lists of `Answer` to `questions`.
    """

    writer = WRITER
    schema: ClassVar[str] = snapshot.SCHEMA

    def __init__(self) -> None:
        self.state = IdleState()
        # Derived, no state: what to look at next, and which policies count for each run.
        self._schedule = ReviewSchedule()
        self._in_force: dict[str, tuple[int, Mapping[IdleRule, PolicyInForce]]] = {}

    def evolve(self, seq: int, commit: Commit) -> None:
        """Fold one commit of any writer."""
        fold(self.state, seq, commit)
        for job in self.state.take_changed():
            self._schedule.look(job)
            self._in_force.pop(job, None)

    def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
        """Return the events to commit now. Where commands are answered, the questions to the watch are repeated later."""
        return decide(self.state, self._schedule, self._resolve, inputs, now_ns)

    def split(self, item: Input) -> list[Input]:
        """Answers can be looked at one by one."""
        if item.source != SOURCE or len(item.body) < 2:
            return []
        return [item._replace(body=[each]) for each in item.body]

    def reject(self, item: Input, error: str, now_ns: int) -> Decision:
        """Return nothing for an answer that cannot be judged: an answer is no fact, so none is recorded, and the run continues."""
        return NOTHING

    def wake_at(self) -> int | None:
        """0 while there are runs to look at; then when the next lifetime, notice or lease is over. Samples come as inputs."""
        return self._schedule.next_ns()

    def questions(self) -> Iterator[ActivityQuestion]:
        """Yield the questions for the watch: of every run in progress, one for each applicable rule that samples decide."""
        if not self.state.policies:
            return
        for run in self.state.runs.values():
            if run.started_ns and not run.stopping:
                yield from self._of(run)

    def _of(self, run: TrackedRun) -> Iterator[ActivityQuestion]:
        for rule, found in self._resolve(run).items():
            if rule != "lifetime":
                yield ActivityQuestion(
                    run.job,
                    run.attempt,
                    rule,
                    run.parts,
                    run.started_ns,
                    asked_signals(found),
                    found.policy.after_ns,
                    rule in run.idle,
                )

    def _resolve(self, run: TrackedRun) -> Mapping[IdleRule, PolicyInForce]:
        known = self._in_force.get(run.job)
        if known is None or known[0] != run.attempt:
            known = self._in_force[run.job] = run.attempt, policies_in_force(self.state.policies, run.owner)
        return known[1]

    def snapshot(self) -> bytes:
        """Canonical bytes of the state."""
        return snapshot.dump(self.state)

    @classmethod
    def restore(cls, data: bytes) -> Self:
        """The inverse of `snapshot`."""
        core = cls()
        core.state = snapshot.load(data)
        for job in core.state.runs:
            core._schedule.look(job)
        return core

    def statistics(self) -> dict[str, int]:
        """Sizes, for logs and metrics."""
        state = self.state
        idle = sum(len(run.idle) for run in state.runs.values())
        return {"scopes": len(state.policies), "owners": len(state.owners), "runs": len(state.runs), "idle": idle}
