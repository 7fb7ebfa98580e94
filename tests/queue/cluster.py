"""A naive placer in virtual time: takes offers by rank where they fit, keeps nodes for whom the queue says, and asks to
yield whom the queue names. It knows GPUs alone and reads nothing but the log.
"""

from collections.abc import Iterator
from typing import Any

from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request
from tests.kit.queue_world import SECOND, QueueWorld


class Run:
    """What runs: on which nodes, since when, and until when by itself."""

    def __init__(self, attempt: int, nodes: list[str], gpus: int, now: int, ends: int) -> None:
        self.attempt, self.nodes, self.gpus, self.began, self.ends = attempt, nodes, gpus, now, ends
        #: When it will have stopped (0: nobody asked), and whether for another job.
        self.stops = 0
        self.preempted = False


class SimulatedCluster:
    """Nodes of equal size. `work` says how long each job runs in all, by the number of its submit, in seconds."""

    def __init__(self, world: QueueWorld, nodes: int = 2, gpus: int = 8, *, grace_s: int = 2) -> None:
        self.world, self.grace = world, grace_s * SECOND
        self.free = {f"n{at}": gpus for at in range(nodes)}
        for name in self.free:
            world.node(name, gpus=gpus)
        self.work: dict[str, int] = {}
        self.left: dict[str, int] = {}
        self.requests: dict[str, Request] = {}
        self.open: dict[str, tuple[int, int]] = {}  # {job: (rank, attempt)}
        self.runs: dict[str, Run] = {}
        self.kept: dict[str, str] = {}  # {node: job}
        self.started: dict[str, int] = {}  # {job: when its first attempt began}
        self.pleas: list[ev.PreemptionRequested] = []
        self.back: set[str] = set()
        self.refused: set[Request] = set()
        self.seen = 0

    # -- people

    def submit(self, seconds: float = 60, gpus: int = 1, **more: Any) -> str:
        """A job that runs so long."""
        job = self.world.submit(gpus, **more)
        self.work[job] = int(seconds * SECOND)
        return job

    # -- time

    def run(self, seconds: float) -> None:
        """Let the cluster and the queue continue for so long."""
        until = self.world.now + int(seconds * SECOND)
        while self.world.now < until:
            self.settle()
            times = [run.stops or run.ends for run in self.runs.values()]
            wake_at = self.world.core.wake_at()
            times += [wake_at] if wake_at else []
            self.world.now = min([until, *(at for at in times if at > self.world.now)])
        self.settle()

    def settle(self) -> None:
        """Both have nothing left to say at this moment."""
        for _ in range(1000):
            self.world.settle()
            self.learn()
            events = list(self.act())
            if not events:
                return
            self.world.says(*events)
        raise AssertionError("the queue and the placer talk without end")

    # -- what the queue says

    def learn(self) -> None:
        for commit in self.world.log[self.seen :]:
            for event in commit.events if commit.writer == "queue" else ():
                self._learn(event)
        self.seen = len(self.world.log)

    def _learn(self, event: Any) -> None:
        match event:
            case ev.JobSubmitted():
                self.requests[event.job] = event.request
            case ev.JobOffered() if event.job not in self.runs:
                self.open[event.job] = (event.rank, event.attempt)
                self.refused.discard(self.request(event.job))
            case ev.OfferWithdrawn() if event.job in self.open:
                self.back.add(event.job)
            case ev.JobStopRequested() if event.job in self.open:
                self.back.add(event.job)
            case ev.JobStopRequested() if event.job in self.runs:
                self.stop(self.runs[event.job])
            case ev.PreemptionRequested():
                self.pleas.append(event)
            case ev.ReservationRequested() if event.job in self.open and not event.queue:
                self.keep(event.job)
            case ev.JobCancelled() | ev.JobFailed() | ev.JobSucceeded() | ev.JobHeld() | ev.JobMoved():
                self.pleas = [plea for plea in self.pleas if plea.job != event.job]
            case _:
                pass

    def request(self, job: str) -> Request:
        return self.requests[array_of(job) or job]

    def stop(self, run: Run, *, preempted: bool = False) -> None:
        if not run.stops:
            run.stops = min(self.world.now + self.grace, run.ends)
            run.preempted = preempted

    def keep(self, job: str) -> None:
        """The nodes with the most room, but for those that are kept for others."""
        request = self.request(job)
        nodes = sorted((name for name in self.free if self.kept.get(name, job) == job), key=lambda n: -self.free[n])
        for name in nodes[: request.nodes]:
            self.kept[name] = job

    # -- what it says

    def act(self) -> Iterator[Any]:
        """The events of one commit; nothing when there is nothing to say."""
        yield from self._give_back()
        yield from self._end()
        yield from self._place()
        yield from self._refuse()
        pleas, self.pleas = self.pleas, []
        for plea in pleas:
            yield from self._answer(plea)

    def _give_back(self) -> Iterator[Any]:
        for job in sorted(self.back):
            _, attempt = self.open.pop(job)
            if job in self.kept.values():
                self._unkeep(job)
                yield ev.ReservationEnded(cause="1.0", job=job, attempt=attempt)
            yield ev.OfferReturned(cause="1.0", job=job, attempt=attempt)
        self.back.clear()

    def _unkeep(self, job: str) -> None:
        self.kept = {node: other for node, other in self.kept.items() if other != job}

    def _end(self) -> Iterator[Any]:
        for job, run in list(self.runs.items()):
            if (run.stops or run.ends) > self.world.now:
                continue
            del self.runs[job]
            self.left[job] = run.ends - self.world.now
            for node in run.nodes:
                self.free[node] += run.gpus
            self.refused.clear()
            done = run.ends <= self.world.now
            yield ev.RunEnded(
                cause="report:n0:1",
                job=job,
                attempt=run.attempt,
                outcome="exited" if done else "stopped",
                exit_code=0 if done else 143,
                preempted=run.preempted and not done,
                released=tuple(run.nodes),
            )

    def _place(self) -> Iterator[Any]:
        keepers = set(self.kept.values())
        for job in sorted(self.open, key=lambda job: (job not in keepers, self.open[job])):
            request = self.request(job)
            gpus = request.gpu_milli // 1000
            fitting = [n for n, free in self.free.items() if free >= gpus and self.kept.get(n, job) == job]
            if len(fitting) < request.nodes:
                continue
            yield from self._start(job, fitting[: request.nodes], gpus)

    def _start(self, job: str, nodes: list[str], gpus: int) -> Iterator[Any]:
        _, attempt = self.open.pop(job)
        self._unkeep(job)
        work = self.left.get(job) or self.work.get(job) or self.work.get(array_of(job) or "", SECOND)
        self.runs[job] = Run(attempt, nodes, gpus, self.world.now, self.world.now + work)
        self.started.setdefault(job, self.world.now)
        for node in nodes:
            self.free[node] -= gpus
        parts = tuple(ev.Part(node=node, gpus=tuple(f"g{at}" for at in range(gpus))) for node in nodes)
        yield ev.JobPlaced(cause="1.0", job=job, attempt=attempt, parts=parts)
        yield ev.RunStarted(cause="report:n0:1", job=job, attempt=attempt)

    def _refuse(self) -> Iterator[Any]:
        for job in sorted(self.open, key=lambda job: self.open[job]):
            request = self.request(job)
            if request not in self.refused:
                self.refused.add(request)
                yield ev.JobUnplaceable(
                    cause="1.0", job=job, attempt=self.open[job][1], reasons={"free_gpus": 1}, nodes=1
                )

    def _answer(self, plea: ev.PreemptionRequested) -> Iterator[Any]:
        named = [v for v in plea.victims if v.job in self.runs and self.runs[v.job].attempt == v.attempt]
        named = [victim for victim in named if not self.runs[victim.job].stops]
        asked = self._for_amounts(plea, named) if plea.amounts else self._for_place(plea, named)
        if not asked:
            yield ev.PreemptionDeclined(cause="1.0", job=plea.job, attempt=plea.attempt)
        for victim in asked:
            self.stop(self.runs[victim.job], preempted=True)
            yield ev.PreemptionStarted(
                cause="1.0", job=victim.job, attempt=victim.attempt, beneficiary=plea.job, rule=victim.rule
            )

    def _for_amounts(self, plea: ev.PreemptionRequested, named: list[ev.Victim]) -> list[ev.Victim]:
        missing, asked = plea.amounts.get("gpu", 0), list[ev.Victim]()
        for victim in named:
            if missing <= 0:
                break
            asked.append(victim)
            missing -= self.request(victim.job).gpu_milli_total
        return asked if missing <= 0 else []

    def _for_place(self, plea: ev.PreemptionRequested, named: list[ev.Victim]) -> list[ev.Victim]:
        """Nodes one after the other, as many as the job needs, and the first of those named on each that make room."""
        if plea.job not in self.open:
            return []
        request = self.request(plea.job)
        asked, nodes = list[ev.Victim](), list[str]()
        for node in self.free:
            if len(nodes) < request.nodes and self.kept.get(node, plea.job) == plea.job:
                here = self._room(node, request.gpu_milli // 1000, named)
                if here is not None:
                    nodes.append(node)
                    asked += [victim for victim in here if victim not in asked]
        if len(nodes) < request.nodes:
            return []
        for node in nodes:
            self.kept[node] = plea.job
        return asked

    def _room(self, node: str, gpus: int, named: list[ev.Victim]) -> list[ev.Victim] | None:
        free, chosen = self.free[node], list[ev.Victim]()
        free += sum(run.gpus for run in self.runs.values() if run.stops and node in run.nodes)
        for victim in named:
            if free >= gpus:
                break
            if node in self.runs[victim.job].nodes:
                chosen.append(victim)
                free += self.runs[victim.job].gpus
        return chosen if free >= gpus else None
