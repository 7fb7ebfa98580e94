"""Services on three nats-servers, under load, while each server is killed in turn and one is retired: nothing acknowledged
is lost, and answers come again."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from fairlead.stack.nats_server import free_port
from fairlead_bus.bus_faults import retry_until_available
from fairlead_bus.main import with_bus
from fairlead_bus.port import Bus
from fairlead_replay.audit import read_log, verify_url
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import decode_commit
from tests.kit.eventually import eventually
from tests.kit.nats_cluster import NatsCluster
from tests.system.cluster import DECISION_WAIT_S

pytestmark = [pytest.mark.nats, pytest.mark.slow]
TOKEN = "t0ken"
PROCESSES = {"queue-1": "queue", "queue-2": "queue", "placer": "placer", "gateway": "gateway"}
FAULTS = 4
SUBMITS, CLIENTS = 1000, 4
BATCH = SUBMITS // FAULTS
#: Of one submit, over all its repetitions.
ANSWER_S = 15.0
UNTIL_S = 60.0
#: After SIGUSR2 a server hands its leaderships over and sends its clients away; it ends after the duration.
LAME_DUCK = 'lame_duck_grace_period: "10ms"\nlame_duck_duration: "30s"\n'


class Installation:
    """Three servers, a queue with a standby, a placer and a gateway, as processes."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.cluster = NatsCluster(extra=f'authorization {{ token: "{TOKEN}" }}\n{LAME_DUCK}')
        self.processes: list[subprocess.Popen[bytes]] = []
        self.url = f"http://127.0.0.1:{free_port()}"
        self.http = httpx.Client(base_url=self.url, timeout=30, limits=httpx.Limits(max_connections=CLIENTS))

    def start(self) -> None:
        self.cluster.start()
        #: The token stands with one address only, and counts for all.
        self.nats = self.cluster.url.replace("nats://", f"nats://{TOKEN}@", 1)
        for name, module in PROCESSES.items():
            self._start(name, f"fairlead_{module}")
        eventually(
            lambda: self.http.get("/readyz").status_code == 200,
            "the gateway is ready",
            within_s=UNTIL_S,
            not_yet=(httpx.HTTPError,),
            logs=self.logs,
        )

    def environment(self) -> dict[str, str]:
        return {
            "FAIRLEAD_NATS": self.nats,
            "FAIRLEAD_NATS_MONITOR": self.cluster.monitor,
            "FAIRLEAD_NATS_REPLICAS": "3",
            "FAIRLEAD_HTTP_PORT": self.url.rpartition(":")[2],
            "FAIRLEAD_DECISION_WAIT_S": DECISION_WAIT_S,
        }

    def _start(self, name: str, module: str) -> None:
        # As a process manager does: a queue that has stepped down is started again.
        again = 'while :; do "$0" -m "$1"; [ $? = 75 ] || exit; done'
        with (self.data / f"{name}.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    ["sh", "-c", again, sys.executable, module],
                    start_new_session=True,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **self.environment(), "FAIRLEAD_INSTANCE": name},
                )
            )

    def submit(self, key: str) -> str:
        """The id of the job of this key, repeated until it is answered."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                answer = self.http.post("/v1/jobs", json={"command": [key]}, headers={"Idempotency-Key": key})
                if answer.status_code in (200, 201):
                    return answer.json()["id"]
                assert answer.status_code in (202, 503), answer.text
            except httpx.TransportError:
                pass
            if time.monotonic() > deadline:
                raise AssertionError(f"no answer to {key} within {ANSWER_S:g} s\n{self.logs()}")
            time.sleep(0.2)

    def logs(self) -> str:
        return "\n".join(f"--- {path.stem}\n{path.read_text()[-1500:]}" for path in sorted(self.data.glob("*.log")))

    def close(self) -> None:
        for process in self.processes:
            os.killpg(process.pid, 15)
        for process in self.processes:
            process.wait(UNTIL_S)
        self.http.close()
        self.cluster.close()


class Load:
    """Batches of keyed submits: {key: id} of the answered ones, and each batch's longest time without an answer."""

    def __init__(self, installation: Installation) -> None:
        self.answered: dict[str, str] = {}
        self.silences_s: list[float] = []
        self._installation = installation
        self._last = time.monotonic()
        self._lock = threading.Lock()

    def submit(self, number: int) -> None:
        key = f"k{number}"
        job = self._installation.submit(key)
        with self._lock:
            now = time.monotonic()
            self.silences_s[-1], self._last = max(self.silences_s[-1], now - self._last), now
            self.answered[key] = job

    def through(self, fault: Callable[[], None]) -> None:
        """Submit a batch; let the fault happen amid it."""
        before = len(self.answered)
        self.silences_s.append(0.0)
        self._last = time.monotonic()
        with ThreadPoolExecutor(CLIENTS) as pool:
            work = [pool.submit(self.submit, before + number) for number in range(BATCH)]
            eventually(
                lambda: len(self.answered) >= before + BATCH // 5,
                "submits are answered",
                within_s=ANSWER_S,
                look_s=0.001,
                logs=self._installation.logs,
            )
            fault()
            for each in work:
                each.result()


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    made = Installation(tmp_path)
    try:
        made.start()
        for name, value in made.environment().items():
            monkeypatch.setenv(name, value)
        yield made
    finally:
        made.close()


def test_nothing_acknowledged_is_lost_while_each_server_goes(installation: Installation) -> None:
    """1,000 keyed submits while the leader of the log is killed, then each other server, then one is retired. Every key is
    answered with one job, the log has each exactly once, and its chain is whole."""
    load, cluster = Load(installation), installation.cluster
    leader = cluster.wait_for_leader(subjects.LOG)
    for server in (leader, *(other for other in cluster.servers if other is not leader)):
        load.through(server.kill)
        server.start()
        cluster.wait(cluster.healthy, "three healthy servers")
    load.through(cluster.wait_for_leader(subjects.LOG).retire)
    print("\nlongest time without an answer:", ", ".join(f"{each:.1f} s" for each in load.silences_s))
    assert len(load.answered) == SUBMITS == len(set(load.answered.values()))
    submitted = Counter(with_bus(installation.nats, "test", _submitted))
    assert submitted == Counter(load.answered.values())
    verdict = verify_url(installation.nats)
    assert verdict.ok, verdict


async def _submitted(bus: Bus) -> list[str]:
    """Ids of all jobs that the log has as submitted."""
    await retry_until_available(lambda: bus.state(subjects.LOG), limit_s=UNTIL_S)
    return [
        event.job
        async for stored in read_log(bus)
        for event in decode_commit(stored.payload).events
        if isinstance(event, ev.JobSubmitted)
    ]
