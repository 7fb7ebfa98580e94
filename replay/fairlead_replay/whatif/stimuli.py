"""Stimuli of a recording, given to a play: at their time, or after what they followed.

Ids of jobs are mapped: a job of the play is that of the record whose submit had the same command. People who follow their
own ends (`closed`) submit as long after an end of the play as they did after that of the record.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import msgspec

from fairlead_bus.core import Decision, Input
from fairlead_queue.state import QueueState
from fairlead_replay.whatif.commands import Command
from fairlead_replay.whatif.given import Given, GivenCommand, GivenEvents, GivenFact
from fairlead_replay.whatif.lengths import Lengths
from fairlead_replay.whatif.nodes import PlayedNodes, RunEnd
from fairlead_replay.whatif.player import GivenCommit, PlayStalled
from fairlead_replay.whatif.record import LogRecording
from fairlead_replay.whatif.survival import uniform
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.timestamps import MINUTE_NS, SECOND_NS
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev

#: A submit that comes so soon after an end of the same user's followed it.
THINK_MAX_NS = 20 * MINUTE_NS
#: Shaken submits come later by up to this, and never after the next one of their user.
SHAKEN_MAX_NS = 30 * SECOND_NS


#: Begin of the ids of commands that a change gives.
CHANGE_ID = "whatif"


class Changes:
    """What is changed of the stimuli; this one changes nothing."""

    def first(self, at_ns: int) -> list[Given]:
        """Return what is given before all else, at the play's start."""
        return []

    def command(self, command: Command) -> Command | None:
        """Return the command as it is given; None: it is not."""
        return command

    def has_node(self, node: str) -> bool:
        """Return False for a node that is not there."""
        return True

    def made(self, command: str) -> bool:
        """Return True for the id of a command that the change made or changed: it must not be refused."""
        return command.startswith(CHANGE_ID)


class IdMap:
    """Jobs of a play and of its record. Those of before the window have one id in both."""

    def __init__(self, recording: LogRecording) -> None:
        jobs = recording.real.jobs.values()
        start_ns = recording.start.at_ns
        before = [job.id for job in jobs if job.submitted_ns <= start_ns and recording.start.sequence]
        self._played: dict[str, str] = {id_: id_ for id_ in before}
        self._real: dict[str, str] = dict(self._played)
        self._by_cause = {job.submitted.cause: job.id for job in jobs if "_" not in job.id}

    def enter(self, event: ev.JobSubmitted) -> bool:
        """A job enters the play. False for one that the record has not."""
        real = self._by_cause.get(event.cause)
        if real is None:
            return False
        self._played[real], self._real[event.job] = event.job, real
        return True

    def real(self, played: str) -> str:
        """Return the record's id of a job of the play; one that the record has not has a name of its own."""
        return self._mapped(self._real, played) or f"new:{played}"

    def played(self, real: str) -> str | None:
        """Return the play's id of a job of the record, None if it did not enter."""
        return self._mapped(self._played, real)

    def _mapped(self, ids: dict[str, str], id_: str) -> str | None:
        array = array_of(id_)
        if array is None:
            return ids.get(id_)
        found = ids.get(array)
        return None if found is None else found + id_[len(array) :]


class Following(NamedTuple):
    """Submit that followed an end of the same user's job."""

    job: str
    think_ns: int
    submit: GivenCommand


def followings(recording: LogRecording) -> list[Following]:
    """Return the submits of a recording that followed an end of their user's, and which it was."""
    ends: dict[str, list[tuple[int, str]]] = {}
    for job in recording.real.jobs.values():
        if job.ended_ns and not job.is_array:
            ends.setdefault(job.submitted.user, []).append((job.ended_ns, job.id))
    for each in ends.values():
        each.sort()
    found: list[Following] = []
    for given in recording.given:
        if not isinstance(given, GivenCommand) or not isinstance(given.command, cmd.SubmitJob):
            continue
        before = [each for each in ends.get(given.command.user, ()) if 0 <= given.at_ns - each[0] <= THINK_MAX_NS]
        if before and before[-1][0] > recording.start.at_ns:
            ended_ns, job = before[-1]
            found.append(Following(job, given.at_ns - ended_ns, given))
    return found


