"""Simulated world: services, machines and people on one hub, from one seed to one verdict.

    outcome = run_seed(17)          outcome.violation is None, or what was broken

Phases: everything starts; people work while planned disasters strike; then the faults stop, what is down comes
back, and the world has `RECOVERY_S` to end every job; the time starts over each time that a job has ended.
`Parts` names the parts of a world, so that a test may plant a bug in one of them.
"""

import asyncio
import gc
import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

from fairlead_access.core import AccessCore
from fairlead_bus.log import LogReader
from fairlead_bus.port import LogDamaged
from fairlead_bus.service import Service
from fairlead_placer.core import PlacerCore
from fairlead_queue.core import QueueCore
from fairlead_replay.rights_audit import CommandCount
from fairlead_replay.sim import accounts, faults, health, idleness, services, volumes
from fairlead_replay.sim import loop as virtual
from fairlead_replay.sim.access_books import AccessBooks
from fairlead_replay.sim.accounts import SimulatedAccounts
from fairlead_replay.sim.agent import SimAgent
from fairlead_replay.sim.bus import FaultyBus
from fairlead_replay.sim.context import SimContext
from fairlead_replay.sim.guard import SimulatedGuard
from fairlead_replay.sim.idle_books import IdleBooks
from fairlead_replay.sim.idleness import Idleness
from fairlead_replay.sim.invariants import Observer, Violation
from fairlead_replay.sim.machine import SimMachine, Starts, Truth
from fairlead_replay.sim.processes import Replica, SimNode, Strikes
from fairlead_replay.sim.run_books import LimitBooks
from fairlead_replay.sim.services import SimulatedServices
from fairlead_replay.sim.volumes import SimulatedVolumes
from fairlead_replay.sim.workload import People
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, POOL_LABEL
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import CancelJob
from fairlead_storage.core import StorageCore
from fairlead_telemetry.idle.core import IdleCore

#: The longest grace of a simulated job, and the kill.
STOP_S = 4.0
#: An agent looks, and its journal is slow.
SETTLE_S = 2.0
WORK_S = 60.0
COMMANDS = 24
#: Losses are retried after up to 120 s and 600 s; then the work itself.
RECOVERY_S = 1000.0
WRITERS = ("queue", "placer")
#: Writer that watches for idle runs (idleness.py).
WATCHER = "telemetry"
#: Writer that decides who may do what (accounts.py).
ACCESS = "access"
#: Writer that decides which volumes exist (volumes.py), in worlds of tests that ask for it.
STORAGE = "storage"


class Parts(NamedTuple):
    """Exchangeable parts of a world."""

    service: Any = Service
    queue: type[QueueCore] = QueueCore
    placer: type[PlacerCore] = PlacerCore
    telemetry: type[IdleCore] = IdleCore
    access: type[AccessCore] = AccessCore
    storage_core: type[StorageCore] = StorageCore
    guard: type[SimulatedGuard] = SimulatedGuard
    bus: Callable[..., Any] = FaultyBus
    agent: type[SimAgent] = SimAgent
    people: type[People] = People
    idle: Callable[[int, float], idleness.IdlePlan | None] = idleness.plan
    rights: Callable[[int, float], accounts.AccountsPlan | None] = accounts.plan
    storage: Callable[[int, float], volumes.VolumesPlan | None] = volumes.absent
    served: Callable[[int, float], services.ServicesPlan | None] = services.absent
    decision_faults: Callable[[int, float], list[faults.DecisionFault]] = faults.plan_decision_faults


class SeedOutcome(NamedTuple):
    """Outcome of a seed. `digest` is the SHA-256 over the whole log's bytes."""

    seed: int
    violation: str | None
    sequence: int  # of the log, where the world ended
    events: int
    jobs: int
    disasters: int
    virtual_s: float
    digest: str
    #: {type: events of the telemetry service}
    idle: dict[str, int] = {}
    #: {type: events of the access service}
    access: dict[str, int] = {}
    #: {type: events of the storage service}
    storage: dict[str, int] = {}
    #: {type: events about services}
    services: dict[str, int] = {}
    #: Commands by the right by which they were sent.
    rights: CommandCount = CommandCount()
    #: Commands that the simulated guard withheld.
    denied: int = 0


