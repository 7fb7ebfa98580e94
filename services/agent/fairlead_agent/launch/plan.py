"""From an order to a program: words, environment, directory; and launcher settings: variables for each launcher, and the
command that replaces the job file's. Pure: the shell gives it the node's facts.

The environment holds the rendezvous without RANK and WORLD_SIZE (they would trip auto-detection) except where the launcher is
one that sets them, Fairlead's own, and the granted devices. A job's own variables win, except reserved ones.

Names are those of torch.distributed (env://; torchrun's options as PET_<OPTION>), of Open MPI 4 (OMPI_MCA_*) and of
Open MPI 5, whose run-time is PRRTE (PRTE_MCA_*), and of NCCL and Gloo. A job's own variables win over all of them.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from fairlead_agent.core.lease import STOP_AFTER, stop_after_word
from fairlead_agent.core.runs import RunKey, key_of
from fairlead_agent.launch.batch_variables import output_file
from fairlead_agent.launch.batch_variables import variables as batch_variables
from fairlead_schemas.jobfile.agent_fields import (
    NODE_BOUNDS,
    WORK_IN_CONTAINER,
    OutputBounds,
    Secret,
    Volume,
    app_faults,
    app_of,
    mount_faults,
    output_of,
    project_directory,
    secret_of,
    volumes_of,
    work_faults,
)
from fairlead_schemas.jobfile.job_spec import RESERVED_ENV_PREFIXES, AppWords, OutputWords, SecretWords, VolumeWords
from fairlead_schemas.jobfile.outputs import output_faults, outputs_of
from fairlead_schemas.policies.apps import App
from fairlead_schemas.policies.launchers import LED, launcher_of
from fairlead_schemas.policies.storage import volume_variable
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.units.validation import ErrorCollector
from fairlead_schemas.wire.desired import RunOrder
from fairlead_schemas.wire.events import StartFault
from fairlead_schemas.wire.volumes import VolumeGrant

#: Set where the job's own are not: two that exclude each other would end Open MPI.
_EXCLUDES = {
    "OMPI_MCA_btl_tcp_if_include": "OMPI_MCA_btl_tcp_if_exclude",
    "OMPI_MCA_oob_tcp_if_include": "OMPI_MCA_oob_tcp_if_exclude",
}


class Ranks(NamedTuple):
    """Processes of a run: their launcher, their number on each node, and this node's rank."""

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
        """True if the run needs a box with files for its launcher."""
        return self.is_led or self.by_script

    @property
    def is_led(self) -> bool:
        """True if the first node's command starts processes on the others, which wait for that."""
        return self.launcher in LED


def ranks_of(order: RunOrder, launcher: str, command: list[str], per_node: int | None) -> Ranks:
    """Return the ranks from the job file, and from the order for values that the job file omits."""
    slots = order.slots
    if len(slots) != max(1, len(order.hosts)):  # no slots given: the same on each host
        slots = (order.gpus_per_node or len(order.instances or order.gpus) or 1,) * max(1, len(order.hosts))
    if per_node is not None:
        slots = (per_node,) * len(slots)
    return Ranks(launcher_of(launcher, command), slots, order.rank if len(slots) > 1 else 0)


def hostfile(hosts: tuple[str, ...], slots: tuple[int, ...]) -> str:
    """Return the hostfile in MPI's format."""
    return "".join(f"{host} slots={count}\n" for host, count in zip(hosts, slots, strict=True))


def words_of(ranks: Ranks, words: list[str], box: str, grace_s: int, on_failure: str) -> list[str]:
    """Return the command that runs on this node."""
    if ranks.is_led and ranks.node_rank > 0:
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
        case "slurm":
            # An mpirun that takes the variables for Slurm itself would start its daemons with srun's options of its own.
            env |= _mpi(box, interface if len(order.hosts) > 1 else "")
            env |= {"OMPI_MCA_plm": "rsh", "OMPI_MCA_ras": "^slurm", "PRTE_MCA_plm": "ssh", "PRTE_MCA_ras": "^slurm"}
            env["OMPI_MCA_orte_tag_output"] = "0"  # a script reads what its mpirun prints
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
        "PET_NNODES": str(len(ranks.slots)),
        "PET_NPROC_PER_NODE": str(ranks.here),
        "PET_NODE_RANK": str(ranks.node_rank),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_RDZV_ID": f"{order.job}.{order.attempt}",
    }


def _mpi(box: str, interface: str) -> dict[str, str]:
    """mpirun starts its daemons through daemon.sh, all of them from rank 0, and each stays what its rank is seen by: a process
    that makes a session of its own would outlive its run. It may be root: the run's limits are Fairlead's to set."""
    agent, hosts = f"{box}/daemon.sh", f"{box}/hostfile"
    env = {
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_leave_session_attached": "1",
        "OMPI_MCA_orte_default_hostfile": hosts,
        "OMPI_MCA_orte_tag_output": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_leave_session_attached": "1",
        "PRTE_MCA_prte_default_hostfile": hosts,
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    if interface:
        env |= {f"OMPI_MCA_{layer}_tcp_if_include": interface for layer in ("oob", "btl")}
        env["PRTE_MCA_prte_if_include"] = interface
    return env


#: Where programs are looked for if neither the node nor the job says it.
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
#: What a job's environment takes over from the agent's; nothing else of it (it may hold credentials).
INHERITED_ENV = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "SHELL", "TMPDIR")