class RecordedStimuli:
    """`player.Stimuli` of a recording."""

    def __init__(
        self,
        recording: LogRecording,
        queue: Callable[[], QueueState],
        *,
        changes: Changes | None = None,
        closed: bool = False,
        seed: int = 0,
        shaken: bool = False,
    ) -> None:
        self._recording, self._queue = recording, queue
        self._changes = changes or Changes()
        self.ids = IdMap(recording)
        #: Set by whoever builds the play, before it begins.
        self.nodes: PlayedNodes
        self.lengths: Lengths
        self._commands: dict[str, dict[int, list[GivenCommand]]] = {"queue": {}, "placer": {}}
        self._events: dict[int, list[GivenEvents]] = {}
        self._facts: list[Input] = []
        self._positions = {"queue": 0, "placer": 0, "telemetry": 0, "access": 0, **recording.start.positions}
        #: What was not given, and why: {reason: how many}.
        self.left_out: Counter[str] = Counter()
        #: {writer: its absences, the next one last}
        self._away = {
            writer: [each for each in reversed(recording.absences) if each.writer == writer]
            for writer in ("queue", "placer")
        }
        self._followers: dict[str, list[Following]] = {}
        given = list(recording.given)
        if shaken:
            given = _shaken(given, seed)
        if closed:
            given = self._let_follow(given)
        first = self._changes.first(recording.start.at_ns)
        self._coming: list[tuple[int, int, Given]] = [
            (each.at_ns, at, each) for at, each in enumerate([*first, *given], -len(first))
        ]
        heapify(self._coming)
        self._serial = len(given)

    def _let_follow(self, given: list[Given]) -> list[Given]:
        followings_ = followings(self._recording)
        for each in followings_:
            self._followers.setdefault(each.job, []).append(each)
        ids = {each.submit.command.id for each in followings_}
        return [each for each in given if not (isinstance(each, GivenCommand) and each.command.id in ids)]

    # ------------------------------------------------------------------ time

    def next_ns(self) -> int | None:
        """Return the time of the next stimulus."""
        return self._coming[0][0] if self._coming else None

    def pass_time(self, now_ns: int) -> None:
        """Let happen on nodes what is due, and have ready what is due for a core."""
        while self._coming and self._coming[0][0] <= now_ns:
            given = heappop(self._coming)[2]
            match given:
                case GivenCommand():
                    self._ready(given)
                case GivenEvents():
                    self._events.setdefault(given.message, []).append(given)
                case GivenFact():
                    self._happen(given, now_ns)

    def _ready(self, given: GivenCommand) -> None:
        self._commands[given.writer].setdefault(given.message, []).append(given)

    def wish(self, given: GivenCommand | GivenEvents, job: str, started_ns: int) -> None:
        """What was asked or found of a run because of how far it was comes now."""
        if isinstance(given, GivenCommand):
            self._ready(given)
        else:
            later_ns = started_ns - given.started_ns
            events = [_later(event, later_ns) for event in given.decision.events]
            moved = given._replace(decision=Decision(events, given.decision.cursors))
            self._events.setdefault(given.message, []).append(moved)

    def _happen(self, fact: GivenFact, now_ns: int) -> None:
        name, nodes = fact.node, self.nodes
        if not self._changes.has_node(name):
            self.left_out["facts of nodes that are not there"] += 1
            return
        match fact.what:
            case "joined" if fact.inventory is not None:
                nodes.join(name, fact.inventory, fact.incarnation, fact.boot_id, now_ns)
            case "changed" if fact.inventory is not None:
                nodes.change(name, fact.inventory, fact.boot_id, now_ns)
            case "silent":
                nodes.fall_silent(name, now_ns)
                self._facts.append(Input("silent", 0, (name, fact.silent_ns)))
            case "heard":
                nodes.speak_again(name)
                self._facts.append(Input("heard", 0, name))
            case "struck":
                nodes.strike(name, self.ids.played(fact.job) or "", RunEnd(fact.outcome, fact.exit_code), now_ns)
            case "quiet":
                nodes.mute(name)
                self._facts.append(Input("quiet", 0, name))
            case _:
                nodes.ail(
                    name,
                    fact.gpu,
                    fact.code if fact.what == "ailing" or not fact.gpu else "",
                    fact.evidence,
                    over=fact.what == "well" and not fact.gpu,
                )

    # ------------------------------------------------------------------ what cores are given

    def commits(self) -> list[GivenCommit]:
        """Return the commits of other writers that are ready."""
        ready, self._events = self._events, {}
        found: list[GivenCommit] = []
        for _, each in sorted(ready.items()):
            events = [
                mapped for given in each for event in given.decision.events if (mapped := self._mapped_event(event))
            ]
            cursors = {name: self._position(each[0].writer, at) for name, at in each[0].decision.cursors.items()}
            if events or cursors:
                found.append(GivenCommit(each[0].writer, Decision(events, cursors)))
        return found

    def queue_inputs(self) -> list[Input]:
        """Return the next message of commands for the queue."""
        return self._message("queue")

    def placer_inputs(self) -> list[Input]:
        """Return the next message of commands for the placer, and what was heard and not heard of nodes."""
        facts, self._facts = self._facts, []
        return [*facts, *self._message("placer")]

    def _message(self, writer: str) -> list[Input]:
        waiting = self._commands[writer]
        while waiting:
            number = min(waiting)
            given = waiting.pop(number)
            commands = [mapped for each in given if (mapped := self._mapped(each)) is not None]
            if commands:
                return [Input("CMD", self._position(writer, given[0].position), commands)]
        return []

    def _position(self, writer: str, position: int) -> int:
        """Return the position of a message: the recorded one, but always a higher one than the last."""
        self._positions[writer] = max(position, self._positions[writer] + 1)
        return self._positions[writer]

    def _mapped(self, given: GivenCommand) -> Command | None:
        command = self._changes.command(given.command)
        if command is None:
            self.left_out["commands that the change replaces"] += 1
            return None
        match command:
            case cmd.SubmitJob():
                return self._mapped_submit(command)
            case (
                cmd.CancelJob()
                | cmd.RequeueJob()
                | cmd.SignalJob()
                | cmd.HoldJob()
                | cmd.ReleaseJob()
                | cmd.MoveJob()
                | cmd.UpdateJob()
            ):
                played = self.ids.played(command.job)
                if played is None and self._recording.real.job_of(command.job) is None:
                    return command  # nobody ever knew this job: it was refused, and is again
                if played is None:
                    self.left_out["commands for jobs that never entered"] += 1
                    return None
                if self._gave_up(given, played):
                    self.left_out["cancels of jobs that run in the play and only waited in the record"] += 1
                    return None
                return command if played == command.job else msgspec.structs.replace(command, job=played)
            case _:
                node = getattr(command, "node", None)
                if node is not None and not self._changes.has_node(node):
                    self.left_out["commands for nodes that are not there"] += 1
                    return None
                return command

    def _mapped_submit(self, command: cmd.SubmitJob) -> cmd.SubmitJob:
        if not command.after:
            return command
        after = [
            msgspec.structs.replace(each, job=played)
            for each in command.after
            if (played := self.ids.played(each.job)) is not None
        ]
        self.left_out["dependencies on jobs that never entered"] += len(command.after) - len(after)
        return command if after == list(command.after) else msgspec.structs.replace(command, after=tuple(after))

    def _gave_up(self, given: GivenCommand, played: str) -> bool:
        """A person who cancelled a job since it waited too long does not cancel one that runs."""
        if not isinstance(given.command, cmd.CancelJob):
            return False
        real, job = self._recording.real.jobs.get(given.command.job), self._queue().jobs.get(played)
        if (
            real is None
            or real.is_array
            or real.submitted.kind == "service"
            or any(call.given == given for call in real.calls)
        ):
            return False
        return job is not None and job.state == "running"

    def _mapped_event(self, event: ev.Event) -> ev.Event | None:
        job: str | None = getattr(event, "job", None)
        if job is None:
            return event
        played = self.ids.played(job)
        if played is None or played == job:
            return event if played is not None else None
        return msgspec.structs.replace(event, job=played)

    def away_until(self, writer: str, now_ns: int) -> int:
        """Return the time up to which a service decides nothing, as it did then; 0: it is there."""
        away = self._away[writer]
        while away and away[-1].to_ns <= now_ns:
            away.pop()
        return away[-1].to_ns if away and away[-1].from_ns <= now_ns else 0

    # ------------------------------------------------------------------ what was decided

    def see(self, events: Iterable[ev.Event], now_ns: int) -> None:
        """Take note of jobs that enter and that end."""
        for event in events:
            match event:
                case ev.JobSubmitted():
                    if not self.ids.enter(event):
                        self.lengths.meet(f"new:{event.job}", event, now_ns)
                case ev.CommandRejected() | ev.NodeCommandRejected() if self._changes.made(event.command):
                    raise PlayStalled(f"the change was refused: {event.message}")
                case ev.JobSucceeded() | ev.JobFailed() | ev.JobCancelled() if self._followers:
                    for each in self._followers.pop(self.ids.real(event.job), ()):
                        self._serial += 1
                        heappush(self._coming, (now_ns + each.think_ns, self._serial, each.submit))
                case _:
                    pass


