"""Simulated day of idle policies: `python -m bench.idle_day [--seed N] [--profiles DIR]` prints a table.

The same scripted runs are simulated twice: under policies that look at several signals, at three scopes, and under a policy that looks
at the GPU alone. The table counts reclaimed runs, runs that were active when they were reclaimed, and idle time that remained. The
exit code is 1 if the policies with several signals reclaimed an active run.

Nothing is measured. Devices are scripted: a table (tests/data/README.md) gives a run's samples over time and the times at which it is
active; a row holds until the next row's second, and after the last row playback starts over. The idle core and watch of the telemetry
service decide (virtual/telemetry.py). This module simulates the queue, which ends a reclaimed run, on demand if other work waits, and
the owners, of whom some extend once. All random numbers come from the seed.
"""

import argparse
import csv
import sys
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from fairlead_replay.virtual.telemetry import VirtualTelemetry
from fairlead_schemas.policies.idle import IdlePolicy
from fairlead_schemas.units.timestamps import DAY_NS, HOUR_NS, MINUTE_NS, SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import ExtendJob, SetIdlePolicies
from fairlead_schemas.wire.resources import Request
from fairlead_schemas.wire.samples import GpuSample, RunResources, SampleBatch

#: Numbers are not as smooth as a table.
JITTER = 0.15


class ProfileMoment(NamedTuple):
    """Row of a profile's table."""

    second: int
    gpu_pct: int
    memory_pct: int
    power_w: int
    links_kb_s: int
    cpu_milli: int
    network_kb_s: int
    disk_kb_s: int
    typing: int
    alive: int


class DeviceProfile:
    """Scripted behaviour of one kind of run."""

    def __init__(self, name: str, moments: list[ProfileMoment]) -> None:
        self.name, self.moments = name, moments
        self.length_s = moments[-1].second
        self._seconds = [each.second for each in moments]

    def at(self, second: float) -> ProfileMoment:
        """Return the row that holds this many seconds after the run's start."""
        return self.moments[bisect_right(self._seconds, second % self.length_s) - 1]


def load(directory: Path) -> dict[str, DeviceProfile]:
    """{name: profile} of all tables in a directory. Raises ValueError that names the file and the field."""
    found: dict[str, DeviceProfile] = {}
    for path in sorted(directory.glob("*.csv")):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        try:
            moments = [ProfileMoment(**{field: int(row[field]) for field in ProfileMoment._fields}) for row in rows]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: expected whole numbers in the columns {', '.join(ProfileMoment._fields)}: {error}"
            ) from error
        if len(moments) < 2 or moments[0].second or [m.second for m in moments] != sorted({m.second for m in moments}):
            raise ValueError(f"{path}: second: expected two or more rows that rise from 0")
        found[path.stem] = DeviceProfile(path.stem, moments)
    if not found:
        raise ValueError(f"{directory}: expected tables (*.csv) of devices, found none")
    return found


