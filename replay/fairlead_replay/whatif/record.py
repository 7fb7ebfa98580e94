"""What a log recorded: the stimuli that were given, what was real of each job, and the state at a moment.

    recording = record_of(commits, window)

A commit's time is that of the log: the running maximum of all commits' times. Clocks of writers are some milliseconds apart,
and an imagined log has one.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fairlead_access.core import AccessCore
from fairlead_bus.core import Decision
from fairlead_bus.log import Chain, LogHead
from fairlead_bus.port import LogDamaged, Stored
from fairlead_placer.cluster.entities import PlacedRun, run_key
from fairlead_placer.core import PlacerCore
from fairlead_queue.core import QueueCore
from fairlead_replay.fold import FoldedCluster
from fairlead_replay.whatif.commands import CMD_PREFIX, Command, CommandReader
from fairlead_replay.whatif.given import Given, GivenCommand, GivenEvents, GivenFact
from fairlead_replay.whatif.reactions import Reactions, ReactionWatch
from fairlead_replay.whatif.real_cluster import RealCluster, RunCall
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit, CommitUndecodable, decode_commit
from fairlead_schemas.wire.events import RunOutcome
from fairlead_storage.core import StorageCore
from fairlead_telemetry.idle.core import IdleCore

#: Writers whose commits are taken as they were.
GIVEN_WRITERS = ("telemetry", "access", "storage")
#: Outcomes that a node's agent reports of a run which nobody asked to stop.
STRUCK: tuple[RunOutcome, ...] = ("stopped", "exit_unknown", "node_lost")
#: What telemetry says of a run.
ABOUT_RUNS = (ev.JobIdle, ev.JobActive, ev.JobExtended, ev.LeaseShrunk, ev.ReclaimRequested, ev.ReclaimSimulated)


class WindowError(ValueError):
    """A window of a log from which nothing can be played; the message names the bound and what was expected."""


class LogWindow(NamedTuple):
    """Part of a log that is played again: after `from_ns`, up to `to_ns` (both Unix ns, both included in what they bound).
    0: the log's own start or end."""

    from_ns: int = 0
    to_ns: int = 0


class Absence(NamedTuple):
    """Time in which a service decided nothing: it was down, cut off, or without a leader."""

    writer: str
    from_ns: int
    to_ns: int


class Start(NamedTuple):
    """State of the cluster at the moment from which a log is played again."""

    sequence: int
    at_ns: int
    heads: dict[str, LogHead]
    #: {writer: snapshot of its core}; {}: nothing was before.
    snapshots: dict[str, bytes]
    #: {writer: position of the last message of commands that it had consumed}
    positions: dict[str, int] = {}

    def cluster(self) -> FoldedCluster:
        """Return the cores as they were then; each call makes new ones."""
        cluster = FoldedCluster()
        if self.snapshots:
            cluster.queue = QueueCore.restore(self.snapshots["queue"])
            cluster.placer = PlacerCore.restore(self.snapshots["placer"])
            cluster.idle = IdleCore.restore(self.snapshots["telemetry"])
            cluster.access = AccessCore.restore(self.snapshots["access"])
            cluster.storage = StorageCore.restore(self.snapshots["storage"])
        cluster.sequence, cluster.at_ns = self.sequence, self.at_ns
        return cluster


class LogRecording(NamedTuple):
    """A window of a log: the state at its start, what was given in it, and what was real."""

    start: Start
    #: Unix ns of the last commit that is in it.
    end_ns: int
    #: In the order of the log.
    given: list[Given]
    real: RealCluster
    #: Sequences of the window's commits, both included; the first is above the last where there are none.
    first: int
    last: int
    #: Time that each repartition of a GPU took: {node: [ns]}.
    cuts_ns: dict[str, list[int]]
    #: Answers whose command the log does not tell.
    unknown: Counter[str]
    absences: tuple[Absence, ...] = ()
    #: Unix ns of the log's first commit.
    begin_ns: int = 0
    #: None: services know everything at once.
    reactions: Reactions | None = None


#: Answers that a service gives at once, to an event that they name as their cause.
PROMPT = (
    ev.JobPlaced,
    ev.JobUnplaceable,
    ev.OfferReturned,
    ev.JobSucceeded,
    ev.JobFailed,
    ev.JobRequeued,
    ev.JobCancelled,
    ev.JobHeld,
    ev.JobStopRequested,
)
#: An answer that is later than this shows that its service was away.
PROMPT_NS = 100_000_000
#: By so much a play may be ahead of its record.
SLACK_NS = 50_000_000


