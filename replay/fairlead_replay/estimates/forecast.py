"""A question answered from many futures, within a bounded amount of work. Pure.

Work is counted in events and copied jobs, never in seconds, so an answer does not depend on the machine. A job whose line is
too long to be played, or whose futures do not end within the work, is laid out in time instead (`layout.py`).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from fairlead_queue.decide.admission import future_order, request_in_pool
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import LiveJob
from fairlead_replay.estimates.chances import DrawnLengths, facts_of
from fairlead_replay.estimates.futures import ClusterMoment, FutureStart, Question, play_future
from fairlead_replay.estimates.history import ClusterHistory
from fairlead_replay.estimates.layout import LengthOf, Line, lay_out, line_of
from fairlead_replay.estimates.lengths_now import LengthsNow
from fairlead_schemas.units.timestamps import DAY_NS, MINUTE_NS

#: Futures of one question: half of them with submits that may still come.
FUTURES, FUTURES_MIN = 32, 6
LAID_OUT_FUTURES = 16
#: Work of one question, in events; a copy of the cores counts as this share of its jobs.
WORK_MAX, COPY_SHARE = 2_400, 0.25
#: Longer lines are laid out.
PLAYED_LINE_MAX = 20
#: Jobs that are laid out for one question, over all its futures.
LAID_OUT_MAX = 30_000
#: Lengths to which an outlived estimate of the last two is raised (Tsafrir et al.).
RAISED_NS = tuple(each * MINUTE_NS for each in (1, 5, 15, 30, 60, 120, 300, 600, 1200, 3000, 6000))
#: What never starts in a future counts as this far away.
NEVER_NS = 365 * DAY_NS

#: States of jobs that wait for their start.
WAITING = ("queued", "offered", "scheduled")

type Basis = Literal["played", "laid_out"]
#: Why no interval can be given.
type Unknown = Literal["", "refused", "held", "after", "array", "queue_held", "no_node", "never", "not_waiting"]


class Forecast(NamedTuple):
    """What futures say of a job's start. Times are waits from the moment of the question, in ns."""

    sequence: int
    now_ns: int
    unknown: Unknown = ""
    #: Code of a refusal.
    code: str = ""
    basis: Basis = "played"
    #: Waits in the futures, rising; NEVER_NS: it did not start.
    waits_ns: tuple[int, ...] = ()
    #: Every future starts it at the moment of the question, and nothing has to end for it.
    at_once: bool = False
    #: Where it starts at once.
    nodes: tuple[str, ...] = ()
    #: (job, rule, in how many of the futures it yields)
    displaced: tuple[tuple[str, str, int], ...] = ()
    #: Jobs ahead that were not laid out.
    more: bool = False

    @property
    def futures(self) -> int:
        """How many futures say it."""
        return len(self.waits_ns)

    def wait_ns(self, part: float) -> int:
        """Return the wait that this part of the futures does not exceed."""
        return quantile(self.waits_ns, part)


def quantile(rising: Sequence[int], part: float) -> int:
    """Return the value between two of a rising sequence that this part of it does not exceed."""
    if not rising:
        return 0
    at = part * (len(rising) - 1)
    low = int(at)
    high = min(low + 1, len(rising) - 1)
    return round(rising[low] + (rising[high] - rising[low]) * (at - low))