class ProfilePlayer:
    """Run on one GPU of its own node, and the samples of the node's agent."""

    def __init__(self, job: str, profile: DeviceProfile, began_ns: int, rng: Random) -> None:
        self.job, self.profile, self.began_ns, self.rng = job, profile, began_ns, rng
        self.node, self.uuid = f"n{job}", f"GPU-n{job}-0"
        self._n = self._at_ns = self._cpu_ms = self._network = self._disk = self._typed_ns = 0

    def at(self, now_ns: int) -> ProfileMoment:
        """Return the profile's row that holds at this time."""
        return self.profile.at((now_ns - self.began_ns) / SECOND_NS)

    def sample(self, now_ns: int) -> SampleBatch:
        """Return the node's sample batch for this time. Counters have risen since the previous sample."""
        self._n += 1
        moment, passed_s = self.at(now_ns), max(0, now_ns - (self._at_ns or now_ns)) / SECOND_NS
        self._at_ns = now_ns
        self._cpu_ms += int(self._about(moment.cpu_milli) * passed_s)
        self._network += int(self._about(moment.network_kb_s * 1000) * passed_s)
        self._disk += int(self._about(moment.disk_kb_s * 1000) * passed_s)
        if moment.typing:
            self._typed_ns = now_ns
        run = f"{self.job}.1"
        gpu = GpuSample(
            uuid=self.uuid,
            run=run,
            utilization_pct=min(100, self._about(moment.gpu_pct)),
            memory_used_mib=20_000,
            memory_busy_pct=min(100, self._about(moment.memory_pct)),
            power_mw=self._about(moment.power_w * 1000),
            pcie_tx_bytes_s=self._about(moment.links_kb_s * 500),
            pcie_rx_bytes_s=self._about(moment.links_kb_s * 500),
        )
        rank = RunResources(
            run=run,
            cpu_ms=self._cpu_ms,
            network_rx_bytes=self._network,
            network_tx_bytes=0,
            disk_read_bytes=self._disk,
            disk_written_bytes=0,
            terminal_ns=self._typed_ns,
        )
        return SampleBatch(
            node=self.node, incarnation="sim", n=self._n, at_ns=now_ns, gpus=[gpu], resources=[rank], simulated=True
        )

    def _about(self, value: int) -> int:
        return round(value * self.rng.uniform(1 - JITTER, 1 + JITTER))


SAMPLE_NS = 10 * SECOND_NS
EPOCH_NS = 1_735_689_600 * SECOND_NS
#: Times of day, from its start, at which a job waits for any free capacity.
DEMAND_NS = tuple(hour * HOUR_NS for hour in (10, 14, 18, 22))

type Policies = dict[str, tuple[IdlePolicy, ...]]


class ScriptedRun(NamedTuple):
    """A run of the day: whose it is, what it does, when it starts, and whether its owner extends it once."""

    job: str
    profile: DeviceProfile
    user: str
    project: str
    kind: str
    starts_ns: int
    extends: bool


class DayRow(msgspec.Struct, kw_only=True):
    """Outcome of one run."""

    script: ScriptedRun
    held_ns: int = 0
    idle_ns: int = 0  # allocated, and not active
    notified: int = 0
    extended: int = 0
    foreseen: int = 0
    #: Rule and scope that ended the run; for the rest of the day, the idle and the active time without it.
    reclaimed_by: str = ""
    saved_ns: int = 0
    cut_off_ns: int = 0
    #: True if the run was active between the start of its idle time and its end.
    was_active: bool = False


class Day:
    """Day under one set of policies."""

    def __init__(self, runs: list[ScriptedRun], policies: Policies, seed: int) -> None:
        self.runs, self.policies = sorted(runs, key=lambda script: script.starts_ns), policies
        self.rows = {script.job: DayRow(script=script) for script in runs}
        self._rng = Random(f"idle day {seed}")
        self._cell = VirtualTelemetry(EPOCH_NS, self._hear, is_careful=False)
        self._players: dict[str, ProfilePlayer] = {}
        self._asked: list[ev.ReclaimRequested] = []
        self._wants: list[str] = []

    def play(self) -> list[DayRow]:
        """Live through it; a row for each run."""
        for scope, policies in self.policies.items():
            [answer] = self._cell.ask(SetIdlePolicies(id=scope, user="root", scope=scope, policies=policies))
            assert isinstance(answer, ev.IdlePoliciesSet), answer
        waiting, demands = list(self.runs), list(DEMAND_NS)
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

    def _start(self, script: ScriptedRun, now_ns: int) -> None:
        player = self._players[script.job] = ProfilePlayer(script.job, script.profile, now_ns, self._rng)
        request = Request(nodes=1, gpu_milli=1000, cpu_milli=8000, memory_mib=65536)
        self._cell.fold(
            "queue",
            ev.JobSubmitted(
                cause="clock",
                job=script.job,
                name=script.profile.name,
                queue="day",
                user=script.user,
                project=script.project,
                kind=script.kind,  # type: ignore[arg-type] -- a kind by its name
                request=request,
                spec=msgspec.Raw(b"{}"),
            ),
        )
        part = ev.Part(node=player.node, gpus=(player.uuid,), cpu_milli=8000, memory_mib=65536)
        self._cell.fold("placer", ev.JobPlaced(cause="clock", job=script.job, attempt=1, parts=(part,)))
        self._cell.fold("placer", ev.RunStarted(cause="clock", job=script.job, attempt=1))

    def _book(self, player: ProfilePlayer, now_ns: int) -> None:
        row = self.rows[player.job]
        row.held_ns += SAMPLE_NS
        row.idle_ns += 0 if player.at(now_ns).alive else SAMPLE_NS

    def _hear(self, now_ns: int, event: ev.TelemetryEvent) -> None:
        match event:
            case ev.JobIdle():
                row = self.rows[event.job]
                row.notified += 1
                if row.script.extends and not row.extended and event.reclaim_at_ns:
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
            self._cell.ask(ExtendJob(id=f"extend-{job}", user=row.script.user, job=job))
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
        row.was_active = any(player.at(at_ns).alive for at_ns in range(since_ns, now_ns + 1, SAMPLE_NS))
        self._cell.fold("placer", ev.RunEnded(cause="clock", job=event.job, attempt=1, outcome="stopped"))