class World:
    """Everything that one seed needs."""

    def __init__(self, seed: int, parts: Parts, commands: int) -> None:
        self.seed, self.parts, self.commands = seed, parts, commands
        self.context = context = SimContext(seed, parts.bus)
        planned = parts.idle(seed, WORK_S)
        self.idleness = Idleness(context, planned) if planned is not None else None
        rights = parts.rights(seed, WORK_S)
        self.accounts = SimulatedAccounts(context, rights) if rights is not None else None
        stored = parts.storage(seed, WORK_S)
        self.volumes = SimulatedVolumes(context, stored) if stored is not None else None
        served = parts.served(seed, WORK_S)
        self.services = SimulatedServices(context, served) if served is not None else None
        self.decisions = faults.DecisionFaults()
        rng = context.faults.rng
        asyncio.get_running_loop().set_exception_handler(self._on_loop_error)
        starts, linger_s = Starts(STOP_S + SETTLE_S), rng.choice((0.0, 0.5, 3.0))
        books = self.idleness.books() if self.idleness is not None else IdleBooks()
        self.observer = Observer(books, LimitBooks(starts.ran_ns), AccessBooks())
        counts = [rng.choice((2, 4, 4)) for _ in range(rng.choice((2, 3, 4, 4)))]
        machines = [SimMachine(f"n{i}", count, rng, starts, linger_s) for i, count in enumerate(counts)]
        self.nodes = [SimNode(context, machine, parts.agent) for machine in machines]
        names = ["a", "b"] if rng.random() < 0.6 else ["a"]
        self.replicas = [self._replica(writer, name) for name in names for writer in WRITERS]
        if self.accounts is not None:
            self.replicas += [self._replica(ACCESS, name) for name in names]
        if self.volumes is not None:
            self.replicas += [self._replica(STORAGE, name) for name in names]
        if self.idleness is not None:
            self.replicas += [self._replica(WATCHER, name) for name in names]
        self.strikes = Strikes(context, self.replicas, self.nodes)
        self.people = parts.people(
            context.connect(),
            context.faults,
            [node.machine.name for node in self.nodes],
            lambda: self.observer.lives.states,
        )
        self.people.lost = lambda: sorted(
            name for name, node in self.observer.cluster.placer.state.nodes.items() if node.lost
        )
        if self.accounts is not None:
            self.people.guard = parts.guard(seed)
        for machine in machines:
            machine.label(self.people.labels(rng))
            machine.inventory = self.people.equip(machine.inventory, rng)

    def _replica(self, writer: str, name: str) -> Replica:
        parts = self.parts
        core_types = {
            "queue": parts.queue,
            "placer": parts.placer,
            WATCHER: parts.telemetry,
            ACCESS: parts.access,
            STORAGE: parts.storage_core,
        }
        core_type = core_types[writer]
        return Replica(
            self.context, self.decisions, parts.service, core_type, writer, f"{writer}-{name}", self.observer.compare
        )

    def _on_loop_error(self, _loop: asyncio.AbstractEventLoop, found: dict[str, Any]) -> None:
        error = found.get("exception")
        self.context.fail(error if isinstance(error, BaseException) else Violation(str(found.get("message"))))

    # -- the story

    async def run(self) -> None:
        """From the first process to the last check. Raises what was broken."""
        story = asyncio.get_running_loop().create_task(self._story())
        done, _ = await asyncio.wait([story, self.context.broken], return_when=asyncio.FIRST_COMPLETED)
        story.cancel()
        for finished in done:
            finished.result()

    async def _story(self) -> None:
        self.context.spawn(self._observe())
        for replica in self.replicas:
            replica.start()
        for node in self.nodes:
            await node.start()
        self.context.spawn(self.strikes.carry_out(self.context.faults.plan(WORK_S)))
        self.context.spawn(
            health.carry_out(self.context, [node.machine for node in self.nodes], health.plan(self.seed, WORK_S))
        )
        writers = sorted({replica.writer for replica in self.replicas})
        struck = self.parts.decision_faults(self.seed, WORK_S)
        self.context.spawn(self.decisions.carry_out(self.context.faults, writers, struck))
        await self.people.configure()
        if self.idleness is not None:
            self.context.spawn(self.idleness.carry_out(self.nodes, self.replicas, self.people, self.observer))
        if self.accounts is not None:
            self.context.spawn(self.accounts.carry_out(self.people))
        if self.volumes is not None:
            self.context.spawn(self.volumes.carry_out(self.people))
        if self.services is not None:
            self.context.spawn(self.services.carry_out(self.people))
        await self.people.work(self.commands, WORK_S)
        await self._recover()
        await self._until_done()
        self._check_end()

    async def _observe(self) -> None:
        reader = LogReader(self.context.hub.connect())
        while True:
            for folded in await reader.next():
                self.observer.take(folded)
                if self.people.guard is not None:
                    self.people.guard.see(folded, asyncio.get_running_loop().time())

    async def _recover(self) -> None:
        """The faults stop; what is down comes back by itself (`processes.py`), links and server at once."""
        loop, self.context.faults.quiet = asyncio.get_running_loop(), True
        await asyncio.sleep(max(0.0, WORK_S - loop.time()))
        if not self.context.hub.up:
            self.context.hub.start()
        for client in list(self.context.hub.clients):
            if not client.linked:
                client.relink()
        self.strikes.set_clocks()
        for replica in self.replicas:
            replica.start()
        for node in self.nodes:
            node.machine.ills.clear()
            await node.start()
        if self.idleness is not None:
            await self.idleness.withdraw(self.people)

    async def _until_done(self) -> None:
        loop = asyncio.get_running_loop()
        deadline, tidy_at, calm, left = loop.time() + RECOVERY_S, loop.time(), 0, -1
        while loop.time() < deadline and calm < 3:
            if left != (left := len(self.observer.lives.waiting_for())):
                deadline = loop.time() + RECOVERY_S  # a small cluster with much work continues
            if loop.time() >= tidy_at:
                tidy_at += 60.0
                await self._end_what_cannot_start()
                await self.people.tidy()
            await asyncio.sleep(2.0)
            calm = calm + 1 if self._calm() else 0
        for replica in self.replicas:
            replica.compare()

    async def _end_what_cannot_start(self) -> None:
        """Cancel every waiting job that is larger than its whole pool or exceeds a limit; such a job rightly waits without
        end.
        """
        inventories = [node.machine.inventory for node in self.nodes]
        for job in self.observer.lives.waiting_for():
            _, _, request = self.observer.books.job_request(job)
            pool = [
                each
                for each in inventories
                if each.labels.get(POOL_LABEL, DEFAULT_POOL) == (request.pool or DEFAULT_POOL)
            ]
            fits = self.people.could_ever(request, pool)
            if not fits or self.observer.books.exceeds(job):
                await self.people.send("queue", [CancelJob(id=self.people.new_id(), job=job)])

    def _calm(self) -> bool:
        """Return True if every job has ended, everything is released and confirmed, and each leader has folded the whole
        log.
        """
        last, leading = (
            self.context.hub.streams[subjects.LOG].last,
            [r for r in self.replicas if r.task and r.service.leading],
        )
        return (
            not self.observer.lives.waiting_for()
            and not self.observer.cluster.placer.state.runs
            and self.observer.cluster.sequence == last
            and {replica.writer for replica in leading} == {replica.writer for replica in self.replicas}
            and all(replica.service.folded == last for replica in leading)
            and all(node.agent and not node.agent.ledger.unconfirmed for node in self.nodes)
        )

    def _check_end(self) -> None:
        self.observer.check_end([sent.command.id for sent in self.people.sent])
        runs = self.observer.cluster.placer.state.runs
        if runs:
            raise Violation(f"I10: every job has ended, and these runs still hold something: {sorted(runs)}")
        for node in self.nodes:
            if node.machine.processes:
                raise Violation(f"I10: every job has ended, on {node.machine.name} run {list(node.machine.processes)}")
        if not self._calm():
            raise Violation("I10: the world did not come to rest: a service does not lead, fold or confirm")
        verdict = self.observer.audit.verdict()
        if not verdict.ok:
            raise Violation(f"I8: sequence {verdict.first_bad}: {verdict.what}")


