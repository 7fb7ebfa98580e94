"""Benchmark: `python -m bench [ROW …] [--write]`. Measure, print the table, optionally write docs/reference/performance.md, or these rows of it.

Rows: cli, run, sync, rest, live, crowded, gangs, slow, fast-path, sign-on, guard, agent, queue, player, kueue, kai, placing, openb, replay, past, restart, memory, growth,
pages, apps, warehouse, measured, telemetry (all by default). Timings on a shared machine are noisy: look at the ratio of each figure to its ceiling, or compare two
revisions in turn with `python -m bench compare REV` (compare.py). `python -m bench regression` checks the CPU of fixed loads
(regression.py), and `python -m bench profile crowded` shows CPU by function (profile.py). `python -m bench whatif` plays logs of the
simulator again and prints how near the plays are (whatif.py), `python -m bench estimates` how right estimates of starts are (estimates.py).
"""

import argparse
import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import uvloop

from bench import (
    asking,
    ceilings,
    command_line,
    compare,
    crowd,
    estimates,
    fast_path,
    foreground,
    gangs,
    guard,
    history,
    jobs,
    measured,
    pages,
    past,
    past_sweep,
    profile,
    queueing,
    regression,
    rest,
    sign_on,
    sync,
    table,
    whatif,
)
from bench.agent import rows as agent
from bench.apps import rows as apps
from bench.fairness import philly
from bench.kai import scale as kai_scale
from bench.kueue import load as kueue_load
from bench.openb import row as packing
from bench.placing import rows as placing
from bench.stack import Stack
from bench.telemetry import disk, ingest
from fairlead import interpreter
from fairlead_bus.main import collect_rarely
from fairlead_replay.compiled import cores_build
from fairlead_schemas.units.quantities import progress_text

DOCUMENT = Path(__file__).parent.parent / "docs" / "reference" / "performance.md"
DELAY_MS = 2


async def live(slow: bool) -> AsyncIterator[table.Row]:
    """Yield the live rows, each of a stack of its own but for those of one agent and of hollow nodes."""
    goals, delay = jobs.Goals(slow), DELAY_MS if slow else 0
    with Stack(slow_fsync_ms=delay) as stack:
        stack.control_plane()
        stack.agent()
        stack.wait_nodes(1)
        yield await jobs.idle_latency(stack, goals)
        yield await jobs.processes(stack, goals)
    with Stack(slow_fsync_ms=delay) as stack:
        stack.control_plane()
        yield await jobs.single_submits(stack, goals)
    with Stack(slow_fsync_ms=delay) as stack:
        stack.control_plane()
        yield await jobs.list_submits(stack, goals)
    with Stack(slow_fsync_ms=delay) as stack:
        stack.control_plane()
        stack.hollow(500)
        stack.wait_nodes(500)
        yield await jobs.hollow(stack, goals, staggered=False)
        yield await jobs.hollow(stack, goals, staggered=True)


def _printed(row: table.Row) -> table.Row:
    row = table.named_by_build(row, cores_build())
    cpu = f" [{row.cpu}]" if row.cpu else ""
    print(
        f"  {'ok  ' if row.met else 'MISS'} {row.what}: {row.measured} (goal {row.goal}; {row.ceiling}){cpu}",
        flush=True,
    )
    return row


