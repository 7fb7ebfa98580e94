"""Idle runs in one simulated world, drawn from a seed of its own; half of all seeds have no telemetry service.

A script by the job's id decides when a run is busy, so that every part can compute it. Every second each
machine's samples go directly to the telemetry services, not over the simulated bus: some are lost, and a
service that is cut off gets none. People set policies, change them at one scope or at several at once, extend
jobs (their own and others'), and remove all policies when the faults stop, so that every job reaches its end.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import NamedTuple
from zlib import crc32

from fairlead_replay.sim.context import EPOCH_NS, SimContext
from fairlead_replay.sim.idle_books import IdleBooks
from fairlead_replay.sim.invariants import Observer
from fairlead_replay.sim.machine import SimMachine, SimProcess
from fairlead_replay.sim.processes import Replica, SimNode
from fairlead_replay.sim.workload import People
from fairlead_schemas.policies.idle import IdlePolicy
from fairlead_schemas.units.timestamps import MINUTE_NS, SECOND_NS
from fairlead_schemas.wire.commands import ApplyIdlePolicies, ExtendJob, SetIdlePolicies
from fairlead_schemas.wire.samples import GpuSample, RunResources, SampleBatch, columns_of
from fairlead_telemetry.idle.limits import UNSEEN_NS

SCOPES = ("global", "user:a", "user:b")
#: {scope: all of its policies}
type Policies = dict[str, tuple[IdlePolicy, ...]]
#: Seconds that a run which is idle now and then is so.
TURN_S = 14


class IdlePlan(NamedTuple):
    """The habits of one world."""

    #: (second, settings that a person makes then, all or none)
    settings: list[tuple[float, Policies]]
    #: Seconds at which a person extends a run.
    extensions: list[float]
    loss: float


def plan(seed: int, until_s: float) -> IdlePlan | None:
    """Return the plan of idle policies and extensions of this seed; None: there is no telemetry service."""
    rng = Random(f"idle {seed}")  # noqa: S311 -- repeatable is what it must be
    if rng.random() < 0.5:
        return None
    settings = [(rng.uniform(0.1, 3.0), {"global": _policies(rng)})]
    settings += [(rng.uniform(1.0, until_s), _change(rng)) for _ in range(rng.choice((0, 1, 3)))]
    extensions = sorted(rng.uniform(5.0, until_s) for _ in range(rng.choice((0, 12, 24))))
    return IdlePlan(sorted(settings, key=lambda each: each[0]), extensions, rng.choice((0.0, 0.1, 0.4)))


def _change(rng: Random) -> Policies:
    return {scope: _policies(rng) for scope in rng.sample(SCOPES, rng.choice((1, 2, 3)))}


def _policies(rng: Random) -> tuple[IdlePolicy, ...]:
    return tuple(_policy(rng, rule) for rule in ("utilization", "interaction", "lifetime") if rng.random() < 0.6)


def _policy(rng: Random, rule: str) -> IdlePolicy:
    action = rng.choice(("note", "warn", "stop", "requeue", "shrink"))
    extend_s = rng.choice((0, 5, 20, 20))
    fields = {
        "rule": rule, "action": action, "mode": rng.choice(("dry_run", "on_demand", "always")),
        "after_ns": rng.choice((2, 8, 22)) * SECOND_NS, "notice_ns": rng.choice((0, 3, 9)) * SECOND_NS,
        "extend_ns": extend_s * SECOND_NS, "extensions_max": 2 if extend_s else 0,
        "shrink_ns": rng.choice((1, 6)) * SECOND_NS if action == "shrink" else 0,
        "below": rng.choice(({"gpu": 50}, {"gpu": 50, "cpu": 200})) if rule == "utilization" else {},
        "after_max_ns": MINUTE_NS, "may_soften": rng.random() < 0.7,
    }  # fmt: skip
    return IdlePolicy(**fields)


def is_busy(job: str, age_s: float) -> bool:
    """A third of all jobs work all the time, a third never, a third in turns."""
    kind = crc32(job.encode()) % 3
    return kind == 0 or (kind == 2 and int(age_s / TURN_S) % 2 == 0)


class Idleness:
    """Carries out the plan of one world, and remembers what it showed."""

    def __init__(self, context: SimContext, planned: IdlePlan) -> None:
        self.context, self.planned = context, planned
        self.rng = Random(f"idle samples {context.seed}")  # noqa: S311 -- as all of a seed
        self._n = self._commands = 0
        #: {(job, attempt): moments at which a busy rank of it was shown, by its node's clock}
        self.shown: dict[tuple[str, int], list[int]] = {}
        #: {cause of its events: what a command sets}
        self.wanted: dict[str, Policies] = {}

    def books(self) -> IdleBooks:
        """Return books that compare the log's events with the samples shown and the policies requested."""
        return IdleBooks(self.misjudged, self.wanted)

    async def carry_out(
        self, nodes: Sequence[SimNode], replicas: Sequence[Replica], people: People, observer: Observer
    ) -> None:
        """Until the world's faults are over."""
        loop = asyncio.get_running_loop()
        self.context.spawn(self._people(people, observer))
        while not self.context.faults.quiet:
            for node in nodes:
                if node.agent is not None and self.rng.random() >= self.planned.loss:
                    self._show(replicas, self._measure(node.machine, loop.time()))
            await asyncio.sleep(1.0)

    async def withdraw(self, people: People) -> None:
        """No policies any more."""
        await self._set(people, dict.fromkeys(SCOPES, ()))

    async def _people(self, people: People, observer: Observer) -> None:
        loop = asyncio.get_running_loop()
        settings, extensions = list(self.planned.settings), list(self.planned.extensions)
        while (settings or extensions) and not self.context.faults.quiet:
            next_s = min([each[0] for each in settings[:1]] + extensions[:1])
            await asyncio.sleep(max(0.0, next_s - loop.time()))
            if self.context.faults.quiet:
                return
            if settings and settings[0][0] <= next_s:
                await self._set(people, settings.pop(0)[1])
            else:
                extensions.pop(0)
                await self._extend(people, observer)

    async def _extend(self, people: People, observer: Observer) -> None:
        """Extend a run: mostly one that was notified, by its owner; now and then any run, by any user, or a job that does
        not exist.
        """
        notified = [
            key[0][0]
            for key, found in observer.idle.open.items()
            if found.event.reclaim_at_ns and key[0] not in observer.idle.ended
        ]
        runs = [job for job, state in observer.lives.states.items() if state == "running"]
        job = self.rng.choice(notified or runs or ["999999"]) if self.rng.random() < 0.9 else "999999"
        owner = observer.books.job_request(job)[1] if job != "999999" and self.rng.random() < 0.8 else "a"
        extension = ExtendJob(id=self._id(), user=owner, job=job, for_ns=self.rng.choice((0, 4)) * SECOND_NS)
        await people.send("telemetry", [extension])

    async def _set(self, people: People, policies: Policies) -> None:
        name = self._id()
        self.wanted[f"cmd:{name}"] = policies
        if len(policies) > 1:
            await people.send("telemetry", [ApplyIdlePolicies(id=name, user="a", scopes=policies)])
        else:
            [(scope, of)] = policies.items()
            await people.send("telemetry", [SetIdlePolicies(id=name, user="a", scope=scope, policies=of)])

    def _id(self) -> str:
        self._commands += 1
        return f"i{self._commands}"

    def _measure(self, machine: SimMachine, second: float) -> SampleBatch:
        self._n += 1
        at_ns = EPOCH_NS + int(second * SECOND_NS)
        running = [process for process in machine.processes.values() if process.running]
        busy = {process.key: is_busy(process.key.job, second - process.since) for process in running}
        for key, is_so in busy.items():
            if is_so:
                self.shown.setdefault((key.job, key.attempt), []).append(at_ns)
        holder = {uuid: process for process in running for uuid in (*process.order.gpus, *process.order.instances)}
        return SampleBatch(
            node=machine.name,
            incarnation="sim",
            n=self._n,
            at_ns=at_ns,
            simulated=True,
            gpus=[_gpu(uuid, process, is_busy=busy[process.key]) for uuid, process in holder.items()],
            resources=[self._rank(process, second, is_busy=busy[process.key]) for process in running],
        )

    def _rank(self, process: SimProcess, second: float, *, is_busy: bool) -> RunResources:
        """Return a rank's resource sample. A busy rank uses two CPUs and has terminal input now; an agent always keeps the
        time of the last terminal input.
        """
        age_s = second - process.since
        typed = self.shown.get((process.key.job, process.key.attempt))
        return RunResources(
            run=f"{process.key.job}.{process.key.attempt}",
            rank=process.key.rank,
            cpu_ms=int(age_s * 2000) if is_busy else int(age_s),
            terminal_ns=typed[-1] if typed else 0,
        )

    def _show(self, replicas: Sequence[Replica], batch: SampleBatch) -> None:
        for replica in replicas:
            if replica.activity is not None and replica.task is not None and replica.bus.client.linked:
                replica.activity.feed(columns_of(batch))

    def misjudged(self, job: str, attempt: int, since_ns: int, after_ns: int) -> str:
        """Return an error if a run is called idle since a time after which it was shown busy, "" otherwise.

        A busy moment counts if it was shown within the time in which the run must have been watched, whatever the skew
        of the clocks that timed its samples. The moment `since_ns` itself does not count: a terminal reports the time
        of the last input, and there was none since.
        """
        until_ns = since_ns + after_ns - UNSEEN_NS
        seen = [at_ns for at_ns in self.shown.get((job, attempt), ()) if since_ns < at_ns < until_ns]
        return f"{job}.{attempt} counts as idle since {since_ns}, and was busy at {seen[0]}" if seen else ""


def _gpu(uuid: str, process: SimProcess, *, is_busy: bool) -> GpuSample:
    return GpuSample(
        uuid=uuid,
        run=f"{process.key.job}.{process.key.attempt}",
        utilization_pct=90 if is_busy else 0,
        memory_used_mib=1,
        memory_busy_pct=30 if is_busy else 0,
    )
