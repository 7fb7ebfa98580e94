"""Scenes for tests of the engine: what is given to a small cluster and how long its jobs run, written down by hand and
recorded by the engine itself."""

from collections import Counter
from typing import Any

import msgspec

from fairlead_bus.port import Stored
from fairlead_replay.virtual.load import BEGIN_NS, machines
from fairlead_replay.whatif.given import Given, GivenCommand, GivenFact
from fairlead_replay.whatif.real_cluster import RealAttempt, RealCluster, RealJob, RunCall
from fairlead_replay.whatif.record import LogRecording, Start
from fairlead_replay.whatif.replays import Outcome, play_recording
from fairlead_schemas.queuefile.settings import Preemption, QueueEntry, QueueSettings
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Inventory, Request

SPEC = msgspec.Raw(b'{"command":["true"]}')
QUEUE_COMMANDS = (
    cmd.SubmitJob
    | cmd.CancelJob
    | cmd.RequeueJob
    | cmd.HoldJob
    | cmd.ReleaseJob
    | cmd.MoveJob
    | cmd.UpdateJob
    | cmd.ApplyQueues
)


def at(seconds: float) -> int:
    """Return Unix ns of a moment of the scene."""
    return BEGIN_NS + int(seconds * SECOND_NS)


def request(gpus: int, **more: Any) -> Request:
    """Return a request for GPUs of one node."""
    return Request(gpu_milli=gpus * 1000, cpu_milli=1000, memory_mib=1024, **more)


def queues(**settings: QueueSettings) -> cmd.ApplyQueues:
    """Return the change that makes queues; without any: a and b, without protection from preemption."""
    plain = QueueSettings(preemption=Preemption(protect_ns=0))
    named = settings or {"a": plain, "b": plain}
    return cmd.ApplyQueues(
        id="queues", user="admin", queues=tuple(QueueEntry(path=p, settings=s) for p, s in named.items())
    )


class Scene:
    """What is given, in the order in which it is written down; ids of jobs count from 1."""

    def __init__(self, nodes: dict[str, Inventory] | None = None, gpus: int = 4) -> None:
        self._given: list[Given] = []
        self._real = RealCluster()
        self._messages = 0
        self._jobs = 0
        for name, inventory in (nodes if nodes is not None else machines(2, gpus)).items():
            self.fact(-1, name, "joined", inventory=inventory, incarnation=f"{name}-1", boot_id="boot")

    def fact(self, seconds: float, node: str, what: str, **more: Any) -> None:
        """Something happens to a node."""
        self._given.append(GivenFact(at(seconds), node, what, **more))

    def command(self, seconds: float, command: Any) -> None:
        """A user sends a command."""
        self._messages += 1
        writer = "queue" if isinstance(command, QUEUE_COMMANDS) else "placer"
        self._given.append(GivenCommand(at(seconds), self._messages, writer, self._messages, command))

    def submit(
        self, seconds: float, gpus: int, runs_s: float | None, *, queue: str = "a", exit_code: int = 0, **more: Any
    ) -> str:
        """Submit a job that runs so long (None: until it is stopped); return its id."""
        self._jobs += 1
        id_ = str(self._jobs)
        asked = more.pop("request", None) or request(gpus)
        name = more.pop("name", f"job-{id_}")
        command = cmd.SubmitJob(
            id=f"s{id_}", user=more.pop("user", "ann"), name=name, queue=queue, request=asked, spec=SPEC, **more
        )
        self.command(seconds, command)
        submitted = ev.JobSubmitted(
            cause=f"cmd:s{id_}",
            job=id_,
            name=name,
            queue=queue,
            user=command.user,
            request=asked,
            spec=SPEC,
            array=command.array,
            kind=command.kind,
            total_ns=command.total_ns,
        )
        elements = (
            [id_] if command.array is None else [f"{id_}_{k}" for k in range(command.array[0], command.array[1] + 1)]
        )
        self._real.jobs[id_] = RealJob(id_, submitted, at(seconds))
        for each in elements:
            self._real.jobs[each] = job = RealJob(each, submitted, at(seconds))
            if runs_s is not None:
                job.attempts = [_attempt(each, asked, int(runs_s * SECOND_NS), exit_code)]
                job.end = "JobSucceeded" if exit_code == 0 else "JobFailed"
            else:
                job.reason = "time_limit"
        return id_

    def lengthen(self, job: str, runs_s: float) -> None:
        """The job would run so long if it were let."""
        attempt = self._real.jobs[job].attempts[0]
        attempt.ended_ns = attempt.started_ns + int(runs_s * SECOND_NS)

    def cancel_after(self, job: str, runs_s: float) -> None:
        """The job's owner cancels its first run after so long."""
        self._messages += 1
        wish = GivenCommand(
            0, self._messages, "queue", self._messages, cmd.CancelJob(id=f"stop{job}", user="ann", job=job)
        )
        self._real.jobs[job].calls.append(RunCall(1, int(runs_s * SECOND_NS), wish))

    def recording(self, until_s: float) -> LogRecording:
        """Return the scene as a recording."""
        given = sorted(self._given, key=lambda each: each.at_ns)
        return LogRecording(Start(0, 0, {}, {}), at(until_s), given, self._real, 1, 0, {}, Counter())

    def play(self, until_s: float) -> tuple[list[Stored], Outcome]:
        """Let the engine record the scene."""
        log: list[Stored] = []
        return log, play_recording(self.recording(until_s), record=log.append)


def _attempt(job: str, asked: Request, runs_ns: int, exit_code: int) -> RealAttempt:
    attempt = RealAttempt(1, 1, ("n001",) * asked.units, asked.units)
    attempt.started_ns, attempt.ended_ns = 1, 1 + runs_ns
    attempt.end = ev.RunEnded(cause="clock", job=job, attempt=1, outcome="exited", exit_code=exit_code)
    attempt.gone_ns = {"n001": attempt.ended_ns}
    return attempt


def shared_hour(*, until_s: float = 4000, **settings: QueueSettings) -> list[Stored]:
    """Return the log of two queues that share 16 GPUs, a little more work than they can do, for about an hour."""
    plain = QueueSettings(guaranteed={"gpu": 8000}, preemption=Preemption(protect_ns=0))
    scene = Scene(gpus=8)
    scene.command(-1, queues(**{"research": plain, "teaching": plain, **settings}))
    for n in range(150):
        queue, user = ("research", f"r{n % 3}") if n % 2 else ("teaching", f"t{n % 3}")
        scene.submit(n * 24, (1, 2, 4, 2)[n % 4], 60 + n * 37 % 240, queue=queue, user=user, name=f"{queue}-{n % 5}")
    return scene.play(until_s)[0]
