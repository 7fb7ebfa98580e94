"""kill -9 of every part under load, twenty rounds: nothing acknowledged is lost, nothing starts twice."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.errors import FairleadError
from tests.system import story
from tests.system.cluster import StackCluster

ROUNDS = 20
#: Before each kill, and after the last, so many more jobs are acknowledged and so many more are started: what is killed is at work.
JOBS_A_ROUND = 8
#: Acknowledged and not started. A slow machine is given no more to do at a time than a fast one.
WAITING_MAX = 30
ENDED_S = 600.0
PARTS = ("gateway", "queue", "placer", "agents", "telemetry", "nats")

pytestmark = [pytest.mark.nats, pytest.mark.slow]


class Load:
    """Submits small jobs from a thread; each writes one line when it starts. Remembers what was acknowledged."""

    def __init__(self, cluster: StackCluster, marks: Path) -> None:
        self.cluster, self.marks = cluster, marks
        marks.touch()
        self.acknowledged: list[str] = []
        self.failures = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._submit)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def starts(self) -> list[str]:
        """ "job.attempt.rank" of every program that was started."""
        return self.marks.read_text().split()

    def more(self) -> Callable[[], bool]:
        """Return True if JOBS_A_ROUND jobs have been acknowledged and as many started since now."""
        acknowledged, started = len(self.acknowledged), len(self.starts())
        return lambda: (
            len(self.acknowledged) >= acknowledged + JOBS_A_ROUND and len(self.starts()) >= started + JOBS_A_ROUND
        )

    def _job(self, number: int) -> dict[str, object]:
        line = f'echo "$FAIRLEAD_JOB.$FAIRLEAD_ATTEMPT.$FAIRLEAD_RANK" >>{self.marks}; sleep 0.{number % 3}; exit {int(number % 11 == 0)}'
        job: dict[str, object] = {
            "command": ["/bin/sh", "-c", line],
            "resources": {"nvidia.com/gpu": number % 3, "cpu": "100m", "memory": "16Mi"},
        }
        return job | ({"nodes": 2} if number % 17 == 0 else {})

    def _submit(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                result = self.cluster.client.submit(self._job(number), key=f"load-{number}")
                self.acknowledged += [result.id] if result.id else []
            except FairleadError:
                self.failures += 1
            while len(self.acknowledged) - len(self.starts()) > WAITING_MAX and not self._stop.is_set():
                time.sleep(0.1)
            time.sleep(0.02)


def test_every_part_may_be_killed_under_load(tmp_path: Path):
    """Each part is killed in turn; every acknowledged job reaches exactly one end, no attempt starts twice, fold == live."""
    # Who submits to a queue that is away is not kept from submitting more.
    cluster = StackCluster(tmp_path, nodes=2, environment={"FAIRLEAD_DECISION_WAIT_S": "2"})
    cluster.start()
    load = Load(cluster, tmp_path / "marks")
    try:
        load.start()
        cluster.until(load.more(), "jobs are started")
        for number in range(ROUNDS):
            part = PARTS[number % len(PARTS)]
            cluster.kill(part)
            cluster.until(load.more(), f"jobs are started after kill {number}, of {part}")
        load.stop()
        cluster.until(lambda: _all_ended(cluster), "every job has ended", ENDED_S, look_s=1.0)
        told = cluster.run(lambda bus: story.read(bus, check=True))
        equal = cluster.run(story.state_equals_fold)
    finally:
        load.stop()
        cluster.stop()
    assert set(load.acknowledged) <= told.submitted, "an acknowledged job is not in the log"
    assert set(told.ends) == told.submitted, "a job has no end, or an unknown one has"
    assert set(told.ends.values()) == {1}, "a job ended twice"
    assert max(told.placed.values()) == 1, "an attempt was authorised twice"
    marks = Counter(load.starts())
    assert max(marks.values()) == 1, f"an attempt started twice: {marks.most_common(3)}"
    assert equal == {"queue": True, "placer": True}


def _all_ended(cluster: StackCluster) -> bool:
    told = cluster.run(story.read)
    return set(told.ends) == told.submitted
