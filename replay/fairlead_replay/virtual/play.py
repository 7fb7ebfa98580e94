"""Player of a trace on a cluster in virtual time: the case of the engine (`whatif`) whose stimuli are the submits of a
load, and whose runs start at once, last as long as their work takes, and keep their finished work.

    played = play(jobs, Setting(nodes=machines(4), queues=(QueueEntry(path="a", settings=QueueSettings()),)))

Two plays of the same load give the same commits. With `record`, every commit is passed on as a stored message.

A run that is asked to stop continues for the notice, then ends; the next run of its job continues from there.
Every start costs the setting's restart time.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

import msgspec

from fairlead_bus.core import Input
from fairlead_bus.port import Stored
from fairlead_replay.virtual.load import BEGIN_NS, JobLife, Played, Setting, TraceJob, TraceRun
from fairlead_replay.whatif.nodes import STOPPED, SUCCESS, Execution, PlayedNodes, RunEnd, RunScript
from fairlead_replay.whatif.player import GivenCommit, PlayedLog, Player, PlayStalled
from fairlead_schemas.units.timestamps import HOUR_NS, SECOND_NS
from fairlead_schemas.wire.commands import ApplyQueues, QueueCommand, SubmitJob
from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.events import (
    CommandRejected,
    Event,
    JobCancelled,
    JobFailed,
    JobRejected,
    JobSubmitted,
    JobSucceeded,
)

#: Submits in one message.
SUBMITS_MAX = 400
#: Time without running jobs and without arrivals after which no job will start.
IDLE_MAX_NS = HOUR_NS
_BOOT, _JOURNAL = "boot", "journal"
_SPEC = msgspec.Raw(b'{"command":["true"]}')
_submit_ns = attrgetter("submit_ns")


class TraceWork:
    """`Behaviour` of a trace's jobs: their work, which is kept when a run is stopped."""

    has_clocks = False

    def __init__(self, setting: Setting, lives: dict[str, JobLife]) -> None:
        self._setting = setting
        #: {job: its life}; the owner adds to it as jobs are accepted.
        self._lives = lives

    def begin(self, execution: Execution, now_ns: int) -> RunScript:
        """Start at once, for the work that is left."""
        life = self._lives[execution.job]
        life.runs.append(TraceRun(now_ns))
        return RunScript(self._setting.restart_ns + life.left_ns)

    def stop_delay_ns(self, execution: Execution) -> int:
        """Return the setting's notice."""
        return self._setting.notice_ns

    def clean_delay_ns(self, execution: Execution, rank: int) -> int:
        """Devices are free at once."""
        return 0

    def finish(self, execution: Execution, now_ns: int) -> RunEnd:
        """Book the work that is done."""
        life = self._lives[execution.job]
        run = life.runs[-1]
        run.ended_ns = now_ns
        life.done_ns += max(0, now_ns - run.started_ns - self._setting.restart_ns)
        return STOPPED if life.left_ns else SUCCESS

    def lose(self, execution: Execution, now_ns: int) -> None:
        """Book the work of a run that is lost with its node, as if it had been saved."""
        self.finish(execution, now_ns)

    def cutting_ns(self, node: str) -> int:
        """GPUs are repartitioned at once."""
        return 0


class TraceSubmits:
    """`Stimuli` of a trace: its queues at first, then its jobs as they are submitted."""

    def __init__(self, jobs: Sequence[TraceJob], setting: Setting, lives: dict[str, JobLife]) -> None:
        self.lives = lives
        self.coming = sorted(jobs, key=_submit_ns)
        self.ended = self._submitted = self._messages = 0
        self._now_ns = 0
        self._commands: list[QueueCommand] = [
            ApplyQueues(id="queues", user="play", queues=setting.queues, pools=setting.pools)
        ]

    def next_ns(self) -> int | None:
        """Return the time of the next submit."""
        return self.coming[self._submitted].submitted_ns if self._submitted < len(self.coming) else None

    def pass_time(self, now_ns: int) -> None:
        """Remember the time; what is due by then is read off the load."""
        self._now_ns = now_ns

    def commits(self) -> list[GivenCommit]:
        """There are no other writers."""
        return []

    def placer_inputs(self) -> list[Input]:
        """Nobody asks anything of nodes."""
        return []

    def queue_inputs(self) -> list[Input]:
        """Return the next message of commands that are due."""
        commands, self._commands = self._commands, []
        while len(commands) < SUBMITS_MAX and self._submitted < len(self.coming):
            job = self.coming[self._submitted]
            if job.submitted_ns > self._now_ns:
                break
            commands.append(_command(self._submitted, job))
            self._submitted += 1
        if not commands:
            return []
        self._messages += 1
        return [Input("CMD", self._messages, commands)]

    def away_until(self, writer: str, now_ns: int) -> int:
        """Services are always there."""
        return 0

    def see(self, events: Iterable[Event], now_ns: int) -> None:
        """Keep the lives of jobs. Raises PlayStalled where a command is refused."""
        for event in events:
            match event:
                case JobSubmitted():
                    self.lives[event.job] = JobLife(event.job, self.coming[int(event.name)])
                case JobSucceeded() | JobFailed() | JobCancelled():
                    life = self.lives[event.job]
                    life.end, life.ended_ns = type(event).__name__, now_ns
                    self.ended += 1
                case JobRejected() | CommandRejected():
                    raise PlayStalled(f"a command was refused: {event}")
                case _:
                    pass


class TracePlayer:
    """Play of one load on one cluster."""

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        setting: Setting,
        record: Callable[[Stored], None] | None = None,
        observe: Callable[[Commit], None] | None = None,
    ) -> None:
        """`observe`: called with every commit, once it is folded."""
        self.log = PlayedLog(record, observe=observe)
        self.lives: dict[str, JobLife] = {}
        self.gpus = setting.gpus
        placer = self.log.cluster.placer
        nodes = PlayedNodes(TraceWork(setting, self.lives), lambda: placer.state)
        for node, inventory in setting.nodes.items():
            nodes.join(node, inventory, _JOURNAL, _BOOT)
        self._submits = TraceSubmits(jobs, setting, self.lives)
        #: Queues and nodes are there a second before the first job can be.
        self._player = Player(self.log, nodes, self._submits, BEGIN_NS - SECOND_NS)
        self._happened_ns = BEGIN_NS

    @property
    def now_ns(self) -> int:
        """The present moment."""
        return self._player.now_ns

    @property
    def moments(self) -> int:
        """Number of moments that were looked at."""
        return self._player.moments

    def play(self) -> Played:
        """Until every job has ended. Raises PlayStalled."""
        self._player.settle()
        while self._submits.ended < len(self._submits.coming):
            happens_ns = self._player.happens_ns()
            if happens_ns is not None:
                self._happened_ns = happens_ns
            at_ns = self._player.next_ns()
            if at_ns is None or at_ns > self._happened_ns + IDLE_MAX_NS:
                unfinished = [life.id for life in self.lives.values() if not life.end]
                raise PlayStalled(
                    f"nothing will start any more, and {len(unfinished)} jobs have not ended: {unfinished[:10]}"
                )
            self._player.advance(at_ns)
        return Played(
            list(self.lives.values()), self.gpus, self.log.cluster.sequence, dict(sorted(self.log.counts.items()))
        )


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
    """Play a load to its end; lives come in the order of submits. Raises PlayStalled when some job can never end, or a
    command is refused."""
    return TracePlayer(jobs, setting, record).play()
