"""From an order to a program: words, environment, directory. Pure: the shell gives it the node's facts.

The environment holds the rendezvous without RANK and WORLD_SIZE (they would trip auto-detection) except where the launcher is
one that sets them (launching/words.py), Fairlead's own, and the granted devices. A job's own variables win, except reserved ones.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from fairlead_agent.guard.words import STOP_AFTER, stop_after_word
from fairlead_agent.launching.words import Ranks, hostfile, ranks_of, variables, without_rivals, words_of
from fairlead_agent.run import RunKey, key_of
from fairlead_schemas.collecting import Reading
from fairlead_schemas.desired import RunOrder
from fairlead_schemas.events import StartFault
from fairlead_schemas.jobspec import RESERVED_ENV_PREFIXES, OutputWords, SecretWords, VolumeWords
from fairlead_schemas.mountrules import Secret, Volume, faults, project_directory, secret_of, volume_of
from fairlead_schemas.outputwords import NODE_BOUNDS, OutputBounds, output_of

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
    volumes: list[str | VolumeWords] = []
    secrets: list[str | SecretWords] = []
    launcher: str = ""
    processesPerNode: int | None = None  # noqa: N815 -- the job file's spelling
    onFailure: str = "stop"  # noqa: N815 -- as above
    output: OutputWords = OutputWords()


class Place(NamedTuple):
    """Facts of the node that its runs see."""

    node: str
    address: str
    inherited: Mapping[str, str]
    gpus_simulated: bool
    #: Its runtime makes containers, into which something can be mounted.
    containers: bool = True
    #: The network interface that carries the address, as programs see it; "" where they have a network of their own.
    interface: str = ""
    #: Where a run's box lies on this node, and where the run sees it ({run}: its name).
    boxes: str = ""
    boxes_inside: str = ""


class Launch(NamedTuple):
    """Everything a runtime needs to start one run."""

    key: RunKey
    order: RunOrder
    argv: list[str]
    env: dict[str, str]
    workdir: str  # "" for the run's own directory
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
    #: What lies beside the run for its launcher (launching/box.py), on this node and as the run sees it; "" for nothing.
    box: str = ""
    box_inside: str = ""
    #: How much of its output stays, besides the bounds of the node.
    output: OutputBounds = NODE_BOUNDS


class Unlaunchable(ValueError):
    """The order cannot be turned into a program, or not here; the message says what is wrong, `fault` whose it is."""

    def __init__(self, message: str, fault: StartFault = "") -> None:
        super().__init__(message)
        self.fault: StartFault = fault


_decoder = msgspec.json.Decoder(Program)


def read_program(spec: bytes | msgspec.Raw) -> Program:
    """The program of a canonical job file. Raises Unlaunchable."""
    try:
        program = _decoder.decode(spec)
    except msgspec.MsgspecError as error:
        raise Unlaunchable(f"the job file cannot be read: {error}", "job") from error
    if not program.command:
        raise Unlaunchable("the job file has no command", "job")
    return program


def plan(order: RunOrder, program: Program, place: Place) -> Launch:
    """One order as a program with its whole environment (FAIRLEAD_HOSTFILE is added by the runtime). Raises Unlaunchable
    for volumes and secrets that cannot be given."""
    if (program.volumes or program.secrets) and not place.containers:
        raise Unlaunchable(
            "its volumes and secrets need containers, and this node runs jobs as processes; ask for a node with "
            "nodeSelector: {fairlead/runtime: docker}",
            "job",
        )
    reading = Reading()
    output = output_of(program.output, reading)
    if wrong := [
        f"{fault.field}: {fault.message}"
        for fault in (*faults(program.volumes, program.secrets, program.project), *reading.errors)
    ]:
        raise Unlaunchable("; ".join(wrong), "job")
    hosts, key = order.hosts, key_of(order)
    ranks = ranks_of(order, program.launcher, program.command, program.processesPerNode)
    inside = place.boxes_inside.replace("{run}", key.name) if ranks.needs_box else ""
    return Launch(
        key=key,
        order=order,
        argv=words_of(
            ranks, [*program.command, *program.args], inside, order.grace_ns // 1_000_000_000, program.onFailure
        ),
        env=_environment(order, program, place, ranks, inside),
        workdir=program.workdir,
        image=program.image,
        hostfile=hostfile(hosts, ranks.slots) if len(hosts) > 1 else "",
        own_env=tuple(program.env),
        project=project_directory(program.project),
        volumes=tuple(volume_of(each) for each in program.volumes),
        secrets=tuple(secret_of(each) for each in program.secrets),
        ranks=ranks,
        box=place.boxes.replace("{run}", key.name) if ranks.needs_box else "",
        box_inside=inside,
        output=output,
    )


def devices_of(order: RunOrder) -> tuple[str, ...]:
    """What the program may see: its MIG instances, else its GPUs."""
    return order.instances or order.gpus


def _environment(order: RunOrder, program: Program, place: Place, ranks: Ranks, box: str) -> dict[str, str]:
    env = dict(place.inherited)
    env["MASTER_ADDR"] = order.master_address or place.address
    if order.master_port:
        env["MASTER_PORT"] = str(order.master_port)
    env["NNODES"] = str(max(1, len(order.hosts)))
    env["NODE_RANK"] = str(order.rank)
    env["GPUS_PER_NODE"] = str(order.gpus_per_node or len(order.gpus))
    launcher = variables(ranks, order, env["MASTER_ADDR"], env.get("MASTER_PORT", "29500"), box, place.interface)
    env |= without_rivals(launcher, program.env)
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
    env["FAIRLEAD_GPUS"] = gpus
    # No device granted hides them all ("void"): an unset variable would show every GPU of the machine.
    env["CUDA_VISIBLE_DEVICES"] = gpus
    env["NVIDIA_VISIBLE_DEVICES"] = gpus or "void"
    if place.gpus_simulated and gpus:
        env["FAIRLEAD_GPUS_SIMULATED"] = "1"
    return env
