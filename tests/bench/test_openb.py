"""Output of `python -m bench.openb`, on the trace's nodes with few pods."""

import json
import subprocess
import sys
from pathlib import Path

from bench.openb import playing as openb
from bench.openb import trace
from bench.openb.cluster import Cluster
from fairlead_placer.packing.policy import EmptyNode, RequestShape


def test_the_lists_are_whole() -> None:
    """As bench/data/openb/README.md counts them."""
    machines, pods = trace.machines(), trace.pods(trace.PODS)
    assert (len(machines), sum(machine.gpus for machine in machines)) == (1213, 6212)
    assert (len(pods), sum(pod.total_milli for pod in pods)) == (8152, 6_086_800)
    assert trace.published("FGD")[100] == 95.23


def test_it_prints_a_line_per_seed_and_a_summary(tmp_path: Path) -> None:
    """With the names that others' scripts read."""
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\n" + "n,96000,393216,8,A\n" * 3)
    pods.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        + "a,6000,12288,1,500,,,,,,\nb,8000,30517,1,1000,,,,,,\nc,64000,65536,8,1000,A|B,,,,,\nd,1000,1024,0,0,,,,,,\n"
        * 2
    )
    command = [
        sys.executable,
        "-m",
        "bench.openb",
        "--nodes",
        nodes,
        "--pods",
        pods,
        "--seeds",
        "5..6",
        "--policy",
        "fgd",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(openb.__file__).parents[2])
    five, six, summary = map(json.loads, done.stdout.splitlines())
    assert (five["seed"], six["seed"], summary["seeds"]) == (5, 6, [5, 6])
    assert list(summary["gpu_alloc_pct"]) == ["95", "100", "110", "120", "130"]
    assert summary["refused_that_fit"] == 0
    assert 0 < summary["frag_gpu_pct"] < 100
    assert 0 <= summary["drop_8gpu_pct"] <= 100
    assert summary["decisions_per_s"] > 0


def test_drops_and_shares_of_a_run_that_is_known() -> None:
    """One node of 8 GPUs: a point has the pods that arrived before it was passed, the last one has all."""
    one, eight = RequestShape(1, 1, 1, 1000), RequestShape(1, 1, 8, 1000)
    run = openb.play([EmptyNode(100, 100, 8)], [one], "fragmentation", 1)
    assert (run.allocated[95], run.allocated[100], run.allocated[130]) == (87.5, 100, 100)
    assert (run.eights, run.refused, run.decisions) == (0, 0, 11)
    run = openb.play([EmptyNode(100, 100, 8)], [eight], "fragmentation", 1)
    assert (run.allocated[95], run.allocated[100], run.eights, run.eights_dropped) == (0, 100, 1, 0)
    assert run.fragmented[100] == 0


def test_a_pod_without_gpus_can_use_none() -> None:
    """So half of what is free is a fragment where half of the pods ask for none."""
    pool = Cluster([EmptyNode(100, 100, 8, "A")], "fragmentation", []).pool
    assert trace.unusable_milli(pool, trace.typical([RequestShape(1, 1), RequestShape(1, 1, 1, 1000)])) == 4000
