"""Input of each launcher: from an order and a job file to variables, arguments and the host file."""

from typing import Any

import pytest

from fairlead_agent.launch.plan import Launch, NodePlace, Program, plan
from fairlead_agent.linux.machine import interface_of
from fairlead_schemas.wire.desired import RunOrder

PLACE = NodePlace(
    "n2",
    "10.0.0.2",
    {"PATH": "/bin"},
    gpus_simulated=False,
    interface="eth7",
    boxes="/data/{run}/box",
    boxes_inside="/inside/{run}/box",
)
TWO: dict[str, Any] = {
    "hosts": ("10.0.0.1", "10.0.0.2"),
    "nodes": ("n1", "n2"),
    "slots": (4, 2),
    "master_address": "10.0.0.1",
    "master_port": 29000,
    "grace_ns": 7_000_000_000,
}


def launched(*command: str, rank: int = 1, order: dict[str, Any] | None = None, **words: Any) -> Launch:
    fields = {"job": "5", "attempt": 2, "rank": rank, "epoch": 9, **(TWO if order is None else order)}
    return plan(RunOrder(**fields), Program(command=list(command), **words), PLACE)


def shown(launch: Launch, prefix: str) -> dict[str, str]:
    return {name: value for name, value in launch.env.items() if name.startswith(prefix)}


def test_torchrun_finds_its_options_in_the_environment() -> None:
    """By its command's name alone: nodes, processes here, its rank among the nodes, where they meet. No RANK: it sets that."""
    launch = launched("torchrun", "train.py")
    assert shown(launch, "PET_") == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "2",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "29000",
        "PET_RDZV_ID": "5.2",
    }
    assert launch.argv == ["torchrun", "train.py"] and not shown(launch, "RANK")


def test_one_process_per_gpu_or_task() -> None:
    """launcher: env. The script starts them from the node's first rank on; the world is all of them."""
    launch = launched("python", "train.py", launcher="env", onFailure="continue")
    words = ["/bin/sh", "/inside/5.2.1/box/processes.sh", "4", "2", "7", "continue", "python", "train.py"]
    assert launch.argv == words
    assert (launch.env["WORLD_SIZE"], launch.env["LOCAL_WORLD_SIZE"]) == ("6", "2")
    assert launch.box == "/data/5.2.1/box"


def test_one_process_per_node_needs_no_script() -> None:
    """Then the rank is known before the start, and the program is the run's own."""
    launch = launched("python", "train.py", launcher="env", processesPerNode=1)
    assert (launch.argv, launch.box) == (["python", "train.py"], "")
    assert [launch.env[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")] == ["1", "0", "2"]


def test_without_a_launcher_no_rank_is_set() -> None:
    """RANK and WORLD_SIZE would make libraries believe in a launcher that is not there."""
    launch = launched("python", "train.py")
    assert {"RANK", "LOCAL_RANK", "WORLD_SIZE"} & launch.env.keys() == set()
    assert [launch.env[name] for name in ("NNODES", "NODE_RANK", "MASTER_ADDR")] == ["2", "1", "10.0.0.1"]


def test_mpirun_runs_on_the_first_node_and_the_others_wait() -> None:
    """Its daemons' way and the host file are in the environment; slots are GPUs or tasks."""
    first, other = launched("mpirun", "./a.out", rank=0), launched("mpirun", "./a.out", rank=1)
    assert first.argv == ["mpirun", "./a.out"]
    assert other.argv == ["/bin/sh", "/inside/5.2.1/box/wait.sh"]
    assert first.env["OMPI_MCA_plm_rsh_agent"] == "/inside/5.2.0/box/daemon.sh"
    assert first.env["OMPI_MCA_orte_default_hostfile"] == "/inside/5.2.0/box/hostfile"
    assert first.env["OMPI_MCA_btl_tcp_if_include"] == "eth7"
    assert first.hostfile == "10.0.0.1 slots=4\n10.0.0.2 slots=2\n"


def test_the_interface_of_the_nodes_address_and_the_granted_nics_are_named() -> None:
    """To NCCL exactly so and not as a beginning; to Gloo as it reads it."""
    launch = launched("python", "train.py", order={**TWO, "nics": ("mlx5_0", "mlx5_0", "mlx5_1")})
    assert shown(launch, "NCCL_") == {
        "NCCL_SOCKET_IFNAME": "=eth7",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1",
        "NCCL_DEBUG": "WARN",
    }
    assert launch.env["GLOO_SOCKET_IFNAME"] == "eth7"


@pytest.mark.parametrize(
    ("own", "name", "expected"),
    [
        ({"NCCL_SOCKET_IFNAME": "ib0"}, "NCCL_SOCKET_IFNAME", "ib0"),
        ({"OMPI_MCA_btl_tcp_if_include": "ib0"}, "OMPI_MCA_btl_tcp_if_include", "ib0"),
        ({"OMPI_MCA_btl_tcp_if_exclude": "lo"}, "OMPI_MCA_btl_tcp_if_include", None),
        ({"PET_NPROC_PER_NODE": "1"}, "PET_NPROC_PER_NODE", "1"),
    ],
)
def test_the_jobs_own_values_win(own: dict[str, str], name: str, expected: str | None) -> None:
    """Also if one of ours would contradict one of the job's."""
    launcher = "torchrun" if name.startswith("PET_") else "mpi"
    assert launched("run", launcher=launcher, env=own).env.get(name) == expected


def test_a_run_on_one_node_is_launched_as_well() -> None:
    """Eight GPUs, eight processes; no network variables are set."""
    order: dict[str, Any] = {"hosts": ("10.0.0.2",), "slots": (8,), "gpus": tuple("abcdefgh"), "master_port": 29000}
    launch = launched("python", "train.py", rank=0, order=order, launcher="env")
    assert launch.argv[:4] == ["/bin/sh", "/inside/5.2.0/box/processes.sh", "0", "8"]
    assert launch.env["WORLD_SIZE"] == "8" and not shown(launch, "NCCL_")


def test_the_interface_is_the_one_that_has_the_address() -> None:
    """The kernel is queried; an address that is not on this machine has none."""
    assert (interface_of("127.0.0.1"), interface_of("192.0.2.254"), interface_of("no such host")) == ("lo", "", "")
