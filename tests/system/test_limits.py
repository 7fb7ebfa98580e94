"""A full log, two queues at once, a queue that is away, a report from the wrong node: on real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairlead.errors import FairleadError
from fairlead_bus.log import LogReader
from fairlead_bus.nats.adapter import NatsBus
from fairlead_schemas.wire import reports, subjects
from fairlead_schemas.wire.events import NodeJoined
from tests.system import story
from tests.system.cluster import StackCluster

pytestmark = [pytest.mark.nats, pytest.mark.slow]

SMALL = {"resources": {"nvidia.com/gpu": 1, "cpu": "100m", "memory": "16Mi"}}
BIG_ENV = {"PADDING": "x" * 30_000}


def test_full_log_refuses_submits_and_lets_running_jobs_finish(tmp_path: Path):
    """Near its limit the log takes no new jobs (503, and why); what runs ends and is recorded as ended."""
    cluster = StackCluster(tmp_path, nodes=1, environment={"FAIRLEAD_LOG_MAX_BYTES": str(3_000_000)})
    cluster.start()
    try:
        running = cluster.client.submit({"command": ["sleep", "6"], **SMALL})
        cluster.until(lambda: cluster.client.job(running.id).state == "running", "the first job runs")
        refused = None
        for number in range(200):
            body = json.dumps(
                {
                    "command": ["true"],
                    "env": BIG_ENV,
                    **SMALL,
                    "startAt": "2099-01-01T00:00:00+00:00",
                    "name": f"n{number}",
                }
            )
            answer = cluster.post("/v1/jobs", body.encode())
            if answer.status_code == 503:
                refused = answer.json()
                break
            assert answer.status_code in (201, 202), answer.text
            time.sleep(0.05)
        assert refused is not None, "the log never became full"
        assert (
            "log" in (refused["title"] + refused["detail"]).lower()
            and "full" in (refused["title"] + refused["detail"]).lower()
        )
        cluster.until(lambda: cluster.client.job(running.id).state == "succeeded", "the running job finishes")
    finally:
        cluster.stop()


def test_two_queue_processes_at_once(tmp_path: Path):
    """A second queue under the same name is a standby: a lease is one process's, so neither steps down, and work
    continues."""
    cluster = StackCluster(tmp_path, nodes=1)
    cluster.start()
    environment = {
        **cluster.environment,
        "FAIRLEAD_NATS": cluster.nats_url,
        "FAIRLEAD_INSTANCE": "queue",
        "FAIRLEAD_DATA": str(tmp_path / "second"),
    }
    second = subprocess.Popen([sys.executable, "-m", "fairlead_queue"], env=environment, stderr=subprocess.PIPE)
    ids: list[str] = []

    def forty_came() -> bool:
        job = cluster.client.submit({"command": ["true"], **SMALL}, key=f"two-{len(ids)}").id
        ids.extend([job] if job else [])  # not decided yet: it is asked again, by the same key
        return len(ids) >= 40

    try:
        cluster.until(forty_came, "forty jobs have come", look_s=0.02)
        cluster.client.wait(ids, timeout_s=120)
        assert second.poll() is None
        assert cluster.supervisor.crashed().get("queue", 0) == 0
        told = cluster.run(story.read)
        assert told.submitted == set(ids) and set(told.ends.values()) == {1}
    finally:
        second.kill()
        second.wait()
        cluster.stop()


def test_submit_while_the_queue_is_away_is_kept_and_decided_later(tmp_path: Path):
    """202 with the command's id; when the queue is back the job exists and runs."""
    cluster = StackCluster(tmp_path, nodes=1, environment={"FAIRLEAD_DECISION_WAIT_S": "2"})
    cluster.start()
    try:
        os.kill(cluster.supervisor.pids()["queue"], signal.SIGSTOP)
        answer = cluster.post("/v1/jobs", json.dumps({"command": ["true"], **SMALL}).encode())
        assert answer.status_code == 202 and answer.json()["command"], answer.text
        os.kill(cluster.supervisor.pids()["queue"], signal.SIGCONT)
        cluster.until(
            lambda: [j.state for j in cluster.client.jobs().items] == ["succeeded"], "the kept command was carried out"
        )
    finally:
        cluster.stop()


