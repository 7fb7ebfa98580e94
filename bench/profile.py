"""CPU by function: `python -m bench profile crowded [--jobs N] [--write]` samples each Python process of a row's stack.

py-spy (`pip install py-spy`) samples the thread that holds the interpreter's lock, so a share is one of the time in Python code:
what DuckDB computes without the lock is not in it, and nats-server is no Python process. A share counts a function with the functions
that it calls, and "own" without them. Functions that contain nearly everything, such as the main loop, are left out. Start at `main`.
"""

import argparse
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench import crowd
from bench.stack import Stack

SAMPLES_PER_S = 150
SHOWN, SHARE_MIN, SHARE_MAX, PASSING = 12, 0.01, 0.95, 0.9
NOT_PYTHON = frozenset({"nats"})
SECTION = "profile of crowded"
_LINE = re.compile(r"^(?P<stack>.+) (?P<count>\d+)$")
_FRAME = re.compile(r"^(?P<function>.+) \((?P<file>[^():]+)(?::\d+)?\)$")


class Share(NamedTuple):
    """Share of a function in the samples of a process, with the functions that it calls and without them."""

    function: str
    total: float
    own: float


def shares(raw: str) -> list[Share]:
    """Return the functions of py-spy's raw output ("frame;frame;frame count" a line), the largest first.

    A function that spends nearly all of its time in one other function is left out: the other is there.
    """
    total, own, calls, samples = Counter[str](), Counter[str](), Counter[tuple[str, str]](), 0
    for line in raw.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        count, frames = int(found["count"]), [_named(frame) for frame in found["stack"].split(";")]
        samples += count
        own[frames[-1]] += count
        total.update(dict.fromkeys(frames, count))
        calls.update(dict.fromkeys(pairwise(frames), count))
    passing = {
        caller for (caller, callee), count in calls.items() if count >= PASSING * total[caller] and caller != callee
    }
    shared = [Share(name, count / samples, own[name] / samples) for name, count in total.most_common()]
    return [each for each in shared if SHARE_MIN <= each.total <= SHARE_MAX and each.function not in passing]


def _named(frame: str) -> str:
    """Return "fairlead_queue/core.py decide" for "decide (…/fairlead_queue/core.py:12)"; of other files two folders."""
    found = _FRAME.match(frame)
    if found is None:
        return frame
    parts = Path(found["file"]).parts
    begin = next((at for at, part in enumerate(parts) if part.startswith("fairlead_")), max(0, len(parts) - 3))
    return f"{'/'.join(parts[begin:])} {found['function']}"


def markdown(found: dict[str, list[Share]]) -> str:
    """The table: the largest functions of each process."""
    lines = ["| process | function | share | own |", "|---|---|---:|---:|"]
    for process, functions in found.items():
        for at, each in enumerate(functions[:SHOWN]):
            name = process if at == 0 else ""
            lines.append(f"| {name} | `{each.function}` | {each.total:.1%} | {each.own:.1%} |")
    return "\n".join(lines)


def section(found: dict[str, list[Share]], jobs: int) -> str:
    """The page's section."""
    return (
        "## CPU by function, `crowded`\n\n"
        f"Written by `python -m bench profile crowded --write`: {jobs:,} jobs, {SAMPLES_PER_S} samples a second of each Python process. "
        "A share is one of the samples in which the process held the interpreter's lock. It counts a function with the functions that it calls, "
        "and `own` without them.\n\n"
        f"<!-- {SECTION} -->\n{markdown(found)}\n<!-- end of {SECTION} -->\n"
    )


def with_section(page: str, text: str) -> str:
    """The page with the section in place of the earlier one, or at its end."""
    heading = text.partition("\n")[0]
    before, found, rest = page.partition(heading)
    if not found:
        return f"{page.rstrip()}\n\n{text}"
    _, other, after = rest.partition("\n## ")
    return f"{before}{text}{other}{after}"


class Recorders:
    """One py-spy for each Python process of a stack, from the block's start to its end. Raises RuntimeError without py-spy."""

    def __init__(self, stack: Stack) -> None:
        local = Path(sys.executable).with_name("py-spy")
        self._program = str(local) if local.exists() else shutil.which("py-spy")
        if self._program is None:
            raise RuntimeError("py-spy is not installed (pip install py-spy)")
        self._stack, self._running = stack, dict[str, subprocess.Popen[bytes]]()
        self.found: dict[str, list[Share]] = {}

    def __enter__(self) -> "Recorders":
        for name, process in self._stack.processes.items():
            if name not in NOT_PYTHON:
                options = [
                    "--gil",
                    "--format",
                    "raw",
                    "--function",
                    "--rate",
                    str(SAMPLES_PER_S),
                    "--duration",
                    "unlimited",
                ]
                argv = [
                    str(self._program),
                    "record",
                    *options,
                    "--output",
                    str(self._output(name)),
                    "--pid",
                    str(process.pid),
                ]
                with (self._stack.data / f"{name}.py-spy").open("wb") as log:
                    self._running[name] = subprocess.Popen(argv, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        for recorder in self._running.values():
            recorder.send_signal(signal.SIGINT)  # then it writes its output
        for name, recorder in self._running.items():
            recorder.wait(60)
            if self._output(name).exists():
                self.found[name] = shares(self._output(name).read_text())

    def _output(self, name: str) -> Path:
        return self._stack.data / f"{name}.stacks"


async def measure(jobs: int) -> dict[str, list[Share]]:
    """Shares by process, those that use the most CPU first."""
    with Stack() as stack:
        crowd.start(stack)
        with Recorders(stack) as recorders:
            found = await crowd.run(stack, crowd.load(jobs))
    used = sorted(recorders.found, key=lambda name: -found.cpu.us[name])
    return {f"{name}, {found.cpu.us[name]:,.0f} µs a job": recorders.found[name] for name in used}


def main(arguments: list[str], document: Path) -> int:
    """Measure, print, and optionally write the section of the page."""
    parser = argparse.ArgumentParser(prog="python -m bench profile", description=__doc__)
    parser.add_argument("row", choices=["crowded"])
    parser.add_argument("--jobs", type=int, default=crowd.JOBS)
    parser.add_argument("--write", action="store_true", help="write the section of docs/reference/performance.md")
    options = parser.parse_args(arguments)
    found = uvloop.run(measure(options.jobs))
    print(markdown(found))
    if options.write:
        document.write_text(with_section(document.read_text(), section(found, options.jobs)))
    return 0
