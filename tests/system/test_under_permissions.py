"""The whole of it with a key for each process: a job from HTTP to its end, and an agent whose key is revoked."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from fairlead.stack.nats_server import free_port
from fairlead_bus import bus_users, nkey
from fairlead_bus.nats.adapter import connect
from fairlead_schemas.wire import subjects
from tests.bus.keyed import Keyed
from tests.kit.eventually import eventually
from tests.system.cluster import DECISION_WAIT_S

pytestmark = [pytest.mark.nats, pytest.mark.slow]
UNTIL_S = 180.0
SERVICES = {
    "queue": "fairlead_queue",
    "placer": "fairlead_placer",
    "access": "fairlead_access",
    "storage": "fairlead_storage",
    "telemetry": "fairlead_telemetry",
    "gateway": "fairlead_gateway",
    "explainer": "fairlead_replay.explainer",
    "notifier": "fairlead_gateway.notify",
    "past": "fairlead_replay.past",
}
#: Over the size that is sent within desired state: it is read from the SPEC bucket.
LARGE = "x" * 5000


class WebhookServer(ThreadingHTTPServer):
    """Receiver of webhooks, which keeps the subjects of the events that it gets."""

    def __init__(self, address: tuple[str, int]) -> None:
        subjects: list[str] = []
        super().__init__(address, partial(WebhookHandler, subjects))
        self.subjects = subjects
        self.url = f"http://127.0.0.1:{self.server_port}/"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class WebhookHandler(BaseHTTPRequestHandler):
    """Takes every event. `subjects`: a list for what it is about."""

    def __init__(self, subjects: list[str], *connection: Any) -> None:
        self.subjects = subjects
        super().__init__(*connection)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.subjects.append(body.get("subject", ""))
        self.send_response(204)
        self.end_headers()


class Installation:
    """Services and nodes as processes, each with its own key."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.keyed = Keyed("n1", "n2")
        self.url = f"http://127.0.0.1:{free_port()}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name, module in SERVICES.items():
            self.start(name, module)
        # After the services: they wait for the streams.
        asyncio.run(self.keyed.make_streams())
        for name in ("n1", "n2"):
            self.start(name, "fairlead_agent", FAIRLEAD_NODE=name)
        self.until(lambda: len(self.get("/v1/nodes")["items"]) == 2, "both nodes have joined")

    def start(self, name: str, module: str, **more: str) -> None:
        environment = {
            **os.environ, "FAIRLEAD_NATS": self.keyed.server.url, "FAIRLEAD_NATS_MONITOR": self.keyed.server.monitor,
            nkey.SETTING: str(self.keyed.seed_file(name)), "FAIRLEAD_DATA": str(self.data / name),
            "FAIRLEAD_HTTP_PORT": self.url.rpartition(":")[2], "FAIRLEAD_DEVICES": "simulated",
            "FAIRLEAD_DECISION_WAIT_S": DECISION_WAIT_S, "FAIRLEAD_SIGN_ON": "off", "FAIRLEAD_NOTIFY_NETWORKS": "127.0.0.0/8", **more,
        }  # fmt: skip
        (self.data / name).mkdir(parents=True, exist_ok=True)
        with (self.data / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", module], env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def get(self, path: str) -> dict:
        answer = httpx.get(self.url + path, timeout=UNTIL_S)
        answer.raise_for_status()
        return answer.json()

    async def of_past(self) -> dict[str, int]:
        """Counts of the process for the past, asked with the auditor's key."""
        bus = await connect(self.keyed.server.url, name="test", key=self.keyed.keys["auditor"])
        try:
            return msgspec.json.decode(await bus.request(subjects.rpc("past", "state"), b"", timeout_s=UNTIL_S))
        finally:
            await bus.close()

    def submit(self, *command: str) -> str:
        body = {"command": command, "resources": {"cpu": "1", "memory": "64Mi", "nvidia.com/gpu": 1}}
        answer = httpx.post(f"{self.url}/v1/jobs", json=body, timeout=UNTIL_S)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def sql(self, query: str) -> list[list[object]]:
        return httpx.post(f"{self.url}/v1/sql", json={"query": query}, timeout=UNTIL_S).json()["rows"]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        eventually(condition, what, within_s=UNTIL_S, not_yet=(httpx.HTTPError, KeyError), logs=self.logs)

    def logs(self) -> str:
        return "\n".join(f"--- {p.stem}\n{p.read_text()[-600:]}" for p in sorted(self.data.glob("*.log")))

    def close(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(UNTIL_S)
        self.keyed.close()


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    made = Installation(tmp_path_factory.mktemp("installation"))
    yield made
    made.close()


def test_a_job_runs_from_submit_to_end_without_a_refused_subject(installation: Installation) -> None:
    """HTTP, queue, placer, agent, output, the explainer's answer, SQL and a webhook; the allow-lists hold all that these need."""
    hook = WebhookServer(("127.0.0.1", 0))
    rule = httpx.post(
        f"{installation.url}/v1/notifications", json={"on": ["end"], "webhook": hook.url}, timeout=UNTIL_S
    )
    tested = f"{installation.url}/v1/notifications/{rule.json()['id']}:test"
    installation.until(lambda: httpx.post(tested, timeout=UNTIL_S).json()["sent"], "a test message has arrived")
    job = installation.submit("sh", "-c", f"echo from the job {LARGE}")
    installation.until(lambda: installation.get(f"/v1/jobs/{job}")["state"] == "succeeded", "the job has succeeded")
    # Following ends with the output, which may be later than the job's end.
    output = httpx.get(f"{installation.url}/v1/jobs/{job}/logs", params={"follow": "true"}, timeout=UNTIL_S).text
    assert output == f"from the job {LARGE}\n"
    assert installation.get(f"/v1/jobs/{job}/why")["reason"]["code"] == "succeeded"
    installation.until(lambda: installation.sql("select count(*) from jobs") == [[1]], "SQL has the job")
    installation.until(lambda: f"job/{job}" in hook.subjects, "the end of the job has arrived")
    installation.until(lambda: installation.get("/v1/notifications")["items"][0]["sent"] == 1, "its delivery is stored")
    assert httpx.delete(tested.removesuffix(":test"), timeout=UNTIL_S).status_code == 200
    hook.shutdown()
    then = installation.get("/healthz")["sequence"]
    installation.until(lambda: installation.get("/v1/jobs?at=1") is not None, "the past is answered")
    before = asyncio.run(installation.of_past())["answered"]
    assert installation.get(f"/v1/jobs/{job}?at={then}")["state"] == "succeeded"
    assert installation.get(f"/v1/cluster?at={then}")["sequence"] == then
    assert asyncio.run(installation.of_past())["answered"] == before + 2, "by the process for the past"
    refused = [line for line in installation.logs().splitlines() if "refuses this client" in line]
    assert refused == []


def test_an_agent_with_a_revoked_key_ends(installation: Installation) -> None:
    """The server closes its connection, so it ends with exit code 1 for its process manager; the other node still
    works."""
    keyed = installation.keyed
    bus_users.change(keyed.directory, lambda users: bus_users.without(users, "node", "n2"))
    keyed.reload()
    assert installation.processes["n2"].wait(UNTIL_S) == 1
    assert "NATS closed the connection: credentials rejected" in (installation.data / "n2.log").read_text()
    job = installation.submit("true")
    installation.until(lambda: installation.get(f"/v1/jobs/{job}")["state"] == "succeeded", "the other node runs it")
