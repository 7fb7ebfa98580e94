"""How long each job of a recording runs and how it ends, for any play of it.

Lengths belong to jobs, not to attempts: an attempt that is cut elsewhere than in the record continues from what was kept. A
job's record is a row of phases; each ends with an own end (an exit, a crash), and the n-th own end of a play is the n-th of
the record. Best first, a phase's length is

    exact      its only run came to its own end
    kept       runs were cut and a later one came to its own end: kept work, plus the last run
    drawn      it was only ever cut, or never ran (`survival.py`)
    endless    its time limit ended it, and does so again

Lengths are counted in unit-ns: a gang with half of its units takes twice as long.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from statistics import median_low
from typing import Literal, NamedTuple

from fairlead_replay.whatif.given import GivenCommand, GivenEvents
from fairlead_replay.whatif.nodes import STOPPED, SUCCESS, Execution, RunEnd, RunScript
from fairlead_replay.whatif.real_cluster import RealAttempt, RealJob
from fairlead_replay.whatif.record import LogRecording
from fairlead_replay.whatif.survival import Groups, SeenLength, uniform
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire.events import JobSubmitted
from fairlead_schemas.wire.resources import Request

type Basis = Literal["exact", "kept", "drawn", "endless"]
type Keeping = Literal["none", "saved", "all"]

#: Outcomes of a run that ended by itself.
OWN_OUTCOMES = ("exited", "oom", "gpu_memory")
#: A play decides some milliseconds before the record did.
FAULT_SLACK_NS = 100_000_000
#: Outcomes of runs that never were one.
FAILED_STARTS = ("start_failed", "preflight")


class Phase(NamedTuple):
    """Part of a job's life up to an own end. Amounts are unit-ns of useful work."""

    basis: Basis
    #: None: endless.
    work: int | None
    end: RunEnd
    #: How its job keeps work when a run is cut.
    keeping: Keeping
    #: Saved work, rising.
    saves: tuple[tuple[int, str], ...] = ()
    #: Wishes that it ends, by how far it is.
    calls: tuple[tuple[int, GivenCommand | GivenEvents], ...] = ()


class JobLengths:
    """Phases of one job, and how far it is in a play."""

    __slots__ = ("done", "phase", "phases")

    def __init__(self, phases: list[Phase]) -> None:
        self.phases = phases
        self.phase = self.done = 0

    @property
    def now(self) -> Phase:
        """The phase that it is in; beyond the record the last one again, which then ends well."""
        if self.phase < len(self.phases):
            return self.phases[self.phase]
        last = self.phases[-1]
        return last._replace(end=SUCCESS, calls=(), saves=())

    def cut(self, ran: int) -> None:
        """A run ended before its time; keep what is kept of it."""
        self.done = kept_of(self.now, self.done, ran)

    def complete(self) -> None:
        """A run came to its own end."""
        self.phase += 1
        self.done = 0


def kept_of(phase: Phase, done: int, ran: int) -> int:
    """Return the work that a next run goes on from."""
    match phase.keeping:
        case "all":
            return done + ran
        case "saved":
            return max((work for work, _ in phase.saves if done < work <= done + ran), default=done)
        case _:
            return done


# ---------------------------------------------------------------------------- from the record


class _Cut(NamedTuple):
    """Run that was cut: what it ran, and its saves, both in unit-ns."""

    ran: int
    saves: tuple[tuple[int, str], ...]
    attempt: RealAttempt


def units_of(request: Request) -> int:
    """Return the units of a whole placement, at least one."""
    return max(1, request.units)


def is_own_end(attempt: RealAttempt) -> bool:
    """Return True for a run that ended by itself: not asked to, or well in spite of it."""
    end = attempt.end
    if end is None or not attempt.started_ns or end.outcome not in OWN_OUTCOMES:
        return False
    return not attempt.stop_ns or (end.outcome == "exited" and end.exit_code == 0)


def end_of(attempt: RealAttempt) -> RunEnd:
    """Return how an attempt ended, in the words of the rank that decided it."""
    end = attempt.end
    if end is None:
        return STOPPED
    first = attempt.rank_ends.get(end.rank)
    message = first.message if first is not None else end.message
    return RunEnd(end.outcome, end.exit_code, end.signal, message, end.fault, end.rank, end.blames)


