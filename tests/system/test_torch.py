"""torch.distributed over two hosts, from a job file alone: torchrun, one process per task, and one per node."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TORCH_PYTHON
from tests.system.two_hosts import TwoHosts, example

pytestmark = [pytest.mark.nats, pytest.mark.hosts, pytest.mark.torch, pytest.mark.slow]

SCRIPT = str(Path(__file__).with_name("allreduce_torch.py"))
PYTHON, TORCHRUN = str(TORCH_PYTHON), str(TORCH_PYTHON.with_name("torchrun"))
#: {how: (job file, ranks)}
WAYS: dict[str, tuple[dict[str, Any], int]] = {
    "torchrun": (example("torchrun", put={"torchrun": TORCHRUN, "train.py": SCRIPT}, processesPerNode=2), 4),
    "env": (example("env", put={"python": PYTHON, "train.py": SCRIPT}, processesPerNode=2), 4),
    "env, one process per node": ({"command": [PYTHON, SCRIPT], "launcher": "env"}, 2),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    """Two nodes, shared by this file."""
    with TwoHosts(tmp_path_factory.mktemp("hosts")) as cluster:
        yield cluster


def reduced(cluster: TwoHosts, job: str) -> list[str]:
    """Return the sums that the ranks print, without the tags of their lines, sorted."""
    lines = cluster.fairlead("logs", job).splitlines()
    return sorted(re.sub(r"^\[[^]]*\] ", "", line) for line in lines if "sum" in line)


@pytest.mark.parametrize("way", WAYS)
def test_torch_reduces_over_two_nodes(cluster: TwoHosts, way: str) -> None:
    """Every rank has the sum of all, and half of them are on each node."""
    words, ranks = WAYS[way]
    job = cluster.submit({"nodes": 2, **words})
    assert cluster.ended(job)["state"] == "succeeded", cluster.fairlead("logs", job)
    said = reduced(cluster, job)
    who = [line.partition(" on ")[0] for line in said]
    assert who == [f"rank {rank} of {ranks}" for rank in range(ranks)], cluster.fairlead("logs", job)
    assert [line.partition(": ")[0][-1] for line in said] == ["a"] * (ranks // 2) + ["b"] * (ranks // 2)
    assert all(f"sum {sum(range(ranks))}," in line for line in said)


@pytest.mark.parametrize("way", ["torchrun", "env"])
def test_a_killed_rank_ends_all_and_the_next_attempt_succeeds(cluster: TwoHosts, way: str) -> None:
    """kill -9 of the last rank, while all run."""
    words, ranks = WAYS[way]
    words = {**words, "command": [*words["command"], "stay"]}
    job = cluster.submit({"nodes": 2, "retries": {"max": 1}, "time": {"grace": "5s"}, **words})
    cluster.until(lambda: len(reduced(cluster, job)) == ranks, "every rank has begun")
    pids = [int(pid) for line in reduced(cluster, job) for pid in re.findall(r"pid (\d+)", line)]
    os.kill(pids[-1], signal.SIGKILL)
    ended = cluster.ended(job)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2), cluster.logs()
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert len(reduced(cluster, job)) == ranks
