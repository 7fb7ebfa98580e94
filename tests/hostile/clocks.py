"""Wrong clocks: the wall clock of one process at a time is set an hour forward or back, and set right again (libfaketime).

Jobs with limits and with a later start are there meanwhile, next to a load. No run may end early, no job may end before it
started, and a service whose clock was set must report it within a minute. Start at `clocks`.

`python -m tests.hostile.clocks up …` is `fairlead up` whose processes have a clock each.
"""

import os
import random
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

from fairlead.client import Client
from fairlead.main import main
from fairlead.stack import local, state
from fairlead.stack.processes import Spec, Supervisor
from fairlead_schemas.http.api import Job
from tests.hostile.load import Load
from tests.hostile.outcome import Row, check_load, row
from tests.hostile.stack import Stack

#: Where Debian's and Ubuntu's faketime package has the library for programs with threads.
LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
#: The directory of the offsets, a file for each part.
OFFSETS = "HOSTILE_CLOCKS"
#: Parts of which each is set alone, in turn. nats-server is not among them: Go reads the clock without libc.
SERVICES = ("queue", "placer", "telemetry")
PARTS = ("queue", "agents", "placer", "gateway", "telemetry")
HOUR_S = 3600
WRONG_S = 6.0
REPORTED_S = 60.0
RIGHT_AGAIN_S = 120.0
LONGEST_S = 600
#: Conditions that a wrong clock shows as, and that end by themselves.
SHOWN = {"clock_stepped", "clock_differs"}
SMALL = {"resources": {"nvidia.com/gpu": 1, "cpu": "100m", "memory": "16Mi"}}


class _Shifted(Supervisor):
    """A supervisor whose processes read the wall clock with an offset of their own."""

    def add(self, spec: Spec) -> None:
        """Load the library into each process but the server."""
        if spec.name in PARTS:
            shifted = {
                "LD_PRELOAD": str(LIBRARIES[0]),
                "FAKETIME_TIMESTAMP_FILE": str(Path(os.environ[OFFSETS]) / spec.name),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }
            spec = spec._replace(env={**spec.env, **shifted})
        super().add(spec)


class ClockedStack(Stack):
    """A stack in which each part has a clock that may be set."""

    def __init__(self, data: Path, offsets: Path) -> None:
        super().__init__(data, environment={OFFSETS: str(offsets)})
        self.offsets = offsets
        offsets.mkdir(parents=True)
        data.mkdir(parents=True)
        for part in PARTS:
            self.set_clock(part, 0)

    def start(self) -> None:
        """Start `fairlead up` with the clocks, and wait until it is ready."""
        words = [
            sys.executable,
            "-m",
            "tests.hostile.clocks",
            "up",
            "--open",
            "--port",
            "0",
            "--nodes",
            str(self.nodes),
        ]
        with (self.data / "up.log").open("wb") as log:
            subprocess.Popen(words, env=self.environment, stdout=log, stderr=log, start_new_session=True)
        self.until(lambda: (found := state.load(self.data)) is not None and found.ready, "`up` is ready")

    def set_clock(self, part: str, seconds: int) -> None:
        """Set the wall clock of one part; the boot's clock stays as it is."""
        draft = self.offsets / f"{part}.new"
        draft.write_text(f"{seconds:+d}\n")
        draft.replace(self.offsets / part)

    def shown(self) -> set[str]:
        """Conditions about clocks that hold now."""
        return {each["code"] for each in self.readyz()[1].get("conditions", [])} & SHOWN


def clocks(directory: Path, tries: int, seed: int) -> list[Row]:
    """Set `tries` clocks, one after the other, under load."""
    if not LIBRARIES:
        return [row("clocks", "skipped: no libfaketime (apt-get install faketime)", 0, [])]
    stack, rng = ClockedStack(directory / "clocks", directory / "offsets"), random.Random(seed)
    broken: list[str] = []
    try:
        stack.start()
        load = Load(stack, directory / "clocks-jobs")
        with stack.client() as client:
            limited, scheduled = _witnesses(stack, client)
            load.start()
            for number in range(tries):
                part = PARTS[number % len(PARTS)]
                broken += _one(stack, part, rng.choice((1, -1)) * HOUR_S)
                broken += _disturbed(client, limited, scheduled, part)
            load.stop()
            broken += _false_times(client.jobs().items)
            for job in (limited, scheduled):
                client.cancel(job)
            client.wait([limited, scheduled], timeout_s=RIGHT_AGAIN_S)
        what = f"one clock at ±1 h for {WRONG_S:g} s or until it is reported, then right: {', '.join(PARTS[:tries])}"
        rows = [row("clocks", what, tries, broken), *check_load("clocks", stack, load)]
        stack.down()
        return rows
    finally:
        stack.end()


def _witnesses(stack: Stack, client: Client) -> tuple[str, str]:
    """Submit a job with a limit that runs, and one that starts later; return their ids."""
    limited = client.submit({"command": ["sleep", "1500"], "time": {"total": "30m"}, **SMALL}).id or ""
    later = (datetime.now(UTC) + timedelta(minutes=20)).isoformat()
    scheduled = client.submit({"command": ["true"], "startAt": later, **SMALL}).id or ""
    stack.until(lambda: client.job(limited).state == "running", "the job with a limit runs")
    return limited, scheduled


def _one(stack: ClockedStack, part: str, seconds: int) -> list[str]:
    """Set a clock, wait for the report of a service, set it right, and wait until nothing is reported any more."""
    began = time.monotonic()
    stack.set_clock(part, seconds)
    shown = False
    while time.monotonic() - began < (REPORTED_S if part in SERVICES and not shown else WRONG_S):
        shown = shown or bool(stack.shown())
        time.sleep(0.3)
    stack.set_clock(part, 0)
    stack.until(lambda: stack.readyz()[0] == 200 and not stack.shown(), f"{part}'s clock is right again", RIGHT_AGAIN_S)
    return [f"{part} at {seconds:+d} s: not reported within {REPORTED_S:g} s"] if part in SERVICES and not shown else []


def _disturbed(client: Client, limited: str, scheduled: str, part: str) -> list[str]:
    """Return what the clock has done to the jobs that should not have noticed."""
    found = [(client.job(limited), "running"), (client.job(scheduled), "scheduled")]
    broken = [f"{part}: job {job.id} is {job.state}, expected {wanted}" for job, wanted in found if job.state != wanted]
    used = found[0][0].used_seconds
    return [*broken, *([f"{part}: job {limited} has used {used} s"] if used > LONGEST_S * 2 else [])]


def _false_times(jobs: list[Job]) -> list[str]:
    """Return jobs that ended before they started, or that count far more time than a run here can take."""
    found: list[str] = []
    for job in jobs:
        if job.started_at and job.ended_at and job.ended_at < job.started_at:
            found.append(f"job {job.id} ended at {job.ended_at}, started at {job.started_at}")
        if job.ended_at and job.used_seconds > LONGEST_S:
            found.append(f"job {job.id} counts {job.used_seconds} s")
    return found


if __name__ == "__main__":
    with mock.patch.object(local, "Supervisor", _Shifted):
        sys.exit(main())
