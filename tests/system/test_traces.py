"""Real input: a Philly virtual cluster and Alibaba's pods, over HTTP, onto nodes shaped like their clusters.

Nodes are hollow (run times are played) and time is compressed; what is submitted, placed, explained and
recorded is the real thing. Pods that ask for a share of a GPU get a whole one: shares come later.
"""

import csv
import time
from pathlib import Path

import pytest

from fairlead.client import JobFile
from fairlead_replay.audit import export, verify_export
from tests.system import story
from tests.system.cluster import StackCluster

pytestmark = [pytest.mark.nats, pytest.mark.slow]

DATA = Path(__file__).parent.parent / "data"
#: Wall-clock seconds into which a trace's whole span is compressed.
SPAN_S = 20.0


class Arrival:
    """One job of a trace: when it comes (seconds from the first) and what is sent."""

    def __init__(self, at_s: float, job: JobFile) -> None:
        self.at_s, self.job = at_s, job


def philly() -> list[Arrival]:
    """422 jobs; more than eight GPUs means nodes of eight."""
    rows = list(csv.DictReader((DATA / "traces" / "philly_vc_2869ce.csv").open()))
    speed = max(float(row["submit_s"]) + float(row["duration_s"]) for row in rows) / SPAN_S
    arrivals: list[Arrival] = []
    for row in rows:
        gpus = int(row["num_gpus"])
        nodes = -(-gpus // 8)
        resources = {"nvidia.com/gpu": -(-gpus // nodes), "cpu": "1", "memory": "1Gi"}
        command = ["sleep", f"{float(row['duration_s']) / speed:.3f}"]
        job: JobFile = {"name": f"philly-{row['job']}", "command": command, "nodes": nodes, "resources": resources}
        arrivals.append(Arrival(float(row["submit_s"]) / speed, job))
    return arrivals


def openb() -> list[Arrival]:
    """The first 2,000 pods, lasting from creation to deletion."""
    rows = list(csv.DictReader((DATA / "openb" / "openb_pod_list_default_first2000.csv").open()))
    first = min(float(row["creation_time"]) for row in rows)
    speed = max(float(row["deletion_time"]) - first for row in rows) / SPAN_S
    arrivals: list[Arrival] = []
    for row in rows:
        resources = {
            "nvidia.com/gpu": int(row["num_gpu"]),
            "cpu": f"{row['cpu_milli']}m",
            **({"memory": f"{row['memory_mib']}Mi"} if int(row["memory_mib"]) else {}),  # a pod may have asked for none
        }
        lasted = max(0.0, float(row["deletion_time"]) - float(row["creation_time"]))
        job: JobFile = {"name": row["name"], "command": ["sleep", f"{lasted / speed:.3f}"], "resources": resources}
        arrivals.append(Arrival((float(row["creation_time"]) - first) / speed, job))
    return sorted(arrivals, key=lambda arrival: arrival.at_s)


@pytest.mark.parametrize(
    ("arrivals", "hollow", "nodes"),
    [
        (philly(), ["--nodes", "16", "--gpus", "8"], 16),
        (openb(), ["--shapes", str(DATA / "openb" / "openb_node_list_all_node.csv")], 1523),
    ],
    ids=["philly", "openb"],
)
def test_a_real_trace_runs_to_its_end(tmp_path: Path, arrivals: list[Arrival], hollow: list[str], nodes: int):
    """Every job is accepted and reaches exactly one end; the exported log verifies and folds to the live state."""
    cluster = StackCluster(tmp_path, nodes=nodes)
    cluster.start(hollow=hollow)
    try:
        ids = _submit_in_time(cluster, arrivals)
        assert len(set(ids)) == len(arrivals)
        cluster.until(lambda: _ended(cluster) >= len(arrivals), "every job has ended", 180)
        told = cluster.run(lambda bus: story.read(bus, check=nodes < 100))
        assert told.submitted == set(ids) == set(told.ends)
        assert set(told.ends.values()) == {1} and set(told.outcomes.values()) == {"JobSucceeded"}
        cluster.run(lambda bus: export(bus, tmp_path / "export"))
        verdict = verify_export(tmp_path / "export")
        assert verdict.ok, verdict
        assert cluster.run(story.state_equals_fold) == {"queue": True, "placer": True}
    finally:
        cluster.stop()


def _submit_in_time(cluster: StackCluster, arrivals: list[Arrival]) -> list[str]:
    """Send what is due, together, as time goes by."""
    began, ids, waiting = time.monotonic(), list[str](), list(arrivals)
    while waiting:
        now = time.monotonic() - began
        due = [arrival.job for arrival in waiting if arrival.at_s <= now]
        waiting = waiting[len(due) :]
        if due:
            ids += [result.id for result in cluster.client.submit_many(due)]
        time.sleep(0.05)
    return ids


def _ended(cluster: StackCluster) -> int:
    told = cluster.run(story.read)
    return len(told.ends)