def _run_work(attempt: RealAttempt, until_ns: int) -> int:
    """Return the unit-ns that an attempt ran, up to its deciding rank's end or to a time."""
    return max(1, attempt.ran_ns(until_ns)) * max(1, attempt.units)


def phases_of(job: RealJob, end_ns: int, draw: Callable[[int], int]) -> list[Phase]:
    """Return the phases of a job in a record that ends at `end_ns`. `draw(seen)`: a length of more unit-ns than were seen.
    The last phase is one that no attempt has reached the end of, if the job had not ended well."""
    found: list[Phase] = []
    cuts: list[_Cut] = []
    numbers: dict[int, tuple[int, int]] = {}
    for attempt in job.attempts:
        if not attempt.started_ns:
            continue
        ran = _run_work(attempt, end_ns)
        saves = tuple([((at - attempt.started_ns) * max(1, attempt.units), note) for at, note, _ in attempt.saves])
        numbers[attempt.number] = len(found), len(cuts)
        cuts.append(_Cut(ran, saves, attempt))
        if is_own_end(attempt):
            found.append(_phase(job, cuts, end_of(attempt), None))
            cuts = []
    if cuts or not found or job.end != "JobSucceeded":
        found.append(_phase(job, cuts, SUCCESS, draw))
    return _with_calls(job, found, numbers)


def _phase(job: RealJob, cuts: list[_Cut], end: RunEnd, draw: Callable[[int], int] | None) -> Phase:
    """Return the phase of these runs, of which the last came to the end; with `draw` none did."""
    for keeping in _keepings(job, cuts):
        phase = Phase("exact", None, end, keeping)
        done = seen = 0
        saves: list[tuple[int, str]] = []
        starts: list[int] = []
        for cut in cuts:
            starts.append(done)
            saves += [(done + at, note) for at, note in cut.saves]
            phase = phase._replace(saves=tuple(sorted(saves)))
            seen = max(seen, done + cut.ran)
            if cut is not cuts[-1] or draw is not None:
                done = kept_of(phase, done, cut.ran)
        if draw is not None:
            if job.reason == "time_limit":
                return phase._replace(basis="endless")
            return phase._replace(basis="drawn", work=max(draw(seen), seen + 1))
        work = starts[-1] + cuts[-1].ran
        if keeping == "all" or all(start + cut.ran < work for start, cut in zip(starts[:-1], cuts[:-1], strict=True)):
            return phase._replace(basis="kept" if len(cuts) > 1 else "exact", work=work)
    raise AssertionError("keeping all work is always in keeping with the record")


def _keepings(job: RealJob, cuts: list[_Cut]) -> tuple[Keeping, ...]:
    """Return how the job may keep work, the likeliest first. A run that was longer than all that was done after it, had the
    record been right about what is kept, shows that more was."""
    if any(cut.saves for cut in cuts):
        return "saved", "all"
    return ("all",) if job.submitted.checkpoint is not None else ("none", "all")


def _with_calls(job: RealJob, phases: list[Phase], numbers: dict[int, tuple[int, int]]) -> list[Phase]:
    """Return the phases with the wishes that they end, at what was done by then."""
    for call in job.calls:
        at, index = numbers.get(call.attempt, (len(phases) - 1, 0))
        phase = phases[at]
        done = 0
        runs = [each for each in job.attempts if each.started_ns and numbers[each.number][0] == at]
        for attempt in runs[:index]:
            done = kept_of(phase, done, _run_work(attempt, attempt.ended_ns))
        units = max(1, runs[index].units) if index < len(runs) else 1
        phases[at] = phase._replace(calls=(*phase.calls, (done + call.offset_ns * units, call.given)))
    return phases


# ---------------------------------------------------------------------------- of a whole recording


class NodeFault(NamedTuple):
    """Time in which no run starts on a node: it is the node's fault, and all that start there meet it."""

    from_ns: int
    to_ns: int
    end: RunEnd
    rest_ns: int
    #: The attempt that met it in the record.
    attempt: RealAttempt

    def meets(self, placed_ns: int) -> bool:
        """Return True for a run that is about to start while the node does not start any."""
        return self.from_ns - FAULT_SLACK_NS <= placed_ns < max(self.to_ns, self.from_ns + 1)