class AbsenceWatch:
    """Finds the times in which a service decided nothing, from answers that were due at once and came late.

    A commit names the sequence up to which its writer had folded (its basis). An event could have been answered first by
    the writer's first commit with a later basis. A commit that was written before, and reached the log after, shows that its
    writer was cut off from the log.
    """

    def __init__(self) -> None:
        self._found: list[Absence] = []
        #: {sequence: time of that commit}
        self._at_ns: dict[int, int] = {}
        #: {writer: basis of its newest commit, and when that was}
        self._basis: dict[str, int] = {}
        self._newest_ns: dict[str, int] = {}
        #: {"cmd:<id>": sequence of the commit that answered it first}: what follows from it is due at once.
        self._commands: dict[str, int] = {}

    def take(self, sequence: int, commit: Commit, now_ns: int, placer: PlacerCore) -> None:
        """Take the next commit, before the placer folds it."""
        writer, before = commit.writer, self._basis.get(commit.writer, 0)
        asked = [at for event in commit.events if (at := self._asked(event, placer)) > before]
        if commit.basis + 1 < sequence:
            asked.append(commit.basis + 1)
        due = [due_ns for event in commit.events if (due_ns := _due_ns(event, placer))]
        since_ns = min([*(self._at_ns.get(at, now_ns) for at in asked), *due], default=now_ns)
        if now_ns - since_ns > PROMPT_NS:
            # A play decides some milliseconds before the record did, and is to meet the same outage.
            newest_ns = self._newest_ns.get(writer, 0)
            self._found.append(Absence(writer, max(newest_ns + 1, since_ns - SLACK_NS), now_ns))
        self._at_ns[sequence] = now_ns
        self._basis[writer] = commit.basis
        self._newest_ns[writer] = now_ns
        for event in commit.events:
            if event.cause.startswith(CMD_PREFIX):
                self._commands.setdefault(event.cause, sequence)

    def absences(self) -> tuple[Absence, ...]:
        """Return the absences, those that overlap as one."""
        found: list[Absence] = []
        for each in sorted(self._found):
            if found and found[-1].writer == each.writer and each.from_ns <= found[-1].to_ns:
                found[-1] = found[-1]._replace(to_ns=max(found[-1].to_ns, each.to_ns))
            else:
                found.append(each)
        return tuple(found)

    def _asked(self, event: ev.Event, placer: PlacerCore) -> int:
        """Return the sequence of the commit that an event answers at once; 0: it answers none."""
        if not isinstance(event, PROMPT):
            return 0
        if isinstance(event, ev.JobPlaced | ev.JobUnplaceable):
            offer = placer.state.offers.get(event.job)
            group = placer.state.classes.get(offer.request) if offer is not None else None
            if group is None or group.outcome is not None:
                return 0  # its class was known to find no place, and waited for room
        if event.cause.startswith(CMD_PREFIX):
            return self._commands.get(event.cause, 0)
        place, dot, _ = event.cause.partition(".")
        return int(place) if dot and place.isdecimal() else 0


def _due_ns(event: ev.Event, placer: PlacerCore) -> int:
    """Return when the clock made an event due; 0: it did not, or the log does not tell."""
    if not isinstance(event, ev.JobStopRequested) or event.reason != "time_limit" or not event.ran_ns:
        return 0
    run = placer.state.runs.get(run_key(event.job, event.attempt))
    return run.began_ns + event.ran_ns if run is not None and run.began_ns else 0


