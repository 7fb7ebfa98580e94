"""From an order to a program: words, environment, directory. Pure: the shell gives it the node's facts.

The environment holds torchrun's words without RANK and WORLD_SIZE (they would trip
auto-detection), Fairlead's own, and the granted devices. A job's own variables win, except reserved ones.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from fairlead_agent.run import RunKey, key_of
from fairlead_schemas.desired import RunOrder
from fairlead_schemas.jobspec import RESERVED_ENV_PREFIXES

#: What a job's environment takes over from the agent's; nothing else of it (it may hold credentials).
INHERITED_ENV = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "SHELL", "TMPDIR")


class Program(msgspec.Struct, frozen=True):
    """The part of a job file that a runtime needs."""

    command: list[str]
    args: list[str] = []
    image: str = ""
    env: dict[str, str] = {}
    workdir: str = ""


class Place(NamedTuple):
    """Facts of the node that its runs see."""

    node: str
    address: str
    inherited: Mapping[str, str]
    gpus_simulated: bool


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


class Unlaunchable(ValueError):
    """The order cannot be turned into a program; the message says what is wrong."""


_decoder = msgspec.json.Decoder(Program)


def read_program(spec: bytes | msgspec.Raw) -> Program:
    """The program of a canonical job file. Raises Unlaunchable."""
    try:
        program = _decoder.decode(spec)
    except msgspec.MsgspecError as error:
        raise Unlaunchable(f"the job file cannot be read: {error}") from error
    if not program.command:
        raise Unlaunchable("the job file has no command")
    return program


def plan(order: RunOrder, program: Program, place: Place) -> Launch:
    """One order as a program with its whole environment (FAIRLEAD_HOSTFILE is added by the runtime)."""
    hosts = order.hosts
    slots = order.gpus_per_node or len(order.gpus) or 1
    return Launch(
        key=key_of(order),
        order=order,
        argv=[*program.command, *program.args],
        env=_environment(order, program, place),
        workdir=program.workdir,
        image=program.image,
        hostfile="".join(f"{host} slots={slots}\n" for host in hosts) if len(hosts) > 1 else "",
        own_env=tuple(program.env),
    )


def devices_of(order: RunOrder) -> tuple[str, ...]:
    """What the program may see: its MIG instances, else its GPUs."""
    return order.instances or order.gpus


def _environment(order: RunOrder, program: Program, place: Place) -> dict[str, str]:
    env = dict(place.inherited)
    env["MASTER_ADDR"] = order.master_address or place.address
    if order.master_port:
        env["MASTER_PORT"] = str(order.master_port)
    env["NNODES"] = str(max(1, len(order.hosts)))
    env["NODE_RANK"] = str(order.rank)
    env["GPUS_PER_NODE"] = str(order.gpus_per_node or len(order.gpus))
    for name, value in program.env.items():
        if not name.startswith(RESERVED_ENV_PREFIXES):
            env[name] = value
    gpus = ",".join(devices_of(order))
    env["FAIRLEAD_JOB"] = order.job
    if index := order.job.partition("_")[2]:
        env["FAIRLEAD_ARRAY_INDEX"] = index
    env["FAIRLEAD_ATTEMPT"] = str(order.attempt)
    env["FAIRLEAD_RANK"] = str(order.rank)
    env["FAIRLEAD_NODE"] = place.node
    env["FAIRLEAD_GPUS"] = gpus
    # No device granted hides them all ("void"): an unset variable would show every GPU of the machine.
    env["CUDA_VISIBLE_DEVICES"] = gpus
    env["NVIDIA_VISIBLE_DEVICES"] = gpus or "void"
    if place.gpus_simulated and gpus:
        env["FAIRLEAD_GPUS_SIMULATED"] = "1"
    return env
