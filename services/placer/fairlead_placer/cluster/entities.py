"""Contents of the state's tables: nodes, jobs, offers, runs. The module holds data and its properties and changes nothing."""

from typing import Literal, NamedTuple

import msgspec

from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.policies.idle import IdleRule
from fairlead_schemas.policies.launchers import GangRule
from fairlead_schemas.policies.partitions import AS_THE_CLUSTER, OnPartition
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, POOL_LABEL
from fairlead_schemas.wire.events import Basis, Part, RunOutcome, Setter, StartFault, Victim
from fairlead_schemas.wire.resources import Inventory, Request

READY, CORDONED, DRAINING, DRAINED = "ready", "cordoned", "draining", "drained"


class ClusterNode:
    """A machine and its remaining capacity."""

    __slots__ = (
        "boot_id",
        "by",
        "cause",
        "dead",
        "deadline_ns",
        "duty",
        "faulted",
        "held",
        "hosts",
        "ills",
        "incarnation",
        "inventory",
        "keeper",
        "left",
        "live",
        "lost",
        "lost_ns",
        "mask",
        "name",
        "open",
        "pool",
        "quarantined",
        "reason",
        "reported",
        "rest_ns",
        "resting",
        "row",
        "setter",
        "slot",
        "superseded",
        "suspect",
        "tainted",
        "taints",
    )

    #: Free capacity of the node (derived; set by the state, which knows the runs).
    left: FreeResources

    def __init__(self, name: str, incarnation: str, boot_id: str, inventory: Inventory) -> None:
        self.name = name
        #: The id of its agent's journal, and those it replaced (newest last, a few).
        self.incarnation = incarnation
        self.superseded: tuple[str, ...] = ()
        self.boot_id = boot_id
        #: Number of the last report that a commit consumed.
        self.reported = 0
        self.lost = False
        #: When it was lost last (0: never).
        self.lost_ns = 0
        #: Of a lost one: whether a person has seen that it runs nothing any more.
        self.dead = False
        #: ready | cordoned | draining | drained, which class set it, who and why; it outlives the agent.
        self.duty = READY
        self.setter: Setter = "person"
        self.by = ""
        self.reason = ""
        #: Cause of the drain ("cmd:<id>"), and when its runs are stopped (0: never, or done).
        self.cause = ""
        self.deadline_ns = 0
        #: Gets no work until a person releases it; its event gives the reason.
        self.quarantined = False
        #: Jobs failed fast here: it gets one run at a time until one does well.
        self.suspect = False
        #: Of a suspect one: whether it gets no work for a while, and until when it rests or rested last (Unix ns; 0: never).
        self.resting = False
        self.rest_ns = 0
        #: (taint, setter) of each taint that was set, sorted; then all effective taints, those of the inventory
        #: included (derived).
        self.tainted: tuple[tuple[str, Setter], ...] = ()
        self.taints: tuple[str, ...] = effective_taints((), inventory)
        #: {GPU UUID: code}: not free and not usable. A GPU that has left the inventory may come back.
        self.faulted: dict[str, str] = {}
        #: Codes of what is not well about the node itself, sorted.
        self.ills: tuple[str, ...] = ()
        #: {run key: rank} of every part that is not released yet, dirty ones included.
        self.held: dict[str, int] = {}
        #: Held parts whose rank has not ended.
        self.live = 0
        self.inventory = inventory
        #: As its label says.
        self.pool = pool_of_node(inventory)
        #: The job that it is kept for: it takes no other work (derived from the reservations).
        self.keeper = ""
        self.hosts: tuple[str, ...] = (inventory.address,)
        #: True when it may be given new work now (derived: `takes_work` as of its last change; asked for with every unit).
        self.open = True
        #: Where its pool's index has it: its number there, its row and the mask there; -1 while it takes no work.
        self.slot = -1
        self.row = -1
        self.mask = 0

    @property
    def takes_work(self) -> bool:
        """Value of `open`, computed from the other fields."""
        busy = self.suspect and (self.resting or self.held)
        return not (self.lost or self.quarantined or busy) and self.duty == READY

    @property
    def serving(self) -> bool:
        """The same, whether or not a suspect node has its one run already, or rests."""
        return not self.lost and self.duty == READY and not self.quarantined

    @property
    def on_duty(self) -> bool:
        """True if the node is not cordoned and not drained."""
        return self.duty == READY

    @property
    def ailing(self) -> bool:
        """True when it or some of its GPUs are not well, or it has a taint that health has set."""
        return bool(self.faulted or self.ills) or any(setter == "health" for _, setter in self.tainted)

    @property
    def gpus_free(self) -> int:
        """Number of GPUs that are wholly unused, without faulted ones."""
        return self.left.free.bit_count()

    def derive(self) -> None:
        """Recompute the fields that depend on those just set."""
        self.taints = effective_taints(self.tainted, self.inventory)


