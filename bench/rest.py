"""A local stack at rest: CPU, wake-ups and memory by process while nothing runs and nobody asks.

The stack is the one that users start: `fairlead up` with four simulated nodes. Memory is the proportional set size, which
counts a page that several processes share once. Wake-ups are voluntary context switches of all threads.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.table import Row
from fairlead.stack import state

NODES = 4
#: Time until what a start leaves to do is done (copies for SQL, first samples, snapshots), then the measured time.
SETTLE_S, SPAN_S = 30.0, 30.0
CPU_PERCENT, PSS_MB = 3.0, 380
_READY_S = 120.0


class Use(NamedTuple):
    """Consumption of one process so far, except its memory, which is present."""

    cpu_s: float
    wakeups: int
    pss_mib: float


def row() -> Row:
    """Start a stack, wait until it rests, and measure it."""
    with _local_stack() as data:
        time.sleep(SETTLE_S)
        pids = _pids(data)
        before = {name: _use(ids) for name, ids in pids.items()}
        time.sleep(SPAN_S)
        if _pids(data) != pids:
            raise RuntimeError("processes of the stack came or went while it was measured")
        after = {name: _use(ids) for name, ids in pids.items()}
    cpu = {name: (after[name].cpu_s - before[name].cpu_s) / SPAN_S * 100 for name in pids}
    total, pss = sum(cpu.values()), sum(each.pss_mib for each in after.values())
    parts = (
        f"{name} {cpu[name]:.2f} %, {(after[name].wakeups - before[name].wakeups) / SPAN_S:.0f}/s, {after[name].pss_mib:.0f} MiB"
        for name in sorted(pids, key=lambda name: -cpu[name])
    )
    return Row(
        f"`fairlead up` at rest, {NODES} simulated nodes, over {SPAN_S:.0f} s",
        f"{total:.1f} % of a core, {pss:.0f} MiB PSS",
        f"≤ {CPU_PERCENT:g} %, ≤ {PSS_MB} MB",
        total <= CPU_PERCENT and pss * 2**20 <= PSS_MB * 1e6,
        f"by process, with wake-ups: {'; '.join(parts)}",
    )


@contextmanager
def _local_stack() -> Iterator[Path]:
    """Yield the data directory of a stack that is ready."""
    data = Path(tempfile.mkdtemp(prefix="fairlead-rest-", dir=os.environ.get("FAIRLEAD_BENCH_DIR")))
    environment = {**os.environ, "FAIRLEAD_LOG_LEVEL": "warning"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    argv = [sys.executable, "-m", "fairlead", "up", "--nodes", str(NODES), "--port", "0", "--data", str(data)]
    with (data / "up.txt").open("wb") as output:
        process = subprocess.Popen(argv, env=environment, stdout=output, stderr=output)
    try:
        _wait(lambda: (there := state.load(data)) is not None and there.ready, process, data)
        yield data
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        shutil.rmtree(data, ignore_errors=True)


def _wait(condition: Callable[[], bool], process: "subprocess.Popen[bytes]", data: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the stack did not become ready: {(data / 'up.txt').read_text()[-2000:]}")
        time.sleep(0.1)


def _pids(data: Path) -> dict[str, tuple[int, ...]]:
    """Return the processes of the stack by name: supervisor, its children, and these with all that they started."""
    there = state.load(data)
    assert there is not None
    children: defaultdict[int, list[int]] = defaultdict(list)
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # ended meanwhile
                continue
            children[int(fields[1])].append(int(directory.name))

    def family(pid: int) -> tuple[int, ...]:
        return (pid, *(each for child in sorted(children[pid]) for each in family(child)))

    return {"up": (there.supervisor.pid,), **{process.name: family(process.pid) for process in there.processes}}


def _use(pids: tuple[int, ...]) -> Use:
    each = [_use_of(Path("/proc") / str(pid)) for pid in pids]
    return Use(sum(use.cpu_s for use in each), sum(use.wakeups for use in each), sum(use.pss_mib for use in each))


def _use_of(process: Path) -> Use:
    # The scheduler's own count, in ns: the ticks of /proc/PID/stat are too coarse for a process at rest.
    threads = list((process / "task").iterdir())
    cpu_ns = sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)
    wakeups = sum(_number(thread / "status", "voluntary_ctxt_switches") for thread in threads)
    return Use(cpu_ns / 1e9, wakeups, _number(process / "smaps_rollup", "Pss") / 1024)


def _number(path: Path, label: str) -> int:
    """Return the number behind a label of one of the kernel's tables."""
    return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(f"{label}:"))