class Steps:
    """Progress of the rows that were asked for: a line on stderr as each begins, for a whole run takes an hour."""

    def __init__(self, names: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._names, self._clock = list(dict.fromkeys(names)), clock
        self._done, self._began = 0, clock()

    def begins(self, name: str) -> bool:
        """Return True for a row that was asked for, with a line that says how far the run is."""
        if name not in self._names:
            return False
        if len(self._names) > 1:
            seconds = self._clock() - self._began
            text = progress_text("bench", "rows", self._done, len(self._names), seconds)
            print(f"{text}; now {name}", file=sys.stderr, flush=True)
        self._done += 1
        return True


async def _slow() -> AsyncIterator[table.Row]:
    if not shutil.which("strace"):
        print("  skipped: fsync + 2 ms needs strace (apt-get install strace)")
        return
    async for row in live(True):
        yield row


async def _replay() -> AsyncIterator[table.Row]:
    yield await history.replay(10, 200_000, 100_000)
    yield await history.replay(1, 80_000, 20_000)


async def _past() -> AsyncIterator[table.Row]:
    for events, per_commit in (past.MILLION, 10), (past.MILLION // 5, 1):
        for row in await past.rows(events, per_commit):
            yield row


async def _telemetry() -> AsyncIterator[table.Row]:
    yield await ingest.row()
    yield await asyncio.to_thread(disk.row)


type Rows = table.Row | list[table.Row]
#: A row or several, at once or as they are measured.
type Found = Rows | Awaitable[Rows] | AsyncIterator[table.Row]

#: {name: measures the rows of it}, in the order of a whole run.
ROWS: dict[str, Callable[[], Found]] = {
    "cli": command_line.rows,
    "run": foreground.row,
    "sync": sync.row,
    "rest": rest.row,
    "live": lambda: live(False),
    "crowded": crowd.rows,
    "gangs": gangs.rows,
    "slow": _slow,
    "fast-path": fast_path.row,
    "sign-on": sign_on.rows,
    "guard": guard.rows,
    "agent": agent.rows,
    "queue": queueing.rows,
    "player": philly.crowded_row,
    "kueue": kueue_load.measure,
    "kai": kai_scale.measure,
    "placing": placing.rows,
    "openb": packing.row,
    "replay": _replay,
    "past": _past,
    "restart": history.restart,
    "memory": history.placer_memory,
    "growth": history.growth,
    "pages": pages.rows,
    "apps": apps.rows,
    "warehouse": asking.rows,
    "measured": measured.rows,
    "telemetry": _telemetry,
}


async def _each(found: Found) -> AsyncIterator[table.Row]:
    if isinstance(found, AsyncIterator):
        async for row in found:
            yield row
        return
    rows = await found if isinstance(found, Awaitable) else found
    for row in [rows] if isinstance(rows, table.Row) else rows:
        yield row


async def measure(names: Sequence[str]) -> list[table.Row]:
    """Measure the rows asked for, in the order of ROWS, and print each."""
    begins = Steps(names).begins
    return [_printed(row) for name, found in ROWS.items() if begins(name) async for row in _each(found())]


def machine() -> str:
    """Return the machine on which the figures were taken."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "?",
    )
    fsync = ceilings.fsync_p50_us(Path(os.environ.get("FAIRLEAD_BENCH_DIR", "/tmp")))
    return f"{os.cpu_count()} cores, {model}, {interpreter.this()}, cores {cores_build()}, fsync p50 {fsync:.0f} µs"


def main() -> int:
    """Measure and print; 1 when a goal was missed."""
    if sys.argv[1:2] == ["compare"]:
        return compare.main(sys.argv[2:])
    if sys.argv[1:2] == ["regression"]:
        return regression.main(sys.argv[2:])
    if sys.argv[1:2] == ["whatif"]:
        return whatif.main(sys.argv[2:])
    if sys.argv[1:2] == ["estimates"]:
        return estimates.main(sys.argv[2:])
    if sys.argv[1:2] == ["profile"]:
        return profile.main(sys.argv[2:], DOCUMENT)
    if sys.argv[1:3] == ["past", "--sweep"]:
        return past_sweep.main(sys.argv[3:])
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], default=[], help="rows to measure (default: all)")
    parser.add_argument(
        "--write", action="store_true", help="write docs/reference/performance.md (named rows: these of it)"
    )
    arguments = parser.parse_args()
    collect_rarely()  # as the services and `fairlead replay` do
    host = machine()
    print(host)
    rows = uvloop.run(measure(arguments.rows or list(ROWS)))
    print("\n" + table.markdown(rows))
    if arguments.write:
        page = DOCUMENT.read_text()
        named = table.measured_elsewhere(page, host, rows) if arguments.rows else rows
        DOCUMENT.write_text(table.replaced(page, named) if arguments.rows else document(host, rows, page))
    return 0 if all(row.met for row in rows) else 1


def document(host: str, rows: list[table.Row], page: str) -> str:
    """The page: its table is new, and sections after it are kept."""
    sections = "".join(page.partition("\n## ")[1:])
    return (
        "# Performance\n\nMeasured by `python -m bench --write`, which wrote this page (single rows may be of a later run, by `python -m bench ROW --write`); `make bench` prints the same table for your machine. Nodes and GPUs are played "
        f"where a row says hollow or simulated. A Python with PGO and LTO takes less CPU than one without; the machine's line and `fairlead doctor` name its build.\n\nMachine: {host}.\n\n{table.markdown(rows)}\n{sections}"
    )


if __name__ == "__main__":
    sys.exit(main())