class Forecaster:
    """Questions about one moment of a log."""

    def __init__(self, moment: ClusterMoment, state: QueueState, history: ClusterHistory, seed: str) -> None:
        """`state`: that of the queue at the moment."""
        self.moment, self._state, self._history = moment, state, history
        self._lengths = LengthsNow(history, moment.now_ns)
        self._seed = f"{seed}:{moment.sequence}"

    def forecast(self, question: Question, *, futures: int = FUTURES, work_max: int = WORK_MAX) -> Forecast:
        """SaidStart a question."""
        told = Forecast(self.moment.sequence, self.moment.now_ns)
        unknown = self._unknown(question)
        if unknown:
            return told._replace(unknown=unknown)
        first = self._play(question, 0, 0)
        if first.refused:
            return told._replace(unknown="refused", code=first.refused)
        if first.at_once:  # nothing that is drawn has any part in it
            return self._told(told, [first])
        line = self._line(question)
        if line is None:
            return told._replace(unknown="no_node")
        if len(line.waiting) <= PLAYED_LINE_MAX:
            starts = self._play_all(question, futures, work_max)
            if len(starts) >= min(FUTURES_MIN, futures):
                return self._told(told, starts)
        return self._laid_out(told._replace(basis="laid_out", more=line.more), line, question, futures)

    def _told(self, told: Forecast, starts: list[FutureStart]) -> Forecast:
        waits = tuple(sorted(each.start_ns - self.moment.now_ns for each in starts))
        yielders = Counter(yielder for each in starts for yielder in each.displaced)
        at_once = all(each.at_once for each in starts)
        displaced = tuple([(job, rule, times) for (job, rule), times in sorted(yielders.items())])
        nodes = starts[0].nodes if at_once else ()
        return told._replace(waits_ns=waits, at_once=at_once, nodes=nodes, displaced=displaced)

    def _play(self, question: Question, future: int, events_max: int) -> FutureStart:
        busy = future % 2 == 1
        return play_future(
            self.moment,
            self._history,
            self._lengths,
            question,
            self._seed,
            future // 2,
            busy=busy,
            events_max=events_max,
        )

    def _play_all(self, question: Question, futures: int, work_max: int) -> list[FutureStart]:
        """Return the futures that the work allows; [] where one does not come to the start."""
        work, starts = 0, list[FutureStart]()
        while len(starts) < futures and work < work_max:
            start = self._play(question, len(starts), max(1, work_max // FUTURES_MIN))
            work += start.events + round(len(self._state.jobs) * COPY_SHARE)
            if not start.start_ns:
                return []
            starts.append(start)
        return starts

    def _unknown(self, question: Question) -> Unknown:
        state = self._state
        if question.submit is not None:
            submit = question.submit
            if submit.held:
                return "held"
            if submit.after:
                return "after"
            return _queue_unknown(state, submit.queue)
        job = state.jobs.get(question.job)
        if job is None:
            return "not_waiting"
        if job.state == "held":
            return "held"
        if job.wait in ("jobs", "array"):
            return "after" if job.wait == "jobs" else "array"
        if job.state not in WAITING:
            return "not_waiting"
        return _queue_unknown(state, job.lane.leaf.queue.path)

    # ------------------------------------------------------------------ laid out

    def _line(self, question: Question) -> Line | None:
        """Return the line up to the job; None where its pool has no node yet."""
        state = self._state
        if question.submit is None:
            job = state.jobs[question.job]
            return line_of(state, job) if job.lane.request_class.pool.is_known() else None
        command = question.submit
        if not state.queues[command.queue].pool.is_known():
            return None
        draft = QueueDraft(state, self.moment.now_ns, 0)
        with state.speculating():
            request = request_in_pool(draft, command)
            order = future_order(draft, command, state.next_place)
            job = LiveJob("0", order, state.lane(command.queue, command.user, request), "clock")
            job.user, job.total_ns, job.since_ns = command.user, command.total_ns, self.moment.now_ns
            state.try_in_line(job, set())
            return line_of(state, job)

    def _laid_out(self, told: Forecast, line: Line, question: Question, futures: int) -> Forecast:
        count = max(
            2 if futures < FUTURES_MIN else 4,
            min(futures, LAID_OUT_FUTURES, LAID_OUT_MAX // max(1, len(line.waiting) + len(line.running))),
        )
        now_ns = self.moment.now_ns
        waits: list[int] = []
        for future in range(count):
            drawn = DrawnLengths(self._history, self._lengths, self._seed, future)
            if question.submit is not None:
                drawn.meet("0", facts_of(question.submit, now_ns))
            start_ns = lay_out(line, now_ns, self._end_of(drawn), self._length_of(drawn))
            not_before_ns = question.submit.start_at_ns if question.submit is not None else self._timer_ns(question.job)
            if start_ns is None:
                waits.append(NEVER_NS)
            else:
                waits.append(max(start_ns, not_before_ns) - now_ns + self._history.start_ns)
        waits.sort()
        if waits[len(waits) // 2] >= NEVER_NS:
            return told._replace(unknown="never")
        return told._replace(waits_ns=tuple(waits))

    def _timer_ns(self, job: str) -> int:
        return self._state.jobs[job].start_at_ns

    def baselines(self, question: Question) -> dict[str, tuple[int, int, int]]:
        """Return the three quantiles of the simple estimates: everybody to his limit; everybody as long as the user's last two."""
        line, now_ns = self._line(question), self.moment.now_ns
        if line is None:
            return {}
        found: dict[str, tuple[int, int, int]] = {}
        for name, length_of in (("limits_layout", self._limit), ("last_two", self._last_two)):
            start_ns = lay_out(line, now_ns, self._simple_end(length_of), length_of)
            wait_ns = NEVER_NS if start_ns is None else start_ns - now_ns
            found[name] = (wait_ns, wait_ns, wait_ns)
        return found

    def _limit(self, id_: str) -> int | None:
        job = self._state.jobs.get(id_)
        return job.total_ns or None if job is not None else None

    def _last_two(self, id_: str) -> int | None:
        facts = self._history.facts_of(id_)
        last = self._history.lengths.last(facts.keys[:2], 2) if facts is not None else []
        return sum(each.length_ns for each in last) // 2 if last else self._limit(id_)

    def _simple_end(self, length_of: LengthOf) -> LengthOf:
        now_ns = self.moment.now_ns

        def end_of(id_: str) -> int | None:
            length_ns, facts = length_of(id_), self._history.facts_of(id_)
            if length_ns is None or facts is None:
                return None
            ran_ns = facts.done_ns + (now_ns - facts.started_ns if facts.started_ns else 0)
            if length_ns <= ran_ns:  # it has outlived its estimate, which is raised in steps
                length_ns = next((each for each in RAISED_NS if each > ran_ns), 2 * ran_ns)
            return now_ns + length_ns - ran_ns

        return end_of

    def _end_of(self, drawn: DrawnLengths) -> LengthOf:
        now_ns, jobs = self.moment.now_ns, self._state.jobs

        def end_of(id_: str) -> int | None:
            facts, job = self._history.facts_of(id_), jobs.get(id_)
            whole_ns = drawn.whole_ns(id_, now_ns)
            if facts is None or job is None:
                return now_ns
            if job.total_ns:
                left_ns = job.total_ns - facts.done_ns
                whole_ns = left_ns if whole_ns is None else min(left_ns + facts.done_ns, whole_ns)
            if whole_ns is None:
                return None
            return max(now_ns, (facts.started_ns or now_ns) + max(0, whole_ns - facts.done_ns))

        return end_of

    def _length_of(self, drawn: DrawnLengths) -> LengthOf:
        now_ns, jobs = self.moment.now_ns, self._state.jobs

        def length_of(id_: str) -> int | None:
            job = jobs.get(id_)
            whole_ns = drawn.whole_ns(id_, now_ns)
            limit_ns = job.total_ns if job is not None else 0
            if whole_ns is None or (limit_ns and limit_ns < whole_ns):
                return limit_ns or None
            return whole_ns

        return length_of


def _queue_unknown(state: QueueState, path: str) -> Unknown:
    if path not in state.queues:
        return "refused"
    return "queue_held" if state.closures.holding(path) else ""
