"""Player of a load on a cluster in virtual time; and simulated nodes: a placed run starts at once, lasts as long as its
work takes, and keeps its finished work.

Both cores decide until neither has a decision left. Then time moves to the next submit, the next end of a run,
or the next wake-up time of a core. Nothing happens in between, so a quiet month costs nothing.

    played = play(jobs, Setting(nodes=machines(4), queues=(QueueEntry(path="a", settings=QueueSettings()),)))

Two plays of the same load give the same commits. With `record`, every commit is chained and passed on as a
stored message. These messages make a log that can be exported and verified like any other.

A run that is asked to stop continues for the notice, then ends; the next run of its job continues from there.
Every start costs the setting's restart time. Each node numbers its reports as an agent does, and repeats those
that were not consumed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from operator import attrgetter

import msgspec

from fairlead_bus.core import Decision, Input
from fairlead_bus.log import NO_HEAD, LogHead
from fairlead_bus.port import Stored
from fairlead_placer.apply.handlers import REPORT_CURSOR
from fairlead_placer.core import PlacerCore
from fairlead_queue.core import QueueCore
from fairlead_replay.fold import FoldedCluster
from fairlead_replay.virtual.load import BEGIN_NS, JobLife, Played, Setting, TraceJob, TraceRun
from fairlead_schemas.units.timestamps import HOUR_NS, SECOND_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import ApplyQueues, QueueCommand, SubmitJob
from fairlead_schemas.wire.commit import VERSION, Commit, commit_hash, encode_commit
from fairlead_schemas.wire.events import (
    CommandRejected,
    Event,
    JobCancelled,
    JobFailed,
    JobPlaced,
    JobRejected,
    JobStopRequested,
    JobSubmitted,
    JobSucceeded,
    PreemptionStarted,
)
from fairlead_schemas.wire.reports import ExitSeen, InventorySeen, Report, ReportBatch, StartSeen

#: Reports that one decision is asked to take up.
REPORTS_MAX = 400
_BOOT, _JOURNAL = "boot", "journal"


class _Execution:
    """Run of one attempt, on all its nodes."""

    __slots__ = ("attempt", "life", "nodes", "over", "stopped")

    def __init__(self, life: JobLife, attempt: int, nodes: tuple[str, ...]) -> None:
        self.life, self.attempt, self.nodes = life, attempt, nodes
        #: It was asked to end; it has ended.
        self.stopped = self.over = False


class Agents:
    """All nodes, their runs, and what they have to report."""

    def __init__(self, setting: Setting, lives: dict[str, JobLife]) -> None:
        self._setting = setting
        #: {job: its life}; the owner adds to it as jobs are accepted.
        self._lives = lives
        self._running: dict[str, _Execution] = {}
        #: (when, serial, run) of what ends by itself or after its notice.
        self._ends: list[tuple[int, int, _Execution]] = []
        self._serial = 0
        self._reported = dict.fromkeys(setting.nodes, 0)
        #: {node: reports not taken up yet}
        self._waiting: dict[str, list[Report]] = {}
        for node, inventory in setting.nodes.items():
            self._report(node, InventorySeen(n=0, boot_id=_BOOT, inventory=inventory))

    # ------------------------------------------------------------------ what happens to runs

    def see(self, events: Iterable[Event], now_ns: int) -> None:
        """Do what a commit asks for."""
        for event in events:
            match event:
                case JobPlaced():
                    self._start(event, now_ns)
                case PreemptionStarted() | JobStopRequested():
                    execution = self._running.get(event.job)
                    if execution is not None and execution.attempt == event.attempt and not execution.stopped:
                        execution.stopped = True
                        self._end_at(execution, now_ns + self._setting.notice_ns)
                case _:
                    pass

    def _start(self, placed: JobPlaced, now_ns: int) -> None:
        life = self._lives[placed.job]
        execution = _Execution(life, placed.attempt, tuple(part.node for part in placed.parts))
        self._running[placed.job] = execution
        life.runs.append(TraceRun(now_ns))
        for rank, node in enumerate(execution.nodes):
            self._report(node, StartSeen(n=0, job=placed.job, attempt=placed.attempt, rank=rank))
        self._end_at(execution, now_ns + self._setting.restart_ns + life.left_ns)

    def _end_at(self, execution: _Execution, at_ns: int) -> None:
        self._serial += 1
        heappush(self._ends, (at_ns, self._serial, execution))

    def next_ns(self) -> int | None:
        """Return the time of the next end of a run in ns, None if no run is active."""
        while self._ends and self._ends[0][2].over:
            heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def pass_time(self, now_ns: int) -> None:
        """End what has come to its end."""
        while self._ends and self._ends[0][0] <= now_ns:
            _, _, execution = heappop(self._ends)
            if not execution.over:
                self._end(execution, now_ns)

    def _end(self, execution: _Execution, now_ns: int) -> None:
        life = execution.life
        execution.over = True
        del self._running[life.id]
        run = life.runs[-1]
        run.ended_ns = now_ns
        life.done_ns += max(0, now_ns - run.started_ns - self._setting.restart_ns)
        outcome, code = ("stopped", None) if life.left_ns else ("exited", 0)
        for rank, node in enumerate(execution.nodes):
            self._report(
                node,
                ExitSeen(
                    n=0, job=life.id, attempt=execution.attempt, rank=rank, outcome=outcome, exit_code=code, clean=True
                ),
            )

    # ------------------------------------------------------------------ reports

    def _report(self, node: str, report: Report) -> None:
        number = self._reported[node] = self._reported[node] + 1
        self._waiting.setdefault(node, []).append(msgspec.structs.replace(report, n=number))

    def reports(self) -> list[Input]:
        """Return the next reports for the placer, from the longest waiting nodes first."""
        inputs: list[Input] = []
        count = 0
        for node, waiting in self._waiting.items():
            count += len(waiting)
            if inputs and count > REPORTS_MAX:
                break
            inputs.append(Input("report", waiting[-1].n, ReportBatch(node=node, incarnation=_JOURNAL, reports=waiting)))
        return inputs

    def taken(self, cursors: dict[str, int]) -> None:
        """The placer has taken up reports up to these numbers."""
        for source, number in cursors.items():
            if source.startswith(REPORT_CURSOR):
                node = source[len(REPORT_CURSOR) :]
                unconfirmed = [report for report in self._waiting.pop(node) if report.n > number]
                if unconfirmed:
                    self._waiting[node] = unconfirmed


#: Submits in one message.
SUBMITS_MAX = 400
#: Rounds of both cores at one moment, beyond which they are going round in circles.
ROUNDS_MAX = 10_000
#: Time without running jobs and without arrivals after which no job will start.
IDLE_MAX_NS = HOUR_NS
_SPEC = msgspec.Raw(b'{"command":["true"]}')
_submit_ns = attrgetter("submit_ns")


class TraceStalled(Exception):
    """A load cannot be played to its end: a command is refused, some job can never end, or the cores do not rest."""


class Log:
    """Both cores over one imagined log."""

    def __init__(self, record: Callable[[Stored], None] | None) -> None:
        self.cluster = FoldedCluster()
        #: {event type: how many}
        self.counts: Counter[str] = Counter()
        self._heads: dict[str, LogHead] = {}
        self._record = record

    def decide(self, core: QueueCore | PlacerCore, inputs: list[Input], now_ns: int) -> Decision | None:
        """Let a core decide, and both fold what it says; None when that is nothing."""
        decision = core.decide(inputs, now_ns)
        if not decision.events and not decision.cursors:
            return None
        self._append(core.writer, decision, now_ns)
        return decision

    def _append(self, writer: str, decision: Decision, now_ns: int) -> None:
        head, sequence = self._heads.get(writer, NO_HEAD), self.cluster.sequence + 1
        commit = Commit(
            v=VERSION,
            writer=writer,
            n=head.n + 1,
            basis=sequence - 1,
            at_ns=now_ns,
            cursors=decision.cursors,
            prev=head.hash,
            events=decision.events,
        )
        own_hash = head.hash
        if self._record is not None:
            payload = encode_commit(commit)
            own_hash = commit_hash(payload)
            self._record(Stored(sequence, subjects.log(writer), payload))
        self._heads[writer] = LogHead(head.n + 1, own_hash, sequence)
        self.cluster.evolve(sequence, commit)
        self.counts.update(type(event).__name__ for event in decision.events)


class TracePlayer:
    """Play of one load on one cluster."""

    def __init__(
        self, jobs: Sequence[TraceJob], setting: Setting, record: Callable[[Stored], None] | None = None
    ) -> None:
        self.log = Log(record)
        self._queue, self._placer = self.log.cluster.queue, self.log.cluster.placer
        #: Queues and nodes are there a second before the first job can be.
        self.now_ns = BEGIN_NS - SECOND_NS
        self._happened_ns = BEGIN_NS
        self.lives: dict[str, JobLife] = {}
        self._coming = sorted(jobs, key=_submit_ns)
        self._submitted = self._ended = self._messages = 0
        self._agents = Agents(setting, self.lives)
        self._commands: list[QueueCommand] = [
            ApplyQueues(id="queues", user="play", queues=setting.queues, pools=setting.pools)
        ]
        self.gpus = setting.gpus

    def play(self) -> Played:
        """Until every job has ended. Raises Stalled."""
        self._settle()
        while self._ended < len(self._coming):
            at_ns = self._next_ns()
            if at_ns is None or at_ns > self._happened_ns + IDLE_MAX_NS:
                unfinished = [life.id for life in self.lives.values() if not life.end]
                raise TraceStalled(
                    f"nothing will start any more, and {len(unfinished)} jobs have not ended: {unfinished[:10]}"
                )
            self.now_ns = max(self.now_ns, at_ns)
            self._agents.pass_time(self.now_ns)
            self._settle()
        return Played(
            list(self.lives.values()), self.gpus, self.log.cluster.sequence, dict(sorted(self.log.counts.items()))
        )

    def _next_ns(self) -> int | None:
        """Return the time of the next happening or core wake-up in ns, None if there is none."""
        coming = self._coming[self._submitted].submitted_ns if self._submitted < len(self._coming) else None
        happens_ns = _earliest(self._agents.next_ns(), coming)
        if happens_ns is not None:
            self._happened_ns = happens_ns
        return _earliest(happens_ns, self._queue.wake_at(), self._placer.wake_at())

    def _settle(self) -> None:
        """Decide at this moment until neither core has anything to say."""
        for _ in range(ROUNDS_MAX):
            queue = self.log.decide(self._queue, self._due_commands(), self.now_ns)
            if queue is not None:
                self._see(queue)
            placer = self.log.decide(self._placer, self._agents.reports(), self.now_ns)
            if placer is not None:
                self._agents.taken(placer.cursors)
                self._agents.see(placer.events, self.now_ns)
            if queue is None and placer is None:
                return
        raise TraceStalled(f"the cores do not come to rest at {self.now_ns}")

    def _see(self, decision: Decision) -> None:
        for event in decision.events:
            self._tell(event)
        self._agents.see(decision.events, self.now_ns)

    def _tell(self, event: Event) -> None:
        match event:
            case JobSubmitted():
                self.lives[event.job] = JobLife(event.job, self._coming[int(event.name)])
            case JobSucceeded() | JobFailed() | JobCancelled():
                life = self.lives[event.job]
                life.end, life.ended_ns = type(event).__name__, self.now_ns
                self._ended += 1
            case JobRejected() | CommandRejected():
                raise TraceStalled(f"a command was refused: {event}")
            case _:
                pass

    # ------------------------------------------------------------------ people

    def _due_commands(self) -> list[Input]:
        """The next message of commands that are due."""
        commands, self._commands = self._commands, []
        while len(commands) < SUBMITS_MAX and self._submitted < len(self._coming):
            job = self._coming[self._submitted]
            if job.submitted_ns > self.now_ns:
                break
            commands.append(_command(self._submitted, job))
            self._submitted += 1
        if not commands:
            return []
        self._messages += 1
        return [Input("CMD", self._messages, commands)]


def _earliest(*times: int | None) -> int | None:
    return min((at_ns for at_ns in times if at_ns is not None), default=None)


def _command(at: int, job: TraceJob) -> SubmitJob:
    return SubmitJob(
        id=f"s{at}",
        user="play",
        name=str(at),
        queue=job.queue,
        request=job.request,
        spec=_SPEC,
        priority=job.priority,
        total_ns=job.declared_ns,
        slice_ns=job.slice_ns,
    )


def play(jobs: Sequence[TraceJob], setting: Setting, *, record: Callable[[Stored], None] | None = None) -> Played:
    """Play a load to its end; lives come in the order of submits. Raises Stalled when some job can never end, or a
    command is refused."""
    return TracePlayer(jobs, setting, record).play()