class Lengths:
    """What every job of a recording does, as a `Behaviour` of played nodes. One object serves one play."""

    def __init__(
        self,
        recording: LogRecording,
        *,
        seed: int = 0,
        shake: float = 0.0,
        real_of: Callable[[str], str] | None = None,
        wish: Callable[[GivenCommand | GivenEvents, str, int], None] | None = None,
    ) -> None:
        """`shake`: every length is changed by up to this part of it, by seed and job. `real_of`: {id in the play: id in the
        record}. `wish`: called with what is asked or found of a run because of how
        far it is, its job, and when it started."""
        self._recording, self._seed, self._shake = recording, seed, shake
        self._real_of = real_of or (lambda job: job)
        self._wish = wish or (lambda given, job, started_ns: None)
        self._jobs: dict[str, JobLengths] = {}
        #: Jobs of the play that the record has not: submits that were refused then.
        self._strangers: dict[str, RealJob] = {}
        self._groups = groups_of(recording)
        self._usual = usual_delays(recording)
        self._faults = node_faults(recording)
        self._cuts: Counter[str] = Counter()
        self.has_clocks = any(
            attempt.end is not None and attempt.end.ran_ns
            for job in recording.real.jobs.values()
            for attempt in job.attempts
        )
        #: GPU-ns held by runs whose length was of each basis.
        self.held: Counter[str] = Counter()
        self._catch_up()

    # ------------------------------------------------------------------ Behaviour

    def begin(self, execution: Execution, now_ns: int) -> RunScript:
        """Return what a run will do: what its job's record says from where it is."""
        lengths, attempt = self._lengths(execution.job), self._attempt(execution)
        failure = self._failure(execution, attempt)
        if failure is not None:
            return failure
        phase, units = lengths.now, max(1, execution.units)
        length_ns = (
            None if phase.work is None else max(1, -(-(self._shaken(execution, phase.work) - lengths.done) // units))
        )
        return RunScript(
            length_ns,
            self._delays(execution, attempt),
            rest_ns=_rest_ns(attempt) if attempt is not None and is_own_end(attempt) else 0,
            image=attempt.image if attempt is not None else "",
            saves=tuple([((at - lengths.done) // units, note) for at, note in phase.saves if at > lengths.done]),
            calls=tuple(
                [
                    (
                        max(0, at - lengths.done) // units,
                        lambda given=given: self._wish(given, execution.job, execution.started_ns),
                    )
                    for at, given in phase.calls
                    if at >= lengths.done
                ]
            ),
        )

    def stop_delay_ns(self, execution: Execution) -> int:
        """Return the time from the order to the end, as recorded for that attempt, else as usual."""
        attempt = self._attempt(execution)
        usual = self._usual.stop_ns
        asked_ns = (attempt.stop_ns or attempt.halted_ns) if attempt is not None else 0
        if attempt is None or not asked_ns or not attempt.ended_ns:
            return usual
        took_ns = self._between("placer", asked_ns, attempt.ended_ns)
        return max(usual, took_ns + FAULT_SLACK_NS) if attempt.stop_ns and is_own_end(attempt) else took_ns

    def clean_delay_ns(self, execution: Execution, rank: int) -> int:
        """Return the time from a rank's end to its devices being free, likewise."""
        attempt = self._attempt(execution)
        gone_ns = attempt.gone_ns.get(execution.nodes[rank], 0) if attempt is not None else 0
        if attempt is None or not attempt.ended_ns or not gone_ns:
            return self._usual.clean_ns
        return self._between("placer", attempt.ended_ns, gone_ns)

    def finish(self, execution: Execution, now_ns: int) -> RunEnd:
        """Book what a run has done, and return its end."""
        lengths, attempt = self._lengths(execution.job), self._attempt(execution)
        phase = lengths.now
        ran = max(0, now_ns - execution.started_ns) * max(1, execution.units) if execution.started_ns else 0
        if phase.work is not None and execution.started_ns and self._is_done(execution, now_ns):
            lengths.complete()
            return phase.end
        lengths.cut(ran)
        if attempt is not None and attempt.end is not None and not is_own_end(attempt):
            words = end_of(attempt)
            if words.outcome in (*OWN_OUTCOMES, "stopped"):
                return words
        return STOPPED

    def lose(self, execution: Execution, now_ns: int) -> None:
        """Book a run that was lost with its node."""
        if execution.started_ns:
            self._lengths(execution.job).cut(max(0, now_ns - execution.started_ns) * max(1, execution.units))

    def cutting_ns(self, node: str) -> int:
        """Return the time that the node's next repartition takes: as the same one of the record did, else as usual."""
        took, at = self._recording.cuts_ns.get(node, []), self._cuts[node]
        self._cuts[node] += 1
        return took[at] if at < len(took) else self._usual.cut_ns

    # ------------------------------------------------------------------ parts

    def basis_of(self, job: str) -> Basis:
        """Return what the present length of a job of the play rests on."""
        return self._lengths(job).now.basis

    def _is_done(self, execution: Execution, now_ns: int) -> bool:
        length_ns = execution.script.length_ns
        return length_ns is not None and now_ns >= execution.started_ns + length_ns

    def _attempt(self, execution: Execution) -> RealAttempt | None:
        job = self._recording.real.jobs.get(self._real_of(execution.job))
        return job.attempt(execution.attempt) if job is not None else None

    def _lengths(self, id_: str) -> JobLengths:
        real = self._real_of(id_)
        found = self._jobs.get(real)
        if found is None:
            found = self._jobs[real] = JobLengths(self._phases(real))
        return found

    def _phases(self, real: str) -> list[Phase]:
        job = self._recording.real.job_of(real) or self._stranger(real)
        if job is None:
            return [Phase("endless", None, SUCCESS, "none")]
        full = units_of(job.submitted.request)
        keys, chance = keys_of(job), uniform(self._seed, real)
        return phases_of(job, self._recording.end_ns, lambda seen: self._groups.draw(keys, seen // full, chance) * full)

    def meet(self, id_: str, submitted: JobSubmitted, at_ns: int) -> None:
        """A job enters that the record has not; its runs are drawn."""
        self._strangers[id_] = RealJob(id_, submitted, at_ns)

    def _stranger(self, real: str) -> RealJob | None:
        found = self._strangers.get(real)
        array = array_of(real)
        if found is None and array is not None and array in self._strangers:
            parent = self._strangers[array]
            found = self._strangers[real] = RealJob(real, parent.submitted, parent.submitted_ns)
        return found

    def _shaken(self, execution: Execution, work: int) -> int:
        if not self._shake:
            return work
        real = self._real_of(execution.job)
        return round(work * (1 + self._shake * (2 * uniform(self._seed, real, "length") - 1)))

    def _failure(self, execution: Execution, attempt: RealAttempt | None) -> RunScript | None:
        is_same = attempt is not None and attempt.nodes == execution.nodes
        for rank, node in enumerate(execution.nodes):
            for fault in self._faults.get(node, ()):
                if fault.attempt is attempt if is_same else fault.meets(execution.placed_ns):
                    blames = fault.end.blames if len(execution.nodes) > 1 else None
                    end = fault.end if is_same else fault.end._replace(rank=rank, blames=blames)
                    return RunScript(None, (fault.to_ns - fault.from_ns,), end, fault.rest_ns)
        if attempt is not None and attempt.end is not None and _is_own_failed_start(attempt):
            delay_ns = attempt.decided_ns - attempt.placed_ns
            return RunScript(None, (delay_ns,), end_of(attempt), _rest_ns(attempt))
        return None

    def _delays(self, execution: Execution, attempt: RealAttempt | None) -> tuple[int, ...]:
        usual = self._usual.start_ns
        if attempt is None:
            return (usual,)
        if attempt.started_ns:
            return tuple(
                [
                    self._between("placer", attempt.placed_ns, attempt.ranks.get(rank, attempt.started_ns))
                    for rank in range(len(execution.nodes) if attempt.ranks else 1)
                ]
            )
        seen_ns = (attempt.ended_ns or self._recording.end_ns) - attempt.placed_ns
        return (max(usual, seen_ns + FAULT_SLACK_NS),)

    def _between(self, writer: str, from_ns: int, to_ns: int) -> int:
        """Return the time between two moments that a writer saw, less that in which it was away up to the second one: what it sees first
        on its return may have waited for it, what it sees later has not."""
        away_ns = sum(
            max(0, to_ns - max(each.from_ns, from_ns))
            for each in self._recording.absences
            if each.writer == writer and from_ns < each.to_ns == to_ns
        )
        return max(0, to_ns - from_ns - away_ns)

    def _catch_up(self) -> None:
        """Bring jobs to where they were at the window's start."""
        start_ns = self._recording.start.at_ns
        for job in self._recording.real.jobs.values():
            if job.submitted_ns <= start_ns and job.attempts and not 0 < job.ended_ns <= start_ns:
                lengths = self._lengths(job.id)
                for attempt in job.attempts:
                    if attempt.started_ns and 0 < attempt.ended_ns <= start_ns:
                        if is_own_end(attempt):
                            lengths.complete()
                        else:
                            lengths.cut(_run_work(attempt, 0))


class UsualDelays(NamedTuple):
    """Medians of what a recording has, in ns; 0: it has none."""

    start_ns: int
    stop_ns: int
    clean_ns: int
    cut_ns: int


def _attempts(recording: LogRecording) -> Iterable[RealAttempt]:
    return (attempt for job in recording.real.jobs.values() for attempt in job.attempts)


def usual_delays(recording: LogRecording) -> UsualDelays:
    """Return the median times from placement to start, order to end, end to clean devices, plan to new layout."""
    starts = [each.started_ns - each.placed_ns for each in _attempts(recording) if each.started_ns]
    stops = [
        max(0, each.ended_ns - each.stop_ns)
        for each in _attempts(recording)
        if each.stop_ns and each.ended_ns and not is_own_end(each)
    ]
    cleans = [
        max(0, gone_ns - each.ended_ns)
        for each in _attempts(recording)
        if each.ended_ns
        for gone_ns in each.gone_ns.values()
    ]
    cuts = [took for each in recording.cuts_ns.values() for took in each]
    return UsualDelays(*(median_low(each) if each else 0 for each in (starts, stops, cleans, cuts)))


def _is_own_failed_start(attempt: RealAttempt) -> bool:
    end = attempt.end
    if end is None or attempt.started_ns or attempt.stop_ns:
        return False
    return end.outcome in OWN_OUTCOMES or (end.outcome == "start_failed" and end.fault != "node")


def _rest_ns(attempt: RealAttempt) -> int:
    """Return the time from the deciding rank's end to that of the last one."""
    return max(0, attempt.ended_ns - attempt.decided_ns)


def node_faults(recording: LogRecording) -> dict[str, list[NodeFault]]:
    """Return {node: times in which runs do not start there}, from starts that failed for the node's sake."""
    found: dict[str, list[NodeFault]] = {}
    for attempt in _attempts(recording):
        end = attempt.end
        if end is None or attempt.started_ns or end.outcome not in FAILED_STARTS or _is_own_failed_start(attempt):
            continue
        rank = end.blames if end.blames is not None else end.rank
        if rank < len(attempt.nodes):
            fault = NodeFault(attempt.placed_ns, attempt.decided_ns, end_of(attempt), _rest_ns(attempt), attempt)
            found.setdefault(attempt.nodes[rank], []).append(fault)
    return found


def keys_of(job: RealJob) -> tuple[tuple[str, ...], ...]:
    """Return the groups of jobs that are like it, the most alike first."""
    submitted, request = job.submitted, job.submitted.request
    size = f"{request.gpu_milli_total}"
    return (
        ("name", submitted.user, submitted.name),
        ("size", submitted.user, size),
        ("queue", submitted.queue, size),
        ("pool", request.pool),
    )


def groups_of(recording: LogRecording) -> Groups:
    """Return the lengths that the record shows, whole and cut, in the order of their submits."""
    groups = Groups()
    for job in recording.real.jobs.values():
        if job.is_array or job.reason == "time_limit":
            continue
        full = units_of(job.submitted.request)
        for phase in phases_of(job, recording.end_ns, lambda seen: seen):
            if phase.work is None or phase.work <= 1:
                continue
            groups.add(keys_of(job), SeenLength(phase.work // full, phase.basis != "drawn"))
    return groups
