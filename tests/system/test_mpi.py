"""A real mpirun over two hosts, from a job file alone: no ssh, no host list, no options."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.two_hosts import TwoHosts, example

pytestmark = [pytest.mark.nats, pytest.mark.hosts, pytest.mark.mpi, pytest.mark.slow]

SOURCE = Path(__file__).with_name("allreduce.c")
ON_TWO_NODES = {"nodes": 2, "processesPerNode": 2}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    """Two nodes, shared by this file."""
    with TwoHosts(tmp_path_factory.mktemp("hosts")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The all-reduce, compiled."""
    path = tmp_path_factory.mktemp("mpi") / "allreduce"
    mpicc = shutil.which("mpicc")
    assert mpicc is not None
    subprocess.run([mpicc, "-o", str(path), str(SOURCE)], check=True)
    return str(path)


def reduced(cluster: TwoHosts, job: str, *words: str) -> list[str]:
    """Return the sums that the ranks print, sorted."""
    return sorted(line for line in cluster.fairlead("logs", job, *words).splitlines() if "sum" in line)


def test_mpirun_reduces_over_two_nodes(cluster: TwoHosts, program: str) -> None:
    """Four ranks, two on each node; output says which rank spoke; the job ends with mpirun."""
    job = cluster.submit(example("mpi", put={"./solve": program}, processesPerNode=2))
    ended = cluster.ended(job)
    assert (ended["state"], ended["exit_code"]) == ("succeeded", 0), cluster.fairlead("logs", job)
    said = reduced(cluster, job)
    assert [line.partition(" on ")[0] for line in said] == [f"[rank {rank}] rank {rank} of 4" for rank in range(4)]
    assert [line.partition(": ")[0][-1] for line in said] == ["a", "a", "b", "b"]
    assert all("sum 6," in line for line in said)
    assert reduced(cluster, job, "--rank", "2") == [said[2]]


def test_two_mpiruns_one_after_the_other_and_side_by_side(cluster: TwoHosts, program: str, tmp_path: Path) -> None:
    """A script may call it as often as it likes: the other ranks wait for the next one."""
    # Two that begin in the same instant need directories of their own: Open MPI 4 makes theirs in a way that one of them may miss.
    apart = [f"mpirun --mca orte_tmpdir_base {tmp_path}/{name}" for name in ("one", "two")]
    script = (
        f"mpirun -np 4 {program} && {{ {apart[0]} -np 3 {program} & one=$!; "
        f"{apart[1]} -np 2 --map-by node {program}; two=$?; wait $one && exit $two; }}"
    )
    job = cluster.submit({"command": ["sh", "-c", script], "launcher": "mpi", **ON_TWO_NODES})
    assert cluster.ended(job)["state"] == "succeeded", cluster.fairlead("logs", job)
    assert len(reduced(cluster, job)) == 9, cluster.fairlead("logs", job)


def test_tasks_of_a_script_are_ranks_wherever_they_are_placed(cluster: TwoHosts, program: str) -> None:
    """The second example of the page, with four tasks; here they all fit on one node."""
    job = cluster.submit(example("mpi in a script", put={"./prepare": program, "./solve": program}, tasks=4))
    assert cluster.ended(job)["state"] == "succeeded", cluster.fairlead("logs", job)
    assert len(reduced(cluster, job)) == 8


def test_a_plain_command_runs_once_on_each_node(cluster: TwoHosts) -> None:
    """It gets the rendezvous address and the interface."""
    job = cluster.submit(example("none", put={"echo node": "echo $NCCL_SOCKET_IFNAME node"}))
    assert cluster.ended(job)["state"] == "succeeded"
    lines = sorted(cluster.fairlead("logs", job).splitlines())
    assert [line.partition(":")[0] for line in lines] == [
        f"[{rank}] =eth0 node {rank} of 2 meets at {cluster.hosts['a'].address}" for rank in (0, 1)
    ]


def test_a_killed_rank_ends_all_and_the_next_attempt_succeeds(cluster: TwoHosts, program: str) -> None:
    """kill -9 of one rank on the second node, while all run."""
    job = cluster.submit({"command": ["mpirun", program, "stay"], "retries": {"max": 1}, **ON_TWO_NODES})
    cluster.until(lambda: len(reduced(cluster, job)) == 4, "every rank has begun")
    pids = [int(pid) for line in reduced(cluster, job) for pid in re.findall(r"pid (\d+)", line)]
    os.kill(pids[3], signal.SIGKILL)
    ended = cluster.ended(job)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2), cluster.logs()
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert len(reduced(cluster, job)) == 4


def test_a_missing_program_fails_with_mpiruns_own_message(cluster: TwoHosts) -> None:
    """And with its exit code; no rank waits indefinitely."""
    job = cluster.submit({"command": ["mpirun", "/no/such/program"], **ON_TWO_NODES})
    ended = cluster.ended(job)
    assert ended["state"] == "failed" and ended["exit_code"]
    assert "/no/such/program" in cluster.fairlead("logs", job)
