"""Everything that goes wrong, drawn from one seed; and exceptions in the middle of decisions, drawn from a seed of their
own: defects that a core has met, and must survive.

Each seed has a weather of its own: which faults happen at all, and how often (swarm testing: a world where
everything fails all the time never gets far enough to meet the rare cases). `quiet` ends the faults, so
that the world can be asked whether it recovers.

A fault strikes at the n-th step of a decision, where a step is an event that is emitted or a change that is tried on the
state. It strikes once; or, in the queue, at every decision on one submit, which the shell must then record as rejected.
Steps are counted rather than all calls: what a process has cached must not move a fault, or a seed would not repeat.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from random import Random
from types import CodeType, FunctionType
from typing import Any, Literal, NamedTuple, get_args

from fairlead_bus.core import Decision, Input
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.cluster.state import ClusterState as PlacerState
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.fairness.tree import QueueTree
from fairlead_queue.state import QueueState
from fairlead_schemas.wire.commands import SubmitJob
from fairlead_telemetry.idle.decide.decision import ReviewSchedule

DisasterKind = Literal[
    "crash_service",
    "partition_service",
    "crash_agent",
    "reboot_node",
    "wipe_node",
    "partition_node",
    "restart_server",
    "lose_desired",
    "clock_jump",
    "pause_service",
    "pause_agent",
    "lose_snapshot",
]
KINDS: tuple[DisasterKind, ...] = get_args(DisasterKind)

#: An append is given up (its outcome unknown) after this long.
ANSWER_S = 1.0


class Disaster(NamedTuple):
    """Planned fault: its time, its kind, its target (an index into services or nodes), and its duration."""

    at_s: float
    kind: DisasterKind
    target: int
    lasting_s: float


class Fate(NamedTuple):
    """Simulated outcome of one append."""

    before_s: float  # until it arrives
    arrives: bool
    after_s: float  # until the answer is back; beyond ANSWER_S the outcome is unknown
    answered: bool


class Faults:
    """Draws what happens, in the order in which the world asks."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = Random(f"fairlead {seed}")  # noqa: S311 -- repeatable is what it must be
        self.quiet = False
        self.delay_s = rng.choice((0.0005, 0.002, 0.02, 0.1))
        self.drop = rng.choice((0.0, 0.02, 0.2))
        self.double = rng.choice((0.0, 0.05, 0.3))
        self.unknown = rng.choice((0.0, 0.01, 0.08))
        self.fail = rng.choice((0.0, 0.02, 0.1))
        #: Slow flushes: chance and length; the longest outlasts ANSWER_S.
        self.slow = rng.choice((0.0, 0.02, 0.1))
        self.slow_s = rng.choice((0.05, 0.5, 2.0))
        #: An agent's disk: chance of a stall, and its length; the longest outlasts the fence.
        self.stall = rng.choice((0.0, 0.0, 0.02))
        self.stall_s = rng.choice((1.0, 5.0, 20.0))
        #: Events between snapshots: some worlds restart from one again and again, others fold the whole log.
        self.snapshot_events = rng.choice((20, 200, 50_000))

    def plan(self, until_s: float) -> list[Disaster]:
        """The planned faults of this seed, in order of time."""
        rng = self.rng
        kinds = rng.sample(KINDS, rng.randint(2, len(KINDS)))
        count = rng.randint(2, 12)
        planned = [
            Disaster(rng.uniform(0.5, until_s * 0.6), rng.choice(kinds), rng.randrange(1 << 16), self._length())
            for _ in range(count)
        ]
        return sorted(planned)

    def _length(self) -> float:
        # Short ones heal unnoticed, middle ones fence an agent, long ones cost a node its lease.
        return self.rng.choice((0.3, 2.0, 6.0, 14.0, 40.0, 40.0)) * self.rng.uniform(0.7, 1.3)

    def chance(self, probability: float) -> bool:
        """True with a probability, never once the faults are over."""
        return not self.quiet and probability > 0 and self.rng.random() < probability

    def delay(self) -> float:
        """Return the delay of one way over the network, in seconds."""
        return 0.0005 if self.quiet else self.rng.random() * self.delay_s

    def sync(self) -> float:
        """Return the duration of one fsync of an agent's journal, in seconds."""
        stalled = self.stall_s * self.rng.random() if self.chance(self.stall) else 0.0
        return 0.0005 + self.delay() + stalled

    def copies(self) -> list[float]:
        """Delays of the copies of one core message that arrive; none if it is lost."""
        if self.chance(self.drop):
            return []
        if self.chance(self.double):
            return [self.delay(), self.delay() * 20]
        return [self.delay()]

    def append(self) -> Fate:
        """Return the simulated outcome of one append."""
        slow = self.slow_s * self.rng.random() if self.chance(self.slow) else 0.0
        unknown = self.chance(self.unknown)
        arrives = not unknown or self.rng.random() < 0.5
        return Fate(self.delay() + slow, arrives, self.delay(), not unknown)


