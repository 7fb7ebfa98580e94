"""Three notebooks on one GPU of a whole stack, one of which takes all the memory (CERN's third use case)."""

import sys
from pathlib import Path

import pytest

from tests.system.cluster import StackCluster

pytestmark = [pytest.mark.nats, pytest.mark.slow]


def notebook(*arguments: str) -> dict[str, object]:
    """A job with three tenths of a simulated GPU, for a program that plays."""
    return {
        "command": [sys.executable, "-m", "fairlead_agent.devices.simulated_use", *arguments],
        "resources": {"nvidia.com/gpu": "0.3", "cpu": "100m", "memory": "16Mi"},
    }


def test_a_run_that_takes_all_the_memory_is_stopped_alone_and_why_explains_it(tmp_path: Path) -> None:
    """The others continue in place; a fourth gets its share of the freed memory."""
    cluster = StackCluster(tmp_path, nodes=1, environment={"FAIRLEAD_SHARE_GRACE_S": "5"})
    cluster.start()
    client = cluster.client
    try:
        steady = [client.submit(notebook("--mib", "20000", "--seconds", "600")).id for _ in range(2)]
        cluster.until(lambda: {client.job(job).state for job in steady} == {"running"}, "two notebooks run")
        greedy = client.submit(notebook("--mib", "40000", "--seconds", "600")).id
        cluster.until(lambda: client.job(greedy).state == "failed", "the third is stopped")
        gpus = [client.job(job).gpus for job in (*steady, greedy)]
        assert gpus[0] == gpus[1] == gpus[2], "they are on one GPU"
        ((uuid,),) = gpus[0].values()
        reason = client.why(greedy)["reason"]
        assert reason["detail"]["reason"] == "gpu_memory"
        assert "it was stopped for using more GPU memory than its share" in reason["message"]
        assert f"used 40,000 MiB of its 24,576 MiB share of {uuid} for" in reason["message"]
        assert {client.job(job).state for job in steady} == {"running"}
        late = client.submit(notebook("--mib", "24000", "--seconds", "0.2")).id
        cluster.until(lambda: client.job(late).state == "succeeded", "a fourth gets its share")
        for job in steady:
            client.cancel(job)
        cluster.until(lambda: {client.job(job).state for job in steady} == {"cancelled"}, "the rest has ended")
    finally:
        cluster.stop()