class LogRecorder:
    """Reader of a log: state up to the window's start, then what was given. `disguise` replaces the names of each commit."""

    def __init__(self, window: LogWindow, disguise: Callable[[Commit], Commit] | None = None) -> None:
        self._window, self._disguise = window, disguise
        self._chain, self._cluster, self._reader = Chain(), FoldedCluster(), CommandReader()
        self._real = RealCluster()
        self._start: Start | None = None if window.from_ns else Start(0, 0, {}, {})
        self._given: list[Given] = []
        self._first_ns = self._now_ns = self._end_ns = 0
        self._plans: dict[tuple[str, str], int] = {}
        self._cuts_ns: dict[str, list[int]] = {}
        self._last = 0
        self._past_end = False
        self._positions: dict[str, int] = {}
        self._watch, self._reactions = AbsenceWatch(), ReactionWatch()

    def take(self, stored: Stored) -> bool:
        """Read the next commit. False once the window is over. Raises LogDamaged and OtherLogFormat."""
        try:
            commit = decode_commit(stored.payload)
        except CommitUndecodable as error:
            raise LogDamaged(stored.sequence, str(error)) from error
        self._now_ns = max(self._now_ns, commit.at_ns)
        self._first_ns = self._first_ns or self._now_ns
        window = self._window
        if window.to_ns and self._now_ns > window.to_ns:
            self._past_end = True
            return False
        if self._start is None and self._now_ns > window.from_ns:
            self._begin()
        self._chain.extend(stored, commit)
        if self._disguise is not None:
            commit = self._disguise(commit)
        self._take(stored.sequence, commit)
        if "CMD" in commit.cursors:
            self._positions[commit.writer] = commit.cursors["CMD"]
        self._last, self._end_ns = stored.sequence, self._now_ns
        return True

    def _begin(self) -> None:
        cluster = self._cluster
        snapshots = {writer: core.snapshot() for writer, core in cluster.cores().items()}
        self._start = Start(
            cluster.sequence, self._window.from_ns, dict(self._chain.heads), snapshots, dict(self._positions)
        )

    def _take(self, sequence: int, commit: Commit) -> None:
        commands = self._reader.read(commit)
        if self._start is None:
            self._cluster.evolve(sequence, commit)
            self._cluster.at_ns = self._now_ns
        else:
            self._take_given(sequence, commit, commands)
            self._watch.take(sequence, commit, self._now_ns, self._cluster.placer)
            self._reactions.take(sequence, commit, self._now_ns)
            self._cluster.placer.evolve(sequence, commit)
        self._real.take(commit, self._now_ns)
        self._note_stops()

    def _take_given(self, sequence: int, commit: Commit, commands: list[Command]) -> None:
        now_ns, writer = self._now_ns, commit.writer
        if writer in GIVEN_WRITERS:
            self._take_events(sequence, commit)
            return
        position = commit.cursors.get("CMD", 0)
        for command in commands:
            self._wish(GivenCommand(now_ns, sequence, writer, position, command))
        if writer == "placer":
            self._take_facts(commit)
            self._time_cuts(commit)

    def _take_events(self, sequence: int, commit: Commit) -> None:
        """What telemetry finds of a run is found after the same run time; all else at its time."""
        others: list[ev.Event] = []
        for event in commit.events:
            attempt = self._real.running(event.job) if isinstance(event, ABOUT_RUNS) else None
            if attempt is None or not isinstance(event, ABOUT_RUNS) or attempt.number != event.attempt:
                others.append(event)
                continue
            given = GivenEvents(
                self._now_ns, sequence, commit.writer, Decision([event], commit.cursors), attempt.started_ns
            )
            self._real.jobs[event.job].calls.append(RunCall(attempt.number, self._now_ns - attempt.started_ns, given))
        if others or not commit.events:
            given = GivenEvents(self._now_ns, sequence, commit.writer, Decision(others, commit.cursors))
            self._given.append(given)

    def _wish(self, wish: GivenCommand) -> None:
        """A cancel, a requeue or a signal of a run is made because of how far the run is; all else at its time."""
        command = wish.command
        if isinstance(command, cmd.CancelJob | cmd.RequeueJob | cmd.SignalJob):
            job, attempt = self._real.jobs.get(command.job), self._real.running(command.job)
            if job is not None and attempt is not None and job.submitted.kind != "service":
                job.calls.append(RunCall(attempt.number, wish.at_ns - attempt.started_ns, wish))
                return
        self._given.append(wish)

    def _take_facts(self, commit: Commit) -> None:
        answered = {
            event.cause for event in commit.events if isinstance(event, ev.MigLayoutChanged | ev.MigLayoutFailed)
        }
        told = {event.cause for event in commit.events if isinstance(event, ev.NodeJoined | ev.NodeChanged)}
        heard: set[str] = set()
        for event in commit.events:
            fact = _fact(event, self._now_ns)
            if fact is None:
                fact = self._strike(event, told)
            if fact is None or (isinstance(event, ev.NodeChanged) and event.cause in answered):
                continue
            if fact.what == "heard":
                if fact.node in heard:
                    continue
                heard.add(fact.node)
            self._given.append(fact)

    def _strike(self, event: ev.Event, told: set[str]) -> GivenFact | None:
        """A run that ended on its node's doing: fenced there without an order, or unseen while its agent was away. (`told`: causes
        of new boots and journals, which end runs by themselves.)"""
        if not isinstance(event, ev.RunEnded | ev.RankEnded) or event.outcome not in STRUCK or event.cause in told:
            return None
        run = self._cluster.placer.state.runs.get(run_key(event.job, event.attempt))
        if run is None or run.is_stopping or event.rank >= len(run.parts) or not event.cause.startswith("report:"):
            return None
        return GivenFact(
            self._now_ns,
            run.parts[event.rank].node,
            "struck",
            job=event.job,
            outcome=event.outcome,
            exit_code=event.exit_code,
        )

    def _time_cuts(self, commit: Commit) -> None:
        for event in commit.events:
            match event:
                case ev.MigLayoutPlanned():
                    self._plans[event.node, event.gpu] = self._now_ns
                case ev.MigLayoutChanged() | ev.MigLayoutFailed():
                    planned_ns = self._plans.pop((event.node, event.gpu), self._now_ns)
                    self._cuts_ns.setdefault(event.node, []).append(self._now_ns - planned_ns)
                case _:
                    pass

    def _note_stops(self) -> None:
        """Only derived state knows which runs a drain, a taint, a fault, a window or a rollout stops."""
        state = self._cluster.placer.state
        touched, state.touched = state.touched, set()
        for name in touched:
            node = state.nodes.get(name)
            for key in node.held if node is not None else ():
                if state.runs[key].is_stopping:
                    self._stops(state.runs[key])

    def _stops(self, run: PlacedRun) -> None:
        job = self._real.jobs.get(run.job)
        last = job.attempts[-1] if job is not None and job.attempts else None
        if last is None or last.number != run.attempt:
            return
        if not run.stop:
            last.halted_ns = last.halted_ns or self._now_ns
        elif not last.stop_ns:
            last.stop_ns = max(self._now_ns, last.started_ns + run.ran_ns if last.started_ns and run.ran_ns else 0)

    def finish(self) -> LogRecording:
        """Return what was read. Raises WindowError where the window is not one of this log."""
        window = self._window
        if not self._first_ns:
            raise WindowError("log: expected commits, found none")
        if window.to_ns and window.to_ns <= window.from_ns:
            raise WindowError(
                f"to: expected a time after from ({rfc3339(window.from_ns)}), found {rfc3339(window.to_ns)}"
            )
        if window.from_ns and window.from_ns < self._first_ns:
            raise WindowError(
                f"from: expected a time from the log's first commit on ({rfc3339(self._first_ns)}), "
                f"found {rfc3339(window.from_ns)}"
            )
        if self._start is None:
            raise WindowError(
                f"from: expected a time before the log's last commit ({rfc3339(self._now_ns)}), "
                f"found {rfc3339(window.from_ns)}"
            )
        if window.to_ns and not self._past_end and window.to_ns > self._now_ns:
            raise WindowError(
                f"to: expected a time up to the log's last commit ({rfc3339(self._now_ns)}), found {rfc3339(window.to_ns)}"
            )
        end_ns = window.to_ns or self._end_ns
        absences = self._watch.absences()
        _mark_late_ends(self._real, [each for each in absences if each.writer == "placer"])
        reactions = self._reactions.reactions()
        return LogRecording(
            self._start,
            end_ns,
            self._given,
            self._real,
            self._start.sequence + 1,
            self._last,
            self._cuts_ns,
            self._reader.unknown,
            absences,
            self._first_ns,
            None if reactions.are_instant else reactions,
        )