def effective_taints(tainted: tuple[tuple[str, Setter], ...], inventory: Inventory) -> tuple[str, ...]:
    """Every taint that holds, each once, sorted."""
    if not tainted and not inventory.taints:
        return ()
    return tuple(sorted({*(taint for taint, _ in tainted), *inventory.taints}))


def pool_of_node(inventory: Inventory) -> str:
    """The pool that the node's label names, else the default pool."""
    return inventory.labels.get(POOL_LABEL) or DEFAULT_POOL


def pool_of(request: Request) -> str:
    """The pool whose nodes alone may take the request."""
    return request.pool or DEFAULT_POOL


class JobRecord(msgspec.Struct, eq=False):
    """Facts of a job that an order needs, kept from its submission to its end (for an array, to the whole array's end)."""

    name: str
    queue: str
    user: str
    grace_ns: int
    request: Request
    spec: msgspec.Raw
    #: Longest run time of one attempt; 0: none is known.
    total_ns: int = 0
    #: A batch job's least run time before it may be asked to yield: it saves and continues. 0: the job does not state it.
    slice_ns: int = 0
    #: When its node falls silent.
    on_partition: OnPartition = AS_THE_CLUSTER
    #: How it saves its work; None: it says nothing of it.
    checkpoint: Checkpoint | None = None
    #: What one rank's end means for the others.
    gang: GangRule = ""


class Offer(NamedTuple):
    """An attempt that waits for a place."""

    job: str
    attempt: int
    rank: int
    cause: str  # "<sequence>.<index>" of its JobOffered
    request: Request
    #: When it was offered first.
    since_ns: int = 0


class Withdrawal(NamedTuple):
    """An offer that the queue wants back."""

    job: str
    attempt: int
    cause: str
    #: Reason of the stop ("" for a mere withdrawal): if the offer was placed all the same, its run is stopped.
    stop: str


class ReservationRequest(NamedTuple):
    """An open offer that nodes shall be kept for; not decided yet."""

    job: str
    attempt: int
    cause: str


class PreemptionRequest(NamedTuple):
    """A job for which others may be asked to yield; not decided yet."""

    job: str
    attempt: int
    #: The event that asked: sequence and index.
    asked: tuple[int, int]
    victims: tuple[Victim, ...]
    #: What must come free before the job may be offered; nothing: it is offered, and lacks a place.
    amounts: dict[str, int]

    @property
    def cause(self) -> str:
        """The event's id."""
        return f"{self.asked[0]}.{self.asked[1]}"


class Reservation(NamedTuple):
    """Nodes kept for a job: except for guests they take no other work until the job has its place or gives up its
    offer.
    """

    job: str
    attempt: int
    cause: str
    nodes: tuple[str, ...]
    #: Sequence of the commit that made it or, later, last changed its nodes.
    since: int
    #: True where others yield to make it; a job that merely waits long takes one of RESERVATIONS_MAX.
    hole: bool
    #: When the nodes will have room for it (0: not known), and what says so.
    start_ns: int = 0
    basis: Basis = ""
    #: Of each node, the sequence since which it is kept: of others, only guests were placed there after it.
    sinces: tuple[int, ...] = ()

    def since_of(self, node: str) -> int:
        """The sequence since which the node is kept."""
        return self.sinces[self.nodes.index(node)] if self.sinces else self.since


#: Who is to blame for a fast failure ("": not known).
type Blame = Literal["", "node", "job"]


class FastFail(NamedTuple):
    """A run that failed within two minutes; an array's elements count as one job."""

    at_ns: int
    job: str
    user: str
    #: The run's own key, how it ended, and a digest of its job file and user.
    run: str
    way: str
    kind: str
    blame: Blame

    def is_of(self, job: str, kind: str) -> bool:
        """True for a run of that job, or of one with an equal job file."""
        return self.job == job or (self.kind == kind != "")

    def is_like(self, other: "FastFail") -> bool:
        """True for two runs of one job, or of jobs with equal job files."""
        return self.is_of(other.job, other.kind)


