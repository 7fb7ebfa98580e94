"""Desired state of a node, derived from the placer's state: one order per part that is not released.

A part whose rank has ended keeps an order with a stop until its devices are known to be clean. An agent that never
received the run (it was lost meanwhile) reports it as ended, and so the part comes free. Each order is encoded once and
its bytes are joined into every value that holds it.
"""

import hashlib

import msgspec

from fairlead_placer.cluster.entities import DRAINED, ClusterNode, JobRecord, PlacedRun
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.scheduling.allocate import master_port
from fairlead_schemas.units.hostlists import fold, is_foldable
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire.desired import DesiredRaw, Drained, LayoutOrder, RunOrder, encode_desired, encode_order

#: A larger spec goes to the SPEC store once and is named by its hash.
SPEC_INLINE_MAX = 4096

#: With more parts than this on a node, further specs go to the SPEC store whatever their size.
SPECS_INLINE_MAX = 64
#: What a node's value may hold. Orders beyond it, the newest, wait until older ones are released: dropping one that
#: was sent would end its run, so the cut is at the end and nothing before it ever grows.
DESIRED_BYTES_MAX = 900 * 1024

#: Gangs of at least so many parts have their members as hostlists: written in full, n ranks take n² names.
FOLDED_MIN = 32
#: Large gangs whose members are remembered at once.
GANGS_MAX = 256

NO_SPEC = msgspec.Raw(b"null")


def stop_of(run: PlacedRun, rank: int) -> str:
    """Return the reason that the rank's order gives for a stop, "" if the rank shall run."""
    if run.ended >> rank & 1:
        return "ended"
    if run.stop or not run.is_stopping:
        return run.stop
    return "leader_ended" if run.verdict is None else "rank_failed"


class Membership(msgspec.Struct, frozen=True):
    """Fields of a run's orders that are the same for all of its ranks."""

    hosts: tuple[str, ...]
    nodes: tuple[str, ...]
    hostlist: str
    nodelist: str
    slots: tuple[int, ...]


def membership_of(run: PlacedRun, job: JobRecord | None) -> Membership:
    """Return the members of a run, in the order of its ranks; those of a large gang as hostlists."""
    hosts, nodes = run.hosts, tuple([part.node for part in run.parts]) if len(run.parts) > 1 else ()
    hostlist = nodelist = ""
    if len(hosts) >= FOLDED_MIN and is_foldable(hosts):
        hosts, hostlist = (), fold(hosts)
    if len(nodes) >= FOLDED_MIN and is_foldable(nodes):
        nodes, nodelist = (), fold(nodes)
    return Membership(hosts, nodes, hostlist, nodelist, slots_of(run, job))


def slots_of(run: PlacedRun, job: JobRecord | None) -> tuple[int, ...]:
    """Return the processes that a launcher starts in each part, unless the job file sets them: tasks, or GPUs, or one. ()
    means what the agent takes without them: one in all, or in a large gang the GPUs of each part.
    """
    tasks = job is not None and job.request.tasks
    slots = tuple([part.tasks if tasks else len(part.instances or part.gpus) or 1 for part in run.parts])
    large = len(slots) >= FOLDED_MIN
    if slots == (1,) or (
        large and all((len(part.gpus) or 1) == slots[0] for part in run.parts) and len(set(slots)) == 1
    ):
        return ()
    return slots


def notice_of(run: PlacedRun) -> int:
    """Return the time between a stopping run's notice and TERM, in nanoseconds. A gang with an ended rank saves nothing any
    more and gets 0.
    """
    return 0 if run.verdict is not None or run.ended else run.notice_ns


def ran_of(run: PlacedRun) -> int:
    """Return the time that a stopping run must have run first, in nanoseconds. A gang with an ended rank is stopped at once:
    0.
    """
    return 0 if run.verdict is not None or run.ended else run.ran_ns


