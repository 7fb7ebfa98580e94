"""What each launcher goes by: variables, and the words that are run in place of the job file's. Pure.

Names are those of torch.distributed (env://; torchrun's options as PET_<OPTION>), of Open MPI 4 (OMPI_MCA_*) and of Open MPI 5,
whose run-time is PRRTE (PRTE_MCA_*), and of NCCL and Gloo. A job's own variables win over all of them.
"""

from typing import NamedTuple

from fairlead_schemas.desired import RunOrder
from fairlead_schemas.launchers import launcher_of

#: Set where the job's own are not: two that exclude each other would end Open MPI.
_EXCLUDES = {
    "OMPI_MCA_btl_tcp_if_include": "OMPI_MCA_btl_tcp_if_exclude",
    "OMPI_MCA_oob_tcp_if_include": "OMPI_MCA_oob_tcp_if_exclude",
}


class Ranks(NamedTuple):
    """Who starts how many processes where."""

    launcher: str
    #: Processes on each rank's node.
    slots: tuple[int, ...]
    #: This node's place among them.
    node_rank: int

    @property
    def here(self) -> int:
        """Processes on this node."""
        return self.slots[self.node_rank]

    @property
    def first(self) -> int:
        """The rank of the first of them."""
        return sum(self.slots[: self.node_rank])

    @property
    def by_script(self) -> bool:
        """True where this node's processes are started by processes.sh: several, or lines of others carry their rank."""
        return self.launcher == "env" and max(self.slots) > 1

    @property
    def needs_box(self) -> bool:
        """True where something must lie beside the run."""
        return self.launcher == "mpi" or self.by_script


def ranks_of(order: RunOrder, launcher: str, command: list[str], per_node: int | None) -> Ranks:
    """As the job file says, and the order where it does not."""
    slots = order.slots
    if len(slots) != max(1, len(order.hosts)):  # none was said: the same on each
        slots = (order.gpus_per_node or len(order.instances or order.gpus) or 1,) * max(1, len(order.hosts))
    if per_node is not None:
        slots = (per_node,) * len(slots)
    return Ranks(launcher_of(launcher, command), slots, order.rank if len(slots) > 1 else 0)


def hostfile(hosts: tuple[str, ...], slots: tuple[int, ...]) -> str:
    """As MPI reads it."""
    return "".join(f"{host} slots={count}\n" for host, count in zip(hosts, slots, strict=True))


def words_of(ranks: Ranks, words: list[str], box: str, grace_s: int, on_failure: str) -> list[str]:
    """What is run on this node."""
    if ranks.launcher == "mpi" and ranks.node_rank > 0:
        return ["/bin/sh", f"{box}/wait.sh"]
    if ranks.by_script:
        return ["/bin/sh", f"{box}/processes.sh", str(ranks.first), str(ranks.here), str(grace_s), on_failure, *words]
    return words


def variables(ranks: Ranks, order: RunOrder, address: str, port: str, box: str, interface: str) -> dict[str, str]:
    """The launcher's variables, and those of the network where there are several nodes."""
    env = _network(order, interface) if len(order.hosts) > 1 else {}
    match ranks.launcher:
        case "torchrun":
            env |= _torchrun(ranks, order, address, port)
        case "env":
            env |= {"WORLD_SIZE": str(sum(ranks.slots)), "LOCAL_WORLD_SIZE": str(ranks.here)}
            if not ranks.by_script:
                env |= {"RANK": str(ranks.first), "LOCAL_RANK": "0"}
        case "mpi":
            env |= _mpi(box, interface if len(order.hosts) > 1 else "")
        case _:
            pass
    return env


def without_rivals(env: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """Without those of which the job has set the opposite."""
    return {name: value for name, value in env.items() if _EXCLUDES.get(name) not in own or name not in _EXCLUDES}


def _network(order: RunOrder, interface: str) -> dict[str, str]:
    """NCCL and Gloo guess, and hang where they guess a bridge of the node: the interface of the node's own address is named.
    "=": exactly this name, not all that begin with it."""
    env = {"NCCL_DEBUG": "WARN"}
    if interface:
        env |= {"NCCL_SOCKET_IFNAME": f"={interface}", "GLOO_SOCKET_IFNAME": interface}
    if order.nics:
        env["NCCL_IB_HCA"] = "=" + ",".join(dict.fromkeys(order.nics))
    return env


def _torchrun(ranks: Ranks, order: RunOrder, address: str, port: str) -> dict[str, str]:
    return {
        "PET_NNODES": str(len(ranks.slots)), "PET_NPROC_PER_NODE": str(ranks.here), "PET_NODE_RANK": str(ranks.node_rank),
        "PET_MASTER_ADDR": address, "PET_MASTER_PORT": port, "PET_RDZV_ID": f"{order.job}.{order.attempt}",
    }  # fmt: skip


def _mpi(box: str, interface: str) -> dict[str, str]:
    """mpirun starts its daemons through daemon.sh, all of them from rank 0, and each stays what its rank is seen by: a process
    that makes a session of its own would outlive its run. It may be root: the run's limits are Fairlead's to set."""
    agent, hosts = f"{box}/daemon.sh", f"{box}/hostfile"
    env = {
        "OMPI_MCA_plm_rsh_agent": agent, "OMPI_MCA_plm_rsh_no_tree_spawn": "1", "OMPI_MCA_orte_leave_session_attached": "1",
        "OMPI_MCA_orte_default_hostfile": hosts, "OMPI_MCA_orte_tag_output": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_plm_ssh_agent": agent, "PRTE_MCA_plm_ssh_no_tree_spawn": "1", "PRTE_MCA_prte_leave_session_attached": "1",
        "PRTE_MCA_prte_default_hostfile": hosts, "PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }  # fmt: skip
    if interface:
        env |= {f"OMPI_MCA_{layer}_tcp_if_include": interface for layer in ("oob", "btl")}
        env["PRTE_MCA_prte_if_include"] = interface
    return env