class RemovedNode(NamedTuple):
    """A node that was removed: when, and the ids of its journals, newest last."""

    at_ns: int
    incarnations: tuple[str, ...]


class JobFailure(NamedTuple):
    """A node on which a job has failed, and how it did so there last."""

    node: str
    way: str


class LastSuccess(NamedTuple):
    """Node and time of a user's last good run."""

    node: str
    at_ns: int


class ReportedRefusal(NamedTuple):
    """Last outcome published for a parked class, limited to the facts that decide on publishing it again."""

    #: Causes named since `since_ns`: those that come and go are not named again each time.
    keys: tuple[str, ...]
    nodes: int
    since_ns: int


class OfferClass(msgspec.Struct, eq=False):
    """Open offers with equal requests: they fit or do not fit together."""

    request: Request
    #: (rank, job), rising.
    offers: list[tuple[int, str]] = []
    outcome: ReportedRefusal | None = None
    #: Version of the index at which it fitted nowhere (-1: not tried). A memory of work done, not state: trying again
    #: places nothing either. What a fresh look may do, after a restart, is name causes that have changed since the last look.
    failed_at: int = -1
    #: True if that refusal concerned jobs with restrictions: a job without them may fit. Not state either.
    picky: bool = False
    #: Version of the index at which none of them could be a guest of kept nodes (-1: not tried). As little state.
    lent_at: int = -1
    #: Version of the index, and time, at which repartitioning GPUs was found not to help (-1: not tried). Not state either.
    uncut_at: tuple[int, int] = (-1, 0)


class RankVerdict(NamedTuple):
    """End of a rank: outcome, exit, message and blame."""

    outcome: RunOutcome
    exit_code: int | None
    signal: int | None
    rank: int
    message: str
    fault: StartFault = ""
    #: The rank whose node is to blame, where that is another one.
    blames: int | None = None
    #: How long it ran by its node's own clock; 0: not known.
    ran_ns: int = 0


class PlacedRun(msgspec.Struct, eq=False):
    """An authorised attempt on its nodes. Ranks are bits: rank 0 is 1, rank 1 is 2, rank 2 is 4 …"""

    job: str
    attempt: int
    #: Its `run_key`.
    key: str
    #: Sequence of the commit that placed it.
    epoch: int
    parts: tuple[Part, ...]
    hosts: tuple[str, ...]
    master_address: str = ""
    master_port: int = 0
    #: When it was placed, and when its first rank was seen running (0: not yet).
    placed_ns: int = 0
    began_ns: int = 0
    started: int = 0
    ended: int = 0
    released: int = 0
    #: Why its orders say stop: cancelled | time_limit | idle | reclaimed | drained | preempted | gpu_fault | "".
    stop: str = ""
    #: The code of the first fault of one of its GPUs that stops it.
    gpu_fault: str = ""
    #: When it was given notice that it will be stopped (0: it was not), and for how long before TERM; 0: TERM at once.
    noticed_ns: int = 0
    notice_ns: int = 0
    #: Of a time limit: how long it is to have run by its nodes' own clocks before they stop it.
    ran_ns: int = 0
    #: Time of its last report that its work is saved; 0: never.
    saved_ns: int = 0
    #: True once its application has served.
    app_ready: bool = False
    #: Rules by which it is idle and its GPUs are given to waiting jobs.
    idle: tuple[IdleRule, ...] = ()
    #: Newest signals that people have sent to it, by rising number: (number, name).
    signals: tuple[tuple[int, str], ...] = ()
    #: Why the attempt before this one has ended, "" for the first.
    restarted: str = ""
    #: The first rank's end that was no success; it decides the outcome and stops the others, unless `gang` says otherwise.
    verdict: RankVerdict | None = None
    #: As its job has it.
    gang: GangRule = ""

    @property
    def is_stopping(self) -> bool:
        """True if every living rank has been, or is being, ordered to stop."""
        return bool(self.stop) or (self.verdict is not None and self.gang != "continue") or self.led_to_its_end

    @property
    def led_to_its_end(self) -> bool:
        """True when rank 0 has ended well for all of them."""
        return self.gang == "leader" and bool(self.ended & 1) and self.verdict is None

    @property
    def all_ranks(self) -> int:
        """Every rank's bit."""
        return (1 << len(self.parts)) - 1


def run_key(job: str, attempt: int) -> str:
    """`run_key("812_3", 2) == "812_3.2"`."""
    return f"{job}.{attempt}"