def order_of(
    run: PlacedRun,
    rank: int,
    job: JobRecord | None,
    stop: str,
    members: Membership,
    inline_max: int = SPEC_INLINE_MAX,
) -> tuple[RunOrder, bytes]:
    """Return one rank's order, and the spec to store under `spec_hash` first (b"" if the spec is in the order).

    A stopping order carries no spec: there is nothing left to start.
    """
    part, spec, big = run.parts[rank], NO_SPEC, b""
    if job is not None and not stop:
        spec = job.spec
        if len(bytes(spec)) > inline_max:
            big, spec = bytes(spec), NO_SPEC
    order = RunOrder(
        job=run.job, attempt=run.attempt, rank=rank, epoch=run.epoch, gpus=part.gpus, cpu_milli=part.cpu_milli,
        memory_mib=part.memory_mib, shm_mib=job.request.shm_mib if job else 0, hosts=members.hosts,
        nodes=members.nodes, hostlist=members.hostlist, nodelist=members.nodelist, slots=members.slots,
        gpus_per_node=len(part.gpus), gpu_milli=part.gpu_milli, gpu_memory_mib=part.gpu_memory_mib,
        instances=part.instances, cpus=part.cpus, nics=part.nics, tasks=part.tasks,
        master_address=run.master_address or run.hosts[0],
        master_port=run.master_port or master_port(run.job, run.attempt),
        grace_ns=job.grace_ns if job else 0,
        stop_after_ns=job.on_partition.stop_after_ns if job and not stop else 0, user=job.user if job else "", queue=job.queue if job else "",
        name=job.name if job else "", spec=spec, spec_hash=hashlib.sha256(big).hexdigest() if big else "", stop=stop,
        checkpoint=job.checkpoint if job and not stop else None, restarted=run.restarted,
        notice_ns=notice_of(run) if stop else 0, ran_ns=ran_of(run) if stop else 0,
        signals=() if stop else run.signals,
    )  # fmt: skip
    return order, big


def layouts_of(state: ClusterState, node: ClusterNode) -> list[LayoutOrder]:
    """Return the layout order for the GPU of the node that is to be repartitioned, if there is one."""
    plan = state.layouts.get(node.name)
    if plan is None:
        return []
    return [LayoutOrder(gpu=plan.gpu, plan=plan.sequence, mode=plan.mode, destroy=plan.destroy, create=plan.create)]


def drained_of(node: ClusterNode) -> Drained | None:
    """Return the drain notice for the agent once the node is empty, else None."""
    return Drained(cause=node.cause, setter=node.setter, reason=node.reason) if node.duty == DRAINED else None


class OrderBook:
    """The encoded orders of all parts that are held, and what must be in the SPEC store before they are sent."""

    def __init__(self) -> None:
        #: {(run key, rank): (stop, its notice, the run time that it waits for; bytes)}
        self._orders: dict[tuple[str, int], tuple[tuple[object, ...], msgspec.Raw]] = {}
        #: {node: parts that its last value held}: so that the bytes of released parts can be dropped.
        self._written: dict[str, set[tuple[str, int]]] = {}
        self._specs: dict[str, bytes] = {}
        #: {run key of a large gang: its members}: each rank's order has them.
        self._gangs: dict[str, Membership] = {}

    def desired(self, state: ClusterState, node: ClusterNode) -> bytes:
        """The value of the node's key, as of the state's sequence."""
        parts = sorted(node.held.items(), key=lambda item: (state.runs[item[0]].epoch, item[0]))
        inline_max = SPEC_INLINE_MAX if len(parts) <= SPECS_INLINE_MAX else 0
        runs: list[msgspec.Raw] = []
        size = 0
        for key, rank in parts:
            order = self._order(state, state.runs[key], rank, inline_max)
            size += len(memoryview(order)) + 1
            if size > DESIRED_BYTES_MAX and runs:
                break
            runs.append(order)
        for gone in self._written.get(node.name, set()).difference(parts):
            self._orders.pop(gone, None)
        self._written[node.name] = set(parts)
        return encode_desired(
            DesiredRaw(
                node=node.name,
                incarnation=node.incarnation,
                sequence=state.sequence,
                boot_id=node.boot_id,
                runs=runs,
                layouts=layouts_of(state, node),
                drained=drained_of(node),
            )
        )

    def take_specs(self) -> dict[str, bytes]:
        """{hash: spec} named by orders since the last call."""
        specs, self._specs = self._specs, {}
        return specs

    def _order(self, state: ClusterState, run: PlacedRun, rank: int, inline_max: int) -> msgspec.Raw:
        stop = stop_of(run, rank)
        known = self._orders.get((run.key, rank))
        said = stop, notice_of(run), ran_of(run), run.signals
        if known is not None and known[0] == said:
            return known[1]
        job = state.jobs.get(array_of(run.job) or run.job)
        order, big = order_of(run, rank, job, stop, self._members(run, job), inline_max)
        if big:
            self._specs[order.spec_hash] = big
        encoded = encode_order(order)
        self._orders[(run.key, rank)] = (said, encoded)
        return encoded

    def _members(self, run: PlacedRun, job: JobRecord | None) -> Membership:
        if len(run.parts) < FOLDED_MIN:
            return membership_of(run, job)
        known = self._gangs.get(run.key)
        if known is None:
            if len(self._gangs) >= GANGS_MAX:
                self._gangs.clear()
            known = self._gangs[run.key] = membership_of(run, job)
        return known
