"""Input of a play: jobs with their work, the machines, and the queues' settings; and outcome of each job.

Times are Unix ns.
"""

from typing import NamedTuple

from fairlead_schemas.queuefile.settings import PoolEntry, QueueEntry
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.resources import Gpu, Inventory, Request

#: When virtual time begins, Unix ns: a whole second, so that the cores' own periods begin with it.
BEGIN_NS = 1_700_000_000 * SECOND_NS


class TraceJob(NamedTuple):
    """A job of a trace."""

    queue: str
    submit_ns: int  # from BEGIN_NS
    #: What it needs on its GPUs, without starting again.
    work_ns: int
    request: Request
    #: The run time that it states (its limit: it ends there, done or not); 0: none.
    declared_ns: int = 0
    slice_ns: int = 0
    priority: int = 50

    @property
    def submitted_ns(self) -> int:
        """Time of the job's submit, Unix ns."""
        return BEGIN_NS + self.submit_ns

    @property
    def gpus(self) -> int:
        """Whole GPUs over all nodes."""
        return self.request.gpu_milli_total // 1000


class Setting(NamedTuple):
    """The cluster that jobs are played on."""

    #: {node: what it has}
    nodes: dict[str, Inventory]
    queues: tuple[QueueEntry, ...]
    pools: tuple[PoolEntry, ...] = ()
    #: Of every start, so much does no useful work.
    restart_ns: int = 0
    #: Part of every start that does no useful work, in nanoseconds.
    notice_ns: int = 0

    @property
    def gpus(self) -> int:
        """Number of GPUs of all nodes."""
        return sum(len(inventory.gpus) for inventory in self.nodes.values())


def machines(count: int, gpus: int = 8) -> dict[str, Inventory]:
    """Equal nodes "n001", "n002" … with CPUs and memory enough for whatever `request_of` asks for."""
    return {name: _machine(name, gpus) for name in (f"n{at:03}" for at in range(1, count + 1))}


def _machine(name: str, gpus: int) -> Inventory:
    devices = tuple(Gpu(uuid=f"{name}-g{at}", index=at, model="A100", memory_mib=81920) for at in range(gpus))
    return Inventory(gpus=devices, cpu_milli=16_000 * gpus, memory_mib=131_072 * gpus, runtime="hollow", simulated=True)


def request_of(gpus: int, gpus_per_node: int = 8) -> Request:
    """Build a request for this number of GPUs on as few nodes as have them. Raises ValueError if that leaves nodes
    with different parts.
    """
    nodes = -(-gpus // gpus_per_node)
    if gpus < 1 or gpus % nodes:
        raise ValueError(f"expected GPUs that {nodes} nodes share evenly, found {gpus}")
    each = gpus // nodes
    return Request(nodes=nodes, gpu_milli=each * 1000, cpu_milli=each * 1000, memory_mib=each * 1024)


class TraceRun:
    """Attempt on its GPUs."""

    __slots__ = ("ended_ns", "started_ns")

    def __init__(self, started_ns: int) -> None:
        self.started_ns = started_ns
        #: 0: it has not.
        self.ended_ns = 0


class JobLife:
    """Job from its submit to its end."""

    __slots__ = ("done_ns", "end", "ended_ns", "id", "job", "runs")

    def __init__(self, id: str, job: TraceJob) -> None:
        self.id, self.job = id, job
        self.runs: list[TraceRun] = []
        #: Useful work of the runs that have ended.
        self.done_ns = 0
        #: "JobSucceeded", "JobFailed", "JobCancelled", and when; "", 0: not yet.
        self.end, self.ended_ns = "", 0

    @property
    def left_ns(self) -> int:
        """Work that is not done."""
        return max(0, self.job.work_ns - self.done_ns)

    @property
    def jct_ns(self) -> int:
        """From submit to end."""
        return self.ended_ns - self.job.submitted_ns

    @property
    def held_ns(self) -> int:
        """On its GPUs, over all runs."""
        return sum(run.ended_ns - run.started_ns for run in self.runs)


class Played(NamedTuple):
    """Outcome of a played load."""

    lives: list[JobLife]
    #: GPUs of the cluster.
    gpus: int
    commits: int
    #: {event type: how many}
    events: dict[str, int]