def _later(event: Any, later_ns: int) -> Any:
    """Return an event about a run with its times moved as its run is."""
    if not later_ns:
        return event
    moved = {
        name: at_ns + later_ns
        for name in ("since_ns", "reclaim_at_ns", "until_ns")
        if (at_ns := getattr(event, name, 0))
    }
    return msgspec.structs.replace(event, **moved)


def _shaken(given: list[Given], seed: int) -> list[Given]:
    """Return the stimuli with submits a little later, in their order by user, and before the next wish about their job."""
    next_ns: dict[str, int] = {}
    moved: list[Given] = []
    for each in reversed(given):
        if not isinstance(each, GivenCommand):
            moved.append(each)
            continue
        command = each.command
        if isinstance(command, cmd.SubmitJob):
            bound_ns = min(SHAKEN_MAX_NS, next_ns.get(command.user, each.at_ns + SHAKEN_MAX_NS) - each.at_ns)
            later_ns = int(max(0, bound_ns) * uniform(seed, command.id, "submit"))
            next_ns[command.user] = each.at_ns
            moved.append(each._replace(at_ns=each.at_ns + later_ns) if later_ns else each)
        else:
            # Who commands anything may be about to do so about a job of his: no later submit goes behind it.
            next_ns[command.user] = each.at_ns
            moved.append(each)
    return moved[::-1]