class Program(msgspec.Struct, frozen=True):
    """The part of a job file that a runtime needs."""

    command: list[str]
    args: list[str] = []
    image: str = ""
    env: dict[str, str] = {}
    workdir: str = ""
    project: str = ""
    volumes: list[str | VolumeWords] | dict[str, str] = []
    secrets: list[str | SecretWords] = []
    launcher: str = ""
    processesPerNode: int | None = None  # noqa: N815 -- the job file's spelling
    onFailure: str = "stop"  # noqa: N815 -- as above
    output: OutputWords = OutputWords()
    sync: str = ""
    outputs: dict[str, str | list[str]] = {}
    app: str | AppWords = ""
    kind: str = "batch"


class NodePlace(NamedTuple):
    """Facts of the node that its runs see."""

    node: str
    address: str
    inherited: Mapping[str, str]
    gpus_simulated: bool
    #: Its runtime makes containers, into which something can be mounted.
    containers: bool = True
    #: The network interface that carries the address, as programs see it; "" where they have a network of their own.
    interface: str = ""
    #: Path of a run's box on this node, and its path as the run sees it ({run}: the run's name).
    boxes: str = ""
    boxes_inside: str = ""


class Launch(NamedTuple):
    """Everything a runtime needs to start one run."""

    key: RunKey
    order: RunOrder
    argv: list[str]
    env: dict[str, str]
    workdir: str  # "" for the run's own directory; of a run in a container with `work`, where that is mounted
    image: str
    #: Content of the MPI host file; "" for a run on one node.
    hostfile: str
    #: Variables that the job file itself sets.
    own_env: tuple[str, ...] = ()
    #: Under which volumes and secrets are filed.
    project: str = ""
    volumes: tuple[Volume, ...] = ()
    secrets: tuple[Secret, ...] = ()
    ranks: Ranks = Ranks("none", (1,), 0)
    #: Files next to the run for its launcher (mpi_daemons.py), as on this node and as the run sees it; "" for
    #: none.
    box: str = ""
    box_inside: str = ""
    #: Amount of its output that is kept, in addition to the bounds of the node.
    output: OutputBounds = NODE_BOUNDS
    #: Name of the directory that its submitter sent (wire/trees.py); "" for none.
    sync: str = ""
    #: Application that rank 0 serves.
    app: App | None = None
    #: Path of the directory of its own that becomes `work` in the run's directory (files/sync_tree.py); "" for none.
    work: str = ""
    #: The cluster's volumes among `volumes`, by name, as the gateway says that the run may have them.
    stored: Mapping[str, VolumeGrant] = {}


class Unlaunchable(ValueError):
    """The order cannot be turned into a program, or not here; the message says what is wrong, `fault` whose it is."""

    def __init__(self, message: str, fault: StartFault = "") -> None:
        super().__init__(message)
        self.fault: StartFault = fault


_decoder = msgspec.json.Decoder(Program)
_NO_WORDS = OutputWords()


def read_program(spec: bytes | msgspec.Raw) -> Program:
    """The program of a canonical job file. Raises Unlaunchable."""
    try:
        program = _decoder.decode(spec)
    except msgspec.MsgspecError as error:
        raise Unlaunchable(f"the job file cannot be read: {error}", "job") from error
    if not program.command:
        raise Unlaunchable("the job file has no command", "job")
    return program


