"""Events of the placer about jobs: places, refusals, reservations, and runs from start to the release of the last
GPU.
"""

import msgspec

from fairlead_schemas.wire.events.base import EventBase
from fairlead_schemas.wire.events.enums import Basis, RunOutcome, StartFault, YieldRule


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Part of a placement on one node; the rank is its position in `JobPlaced.parts`."""

    node: str
    gpus: tuple[str, ...] = ()  # UUIDs
    cpu_milli: int = 0
    memory_mib: int = 0
    #: Of each of the GPUs: thousandths, and what it may use of the memory; 0: all of it.
    gpu_milli: int = 0
    gpu_memory_mib: int = 0
    #: UUID of the MIG instance on each of the GPUs; () where they are not cut.
    instances: tuple[str, ...] = ()
    #: CPUs that it is pinned to, as Linux lists them: "0-7,40-47"; "": not pinned.
    cpus: str = ""
    #: The nearest network device of each of the GPUs; () where none is known.
    nics: tuple[str, ...] = ()
    #: Tasks that share the part.
    tasks: int = 1


class JobPlaced(EventBase, tag=True, frozen=True, kw_only=True):
    """An attempt got its resources, on all its nodes at once. This authorises one run."""

    job: str
    attempt: int
    #: What each node gives, in the order of the ranks.
    parts: tuple[Part, ...]
    #: Rendezvous of a gang, on the node of rank 0.
    master_address: str = ""
    master_port: int = 0  # 0 for a run on one node
    #: The parts of the score that chose these nodes, in whole points.
    score: dict[str, int] = {}
    #: The job that a node of these is kept for: this one ends before that one starts, or takes what it does not need.
    guest_of: str = ""

    @property
    def units(self) -> int:
        """Number of requested units that the placement has: fewer than all only for a job that allows fewer."""
        return sum(part.tasks for part in self.parts)


class NearMiss(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A node that would take a unit once one job there has ended."""

    node: str
    job: str
    #: When that is at the latest (limits) or most likely (evidence); Unix ns, 0: not known.
    at_ns: int = 0
    basis: Basis = ""  # what that is reckoned by
    #: What comes free on the node.
    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0


class JobUnplaceable(EventBase, tag=True, frozen=True, kw_only=True):
    """An open offer fits nowhere now. It stays open; its whole equivalence class waits for a change."""

    job: str
    attempt: int
    #: Nodes by what kept each from taking part: {"free_gpus": 38, "cordoned": 1}.
    reasons: dict[str, int]
    nodes: int  # how many the request's pool has; no other pool's count in anything here
    #: Nodes that could take a part, where a gang wants more of them.
    fitting: int = 0
    gpu_milli_free: int = 0  # on the pool's nodes that take this work
    gpu_milli_total: int = 0  # of the pool, busy or not
    level: str = ""  # of units/hardware.py, where all units must lie in one domain of it
    best: int = 0  # the most units that one domain of the level takes now
    #: Nodes that lack only the end of one job, the soonest first. At most three of the examined nodes.
    near: tuple[NearMiss, ...] = ()
    #: Maintenance windows that keep it from nodes with room ("maintenance"), the soonest first; at most three.
    windows: tuple[str, ...] = ()


class PreemptionStarted(EventBase, tag=True, frozen=True, kw_only=True):
    """A run is asked to yield: notice, grace, then its end."""

    job: str  # who yields
    attempt: int
    beneficiary: str  # who it is for
    rule: YieldRule


class PreemptionDeclined(EventBase, tag=True, frozen=True, kw_only=True):
    """No run is asked to yield. Either all named runs together would not make room for the job or free its amounts, or
    runs that are already stopping free the amounts.
    """

    job: str  # who asked
    attempt: int
    #: Nodes, by what would still keep each from taking part; none where amounts were asked for.
    reasons: dict[str, int] = {}


class ReservationMade(EventBase, tag=True, frozen=True, kw_only=True):
    """The nodes take no other work until the job has its place, here or elsewhere (JobPlaced ends it), or until
    ReservationEnded. The only exceptions are guests, which do not delay the job's start (JobPlaced.guest_of).

    A repeated event names the nodes that are kept from then on, and the job's start there.
    """

    job: str
    attempt: int
    nodes: tuple[str, ...]
    #: Expected time at which the nodes have room for it, by current knowledge; Unix ns, 0: not known.
    start_ns: int = 0
    basis: Basis = ""  # what that is reckoned by
    #: Jobs whose ends it waits for, the last to end first; the first few.
    waits_for: tuple[str, ...] = ()