TOOL = 4
#: The latest step that a fault strikes at.
STEPS_MAX = 12
_STEPS: tuple[Callable[..., object], ...] = (
    QueueDraft.emit,
    QueueDraft.answer,
    QueueState.try_in_line,
    QueueState.wait_in_line,
    QueueState.refront,
    QueueTree.carry,
    PlacerDraft.emit,
    PlacerState.place,
    PlacerState.take,
    PlacerState.give,
    PlacerState.open_offer,
    PlacerState.change,
    ReviewSchedule.wake,
    ReviewSchedule.settled,
)
#: Steps of a compiled core are no Python code, so no fault strikes at them: only after the decision of a poisoned command.
STEPS: tuple[CodeType, ...] = tuple(step.__code__ for step in _STEPS if isinstance(step, FunctionType))


class Defect(Exception):
    """The decision failed with an injected defect."""


class DecisionFault(NamedTuple):
    """Planned fault: its time and step, and `sticks`: True if it stays with the command."""

    at_s: float
    target: int
    step: int
    sticks: bool


def plan_decision_faults(seed: int, until_s: float) -> list[DecisionFault]:
    """The faults of this seed, in order of time; half of all seeds have none."""
    rng = Random(f"decisions {seed}")  # noqa: S311 -- repeatable is what it must be
    count = rng.choice((0, 0, 3, 10))
    return sorted(
        DecisionFault(
            rng.uniform(0.2, until_s * 0.8), rng.randrange(1 << 16), rng.randint(1, STEPS_MAX), rng.random() < 0.3
        )
        for _ in range(count)
    )


class DecisionFaults:
    """Faults of one world that are due, by writer, and the commands that they stick to."""

    def __init__(self) -> None:
        self.due: dict[str, list[DecisionFault]] = {}
        self.poisoned: dict[str, int] = {}
        #: When a writer was struck last, by its clock: what it tries at once afterwards goes well.
        self._struck_ns: dict[str, int] = {}

    async def carry_out(self, faults: Faults, writers: Sequence[str], planned: list[DecisionFault]) -> None:
        """Each at its time, until the world's faults are over."""
        for fault in planned:
            await asyncio.sleep(max(0.0, fault.at_s - asyncio.get_running_loop().time()))
            if faults.quiet:
                return
            self.due.setdefault(writers[fault.target % len(writers)], []).append(fault)

    def interrupting(self, core: type[Any]) -> type[Any]:
        """A core type whose decisions meet the faults that are due."""
        faults = self

        class Interrupted(core):
            def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
                step, sticks = faults.next(core.writer, inputs, now_ns)
                if not step:
                    return super().decide(inputs, now_ns)
                with _Counter(step) as counter:
                    decision = super().decide(inputs, now_ns)
                if sticks:
                    raise Defect(f"after {counter.steps} steps of a poisoned command")
                return decision

        return Interrupted

    def next(self, writer: str, inputs: Sequence[Input], now_ns: int) -> tuple[int, bool]:
        """(the step at which a decision on these inputs is interrupted, whether in any case); (0, False): it is not."""
        submits = [
            each.id for item in inputs if item.source == "CMD" for each in item.body if isinstance(each, SubmitJob)
        ]
        for command in submits:
            if command in self.poisoned:
                return self.poisoned[command], True
        if not inputs or not self.due.get(writer) or self._struck_ns.get(writer) == now_ns:
            return 0, False
        self._struck_ns[writer] = now_ns
        fault = self.due[writer].pop(0)
        if fault.sticks and submits:
            self.poisoned[submits[0]] = fault.step
        return fault.step, fault.sticks and bool(submits)


class _Counter:
    """Raises at the n-th step within its block."""

    def __init__(self, step: int) -> None:
        self._step, self.steps = step, 0

    def __enter__(self) -> "_Counter":
        monitoring = sys.monitoring
        monitoring.use_tool_id(TOOL, "mid-decision")
        monitoring.register_callback(TOOL, monitoring.events.PY_START, self._count)
        for code in STEPS:
            monitoring.set_local_events(TOOL, code, monitoring.events.PY_START)
        return self

    def __exit__(self, *_raised: object) -> None:
        for code in STEPS:
            sys.monitoring.set_local_events(TOOL, code, 0)
        sys.monitoring.free_tool_id(TOOL)

    def _count(self, code: CodeType, _offset: int) -> None:
        self.steps += 1
        if self.steps == self._step:
            raise Defect(f"at step {self.steps}, {code.co_qualname}")