def _mark_late_ends(real: RealCluster, away: list[Absence]) -> None:
    for job in real.jobs.values():
        for attempt in job.attempts:
            end = attempt.end
            if end is not None and end.ran_ns and attempt.started_ns:
                ended_ns = attempt.started_ns + end.ran_ns
                attempt.is_end_late = any(each.from_ns <= ended_ns < each.to_ns <= attempt.ended_ns for each in away)


def record_of(stored: Iterable[Stored], window: LogWindow = LogWindow()) -> LogRecording:  # noqa: B008 -- a constant
    """Read a log and a window of it. Raises LogDamaged, OtherLogFormat and WindowError."""
    recorder = LogRecorder(window)
    for message in stored:
        if not recorder.take(message):
            break
    return recorder.finish()


def _fact(event: ev.Event, at_ns: int) -> GivenFact | None:
    """Return what happened to a node, where the event says that something outside of the cores did."""
    match event:
        case ev.NodeJoined():
            return GivenFact(at_ns, event.node, "joined", event.inventory, event.incarnation, event.boot_id)
        case ev.NodeChanged():
            return GivenFact(at_ns, event.node, "changed", event.inventory, boot_id=event.boot_id)
        case ev.NodeLost():
            return GivenFact(at_ns, event.node, "silent", silent_ns=event.silent_ns)
        case ev.NodeReturned():
            return GivenFact(at_ns, event.node, "heard")
        case ev.NodeTainted(setter="silence"):
            return GivenFact(at_ns, event.node, "quiet")
        case ev.NodeUntainted(setter="silence"):
            return GivenFact(at_ns, event.node, "heard")
        case ev.GpuFaulted():
            return GivenFact(at_ns, event.node, "ailing", gpu=event.gpu, code=event.code, evidence=event.reason)
        case ev.NodeUnhealthy():
            return GivenFact(at_ns, event.node, "ailing", code=event.code, evidence=event.reason)
        case ev.GpuRestored() if event.cause.startswith("report:"):
            return GivenFact(at_ns, event.node, "well", gpu=event.gpu)
        case ev.NodeRecovered() if event.cause.startswith("report:"):
            return GivenFact(at_ns, event.node, "well", code=event.code)
        case _:
            return None