def test_report_from_the_wrong_node_is_rejected_and_recorded(tmp_path: Path):
    """A forged report changes nothing except for one ReportRejected; so does an undecodable command."""
    cluster = StackCluster(tmp_path, nodes=2)
    cluster.start()
    try:
        job = cluster.client.submit({"command": ["sleep", "3"], **SMALL})
        cluster.until(lambda: cluster.client.job(job.id).state == "running", "the job runs")
        (node,) = cluster.client.job(job.id).nodes
        other = "sim-1" if node == "sim-2" else "sim-2"

        async def forge(bus: NatsBus) -> None:
            joined = await _joined(bus, node)
            forged = reports.ExitSeen(n=99, job=job.id, attempt=1, rank=0, outcome="exited", exit_code=7, clean=True)
            batch = reports.ReportBatch(node=node, incarnation=joined.incarnation, reports=[forged])
            await bus.publish(subjects.report(other), reports.encode(batch))
            await bus.append(subjects.CMD, subjects.cmd("queue"), b"\x00 not a list of commands")
            await bus.flush()

        cluster.run(forge)
        (ended,) = cluster.client.wait([job.id], timeout_s=120)
        assert (ended.state, ended.exit_code) == ("succeeded", 0)
        rejected = [
            e
            for e in cluster.client.events()
            if e.type in ("fairlead.report.rejected.v1", "fairlead.command.rejected.v1")
        ]
        assert sorted(event.type for event in rejected) == [
            "fairlead.command.rejected.v1",
            "fairlead.report.rejected.v1",
        ]
    finally:
        cluster.stop()


async def _joined(bus: NatsBus, node: str) -> NodeJoined:
    reader = LogReader(bus)
    while True:
        for folded in await reader.next():
            for event in folded.commit.events:
                if isinstance(event, NodeJoined) and event.node == node:
                    await reader.close()
                    return event


BAD_BODIES = [
    (b"{", 400, ""),
    (b'{"command": ["true"], "comand": 1}', 422, "comand"),
    (b'{"command": "true"}', 422, "command"),
    (b'{"command": ["true"], "resources": {"cpu": "lots"}}', 422, "resources.cpu"),
    (b'{"command": ["true"], "queue": "no/such/queue"}', 422, "queue"),
    (b'{"command": ["true"], "resources": {"nvidia.com/gpu": 16}}', 422, "resources.nvidia.com/gpu"),
    (b'{"command": ["true"], "env": {"A": "' + b"x" * 300_000 + b'"}}', 413, ""),
    (b"[" * 100_000, 400, ""),
    (b'{"command": ["true"], "nodes": 0}', 422, "nodes"),
]


def test_bad_bodies_are_refused_by_name_and_store_nothing(tmp_path: Path):
    """4xx problem+json naming the field; afterwards the cluster has no job. One key twice is one job."""
    cluster = StackCluster(tmp_path, nodes=1)
    cluster.start()
    try:
        for body, status, field in BAD_BODIES:
            answer = cluster.post("/v1/jobs", body)
            problem = answer.json()
            assert 400 <= answer.status_code < 500 and (answer.status_code == status or status == 400), (
                body[:60],
                answer.text,
            )
            assert answer.headers["content-type"].startswith("application/problem+json")
            assert not field or field in [error["field"] for error in problem["errors"]], (body[:60], problem)
        assert cluster.client.jobs().items == []
        first, again = (cluster.client.submit({"command": ["true"], **SMALL}, key="same") for _ in range(2))
        assert first.id == again.id
        larger = cluster.client.submit(
            {"command": ["true"], "nodes": 3, "resources": {"nvidia.com/gpu": 8, "cpu": "1", "memory": "16Mi"}}
        )
        cluster.until(
            lambda: cluster.client.why(larger.id)["reason"]["code"] == "larger_than_cluster",
            "why says that it is larger than the cluster",
        )
    finally:
        cluster.stop()


def test_unreachable_gateway_is_a_typed_error(tmp_path: Path):
    """The client reports that there is no answer; it does not hang or invent one."""
    cluster = StackCluster(tmp_path, nodes=0)
    with pytest.raises(FairleadError):
        cluster.client.jobs()
