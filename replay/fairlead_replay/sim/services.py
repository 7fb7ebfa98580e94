"""Services in one simulated world, where a test asks for it: commands about a few of them, and books that judge what the queue does about their replicas.

Job files change, numbers rise and fall, loads come and go, and names that are not there are named; meanwhile nodes drain, die and return as in every
world. The books share no code with the queue. Start at
`ServiceBooks.take`.
"""

import asyncio
from collections import Counter
from random import Random
from typing import NamedTuple

import msgspec

from fairlead_replay.sim.context import SimContext
from fairlead_replay.sim.workload import LEAVES, People
from fairlead_schemas.policies.services import ServiceRules
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.resources import Request

WRITER = "queue"
NAMES = ("chat", "embed")
#: Job files: programs that serve for long, never, and until they crash.
SPECS = (
    msgspec.Raw(b'{"run_ms":600000,"serves_ms":700}'),
    msgspec.Raw(b'{"run_ms":4000,"fails_pct":100}'),
    msgspec.Raw(b'{"run_ms":6000,"fails_pct":100,"serves_ms":200}'),
    msgspec.Raw(b'{"run_ms":700000,"serves_ms":300}'),
)
#: Between two looks whether a service that was stopped has gone.
STOP_S = 5.0


class ServicesPlan(NamedTuple):
    """Habits of one world: seconds at which a command is sent."""

    moments: list[float]
    #: Second after which everything is stopped.
    until_s: float


def plan(seed: int, until_s: float) -> ServicesPlan | None:
    """Return the plan of this seed."""
    rng = Random(f"services {seed}")  # noqa: S311 -- repeatable is what it must be
    return ServicesPlan(sorted(rng.uniform(0.5, until_s) for _ in range(rng.choice((10, 20, 40)))), until_s)


def absent(seed: int, until_s: float) -> ServicesPlan | None:
    """Return None: nobody makes services in this world."""
    return None


class SimulatedServices:
    """Carries out the plan of one world."""

    def __init__(self, context: SimContext, planned: ServicesPlan) -> None:
        self.context, self.planned = context, planned
        self.rng = Random(f"service commands {context.seed}")  # noqa: S311 -- as all of a seed
        self._commands = 0

    async def carry_out(self, people: People) -> None:
        """Send the planned commands; once the world's faults are over, stop every service, so that its jobs end."""
        loop = asyncio.get_running_loop()
        for moment in self.planned.moments:
            await asyncio.sleep(max(0.0, moment - loop.time()))
            if self.context.faults.quiet:
                break
            await people.send(WRITER, [self._draw()])
        await asyncio.sleep(max(0.0, self.planned.until_s - loop.time()))
        while True:  # a stop may be refused while the replicas of a service before it end
            await people.send(WRITER, [cmd.StopService(id=self._id(), service=name) for name in NAMES])
            await asyncio.sleep(STOP_S)

    def _draw(self) -> cmd.QueueCommand:
        draw, name = self.rng.random(), self.rng.choice(NAMES)
        if draw < 0.6:
            return self._apply(name)
        if draw < 0.72:
            low = self.rng.randint(0, 3)
            return cmd.ScaleService(id=self._id(), service=name, replicas_min=low, replicas_max=low)
        if draw < 0.93:
            proxy, count = self.rng.choice(("p1", "p2")), self.rng.choice((0, 1, 7))
            return cmd.ReportServiceLoad(id=self._id(), service=name, proxy=proxy, in_flight=count)
        return cmd.StopService(id=self._id(), service=name)

    def _apply(self, name: str) -> cmd.ApplyService:
        low = self.rng.randint(0, 2)
        surge, unavailable = self.rng.choice(((1, 0), (0, 1), (2, 1), (0, 0)))
        rules = ServiceRules(
            replicas_min=low,
            replicas_max=low + self.rng.choice((0, 2)),
            requests=2,
            surge=surge,
            unavailable=unavailable,
            drain_ns=self.rng.choice((0, SECOND_NS)),
            calm_ns=3 * SECOND_NS,
        )
        request = Request(nodes=1, gpu_milli=self.rng.choice((0, 1000)), cpu_milli=1000, memory_mib=1024)
        template = ev.ReplicaJob(
            request=request, spec=self.rng.choice((*SPECS, SPECS[0], SPECS[3])), grace_ns=SECOND_NS
        )
        queue = LEAVES[0] if self.rng.random() < 0.9 else self.rng.choice((*LEAVES, "gone"))
        return cmd.ApplyService(id=self._id(), user="p1", service=name, queue=queue, template=template, rules=rules)

    def _id(self) -> str:
        self._commands += 1
        return f"svc{self._commands}"


