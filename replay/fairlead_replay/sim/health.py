"""Unhealthy machines and GPUs, drawn from a seed of their own, and the health reports of simulated agents.

The state of a machine outlives its agent. At its start and at every beat an agent compares this state with the
reports in its journal, so no change is reported twice, and none that a journal holds is forgotten. After the
loss of a journal, people restore the rest.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

import msgspec

from fairlead_agent.core.runs import RunKey
from fairlead_agent.node.health.preflight import TAINT
from fairlead_replay.sim.context import SimContext
from fairlead_replay.sim.machine import UNFIT, SimMachine
from fairlead_schemas.wire.commands import PlacerCommand, RestoreGpu
from fairlead_schemas.wire.reports import HealthSeen
from fairlead_schemas.wire.resources import Inventory

OF_GPUS = ("thermal", "remap_pending", "gpu_test", "xid13", "xid109", "xid79", "ecc_uncorrectable", "kill_failed")
OF_NODES = ("disk_full", "disk_low", "clock_step", "engine_gone")
#: Of a fit machine, before one part of a gang.
UNFIT_CHANCE = 0.05
#: GPUs that a simulated machine has at most.
GPUS_MAX = 4


class HealthFault(NamedTuple):
    """Planned ailment of a machine, or of one of its GPUs (`gpu` -1: the machine itself)."""

    at_s: float
    target: int
    gpu: int
    code: str
    lasting_s: float


def plan(seed: int, until_s: float) -> list[HealthFault]:
    """The ailments of this seed, in order of time; half of all seeds have none."""
    rng = Random(f"health {seed}")  # noqa: S311 -- repeatable is what it must be
    planned: list[HealthFault] = []
    for _ in range(rng.choice((0, 0, 3, 9))):
        gpu = rng.choice((-1, -1, -1, *range(GPUS_MAX)))
        code = rng.choice(OF_GPUS if gpu >= 0 else (*OF_NODES, *[UNFIT] * 6))
        planned.append(
            HealthFault(
                rng.uniform(0.2, until_s * 0.7), rng.randrange(1 << 16), gpu, code, rng.choice((0.5, 3.0, 12.0, 40.0))
            )
        )
    return sorted(planned)


async def carry_out(context: SimContext, machines: Sequence[SimMachine], planned: list[HealthFault]) -> None:
    """Each at its time, until the world's faults are over."""
    loop = asyncio.get_running_loop()
    for ill in planned:
        await asyncio.sleep(max(0.0, ill.at_s - loop.time()))
        if context.faults.quiet:
            return
        machine = machines[ill.target % len(machines)]
        key = _gpu(machine, ill.gpu), ill.code
        machine.ills.add(key)
        context.later(ill.lasting_s, lambda machine=machine, key=key: machine.ills.discard(key))


def _gpu(machine: SimMachine, index: int) -> str:
    gpus = machine.inventory.gpus
    return gpus[index % len(gpus)].uuid if index >= 0 else ""


def changes(machine: SimMachine, reported: Mapping[tuple[str, str], str]) -> list[HealthSeen]:
    """Return the health reports that an agent owes: one state at a time for each GPU, everything new or over for the
    node.
    """
    seen: list[HealthSeen] = []
    ills = {key for key in machine.ills if key[1] != UNFIT}
    for gpu in [each.uuid for each in machine.inventory.gpus]:
        now = max((code for of, code in ills if of == gpu), default="")
        before = next((code for of, code in reported if of == gpu), "")
        if now != before:
            seen.append(HealthSeen(n=0, gpu=gpu, code=now, evidence="simulated"))
    of_node = {key for key in ills if not key[0]}
    seen += [HealthSeen(n=0, gpu="", code=code, evidence="simulated") for _, code in sorted(of_node - reported.keys())]
    over = sorted(key for key in reported.keys() - of_node if not key[0])
    return seen + [HealthSeen(n=0, gpu="", code=code, over=True) for _, code in over]


class Unfit(NamedTuple):
    """A part of a gang that its agent does not start, and the rank that it blames."""

    blames: int | None


def unfit(machine: SimMachine, seed: int, key: RunKey, ranks: int) -> Unfit | None:
    """Return the result of the check before a gang's part starts: a failure on an unfit machine and now and then on a
    fit one, None if it passes.
    """
    if ranks < 2:
        return None
    rng = Random(f"{seed} {key.name}")  # noqa: S311 -- repeatable is what it must be
    if not machine.unfit and rng.random() > UNFIT_CHANCE:
        return None
    return Unfit(rng.randrange(ranks) if rng.random() < 0.5 else None)


def introduced(machine: SimMachine) -> Inventory:
    """Return the inventory that the agent reports; a closed gate is a taint."""
    if not machine.unfit:
        return machine.inventory
    return msgspec.structs.replace(machine.inventory, taints=(*machine.inventory.taints, TAINT))


def restored(nodes: list[str], new_id: Callable[[], str]) -> list[PlacerCommand]:
    """Return the commands that people send when all ailments are over."""
    gpus = ("", *range(GPUS_MAX))
    return [
        RestoreGpu(id=new_id(), node=node, gpu="" if gpu == "" else f"GPU-{node}-{gpu}")
        for node in nodes
        for gpu in gpus
    ]
