"""The wall clock of one process is set while jobs run (libfaketime): nothing is ended, nothing starts early, hours stay true."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fairlead.stack.processes import Spec
from fairlead_bus.log_time import CREEP
from fairlead_schemas.units.timestamps import parse_rfc3339
from fairlead_schemas.wire.conditions import Readiness
from tests.system.cluster import StackCluster

#: Where Debian's and Ubuntu's faketime package has the library for programs with threads.
LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))

pytestmark = [
    pytest.mark.nats,
    pytest.mark.slow,
    pytest.mark.skipif(
        not LIBRARIES and not os.environ.get("FAIRLEAD_NEED_FAKETIME"),
        reason="no libfaketime: apt-get install faketime",
    ),
]

SMALL = {"resources": {"nvidia.com/gpu": 1, "cpu": "100m", "memory": "16Mi"}}
CLOCKS = {"clock_stepped", "clock_differs"}
SERVICES = ("queue", "placer", "telemetry")


class Shifted(StackCluster):
    """One node, and services whose wall clocks a test sets."""

    def offset(self, name: str) -> Path:
        return self.data / f"clock-{name}"

    def set_clock(self, name: str, seconds: int) -> None:
        """Set the wall clock of one process; the boot's clock stays as it is."""
        draft = self.offset(name).with_suffix(".new")
        draft.write_text(f"{seconds:+d}\n")
        draft.replace(self.offset(name))

    def steps(self) -> list[tuple[str, int]]:
        """(service, seconds) of the events about clocks so far, without those of access and storage, which share the queue's
        process and clock."""
        events = [
            each for each in self.client.events() if "step_ns" in each.data and each.type.split(".")[1] in SERVICES
        ]
        return [(each.type.split(".")[1], round(each.data["step_ns"] / 1e9)) for each in events]

    def conditions(self) -> set[str]:
        found = self.client.readiness()
        assert isinstance(found, Readiness)
        return {each.code for each in found.conditions}

    def _add(self, spec: Spec) -> None:
        if spec.name in SERVICES:
            self.set_clock(spec.name, 0)
            shifted = {
                "LD_PRELOAD": str(LIBRARIES[0]),
                "FAKETIME_TIMESTAMP_FILE": str(self.offset(spec.name)),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }
            spec = spec._replace(env={**spec.env, **shifted})
        super()._add(spec)


def test_a_step_of_an_hour_ends_nothing_and_counts_no_hours(tmp_path: Path) -> None:
    """Forward and back, of queue, placer and telemetry: runs with limits continue, a later start stays later, ends come
    after starts as far as the clocks agree, each step is an event, and is shown while it lasts."""
    cluster = Shifted(tmp_path, nodes=1)
    cluster.start()
    client, began_ns = cluster.client, time.monotonic_ns()
    try:
        limited = client.submit({"command": ["sleep", "600"], "time": {"total": "30m"}, **SMALL}).id
        later = (datetime.now(UTC) + timedelta(minutes=20)).isoformat()
        scheduled = client.submit({"command": ["true"], "startAt": later, **SMALL}).id
        cluster.until(lambda: client.job(limited).state == "running", "the job with a limit runs")
        wanted: list[tuple[str, int]] = []
        for name in SERVICES:
            at = 0
            for seconds in (3600, 0, -3600, 0) if name == "queue" else (3600, 0):
                cluster.set_clock(name, seconds)
                wanted.append((name, seconds - at))
                at = seconds
                # A command that each service answers lets it notice at once.
                client.cordon("sim-1", "a step")
                client.uncordon("sim-1")
                short = client.submit({"command": ["true"], **SMALL}).id
                cluster.until(lambda: cluster.steps() == wanted, f"the log has {wanted[-1]}")
                if seconds:
                    cluster.until(lambda: bool(CLOCKS & cluster.conditions()), "the step is shown")
                cluster.until(lambda job=short: client.job(job).state == "succeeded", "a short job runs through")
                found = client.job(short)
                assert found.started_at is not None and found.ended_at is not None
                # The placer says when it began and the queue when it ended; meanwhile one of them creeps to its wall clock.
                apart_ns = (time.monotonic_ns() - began_ns) // CREEP
                assert parse_rfc3339(found.started_at) <= parse_rfc3339(found.ended_at) + apart_ns
                assert found.used_seconds < 600
        assert (client.job(limited).state, client.job(scheduled).state) == ("running", "scheduled")
        assert client.job(limited).used_seconds < 1800
        cluster.until(lambda: not CLOCKS & cluster.conditions(), "all is well again")
    finally:
        cluster.stop()
