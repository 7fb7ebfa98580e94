"""CPU time of a stack's processes, per job: a figure that holds on a noisy machine, where a rate does not.

A process counts with the processes that it started: live ones by their own times, ended ones by the times that their parents have
collected. Read from /proc, in steps of 10 ms, so a row must run for seconds.
"""

import os
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: Time after a row's end in which telemetry stores what the row has caused.
SETTLE_S = 2.5


class CpuPerJob(NamedTuple):
    """CPU of each process of a stack over some jobs, in µs per job: {process: µs}."""

    us: dict[str, float]

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {us:,.0f}" for name, us in sorted(self.us.items(), key=lambda item: -item[1]))
        return f"CPU {sum(self.us.values()):,.0f} µs a job: {parts}"


class CpuMeter:
    """CPU time that processes use from the meter's creation on. `pids`: {name: pid}.

    `idle`: CPU seconds per second that each process uses without jobs, as `idle` measures them. They do not count for the jobs.
    """

    def __init__(self, pids: Mapping[str, int], idle: Mapping[str, float] | None = None) -> None:
        self._pids, self._idle = dict(pids), idle or {}
        self._before, self._began = _seconds(self._pids), time.monotonic()

    def per_job(self, jobs: int) -> CpuPerJob:
        """Wait for what follows from the jobs, and return the CPU used so far, divided by `jobs`."""
        return CpuPerJob({name: seconds / jobs * 1e6 for name, seconds in self._used().items()})

    def idle(self) -> dict[str, float]:
        """Wait, and return the CPU seconds that each process has used per second."""
        used = self._used()
        return {name: seconds / (time.monotonic() - self._began) for name, seconds in used.items()}

    def _used(self) -> dict[str, float]:
        time.sleep(SETTLE_S)
        now, took_s = _seconds(self._pids), time.monotonic() - self._began
        return {name: max(0.0, now[name] - self._before[name] - self._idle.get(name, 0) * took_s) for name in now}


def _seconds(pids: Mapping[str, int]) -> dict[str, float]:
    """Return each process's CPU time so far, with the processes that it started."""
    own: dict[int, int] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            # The name may contain spaces and parentheses; the fields after it are numbers (proc(5)).
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        own[int(directory.name)] = sum(int(each) for each in fields[11:15])
        children[int(fields[1])].append(int(directory.name))

    def with_children(pid: int) -> int:
        return own.get(pid, 0) + sum(with_children(child) for child in children[pid])

    return {name: with_children(pid) / _TICKS_PER_S for name, pid in pids.items()}
