"""Requests of people in one seed: queues, jobs of every shape, cancels, holds, cordons. They are drawn, not
decided.

Commands go to CMD through the bad network and are sent again under the same message id until the server has
them. An accepted command is one that the server acknowledged.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple
from zlib import crc32

import msgspec

from fairlead_bus.port import BusError
from fairlead_replay.sim import health
from fairlead_replay.sim.bus import FaultyBus
from fairlead_replay.sim.context import EPOCH_NS
from fairlead_replay.sim.faults import Faults
from fairlead_replay.sim.guard import SimulatedGuard
from fairlead_replay.sim.machine import SimWork
from fairlead_replay.sim.run_books import could_ever
from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.policies.launchers import GangRule
from fairlead_schemas.policies.partitions import NEVER_NS, OnPartition
from fairlead_schemas.queuefile.settings import PoolEntry, PoolSettings, Preemption, QueueEntry, QueueSettings
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import (
    AccessCommand,
    ApplyQueues,
    CancelJob,
    CordonNode,
    DrainNode,
    HoldJob,
    MoveJob,
    PlacerCommand,
    QueueCommand,
    ReleaseJob,
    ResetBreaker,
    StorageCommand,
    SubmitJob,
    TelemetryCommand,
    UncordonNode,
    UnquarantineNode,
    encode_commands,
)
from fairlead_schemas.wire.events import Dependency
from fairlead_schemas.wire.resources import Inventory, Request

#: Services whose commands pass the simulated gateway's guard.
GUARDED = ("queue", "placer", "storage")
#: What a gang says of its ranks' ends: by its name, so that seeds draw what they drew before there was the word.
GANGS: tuple[GangRule, ...] = ("", "", "continue", "leader")
#: Queues of every kind: free, limited, guaranteed (so that others yield), limited by user, and of people who share.
QUEUES: tuple[QueueEntry, ...] = (
    QueueEntry(path="free", settings=QueueSettings()),
    QueueEntry(path="lab", settings=QueueSettings(maximum={"gpu": 9000}, weight=2)),
    QueueEntry(path="lab/small", settings=QueueSettings(maximum={"gpu": 3000})),
    QueueEntry(
        path="lab/wide",
        settings=QueueSettings(
            guaranteed={"gpu": 4000}, maximum={"gpu": 8000}, preemption=Preemption(protect_ns=SECOND_NS)
        ),
    ),
    QueueEntry(
        path="shared",
        settings=QueueSettings(users={"*": {"gpu": 4000}}, preemption=Preemption(rebalance=True, protect_ns=SECOND_NS)),
    ),
)
LEAVES = ("free", "lab/small", "lab/wide", "shared")
POOLS = (PoolEntry(pool="default", settings=PoolSettings(patience_ns=20 * SECOND_NS)),)


def _checkpoint(rng: Random) -> Checkpoint:
    """Draw how a job saves: on a signal, by a command, or only on its own schedule."""
    notice_ns = rng.choice((1, 5, 40)) * SECOND_NS
    every_ns = rng.choice((0, 6 * SECOND_NS))
    return rng.choice(
        (
            Checkpoint(signal="SIGUSR1", notice_ns=notice_ns, every_ns=every_ns),
            Checkpoint(signal="SIGUSR1", notice_ns=notice_ns, every_ns=every_ns),
            Checkpoint(command=("save",), notice_ns=notice_ns),
            Checkpoint(every_ns=every_ns),
        )
    )


class Sent(NamedTuple):
    """A command that the server has."""

    service: str
    command: QueueCommand | PlacerCommand | TelemetryCommand | AccessCommand | StorageCommand


class People:
    """Everybody who sends commands."""

    def __init__(self, bus: FaultyBus, faults: Faults, nodes: list[str], jobs: Callable[[], dict[str, str]]) -> None:
        self.bus, self.faults, self.rng = bus, faults, faults.rng
        self.nodes, self.jobs = nodes, jobs
        self.sent: list[Sent] = []
        #: Nodes that the log reports as lost, in the part of the log that was read.
        self.lost: Callable[[], list[str]] = list
        #: Signs the commands of people, and withholds those that they may not send; None without sign-on.
        self.guard: SimulatedGuard | None = None
        self._count = 0

    async def configure(self) -> None:
        """The queues must be there before jobs are."""
        await self.send("queue", [ApplyQueues(id=self.new_id(), pools=POOLS, queues=QUEUES)])

    async def work(self, commands: int, until_s: float) -> None:
        """Send so many messages over a time."""
        loop = asyncio.get_running_loop()
        for _ in range(commands):
            await asyncio.sleep(self.rng.expovariate(commands / until_s))
            if loop.time() > until_s:
                break
            draw = self.rng.random()
            if draw < 0.68:
                await self._submit()
            elif draw < 0.94:
                await self._interfere()
            else:
                await self._node_command()

    async def tidy(self) -> None:
        """Undo everything that keeps jobs from ending for good, as people would."""
        held = [job for job, state in self.jobs().items() if state == "held"]
        for job in held:
            await self.send("queue", [ReleaseJob(id=self.new_id(), job=job)])
        await self.send("placer", [ResetBreaker(id=self.new_id())])
        await self.send("placer", health.restored(self.nodes, self.new_id))
        for kind in (UncordonNode, UnquarantineNode):
            await self.send("placer", [kind(id=self.new_id(), node=node) for node in self.nodes])

    async def send(
        self,
        service: str,
        commands: "list[QueueCommand] | list[PlacerCommand] | list[TelemetryCommand] | list[AccessCommand] | list[StorageCommand]",
    ) -> None:
        """Send one message until the server has it."""
        if self.guard is not None and service in GUARDED and not self.faults.quiet:
            commands = self.guard.signed_by_somebody(commands, asyncio.get_running_loop().time())
            if not commands:
                return
        payload, message_id = encode_commands(commands), commands[0].id
        while True:
            try:
                await self.bus.append(subjects.CMD, subjects.cmd(service), payload, msg_id=message_id)
            except BusError:
                await asyncio.sleep(0.3)
            else:
                self.sent += [Sent(service, command) for command in commands]
                return

    def labels(self, rng: Random) -> dict[str, str]:
        """Return a node's labels."""
        return {}

    def equip(self, inventory: Inventory, rng: Random) -> Inventory:
        """Return the inventory with a node's additional equipment."""
        return inventory

    def could_ever(self, request: Request, nodes: Sequence[Inventory]) -> bool:
        """Return True if nodes of its pool can take the request when they are empty. A job that never fits is cancelled at
        the end.
        """
        return could_ever(request, nodes)

    # -- draws

    async def _submit(self) -> None:
        jobs: list[QueueCommand] = [self._job() for _ in range(self.rng.choice((1, 1, 1, 3)))]
        await self.send("queue", jobs)
        if self.rng.random() < 0.1:  # a user presses the button twice
            again = jobs[0]
            assert isinstance(again, SubmitJob)
            await self.send("queue", [msgspec.structs.replace(again, id=self.new_id())])

    def _job(self) -> SubmitJob:
        rng = self.rng
        gang = rng.random() < 0.25
        request = Request(
            nodes=rng.choice((2, 2, 3)) if gang else 1,
            gpu_milli=1000 * rng.choice((1, 1, 2, 4) if gang else (0, 1, 1, 2, 3, 4)),
            cpu_milli=rng.choice((100, 1000, 6000)),
            memory_mib=rng.choice((64, 4096)),
        )
        work = SimWork(
            run_ms=rng.choice((1, 400, 3000, 15_000, 45_000, 45_000)),
            fails_pct=rng.choice((0, 0, 0, 30, 100)),
            stubborn=rng.random() < 0.1,
        )
        checkpoint = _checkpoint(rng) if rng.random() < 0.4 else None
        if checkpoint is not None:
            saves_ms, answer = rng.choice((0, 700, 6000)), rng.choice(("exit", "exit", "save", ""))
            work = msgspec.structs.replace(work, saves_ms=saves_ms, answer=answer)
        number = self.new_id()
        policy = _policy(Random(f"{number} {work.run_ms} {request.gpu_milli}"))  # noqa: S311 -- as all of a seed
        work = msgspec.structs.replace(work, strict=policy.strict)
        # What never saves has a slice that is long enough for all of its work: else it would never end.
        slice_ns = rng.choice((0, 0, work.run_ms * (300_000 if work.saves_ms == 700 else 1_200_000)))
        return SubmitJob(
            id=number,
            name=f"job-{number}",
            queue=self._leaf(),
            request=request,
            user=rng.choice("ab"),
            spec=msgspec.Raw(msgspec.json.encode(work)),
            priority=rng.choice((50, 50, 50, 90)),
            array=(0, rng.randint(1, 4)) if not gang and rng.random() < 0.12 else None,
            array_limit=rng.choice((0, 2)),
            retries=rng.choice((0, 0, 2)),
            slice_ns=slice_ns,
            after=self._after(),
            deadline_ns=0 if rng.random() < 0.9 else self._soon_ns() + 30 * SECOND_NS,
            total_ns=rng.choice((0, 0, 0, 2 * SECOND_NS)) if checkpoint is None or not checkpoint.is_told else 0,
            checkpoint=checkpoint,
            grace_ns=rng.choice((0, SECOND_NS, 3 * SECOND_NS)),
            start_at_ns=0 if rng.random() < 0.9 else self._soon_ns(),
            key=f"key-{number}",
            digest="same",
            on_partition=policy,
            gang=GANGS[crc32(number.encode()) % len(GANGS)] if gang else "",
        )

    def _leaf(self) -> str:
        return self.rng.choice(LEAVES)

    def _soon_ns(self) -> int:
        return EPOCH_NS + int((asyncio.get_running_loop().time() + self.rng.uniform(1, 15)) * SECOND_NS)

    def _after(self) -> tuple[Dependency, ...]:
        known = [job for job in self.jobs() if "_" not in job]
        if not known or self.rng.random() < 0.9:
            return ()
        return (Dependency(job=self.rng.choice(known), state=self.rng.choice(("succeeded", "ended", "failed"))),)

    async def _interfere(self) -> None:
        jobs = list(self.jobs())
        job = self.rng.choice(jobs) if jobs and self.rng.random() < 0.95 else "999999"
        if self.rng.random() < 0.1:
            await self.send("queue", [MoveJob(id=self.new_id(), job=job, queue=self._leaf())])
            return
        if self.rng.random() < 0.1:
            await self.send("queue", [CancelJob(id=self.new_id(), job=job, user="a", save=True)])
            return
        kind = self.rng.choice((CancelJob, CancelJob, HoldJob, HoldJob, ReleaseJob))
        await self.send("queue", [kind(id=self.new_id(), job=job, user="a")])

    async def _node_command(self) -> None:
        node, draw = self.rng.choice(self.nodes), self.rng.random()
        command: PlacerCommand = CordonNode(id=self.new_id(), node=node, reason="looking at it")
        if draw < 0.4:
            command = DrainNode(id=self.new_id(), node=node, deadline_ns=self.rng.choice((0, 2)) * SECOND_NS)
        elif draw < 0.7:
            command = UncordonNode(id=self.new_id(), node=node)
        await self.send("placer", [command])

    def new_id(self) -> str:
        """The id of the next command."""
        self._count += 1
        return f"c{self._count}"


def _policy(rng: Random) -> OnPartition:
    """Draw a job's partition policy; most jobs set none."""
    stop_ns, replace_ns = rng.choice(((0, 0), (0, 0), (0, 0), (10, 70), (30, 100), (0, NEVER_NS), (NEVER_NS, NEVER_NS)))
    return OnPartition(
        stop_after_ns=stop_ns * SECOND_NS if stop_ns > 0 else stop_ns,
        replace_after_ns=replace_ns * SECOND_NS if replace_ns > 0 else replace_ns,
    )
