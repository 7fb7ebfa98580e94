"""Size of a job from sbatch's options: Slurm counts per node, per task or in all, and a job file per node or per task.
Pure.
"""

from typing import Any

from fairlead.errors import Refused
from fairlead_schemas.jobfile.request import GPU
from fairlead_schemas.units.hardware import resource_of


class Shape:
    """Sizes given by the directives, collected first because each depends on the others."""

    def __init__(self) -> None:
        self.nodes = 1
        #: "4" or "2-8", as it was asked for.
        self.nodes_asked = ""
        self.tasks = 0  # in all
        self.tasks_per_node = 0
        self.cpus_per_task = 1
        self.gpus = 0  # in all
        self.gpus_per_node = 0
        self.gpus_per_task = 0
        #: MIG profile of the GPUs, where their type is one.
        self.profile = ""
        self.memory = ""
        self.memory_per_cpu_mib = 0
        self.memory_per_gpu_mib = 0

    @property
    def counts_nodes(self) -> bool:
        """True if an option other than tasks sets the amount per node."""
        return bool(self.nodes_asked or self.tasks_per_node or self.gpus or self.gpus_per_node or self.memory)


def size(shape: Shape, job: dict[str, Any], notes: list[str]) -> None:
    """Write the sizes into the job. Slurm counts some amounts per task or in all; a job file counts per node, or per task
    where the number of nodes is not given.
    """
    if shape.tasks > 1 and not shape.counts_nodes:
        _tasks(shape, job, notes)
        return
    tasks = shape.tasks_per_node or -(-max(shape.tasks, 1) // shape.nodes)
    cpus = tasks * shape.cpus_per_task
    gpus = shape.gpus_per_node or shape.gpus_per_task * tasks
    if shape.gpus and not gpus:
        if "-" in shape.nodes_asked:
            raise Refused(
                f"--gpus: expected one number of --nodes beside it, found {shape.nodes_asked}; use --gpus-per-node"
            )
        if shape.gpus % shape.nodes:
            raise Refused(f"--gpus: expected a multiple of --nodes ({shape.nodes}), found {shape.gpus}")
        gpus = shape.gpus // shape.nodes
    _amounts(shape, job, gpus, cpus)
    if "-" in shape.nodes_asked:
        job["nodes"] = shape.nodes_asked
    elif shape.nodes > 1:
        job["nodes"] = shape.nodes
    if tasks > 1:
        notes.append(
            f"one process starts per node with the CPUs of its {tasks} tasks; start the tasks yourself (torchrun, mpirun)"
        )


def _tasks(shape: Shape, job: dict[str, Any], notes: list[str]) -> None:
    """Tasks that may lie on any nodes, as under Slurm."""
    job["tasks"] = shape.tasks
    _amounts(shape, job, shape.gpus_per_task, shape.cpus_per_task)
    notes.append("one process starts per node for all of its tasks; start the tasks yourself (torchrun, mpirun)")


def _amounts(shape: Shape, job: dict[str, Any], gpus: int, cpus: int) -> None:
    """Resources of a node, or of a task."""
    resources: dict[str, Any] = {}
    if gpus:
        resources[resource_of(shape.profile) if shape.profile else GPU] = gpus
    if cpus > 1:
        resources["cpu"] = str(cpus)
    memory_mib = shape.memory_per_cpu_mib * cpus or shape.memory_per_gpu_mib * gpus
    if shape.memory or memory_mib:
        resources["memory"] = shape.memory or f"{memory_mib}Mi"
    if resources:
        job["resources"] = resources
