"""Day of runs on scripted devices under idle policies: reclaimed runs, runs that were alive then, and idle time
that remained.

The telemetry service's own core and watch decide (idle_cell.py). This module plays the queue (a reclaimed run
ends, on demand when other work waits) and the owners (some extend once), and keeps the books. Everything is
drawn from a seed, nothing is measured.
"""

from random import Random
from typing import NamedTuple

import msgspec

from fairlead_replay.sim.idle_cell import Cell
from fairlead_replay.sim.idle_profiles import SECOND_NS, Player, Profile
from fairlead_schemas.policies.idle import IdlePolicy
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import ExtendJob, SetIdlePolicies
from fairlead_schemas.wire.resources import Request

MINUTE_NS, HOUR_NS = 60 * SECOND_NS, 3600 * SECOND_NS
DAY_NS = 24 * HOUR_NS
SAMPLE_NS = 10 * SECOND_NS
EPOCH_NS = 1_735_689_600 * SECOND_NS
#: Times of day, from its start, at which a job waits for any free capacity.
DEMAND_NS = tuple(hour * HOUR_NS for hour in (10, 14, 18, 22))

type Policies = dict[str, tuple[IdlePolicy, ...]]


class Wish(NamedTuple):
    """A run of the day: whose it is, what it does, when it starts, and whether its owner extends it once."""

    job: str
    profile: Profile
    user: str
    project: str
    kind: str
    starts_ns: int
    extends: bool


class Row(msgspec.Struct, kw_only=True):
    """Outcome of one run."""

    wish: Wish
    held_ns: int = 0
    idle_ns: int = 0  # held, and not alive
    told: int = 0
    extended: int = 0
    foreseen: int = 0
    #: The rule and scope that ended it; of the rest of the day, how long it would have lain idle, and been alive.
    reclaimed_by: str = ""
    saved_ns: int = 0
    cut_off_ns: int = 0
    #: It was alive between the beginning of what counted as idle and its end.
    was_alive: bool = False


class Day:
    """Day under one set of policies."""

    def __init__(self, wishes: list[Wish], policies: Policies, seed: int) -> None:
        self.wishes, self.policies = sorted(wishes, key=lambda wish: wish.starts_ns), policies
        self.rows = {wish.job: Row(wish=wish) for wish in wishes}
        self._rng = Random(f"idle day {seed}")  # noqa: S311 -- repeatable is what it must be
        self._cell = Cell(EPOCH_NS, self._hear, is_careful=False)
        self._players: dict[str, Player] = {}
        self._asked: list[ev.ReclaimRequested] = []
        self._wants: list[str] = []

    def play(self) -> list[Row]:
        """Live through it; a row for each run."""
        for scope, policies in self.policies.items():
            [answer] = self._cell.ask(SetIdlePolicies(id=scope, user="root", scope=scope, policies=policies))
            assert isinstance(answer, ev.IdlePoliciesSet), answer
        waiting, demands = list(self.wishes), list(DEMAND_NS)
        for now_ns in range(EPOCH_NS, EPOCH_NS + DAY_NS, SAMPLE_NS):
            self._cell.advance(now_ns)
            while waiting and EPOCH_NS + waiting[0].starts_ns <= now_ns:
                self._start(waiting.pop(0), now_ns)
            for player in self._players.values():
                self._book(player, now_ns)
                self._cell.feed(player.sample(now_ns))
            self._answer(is_demand=bool(demands) and EPOCH_NS + demands[0] <= now_ns, now_ns=now_ns)
            demands = [each for each in demands if EPOCH_NS + each > now_ns]
        return list(self.rows.values())

    def _start(self, wish: Wish, now_ns: int) -> None:
        player = self._players[wish.job] = Player(wish.job, wish.profile, now_ns, self._rng)
        request = Request(nodes=1, gpu_milli=1000, cpu_milli=8000, memory_mib=65536)
        self._cell.fold("queue", ev.JobSubmitted(
            cause="clock", job=wish.job, name=wish.profile.name, queue="day", user=wish.user, project=wish.project,
            kind=wish.kind, request=request, spec=msgspec.Raw(b"{}"),  # type: ignore[arg-type] -- a kind by its name
        ))  # fmt: skip
        part = ev.Part(node=player.node, gpus=(player.uuid,), cpu_milli=8000, memory_mib=65536)
        self._cell.fold("placer", ev.JobPlaced(cause="clock", job=wish.job, attempt=1, parts=(part,)))
        self._cell.fold("placer", ev.RunStarted(cause="clock", job=wish.job, attempt=1))

    def _book(self, player: Player, now_ns: int) -> None:
        row = self.rows[player.job]
        row.held_ns += SAMPLE_NS
        row.idle_ns += 0 if player.at(now_ns).alive else SAMPLE_NS

    def _hear(self, now_ns: int, event: ev.TelemetryEvent) -> None:
        match event:
            case ev.JobIdle():
                row = self.rows[event.job]
                row.told += 1
                if row.wish.extends and not row.extended and event.reclaim_at_ns:
                    self._wants.append(event.job)
            case ev.JobExtended():
                self.rows[event.job].extended += 1
            case ev.ReclaimSimulated():
                self.rows[event.job].foreseen += 1
            case ev.ReclaimRequested():
                self._asked.append(event)
            case ev.JobActive():
                self._asked = [each for each in self._asked if (each.job, each.rule) != (event.job, event.rule)]
            case _:
                pass

    def _answer(self, *, is_demand: bool, now_ns: int) -> None:
        """Apply the owners' extensions, then end reclaimed runs; those reclaimed on demand end only with `is_demand`."""
        for job in self._wants:
            row = self.rows[job]
            self._cell.ask(ExtendJob(id=f"extend-{job}", user=row.wish.user, job=job))
        self._wants.clear()
        for event in [each for each in self._asked if is_demand or not each.on_demand]:
            if event.job in self._players:
                self._end(event, now_ns)
        self._asked = [each for each in self._asked if each.job in self._players]

    def _end(self, event: ev.ReclaimRequested, now_ns: int) -> None:
        player, row = self._players.pop(event.job), self.rows[event.job]
        row.reclaimed_by = f"{event.rule} of {event.scope}"
        rest = [player.at(at_ns).alive for at_ns in range(now_ns + SAMPLE_NS, EPOCH_NS + DAY_NS, SAMPLE_NS)]
        row.cut_off_ns = sum(rest) * SAMPLE_NS
        row.saved_ns = len(rest) * SAMPLE_NS - row.cut_off_ns
        # Of a lifetime only the end counts: it says nothing of what the run did.
        since_ns = now_ns if event.rule == "lifetime" else event.since_ns + SAMPLE_NS
        row.was_alive = any(player.at(at_ns).alive for at_ns in range(since_ns, now_ns + 1, SAMPLE_NS))
        self._cell.fold("placer", ev.RunEnded(cause="clock", job=event.job, attempt=1, outcome="stopped"))
