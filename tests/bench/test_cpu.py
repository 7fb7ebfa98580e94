"""CPU per job: a process counts with those that it started, and nothing else counts."""

import subprocess
import sys

import pytest

from bench import cpu

BURN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint(1, flush=True)\n"


def test_cpu_of_live_and_ended_children_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that uses nothing itself has the CPU of one program that ended and of one that still runs."""
    monkeypatch.setattr(cpu, "SETTLE_S", 0)
    program = f"{sys.executable} -c '{BURN}'; {sys.executable} -c '{BURN}import sys; sys.stdin.read()'; true"
    with subprocess.Popen(["/bin/sh", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        meter = cpu.CpuMeter({"shell": shell.pid})
        assert shell.stdout is not None
        assert [shell.stdout.readline(), shell.stdout.readline()] == [b"1\n", b"1\n"]
        used = meter.per_job(2).us["shell"]
        shell.kill()
    assert 0.25e6 < used < 2e6  # half of 0.6 s, and what two interpreters need to start


def test_idle_use_is_subtracted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time that has passed, and never below nothing."""
    monkeypatch.setattr(cpu, "SETTLE_S", 0)
    used, now = {"a": 1.0, "b": 1.0}, [100.0]
    monkeypatch.setattr(cpu, "_seconds", lambda pids: dict(used))
    monkeypatch.setattr(cpu.time, "monotonic", lambda: now[0])
    meter = cpu.CpuMeter({"a": 1, "b": 2}, {"a": 0.1, "b": 0.9})
    used.update(a=3.0, b=2.0)
    now[0] = 110.0
    assert meter.per_job(1_000_000).us == pytest.approx({"a": 1.0, "b": 0.0})


def test_cpu_is_printed_by_process_with_the_largest_first() -> None:
    """The line of a row: the sum, then each process."""
    assert str(cpu.CpuPerJob({"queue": 36.4, "gateway": 119.0})) == "CPU 155 µs a job: gateway 119, queue 36"