def run_seed(seed: int, *, parts: Parts | None = None, commands: int = COMMANDS) -> SeedOutcome:
    """Live through one seed. Deterministic: equal arguments give equal outcomes, `digest` included."""
    worlds: list[World] = []
    ended: list[float] = []

    async def live() -> None:
        world = World(seed, parts or Parts(), commands)
        worlds.append(world)
        try:
            await world.run()
        finally:
            ended.append(asyncio.get_running_loop().time())

    violation: str | None = None
    collecting = gc.isenabled()
    gc.disable()
    try:
        virtual.run(live())
    except (Violation, Truth, LogDamaged) as error:
        violation = str(error)
    except Exception as error:  # noqa: BLE001 -- whatever a service raises is a finding of this seed
        violation = f"crash: {type(error).__name__}: {error}"
    finally:
        if collecting:
            gc.enable()
    return _outcome(worlds[0], violation, ended[0])


def _outcome(world: World, violation: str | None, virtual_s: float) -> SeedOutcome:
    digest = hashlib.sha256()
    for message in world.context.hub.streams[subjects.LOG].messages:
        digest.update(message.payload)
    return SeedOutcome(
        seed=world.seed,
        violation=violation,
        sequence=world.observer.cluster.sequence,
        events=world.observer.events,
        jobs=world.observer.lives.submitted,
        disasters=world.strikes.struck,
        virtual_s=virtual_s,
        digest=digest.hexdigest(),
        idle=dict(world.observer.idle.counts),
        access=dict(world.observer.access.counts),
        storage=dict(world.observer.storage.counts),
        services=dict(world.observer.services.counts),
        rights=world.observer.audit.rights.commands,
        denied=world.people.guard.denied if world.people.guard is not None else 0,
    )
