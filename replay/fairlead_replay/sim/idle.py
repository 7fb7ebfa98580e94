"""`python -m fairlead_replay.sim.idle [--seed N] [--profiles DIR]`: a day of scripted runs under idle policies, as a table.

Played twice: under policies that look at several signals, at three scopes, and under one that looks at the GPU alone. Exits with 1
where the first asked a run back that was alive. Nothing in it is measured.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import NamedTuple

from fairlead_replay.sim.idle_day import HOUR_NS, MINUTE_NS, Day, Policies, Row, Wish
from fairlead_replay.sim.idle_profiles import Profile, load
from fairlead_schemas.policies.idle import IdlePolicy

PROFILES = Path("tests/data/idle")
#: {profile: kind of job}; all others are batch jobs.
KINDS = {
    "notebook_left_in_the_evening": "session", "abandoned_notebook": "session", "typing_session": "session",
    "forgotten_loop": "session", "spiky_inference": "service",
}  # fmt: skip
#: Kinds without an end of their own that a lifetime would cut off: a lifetime does not check for a present
#: user.
_UNATTENDED = ("notebook_left_in_the_evening", "abandoned_notebook", "forgotten_loop")

_QUIET = IdlePolicy(
    rule="utilization", action="stop", mode="always",
    below={"gpu": 50, "memory_traffic": 30, "gpu_links": 5_000_000, "cpu": 500, "network": 200_000, "disk": 500_000,
           "terminal": 30 * MINUTE_NS},
    after_ns=45 * MINUTE_NS, notice_ns=15 * MINUTE_NS, extend_ns=HOUR_NS, extensions_max=1, after_max_ns=12 * HOUR_NS,
    may_soften=True,
)  # fmt: skip
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


def wishes_of(profiles: dict[str, Profile], seed: int) -> list[Wish]:
    """Every profile four times, from the night to the forenoon: of ann's, lee's and kim's, and in the classroom."""
    rng = Random(f"idle wishes {seed}")  # noqa: S311 -- repeatable is what it must be
    wishes: list[Wish] = []
    for profile in profiles.values():
        for user, project in (("ann", "hep"), ("lee", "hep"), ("kim", "hep"), ("eve", "teaching")):
            if user == "kim" and KINDS.get(profile.name) == "session" and profile.name not in _UNATTENDED:
                continue
            starts_ns = rng.randrange(0, 10 * 60) * MINUTE_NS
            kind = KINDS.get(profile.name, "batch")
            wishes.append(
                Wish(str(len(wishes) + 1), profile, user, project, kind, starts_ns, extends=rng.random() < 0.5)
            )
    return wishes


class Result(NamedTuple):
    """Outcome of a day under some policies; GPU-hours."""

    rows: list[Row]
    false_positives: int
    missed_idle: float
    saved: float


def play(profiles: dict[str, Profile], policies: Policies, seed: int) -> Result:
    """Simulate one day and return its result."""
    rows = Day(wishes_of(profiles, seed), policies, seed).play()
    return Result(
        rows,
        sum(row.was_alive for row in rows),
        _hours(row.idle_ns for row in rows),
        _hours(row.saved_ns for row in rows),
    )


HEADINGS = ("runs", "held h", "idle h", "told", "extended", "foreseen", "reclaimed", "alive", "saved h", "cut off h")


def table(title: str, result: Result) -> str:
    """The day by profile, and by the policy that ended runs."""
    lines = [title, f"  {'profile':<30}" + "".join(f"{heading:>10}" for heading in HEADINGS)]
    for name in sorted({row.wish.profile.name for row in result.rows}):
        lines.append(_line(name, [row for row in result.rows if row.wish.profile.name == name]))
    lines.append(_line("all", result.rows))
    for by in sorted({row.reclaimed_by for row in result.rows if row.reclaimed_by}):
        of = [row for row in result.rows if row.reclaimed_by == by]
        alive, saved = sum(row.was_alive for row in of), _hours(row.saved_ns for row in of)
        lines.append(f"  by {by}: {len(of)} reclaimed, {alive} of them alive, {saved:.1f} idle GPU-hours saved")
    idle = result.missed_idle + result.saved
    lines.append(
        f"  false positives: {result.false_positives}; missed idle GPU-hours: {result.missed_idle:.1f} of {idle:.1f}"
    )
    return "\n".join(lines)


def _line(name: str, rows: list[Row]) -> str:
    cells = (
        len(rows), _hours(row.held_ns for row in rows), _hours(row.idle_ns for row in rows), sum(row.told for row in rows),
        sum(row.extended for row in rows), sum(row.foreseen for row in rows), sum(bool(row.reclaimed_by) for row in rows),
        sum(row.was_alive for row in rows), _hours(row.saved_ns for row in rows), _hours(row.cut_off_ns for row in rows),
    )  # fmt: skip
    return f"  {name:<30}" + "".join(f"{cell:>10.1f}" if isinstance(cell, float) else f"{cell:>10}" for cell in cells)


def _hours(spans_ns: Iterable[int]) -> float:
    return sum(spans_ns) / HOUR_NS


def main() -> int:
    """Print the day; 1 where several signals asked back what was alive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profiles", type=Path, default=PROFILES, help=f"a directory of tables; default: {PROFILES}")
    asked = parser.parse_args()
    try:
        profiles = load(asked.profiles)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    several = play(profiles, SEVERAL_SIGNALS, asked.seed)
    sys.stdout.write(table(f"several signals, three scopes (simulated day, seed {asked.seed})", several) + "\n")
    sys.stdout.write(table("the GPU alone, below 5 % for 10 minutes", play(profiles, GPU_ALONE, asked.seed)) + "\n")
    return 1 if several.false_positives else 0


if __name__ == "__main__":
    sys.exit(main())