class _Booked:
    """One replica, as the log tells."""

    def __init__(self, service: str, revision: int) -> None:
        self.service, self.revision = service, revision
        self.attempt, self.is_running, self.is_ready, self.is_leaving = 1, False, False, False

    @property
    def serves(self) -> bool:
        """Return whether it takes requests."""
        return self.is_running and self.is_ready and not self.is_leaving


class ServiceBooks:
    """Books of services and their replicas, by the events alone."""

    def __init__(self) -> None:
        #: {service: (rules, wanted)}
        self.services: dict[str, tuple[ServiceRules, int]] = {}
        self.replicas: dict[str, _Booked] = {}
        self.answered: dict[str, int] = {}
        #: {type: events}
        self.counts: Counter[str] = Counter()

    def take(self, sequence: int, commit: Commit) -> str:
        """Book a commit. Returns a description of the first error, "" if there is none."""
        serving = Counter(each.service for each in self.replicas.values() if each.serves)
        retired: set[str] = set()
        submitted: set[str] = set()
        for event in commit.events:
            self._book(event)
            if isinstance(event, ev.ReplicaRetired):
                retired.add(event.service)
            elif isinstance(event, ev.JobSubmitted) and event.service:
                submitted.add(event.service)
            if type(event).__module__ == ev.ServiceApplied.__module__:
                self.counts[type(event).__name__] += 1
                if event.cause.startswith("cmd:") and self.answered.setdefault(event.cause, sequence) != sequence:
                    return f"I3: {event.cause} was answered at sequence {self.answered[event.cause]} already"
        for name in sorted(retired):
            if wrong := self._too_few(name, serving[name]):
                return wrong
        for name in sorted(submitted):
            if wrong := self._too_many(name):
                return wrong
        return ""

    def _too_few(self, name: str, before: int) -> str:
        """A commit that takes replicas out leaves as many that serve as its rules want, or as there were."""
        rules, wanted = self.services[name]
        left = sum(each.serves for each in self.replicas.values() if each.service == name)
        needed = min(before, wanted - rules.unavailable)
        return (
            f"I14: service {name}: {left} replicas serve after some were taken out, {needed} are needed"
            if left < needed
            else ""
        )

    def _too_many(self, name: str) -> str:
        """A commit that adds replicas leaves at most `surge` beyond the wanted ones."""
        rules, wanted = self.services[name]
        alive = sum(not each.is_leaving for each in self.replicas.values() if each.service == name)
        most = wanted + rules.surge
        return (
            f"I14: service {name}: {alive} replicas after some were added, at most {most} may be"
            if alive > most
            else ""
        )

    def _book(self, event: ev.Event) -> None:
        match event:
            case ev.ServiceApplied():
                _, wanted = self.services.get(event.service, (None, 0))
                rules = event.rules
                self.services[event.service] = rules, min(rules.replicas_max, max(rules.replicas_min, wanted))
            case ev.ServiceScaled():
                self.services[event.service] = event.rules or self.services[event.service][0], event.wanted
            case ev.ServiceStopped():
                del self.services[event.service]
            case ev.ReplicaRetired():
                self.replicas[event.job].is_leaving = True
            case ev.JobSubmitted(service=service) if service:
                self.replicas[event.job] = _Booked(service, event.revision)
            case ev.JobSucceeded() | ev.JobFailed() | ev.JobCancelled():
                self.replicas.pop(event.job, None)
            case ev.JobStopRequested() if (one := self.replicas.get(event.job)) is not None:
                one.is_leaving = True
            case ev.JobRequeued() if (one := self.replicas.get(event.job)) is not None:
                one.attempt, one.is_running, one.is_ready = event.attempt, False, False
            case ev.RunStarted() if (one := self.replicas.get(event.job)) is not None and one.attempt == event.attempt:
                one.is_running = True
            case ev.AppReady() if (one := self.replicas.get(event.job)) is not None and one.attempt == event.attempt:
                one.is_ready = True
            case _:
                pass
