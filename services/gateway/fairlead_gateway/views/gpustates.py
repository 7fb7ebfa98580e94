"""The state of every GPU of a node: the one computation behind the map, /metrics, lists of nodes, `top` and dry runs.
Pure.

It agrees with the placer on the GPUs that may be given now (tests/gateway/test_gpu_states.py holds both to one
number). The one fact from outside the log is a silent agent: the placer waits for the end of the node's lease,
people need not.
"""

from collections.abc import Mapping

from fairlead_gateway.views.jobs import JobsView
from fairlead_gateway.views.nodes import node_state
from fairlead_gateway.views.rows import NodeRow
from fairlead_schemas.queries.cluster_map import Access, GpuState
from fairlead_schemas.units.taints import NodeLabelError, Taint, parse_taint
from fairlead_schemas.wire.resources import Gpu

#: Keys of taints that Fairlead sets by itself: what they stand for is wrong with the node, and no job is asked to tolerate it.
OWN_TAINTS = "fairlead/"
#: State of a healthy GPU that no run holds, by the node's access.
_UNHELD: Mapping[Access, GpuState] = {"open": "free", "kept": "kept", "tainted": "tainted", "closed": "closed"}


def node_access(row: NodeRow, *, silent: bool, keeper: str) -> Access:
    """Return whose new work the node takes. `keeper`: the waiting job that it is kept for ("": none)."""
    if silent or not is_open(row):
        return "closed"
    barring = barring_taints(row)
    if any(taint.key.startswith(OWN_TAINTS) for taint in barring):
        return "closed"
    if keeper:
        return "kept"
    return "tainted" if barring else "open"


def is_open(row: NodeRow) -> bool:
    """Return True if the node takes new work. A suspect node takes one run at a time, and none while it rests."""
    state = node_state(row)
    return state == "ready" or (state == "suspect" and not (row.held or row.rests_until_ns))


def taints_of(row: NodeRow) -> list[str]:
    """Return all taints of the node, its inventory's included, sorted."""
    if not row.taints and not row.inventory.taints:
        return []  # most nodes, and this is asked of every node of a cluster at once
    return sorted({*(taint for taint, _ in row.taints), *row.inventory.taints})


def barring_taints(row: NodeRow) -> list[Taint]:
    """Return the taints that keep out work which does not tolerate them."""
    found: list[Taint] = []
    for text in taints_of(row):
        try:
            taint = parse_taint(text)
        except NodeLabelError:
            continue
        if taint.effect != "PreferNoSchedule":
            found.append(taint)
    return found


def is_whole(row: NodeRow, gpu: Gpu) -> bool:
    """True for a GPU that can be given as a whole: it is well, and not in MIG mode."""
    return not gpu.mig and gpu.uuid not in row.faulted


def gpu_states(row: NodeRow, jobs: JobsView, access: Access) -> list[GpuState]:
    """Return the state of each GPU of the node's inventory, in the inventory's order. `access`: of `node_access`."""
    unheld = _UNHELD[access]
    gpus, used, faulted = row.inventory.gpus, held_gpus(row, jobs) if row.held else {}, row.faulted
    cut: GpuState = "cut" if unheld == "free" else unheld
    if not used and not faulted:
        return [cut if gpu.mig else unheld for gpu in gpus]
    return [
        ("held" if used[gpu.uuid] else "cleaning") if gpu.uuid in used
        else "unhealthy" if gpu.uuid in faulted else cut if gpu.mig else unheld
        for gpu in gpus
    ]  # fmt: skip


def held_gpus(row: NodeRow, jobs: JobsView) -> dict[str, bool]:
    """Return {UUID of a GPU that parts of runs are on: True while one of these runs has not ended}."""
    used: dict[str, bool] = {}
    for run, part in row.held.items():
        job, _, attempt = run.rpartition(".")
        lives = jobs.has_live_run(job, int(attempt))
        for uuid in part.gpus:
            used[uuid] = used.get(uuid, False) or lives
    return used
