"""What a future draws: how long each job runs, and which submits still come. Pure.

Draws depend on the seed, the number of the future and the job alone: two questions at one sequence meet the same futures, and
the same question gives the same answer.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from fairlead_replay.estimates.history import ClusterHistory, JobFacts, PastSubmit
from fairlead_replay.estimates.lengths_now import LengthsNow, chance_of
from fairlead_replay.whatif.nodes import STOPPED, SUCCESS, Execution, RunEnd, RunScript
from fairlead_replay.whatif.survival import uniform
from fairlead_schemas.units.timestamps import DAY_NS, HOUR_NS, WEEK_NS
from fairlead_schemas.wire.commands import SubmitJob

#: Weeks, else days, from which submits are taken.
WEEKS, DAYS = 4, 7
#: Submits that one future may meet.
ARRIVALS_MAX = 2_000
SPEC = msgspec.Raw(b'{"command":["true"]}')


class DrawnLengths:
    """`Behaviour` of runs in one future."""

    has_clocks = False

    def __init__(self, history: ClusterHistory, lengths: LengthsNow, seed: str, future: int) -> None:
        self._history, self._lengths = history, lengths
        self._seed, self._future = seed, future
        #: Of jobs that enter in the future.
        self._met: dict[str, JobFacts] = {}
        self._whole: dict[str, int] = {}
        self._done: dict[str, int] = {}

    def meet(self, id_: str, facts: JobFacts) -> None:
        """A job enters."""
        self._met[id_] = facts

    def whole_ns(self, id_: str, now_ns: int) -> int | None:
        """Return how long a job runs in all, in this future; None: it does not end by itself."""
        facts = self._met.get(id_) or self._history.facts_of(id_)
        if facts is None or facts.kind == "service":
            return None
        if id_ not in self._whole:
            is_running = facts.started_ns and id_ in self._history.jobs
            ran_ns = facts.done_ns + (max(0, now_ns - facts.started_ns) if is_running else 0)
            chance = chance_of(self._seed, self._future, id_, facts)
            self._whole[id_] = self._lengths.draw(facts.keys, ran_ns, chance)
            self._done.setdefault(id_, facts.done_ns)
        return self._whole[id_]

    # ------------------------------------------------------------------ Behaviour

    def begin(self, execution: Execution, now_ns: int) -> RunScript:
        """Return a run of what is left."""
        whole_ns = self.whole_ns(execution.job, now_ns)
        left_ns = None if whole_ns is None else max(1, whole_ns - self._done.get(execution.job, 0))
        return RunScript(left_ns, (self._history.start_ns,))

    def stop_delay_ns(self, execution: Execution) -> int:
        """Return the usual time."""
        return self._history.stop_ns

    def clean_delay_ns(self, execution: Execution, rank: int) -> int:
        """Devices are free at once."""
        return 0

    def finish(self, execution: Execution, now_ns: int) -> RunEnd:
        """Book what the run has done."""
        self.lose(execution, now_ns)
        whole_ns = self._whole.get(execution.job)
        return SUCCESS if whole_ns is not None and self._done[execution.job] >= whole_ns else STOPPED

    def lose(self, execution: Execution, now_ns: int) -> None:
        """Book what a run has done, as if it had been saved."""
        ran_ns = max(0, now_ns - execution.started_ns) if execution.started_ns else 0
        self._done[execution.job] = self._done.get(execution.job, 0) + ran_ns

    def cutting_ns(self, node: str) -> int:
        """GPUs are repartitioned at once."""
        return 0


class Arrival(NamedTuple):
    """Submit that comes in a future."""

    at_ns: int
    submit: PastSubmit


def arrivals(history: ClusterHistory, seed: str, future: int, now_ns: int) -> list[Arrival]:
    """Return what is submitted in a future: for each user what came from the same hour on, in one of the last four weeks. A log of
    less than two weeks gives days; one of less than two days, its last part again."""
    period_ns, count = _period(history, now_ns)
    if not count:
        return []
    found: list[Arrival] = []
    chosen: dict[str, int] = {}
    for submit in history.submits:
        back = chosen.get(submit.user)
        if back is None:
            back = chosen[submit.user] = 1 + int(uniform(seed, future, "arrivals", submit.user) * count)
        at_ns = submit.at_ns + back * period_ns
        if at_ns > now_ns:
            found.append(Arrival(at_ns, submit))
            if len(found) >= ARRIVALS_MAX:
                break
    return found


def _period(history: ClusterHistory, now_ns: int) -> tuple[int, int]:
    """Return the time between two like hours, and how many of them the log has behind it."""
    seen_ns = now_ns - history.begin_ns
    if seen_ns >= 2 * WEEK_NS:
        return WEEK_NS, min(WEEKS, seen_ns // WEEK_NS)
    if seen_ns >= 2 * DAY_NS:
        return DAY_NS, min(DAYS, seen_ns // DAY_NS)
    return (seen_ns // 2, 1) if seen_ns >= HOUR_NS else (0, 0)


def command_of(arrival: Arrival, number: int) -> SubmitJob:
    """Return the command of an arrival."""
    submit = arrival.submit
    return SubmitJob(
        id=f"arrival-{number}",
        user=submit.user,
        name=submit.name,
        queue=submit.queue,
        request=submit.request,
        spec=SPEC,
        priority=submit.priority,
        total_ns=submit.total_ns,
        slice_ns=submit.slice_ns,
    )


def facts_of(command: SubmitJob, at_ns: int) -> JobFacts:
    """Return what is known of a job that is submitted in a future."""
    return JobFacts(
        command.user,
        command.name,
        command.queue,
        command.request,
        command.total_ns,
        command.kind,
        command.checkpoint is not None,
        at_ns,
    )


def commands(found: Iterable[Arrival]) -> list[tuple[int, SubmitJob]]:
    """Return (time, command) of arrivals, in their order."""
    return [(each.at_ns, command_of(each, at)) for at, each in enumerate(sorted(found, key=lambda each: each.at_ns))]