PROFILES = Path("tests/data/idle")
#: {profile: kind of job}; all others are batch jobs.
KINDS = {
    "notebook_left_in_the_evening": "session",
    "abandoned_notebook": "session",
    "typing_session": "session",
    "forgotten_loop": "session",
    "spiky_inference": "service",
}
#: Kinds without an end of their own that a lifetime would cut off: a lifetime does not check for a present
#: user.
_UNATTENDED = ("notebook_left_in_the_evening", "abandoned_notebook", "forgotten_loop")

_QUIET = IdlePolicy(
    rule="utilization",
    action="stop",
    mode="always",
    below={
        "gpu": 50,
        "memory_traffic": 30,
        "gpu_links": 5_000_000,
        "cpu": 500,
        "network": 200_000,
        "disk": 500_000,
        "terminal": 30 * MINUTE_NS,
    },
    after_ns=45 * MINUTE_NS,
    notice_ns=15 * MINUTE_NS,
    extend_ns=HOUR_NS,
    extensions_max=1,
    after_max_ns=12 * HOUR_NS,
    may_soften=True,
)
SEVERAL_SIGNALS: Policies = {
    "global": (_QUIET,),
    # A classroom: on demand, and by whether anybody is at the terminal.
    "project:teaching": (
        IdlePolicy(rule="interaction", action="stop", mode="on_demand", after_ns=2 * HOUR_NS, notice_ns=15 * MINUTE_NS, kinds=("session",)),
    ),
    # One who wants her own sessions to end, and one who only wants to know.
    "user:kim": (
        IdlePolicy(rule="lifetime", action="requeue", mode="always", after_ns=12 * HOUR_NS, notice_ns=30 * MINUTE_NS, kinds=("session",)),
    ),
    "user:lee": (
        IdlePolicy(rule="utilization", action="stop", below={"gpu": 50, "cpu": 500, "terminal": 30 * MINUTE_NS},
                   after_ns=2 * HOUR_NS, notice_ns=15 * MINUTE_NS),
    ),
}  # fmt: skip
#: As the usual "below 5 % for 10 minutes" goes.
GPU_ALONE: Policies = {
    "global": (
        IdlePolicy(
            rule="utilization", action="stop", mode="always", below={"gpu": 50}, after_ns=10 * MINUTE_NS, notice_ns=0
        ),
    ),
}