def plan(order: RunOrder, program: Program, place: NodePlace) -> Launch:
    """Return one order as a program with its whole environment, except for FAIRLEAD_HOSTFILE, which the runtime adds.

    Raises Unlaunchable for volumes and secrets that cannot be given.
    """
    volumes = tuple(volumes_of(program.volumes).values())
    if (program.secrets or not all(each.made for each in volumes)) and not place.containers:
        raise Unlaunchable(
            "its volumes and secrets need containers, and this node runs jobs as processes; ask for a node with "
            "nodeSelector: {fairlead/runtime: docker}",
            "job",
        )
    output = _checked_output(program)
    hosts, key = order.hosts, key_of(order)
    ranks = ranks_of(order, program.launcher, program.command, program.processesPerNode)
    boxed = ranks.needs_box or bool(program.output.stdout or program.output.stderr)
    inside = place.boxes_inside.replace("{run}", key.name) if boxed else ""
    words = words_of(ranks, [*program.command, *program.args], inside, order.grace_ns // SECOND_NS, program.onFailure)
    return Launch(
        key=key,
        order=order,
        argv=_copied(words, order, program.output, ranks, place.node, inside),
        env=_environment(order, program, place, ranks, inside),
        workdir=_workdir(program, place),
        image=program.image,
        hostfile=hostfile(hosts, ranks.slots) if len(hosts) > 1 else "",
        own_env=tuple(program.env),
        project=project_directory(program.project),
        volumes=volumes,
        secrets=tuple(secret_of(each) for each in program.secrets),
        ranks=ranks,
        box=place.boxes.replace("{run}", key.name) if boxed else "",
        box_inside=inside,
        output=output,
        sync=program.sync,
        app=_checked_app(program) if not order.rank else None,
    )


def _checked_app(program: Program) -> App | None:
    """Return the application of a job file. Raises Unlaunchable for a wrong one."""
    if faults := [*app_faults(program.app, program.kind)]:
        raise Unlaunchable("; ".join(f"{fault.field}: {fault.message}" for fault in faults), "job")
    return app_of(program.app)


def _workdir(program: Program, place: NodePlace) -> str:
    if not (program.sync or program.outputs):
        return program.workdir
    return (program.workdir or WORK_IN_CONTAINER) if place.containers else ""


def _copied(words: list[str], order: RunOrder, output: OutputWords, ranks: Ranks, node: str, box: str) -> list[str]:
    """Return the command with its output also in the files of the job file."""
    if not output.stdout and not output.stderr:
        return words
    files = [output_file(each, order, node) for each in (output.stdout, output.stderr)]
    mode = "append" if output.append or order.attempt > 1 or ranks.node_rank > 0 else "new"
    return ["/bin/sh", f"{box}/output.sh", mode, *files, *words]


def _checked_output(program: Program) -> OutputBounds:
    """Return the job file's bounds of its output. Raises Unlaunchable for wrong ones, and for wrong volumes and secrets."""
    owns = bool(program.sync or program.outputs)
    if not program.volumes and not program.secrets and program.output == _NO_WORDS and not owns:
        return NODE_BOUNDS  # as most job files are
    reading = ErrorCollector()
    output = output_of(program.output, reading)
    faults = (
        *mount_faults(program.volumes, program.secrets, program.project),
        *work_faults(program.sync, bool(program.outputs), program.workdir, program.image),
        *output_faults(program.outputs),
        *reading.errors,
    )
    if faults:
        raise Unlaunchable("; ".join(f"{fault.field}: {fault.message}" for fault in faults), "job")
    return output._replace(work=owns, outputs=outputs_of(program.outputs))


def devices_of(order: RunOrder) -> tuple[str, ...]:
    """Return the devices visible to the program: its MIG instances, else its GPUs."""
    return order.instances or order.gpus


def _environment(order: RunOrder, program: Program, place: NodePlace, ranks: Ranks, box: str) -> dict[str, str]:
    env = dict(place.inherited)
    env["MASTER_ADDR"] = order.master_address or place.address
    if order.master_port:
        env["MASTER_PORT"] = str(order.master_port)
    env["NNODES"] = str(max(1, len(order.hosts)))
    env["NODE_RANK"] = str(order.rank)
    env["GPUS_PER_NODE"] = str(order.gpus_per_node or len(order.gpus))
    launcher = variables(ranks, order, env["MASTER_ADDR"], env.get("MASTER_PORT", "29500"), box, place.interface)
    env |= without_rivals(launcher, program.env)
    if ranks.launcher == "slurm":
        env |= batch_variables(order, ranks.slots, place.node)
    for name, value in program.env.items():
        # A name with "=" in it would set another variable.
        if not name.startswith(RESERVED_ENV_PREFIXES) and name and "=" not in name and "\0" not in name + value:
            env[name] = value
    if order.stop_after_ns:
        env[STOP_AFTER] = stop_after_word(order.stop_after_ns)
    gpus = ",".join(devices_of(order))
    env["FAIRLEAD_JOB"] = order.job
    if index := order.job.partition("_")[2]:
        env["FAIRLEAD_ARRAY_INDEX"] = index
    env["FAIRLEAD_ATTEMPT"] = str(order.attempt)
    if order.restarted:
        env["FAIRLEAD_RESTARTED"] = order.restarted
    env["FAIRLEAD_RANK"] = str(order.rank)
    env["FAIRLEAD_NODE"] = place.node
    if ranks.launcher == "slurm":
        env["FAIRLEAD_LAUNCH"] = box
        env["PATH"] = f"{box}/slurm:{env.get('PATH', DEFAULT_PATH)}"
        env.setdefault("BASH_ENV", f"{box}/slurm/profile")  # login shells set PATH anew
    env["FAIRLEAD_GPUS"] = gpus
    for volume in volumes_of(program.volumes).values():
        env[volume_variable(volume.name)] = volume.path
    # No device granted hides them all ("void"): an unset variable would show every GPU of the machine.
    env["CUDA_VISIBLE_DEVICES"] = gpus
    env["NVIDIA_VISIBLE_DEVICES"] = gpus or "void"
    if place.gpus_simulated and gpus:
        env["FAIRLEAD_GPUS_SIMULATED"] = "1"
    return env
