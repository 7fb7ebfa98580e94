"""Recorded policy replayed: `python -m bench whatif [--seeds A..B] [--kinds calm faults restless operators particular]`.

Logs of the simulator's worlds are played again by the what-if engine under the policy that wrote them. Printed per kind: first
starts within a second of the record, ends that are equal, plays that crash, and CPU and wall time of import and play.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench import whatif_page, whatif_planted
from fairlead_bus.port import Stored
from fairlead_replay.sim import loop, seeds
from fairlead_replay.sim.world import COMMANDS, Parts, World
from fairlead_replay.whatif.fidelity import Fidelity, compare, quantile
from fairlead_replay.whatif.record import record_of
from fairlead_replay.whatif.replays import play_recording
from fairlead_schemas.wire import subjects

KINDS = ("calm", "faults", "restless", "operators", "particular")
#: {kind: share of first starts that should be within a second}
BARS = {"calm": 0.95}
OTHER_BAR, ENDS_BAR = 0.90, 0.98


class Replayed(NamedTuple):
    """One world, and its log played again."""

    seed: int
    commits: int
    #: None: the play has crashed, and `crash` says how.
    fidelity: Fidelity | None
    crash: str
    cpu_s: float
    wall_s: float


class KindRow(NamedTuple):
    """All worlds of a kind."""

    kind: str
    worlds: int
    commits: int
    starts: int
    within_1s: float
    ends_equal: float
    crashed: int
    #: Median over the worlds of the median error of first starts, in seconds.
    error_p50_s: float
    cpu_s: float
    wall_s: float

    @property
    def is_met(self) -> bool:
        """True where the kind reaches its bars."""
        return not self.crashed and self.within_1s >= BARS.get(self.kind, OTHER_BAR) and self.ends_equal >= ENDS_BAR


def log_of(seed: int, kind: str) -> list[Stored]:
    """Live through a world of a kind, and return its log."""
    people = seeds.people_of(
        operators=kind == "operators", restless=kind == "restless", particular=kind == "particular"
    )
    worlds: list[World] = []

    async def live() -> None:
        parts = Parts(people=people, decision_faults=lambda seed, work_s: [])
        world = World(seed, Parts(people=people) if kind != "calm" else parts, COMMANDS)
        worlds.append(world)
        if kind == "calm":
            world.context.faults.quiet = True
            world.context.faults.plan = lambda until_s: []
        await world.run()
        await asyncio.sleep(0)

    loop.run(live())
    return list(worlds[0].context.hub.streams[subjects.LOG].messages)


def replayed(seed: int, kind: str) -> Replayed:
    """Play one world's log again."""
    log = log_of(seed, kind)
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    try:
        recording = record_of(log)
        found, crash = compare(recording, play_recording(recording)), ""
    except Exception as error:  # noqa: BLE001 -- whatever the engine raises is a finding of this seed
        found, crash = None, f"{type(error).__name__}: {error}"
    return Replayed(seed, len(log), found, crash, time.process_time() - cpu_s, time.perf_counter() - wall_s)


def row_of(kind: str, worlds: Iterable[Replayed]) -> KindRow:
    """Return the figures of a kind."""
    all_, known = list(worlds), list[Fidelity]()
    known = [each.fidelity for each in all_ if each.fidelity is not None]
    starts = sum(each.both + each.only_real for each in known)
    ends = sum(each.ends_both for each in known)
    return KindRow(
        kind,
        len(all_),
        sum(each.commits for each in all_),
        starts,
        sum(each.within_1s * each.both for each in known) / starts if starts else 0.0,
        sum(each.ends_equal for each in known) / ends if ends else 0.0,
        len(all_) - len(known),
        quantile([each.error_p50_s for each in known], 0.5),
        sum(each.cpu_s for each in all_),
        sum(each.wall_s for each in all_),
    )


def lines(row: KindRow) -> Iterator[str]:
    """The row as it is printed."""
    met = "met" if row.is_met else "MISSED"
    yield (
        f"{row.kind}: {row.worlds} worlds, {row.commits} commits, {row.starts} first starts, {row.within_1s:.1%} within 1 s "
        f"(median error {row.error_p50_s * 1000:.0f} ms), ends equal {row.ends_equal:.1%}, {row.crashed} crashed; "
        f"{row.cpu_s:.1f} CPU-s, {row.wall_s:.1f} s wall; {met}"
    )


def _write_page(path: Path, words: str, numbers: Iterable[int], kinds: Iterable[str]) -> int:
    parts: list[str] = []
    for kind in kinds:
        rows = [whatif_page.played_log(seed, log_of(seed, kind)) for seed in numbers]
        parts.append(whatif_page.section(kind, rows))
        print(parts[-1], flush=True)
    whatif_page.write(path, words, parts)
    return 0


def main(arguments: list[str]) -> int:
    """Play and print; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench whatif", description=__doc__)
    parser.add_argument("--seeds", default="1..100", help="seeds of the simulator, N or A..B, both included")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS), help="kinds of worlds")
    parser.add_argument("--planted", action="store_true", help="study twelve planted changes instead")
    parser.add_argument("--pairs", type=int, default=whatif_planted.SEEDS, help="pairs of plays of each planted change")
    parser.add_argument("--page", type=Path, help="write the page of measured fidelity there instead")
    options = parser.parse_args(arguments)
    if options.planted:
        return whatif_planted.report(options.pairs)
    first, _, last = options.seeds.partition("..")
    numbers = range(int(first), int(last or first) + 1)
    seeds.quiet()
    if options.page is not None:
        return _write_page(options.page, options.seeds, numbers, options.kinds)
    is_met = True
    for kind in options.kinds:
        found = [replayed(seed, kind) for seed in numbers]
        row = row_of(kind, found)
        for text in lines(row):
            print(text, flush=True)
        for each in found:
            if each.crash:
                print(f"    seed {each.seed}: {each.crash}", flush=True)
        is_met = is_met and row.is_met
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
