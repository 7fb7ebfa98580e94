"""Variables of a run for the launcher `slurm`, under Slurm's names, and the files that its output is also written to. Pure.

Only what depends on the placement is here. What is known at submit (directory, host, tasks per node, CPUs per task) is in the job
file's `env`, which wins. Start at `variables`.
"""

import re
from itertools import groupby

from fairlead_schemas.units.hostlists import fold, is_foldable
from fairlead_schemas.wire.desired import RunOrder

#: Output files name the run's parts in braces: {job}, {index:04}.
_FIELD = re.compile(r"\{([a-z]+)(?::0([0-9]))?\}")


def variables(order: RunOrder, slots: tuple[int, ...], node: str) -> dict[str, str]:
    """Return the variables of one node's part of a run. `slots`: tasks on each node, in rank order."""
    nodes = order.nodes or (node,)
    array, _, index = order.job.partition("_")
    cpus = max(1, order.cpu_milli // 1000)
    names = fold(nodes) if is_foldable(nodes) else ",".join(nodes)
    gpus = len(order.instances or order.gpus)
    found = {
        "JOB_ID": order.job,
        "JOBID": order.job,
        "JOB_NAME": order.name,
        "JOB_USER": order.user,
        "JOB_PARTITION": order.queue,
        "CLUSTER_NAME": "fairlead",
        "JOB_NODELIST": names,
        "NODELIST": names,
        "JOB_NUM_NODES": str(len(nodes)),
        "NNODES": str(len(nodes)),
        "NODEID": str(order.rank),
        "NTASKS": str(sum(slots)),
        "NPROCS": str(sum(slots)),
        "TASKS_PER_NODE": counted(slots),
        "PROCID": str(sum(slots[: order.rank])),
        "LOCALID": "0",
        "CPUS_ON_NODE": str(cpus),
        "JOB_CPUS_PER_NODE": counted((cpus,) * len(nodes)),
        "RESTART_COUNT": str(order.attempt - 1),
    }
    if index:
        found |= {"ARRAY_JOB_ID": array, "ARRAY_TASK_ID": index}
    if gpus:
        found["GPUS_ON_NODE"] = str(gpus)
        found["GPUS"] = str(gpus * len(nodes))
        found["JOB_GPUS"] = ",".join(map(str, range(gpus)))
    if order.memory_mib:
        found["MEM_PER_NODE"] = str(order.memory_mib)
    return {f"SLURM_{name}": value for name, value in found.items() if value} | {"SLURMD_NODENAME": node}


def counted(counts: tuple[int, ...]) -> str:
    """Return the numbers as Slurm writes them: (4, 4, 2) is "4(x2),2"."""
    runs = [(count, sum(1 for _ in alike)) for count, alike in groupby(counts)]
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)


def node_lines(nodes: tuple[str, ...], hosts: tuple[str, ...], slots: tuple[int, ...]) -> str:
    """Return the file that srun reads: a line "name address tasks" for each node, in rank order."""
    return "".join(f"{node} {host} {count}\n" for node, host, count in zip(nodes, hosts, slots, strict=True))


def output_file(pattern: str, order: RunOrder, node: str) -> str:
    """Return the path of an output file with its fields filled in: {job} {array} {index} {name} {user} {node} {rank}.
    A name's slashes become dashes, so that it stays one part of the path; unknown fields stay as they are.
    """
    array, _, index = order.job.partition("_")
    fields = {
        "job": order.job,
        "array": array,
        "index": index or "0",
        "name": order.name.replace("/", "-"),
        "user": order.user.replace("/", "-"),
        "node": order.nodes[0] if order.nodes else node,
        "rank": str(order.rank),
    }
    return _FIELD.sub(lambda found: fields.get(found[1], found[0]).zfill(int(found[2] or 0)), pattern)
