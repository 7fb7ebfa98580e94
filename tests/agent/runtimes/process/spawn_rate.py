"""How many `true` a second the process runtime starts and ends on this machine, alone and through the whole agent.

`python -m tests.agent.runtimes.process.spawn_rate [RUNS]`. Numbers depend on what else the machine does; it prints the load.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from fairlead_agent.__main__ import build_agent
from fairlead_agent.core.runs import Exit, RunEvent, RunExited, RunKey, RunStartFailed
from fairlead_agent.runtimes.process.runtime import ProcessRuntime
from fairlead_agent.runtimes.process.spawner_client import PROGRAM
from fairlead_agent.settings import Settings
from fairlead_bus.memory import MemoryHub
from fairlead_schemas.wire.desired import RunOrder
from fairlead_schemas.wire.reports import ExitSeen, Report
from tests.agent.placer_script import PlacerScript, order
from tests.agent.runtime_watch import incarnation, launch

AT_ONCE = 8


class _Refill:
    """Starts the next run when one ends."""

    def __init__(self, runtime: ProcessRuntime, runs: int) -> None:
        self.runtime = runtime
        self.left = runs
        self.open = 0
        self.done = asyncio.Event()

    def next(self) -> None:
        self.left -= 1
        self.open += 1
        self.runtime.start(launch(str(1 + self.left), "true"))

    def _refill(self) -> None:
        if self.left:
            self.next()

    def handle(self, event: RunEvent) -> None:
        match event:
            case RunStartFailed(_, message):
                raise AssertionError(message)
            case RunExited(key, exit):
                self._exited(key, exit)
            case _:
                pass

    def _exited(self, key: RunKey, exit: Exit) -> None:
        assert exit == Exit(code=0)
        self.runtime.release(key)
        self.open -= 1
        if self.left:
            asyncio.get_running_loop().call_soon(self._refill)
        elif not self.open:
            self.done.set()


async def runtime_alone(base: Path, runs: int) -> float:
    """Runs per second of the runtime without agent, journal or bus."""
    runtime = ProcessRuntime(base, "n1", incarnation())
    refill = _Refill(runtime, runs)
    await runtime.open(refill.handle)
    began = time.perf_counter()
    for _ in range(AT_ONCE):
        refill.next()
    await refill.done.wait()
    took = time.perf_counter() - began
    await runtime.close()
    return runs / took


async def whole_agent(base: Path, runs: int) -> float:
    """Runs per second of the agent on the in-memory bus: journal, reports and confirmations included."""
    hub = MemoryHub()
    bus = hub.connect()
    await bus.ensure()
    placer = await PlacerScript(bus).open()
    agent = await build_agent(hub.connect(), Settings(node="n1", devices="none", data=base))
    task = asyncio.ensure_future(agent.run())
    await placer.joined("n1")
    wanted: dict[str, RunOrder] = {}
    ended = asyncio.Event()

    def on_report(_node: str, report: Report) -> None:
        if isinstance(report, ExitSeen):
            assert report.exit_code == 0
            del wanted[report.job]
            ended.set()

    placer.on_report = on_report
    began, number = time.perf_counter(), 0
    while number < runs or wanted:
        while len(wanted) < AT_ONCE and number < runs:
            number += 1
            wanted[str(number)] = order(str(number), "true")
        await placer.desire("n1", *wanted.values())
        ended.clear()
        await ended.wait()
    took = time.perf_counter() - began
    await agent.stop()
    await task
    return runs / took


def main() -> None:
    """Print both rates."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with tempfile.TemporaryDirectory() as base:
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; {runs} runs of `true`, {AT_ONCE} at once")
        for name, measure in (("runtime alone", runtime_alone), ("whole agent", whole_agent)):
            directory = Path(base) / name.replace(" ", "-")
            directory.mkdir()
            before = time.process_time()
            rate = uvloop.run(measure(directory, runs))
            parts = (time.process_time() - before, *_spawner_cpu_s(directory))
            own, spawner, programs = (seconds / runs * 1e6 for seconds in parts)
            print(
                f"{name}: {rate:.0f}/s; CPU us per run: {own:.0f} here, {spawner:.0f} spawner, {programs:.0f} program"
            )


def _spawner_cpu_s(directory: Path) -> tuple[float, float]:
    """CPU seconds of the spawner below a directory, and of the programs that it has reaped."""
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_text().split("\0")
            if PROGRAM in words and any(word.startswith(str(directory)) for word in words):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                ticks = [int(field) for field in fields[11:15]]
                return sum(ticks[:2]) / os.sysconf("SC_CLK_TCK"), sum(ticks[2:]) / os.sysconf("SC_CLK_TCK")
    raise AssertionError(f"no spawner works in {directory}")


if __name__ == "__main__":
    main()