def runs_of(profiles: dict[str, DeviceProfile], seed: int) -> list[ScriptedRun]:
    """Return four runs of every profile, started between midnight and 10:00: by ann, lee and kim, and in teaching."""
    rng = Random(f"idle runs {seed}")
    runs: list[ScriptedRun] = []
    for profile in profiles.values():
        for user, project in (("ann", "hep"), ("lee", "hep"), ("kim", "hep"), ("eve", "teaching")):
            if user == "kim" and KINDS.get(profile.name) == "session" and profile.name not in _UNATTENDED:
                continue
            starts_ns = rng.randrange(0, 10 * 60) * MINUTE_NS
            kind = KINDS.get(profile.name, "batch")
            runs.append(
                ScriptedRun(str(len(runs) + 1), profile, user, project, kind, starts_ns, extends=rng.random() < 0.5)
            )
    return runs


class DayResult(NamedTuple):
    """Outcome of a day under some policies; GPU-hours."""

    rows: list[DayRow]
    false_positives: int
    missed_idle: float
    saved: float


def play(profiles: dict[str, DeviceProfile], policies: Policies, seed: int) -> DayResult:
    """Simulate one day and return its result."""
    rows = Day(runs_of(profiles, seed), policies, seed).play()
    return DayResult(
        rows,
        sum(row.was_active for row in rows),
        _hours(row.idle_ns for row in rows),
        _hours(row.saved_ns for row in rows),
    )


HEADINGS = (
    "runs",
    "held h",
    "idle h",
    "notified",
    "extended",
    "foreseen",
    "reclaimed",
    "active",
    "saved h",
    "cut off h",
)


def table(title: str, result: DayResult) -> str:
    """Return the day by profile, and by the policy that ended runs, as lines."""
    lines = [title, f"  {'profile':<30}" + "".join(f"{heading:>10}" for heading in HEADINGS)]
    for name in sorted({row.script.profile.name for row in result.rows}):
        lines.append(_line(name, [row for row in result.rows if row.script.profile.name == name]))
    lines.append(_line("all", result.rows))
    for by in sorted({row.reclaimed_by for row in result.rows if row.reclaimed_by}):
        of = [row for row in result.rows if row.reclaimed_by == by]
        alive, saved = sum(row.was_active for row in of), _hours(row.saved_ns for row in of)
        lines.append(f"  by {by}: {len(of)} reclaimed, {alive} of them active, {saved:.1f} idle GPU-hours saved")
    idle = result.missed_idle + result.saved
    lines.append(
        f"  false positives: {result.false_positives}; missed idle GPU-hours: {result.missed_idle:.1f} of {idle:.1f}"
    )
    return "\n".join(lines)


def _line(name: str, rows: list[DayRow]) -> str:
    cells = (
        len(rows), _hours(row.held_ns for row in rows), _hours(row.idle_ns for row in rows), sum(row.notified for row in rows),
        sum(row.extended for row in rows), sum(row.foreseen for row in rows), sum(bool(row.reclaimed_by) for row in rows),
        sum(row.was_active for row in rows), _hours(row.saved_ns for row in rows), _hours(row.cut_off_ns for row in rows),
    )  # fmt: skip
    return f"  {name:<30}" + "".join(f"{cell:>10.1f}" if isinstance(cell, float) else f"{cell:>10}" for cell in cells)


def _hours(spans_ns: Iterable[int]) -> float:
    return sum(spans_ns) / HOUR_NS


def main() -> int:
    """Print the day and return the exit code: 1 if the policies with several signals reclaimed an active run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profiles", type=Path, default=PROFILES, help=f"a directory of tables; default: {PROFILES}")
    options = parser.parse_args()
    try:
        profiles = load(options.profiles)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    several = play(profiles, SEVERAL_SIGNALS, options.seed)
    sys.stdout.write(table(f"several signals, three scopes (simulated day, seed {options.seed})", several) + "\n")
    sys.stdout.write(table("the GPU alone, below 5 % for 10 minutes", play(profiles, GPU_ALONE, options.seed)) + "\n")
    return 1 if several.false_positives else 0


if __name__ == "__main__":
    sys.exit(main())