class ReservationEnded(EventBase, tag=True, frozen=True, kw_only=True):
    """The nodes that were kept for a job take any work again, and it has no place; or there are none to be kept."""

    job: str
    attempt: int


class OfferReturned(EventBase, tag=True, frozen=True, kw_only=True):
    """A withdrawn or stopped offer is closed without having been placed."""

    job: str
    attempt: int


class RankStarted(EventBase, tag=True, frozen=True, kw_only=True):
    """A rank of a gang runs (a run on one node has RunStarted alone)."""

    job: str
    attempt: int
    rank: int
    #: What it was made of: "name@sha256:…", or the engine's id of an image from no registry; "" for a process.
    image: str = ""


class RunStarted(EventBase, tag=True, frozen=True, kw_only=True):
    """Every rank of the attempt runs."""

    job: str
    attempt: int
    #: As in RankStarted; "" for a gang, since each rank reported its own.
    image: str = ""
    #: When the last rank started, by its node's clock (Unix ns; 0: not known). For people and replays; no rule reads it.
    began_ns: int = 0


class CheckpointSaved(EventBase, tag=True, frozen=True, kw_only=True):
    """The run has reported that its work is saved. The report of rank 0 counts for all ranks. Of reports in quick
    succession only the newest is recorded.
    """

    job: str
    attempt: int
    note: str = ""  # its note: "step=1200"
    noticed: bool = False  # it answers a notice: the run may be ended at once


class AppReady(EventBase, tag=True, frozen=True, kw_only=True):
    """The run's application serves for the first time, as its node has seen it."""

    job: str
    attempt: int
    #: When, by the node's clock (Unix ns); 0: not known.
    ready_ns: int = 0


class RankEnded(EventBase, tag=True, frozen=True, kw_only=True):
    """A rank of a gang has ended while others have not (the last one's end is RunEnded)."""

    job: str
    attempt: int
    rank: int
    outcome: RunOutcome
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    #: Of one that could not be started.
    fault: StartFault = ""
    released: bool = False
    #: Of a preflight: the rank whose node is to blame, where it is another one's.
    blames: int | None = None
    ran_ns: int = 0


class RunEnded(EventBase, tag=True, frozen=True, kw_only=True):
    """Every rank of the attempt has ended. The numbers are those of the rank that decided the outcome."""

    job: str
    attempt: int
    outcome: RunOutcome
    exit_code: int | None = None
    signal: int | None = None
    rank: int = 0
    message: str = ""
    #: Of one that could not be started.
    fault: StartFault = ""
    #: As of RankEnded.
    blames: int | None = None
    ran_ns: int = 0
    #: True when a drain asked for the stop.
    drained: bool = False
    #: True when a preemption asked for the stop.
    preempted: bool = False
    #: The code of the fault ("xid79") where a GPU of the run had a fault that stops it, and it did not end well: stopped for
    #: that, or crashed by itself before the stop arrived.
    gpu_fault: str = ""
    #: Time of the notice of its end, before TERM (Unix ns; 0: no notice).
    noticed_ns: int = 0
    #: Time of the last report that its work is saved (0: never). An end without success loses the work done since
    #: then, or since its start.
    saved_ns: int = 0
    #: Nodes whose part came back on evidence with this event.
    released: tuple[str, ...] = ()
    #: Of a failure: the nodes on which the job has failed in the same way by now, where they are more than one.
    alike: tuple[str, ...] = ()
    #: When the last rank ended, by its node's clock (Unix ns; 0: no agent reported it). For people and replays; no rule reads it.
    ended_ns: int = 0


class AllocationReleased(EventBase, tag=True, frozen=True, kw_only=True):
    """A node's part of an ended (or ending) run is free again, on evidence that its devices are clean; or the node is being
    removed from the cluster, and its devices with it."""

    job: str
    attempt: int
    node: str


class ReportRejected(EventBase, tag=True, frozen=True, kw_only=True):
    """Something on a node's report subject was not a report of that node."""

    node: str
    code: str
    message: str
    digest: str


class NodeCommandRejected(EventBase, tag=True, frozen=True, kw_only=True):
    """A command to the placer was not carried out (or could not be read; then `digest` names its bytes)."""

    command: str
    code: str
    message: str
    digest: str = ""
    #: As of CommandRejected.
    verb: str = ""
    #: The node, window or rollout that it names; "" where it names none.
    about: str = ""
