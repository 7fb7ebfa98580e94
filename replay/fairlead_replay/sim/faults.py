"""Everything that goes wrong, drawn from one seed.

Each seed has a weather of its own: which faults happen at all, and how often (swarm testing: a world where
everything fails all the time never gets far enough to meet the rare cases). `quiet` ends the faults, so
that the world can be asked whether it recovers.
"""

from random import Random
from typing import Literal, NamedTuple, get_args

Kind = Literal[
    "crash_service", "partition_service", "crash_agent", "reboot_node", "wipe_node", "partition_node",
    "restart_server", "lose_desired", "clock_jump", "pause_service", "pause_agent", "lose_snapshot",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)

#: An append is given up (its outcome unknown) after this long.
ANSWER_S = 1.0


class Disaster(NamedTuple):
    """Planned fault: its time, its kind, its target (an index into services or nodes), and its duration."""

    at_s: float
    kind: Kind
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
