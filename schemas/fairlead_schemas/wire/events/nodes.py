"""Events of the placer about nodes and GPUs: presence, people's settings, health, MIG layouts, maintenance and
rollouts.
"""

from fairlead_schemas.wire.events.base import EventBase
from fairlead_schemas.wire.events.enums import BreakerKind, MigDropReason, MigMode, RolloutStep, Setter
from fairlead_schemas.wire.resources import Inventory, MigInstance, MigPlace


class NodeJoined(EventBase, tag=True, frozen=True, kw_only=True):
    """A node, under a new journal (incarnation), is part of the cluster. Its report numbers start at 1."""

    node: str
    #: Names the agent's journal; another one means that the old one is gone.
    incarnation: str
    boot_id: str
    inventory: Inventory


class NodeChanged(EventBase, tag=True, frozen=True, kw_only=True):
    """A known node reported another inventory or another boot."""

    node: str
    boot_id: str
    inventory: Inventory


class NodeLost(EventBase, tag=True, frozen=True, kw_only=True):
    """The node was silent for its whole lease. Its work counts as fenced, except for jobs with another setting."""

    node: str
    #: How long it had been silent.
    silent_ns: int


class NodeReturned(EventBase, tag=True, frozen=True, kw_only=True):
    """A lost node has reported again. Its resources stay held until its agent reports them clean."""

    node: str


class NodeDeclaredDead(EventBase, tag=True, frozen=True, kw_only=True):
    """A person has seen that the lost node runs nothing any more: proof enough for what waits to be started elsewhere."""

    node: str
    by: str = ""
    reason: str = ""


class NodeRemoved(EventBase, tag=True, frozen=True, kw_only=True):
    """A person has taken the lost node out of the cluster for good. It is forgotten, taints and faults included; should its
    machine come back, it joins under a new journal, as a node that was never there."""

    node: str
    by: str = ""
    reason: str = ""


class NodeCordoned(EventBase, tag=True, frozen=True, kw_only=True):
    """The node gets no new work."""

    node: str
    by: str = ""
    reason: str = ""
    setter: Setter = "person"


class NodeUncordoned(EventBase, tag=True, frozen=True, kw_only=True):
    """The node gets work again, unless another cause keeps it from work; this event also ends a drain."""

    node: str
    by: str = ""
    setter: Setter = "person"


class NodeDraining(EventBase, tag=True, frozen=True, kw_only=True):
    """The node gets no new work; at the deadline (0: never) its runs are stopped and requeued."""

    node: str
    by: str = ""
    reason: str = ""
    deadline_ns: int = 0  # Unix time
    setter: Setter = "person"


class NodeDrained(EventBase, tag=True, frozen=True, kw_only=True):
    """A draining node holds nothing any more."""

    node: str


class NodeTainted(EventBase, tag=True, frozen=True, kw_only=True):
    """The node repels work that does not tolerate this. With the effect NoExecute, what runs there and does not
    tolerate it is stopped and requeued. It takes the place of the setter's own taint of that key and effect."""

    node: str
    taint: str
    setter: Setter = "person"
    by: str = ""
    reason: str = ""


class NodeUntainted(EventBase, tag=True, frozen=True, kw_only=True):
    """The taint of that setter is gone."""

    node: str
    taint: str
    setter: Setter = "person"  # who had set it
    by: str = ""


class NodeSuspected(EventBase, tag=True, frozen=True, kw_only=True):
    """Different jobs failed fast on the node, and none has done well since: it gets one run at a time until one does, and
    only work that has no place elsewhere. Written again when the node rests after another failure, and when the rest is over."""

    node: str
    jobs: tuple[str, ...]  # those that failed
    rests_until_ns: int = 0  # it gets no new work before that (Unix time); 0: it does not rest


class NodeCleared(EventBase, tag=True, frozen=True, kw_only=True):
    """A run did well on a suspected node: it is suspected no more."""

    node: str


class NodeQuarantined(EventBase, tag=True, frozen=True, kw_only=True):
    """The node gets no work until a person releases it; its runs continue."""

    node: str
    setter: Setter = "person"
    by: str = ""
    reason: str = ""
    jobs: tuple[str, ...] = ()  # those that failed fast there


class NodeUnquarantined(EventBase, tag=True, frozen=True, kw_only=True):
    """Quarantine and suspicion are over, and what jobs failed there is forgotten."""

    node: str
    by: str = ""


class GpuFaulted(EventBase, tag=True, frozen=True, kw_only=True):
    """The GPU is not free and not usable until it is restored."""

    node: str
    gpu: str
    code: str  # as the agent named it: "xid79"
    reason: str = ""  # what the agent saw
    stop: bool = False  # the run that holds it is stopped and requeued


class GpuRestored(EventBase, tag=True, frozen=True, kw_only=True):
    """The GPU may be used again: its node says that it is well, or a person does."""

    node: str
    gpu: str
    by: str = ""


class NodeUnhealthy(EventBase, tag=True, frozen=True, kw_only=True):
    """The node's agent has found a fault of the node itself."""

    node: str
    code: str  # of wire/health.py
    reason: str = ""  # what the agent saw
    closes: bool = False  # it gets no new work meanwhile, by a taint


class NodeRecovered(EventBase, tag=True, frozen=True, kw_only=True):
    """The fault of a node is over, by its agent's report or a person's command."""

    node: str
    code: str
    by: str = ""


class MigLayoutPlanned(EventBase, tag=True, frozen=True, kw_only=True):
    """A GPU, or the unused part of one, is to be repartitioned for waiting jobs.

    Until MigLayoutChanged, MigLayoutFailed or MigLayoutDropped no job gets the instances that are removed or made.
    """

    node: str
    gpu: str
    jobs: tuple[str, ...] = ()  # for whom; one that is to get several instances is named so often
    mode: MigMode = ""
    destroy: tuple[MigInstance, ...] = ()  # instances that no run holds; all are destroyed before the first is made
    create: tuple[MigPlace, ...] = ()  # instances that are made
    #: Why this GPU and this layout, in numbers: thousandths of a request, of a slice.
    score: dict[str, int] = {}


class MigLayoutChanged(EventBase, tag=True, frozen=True, kw_only=True):
    """The GPU is cut as planned: its agent has reported these instances. From here on they are given out."""

    node: str
    gpu: str
    plan: int
    instances: tuple[MigInstance, ...] = ()  # all that are on it; none where MIG mode is off again


class MigLayoutFailed(EventBase, tag=True, frozen=True, kw_only=True):
    """The GPU was not cut as planned; the node's inventory says how it is now. It is left as it is for a while."""

    node: str
    gpu: str
    plan: int
    reason: str  # as the agent says it


class MigLayoutDropped(EventBase, tag=True, frozen=True, kw_only=True):
    """The plan is given up before its agent has answered."""

    node: str
    gpu: str
    plan: int
    reason: MigDropReason


class BreakerTripped(EventBase, tag=True, frozen=True, kw_only=True):
    """Nothing more is done to nodes by itself until a person resets it: no quarantine, no taint for ill health, no
    step of a rollout or window; and where nodes were lost (kind loss), what ran on them is not ended either."""

    kind: BreakerKind  # too many nodes taken out of work, or too many that fell silent
    found: int  # nodes hit within the time that is looked at, the one included that was too many
    allowed: int  # so many would have been no matter
    of: int  # nodes in all


class BreakerReset(EventBase, tag=True, frozen=True, kw_only=True):
    """Nodes are acted upon again."""

    by: str = ""


class MaintenanceScheduled(EventBase, tag=True, frozen=True, kw_only=True):
    """The nodes will take no work between the two times. From `notice_ns` before the start they get no new work; at
    the start the runs that remain there are stopped and requeued.
    """

    name: str
    nodes: tuple[str, ...]
    starts_ns: int
    ends_ns: int
    notice_ns: int = 0  # how long before the start they get no new work
    by: str = ""
    reason: str = ""


class MaintenanceStarted(EventBase, tag=True, frozen=True, kw_only=True):
    """The window's notice has come; its nodes drain, but those that another has in hand."""

    name: str


class MaintenanceEnded(EventBase, tag=True, frozen=True, kw_only=True):
    """The window is over, or was cancelled; the nodes that it drained take work again."""

    name: str
    by: str = ""
    cancelled: bool = False  # before its time


class RolloutStarted(EventBase, tag=True, frozen=True, kw_only=True):
    """The nodes will be drained and returned, as many at a time as the budget allows."""

    name: str
    nodes: tuple[str, ...]
    budget_gpus: int
    nodes_max: int = 0  # most nodes that may be in hand at once; 0: the budget alone decides
    #: Labels ("key=value") that a node has once it is done; none: another boot or journal says so, or a person.
    want: tuple[str, ...] = ()
    #: Time that a run may continue once its node's turn has come. A run without a limit, or with a later one, is
    #: long. Nodes with long runs have their turn last. 0: every run is long.
    deadline_ns: int = 0
    stop_long: bool = False  # long runs are stopped at the deadline; else they are left to finish
    by: str = ""
    reason: str = ""


class RolloutAdvanced(EventBase, tag=True, frozen=True, kw_only=True):
    """A node of a rollout has advanced by one step."""

    name: str
    node: str
    step: RolloutStep  # what became of it


class RolloutPaused(EventBase, tag=True, frozen=True, kw_only=True):
    """No further node of it is drained; those in hand are returned when they are done."""

    name: str
    by: str = ""
    reason: str = ""


class RolloutResumed(EventBase, tag=True, frozen=True, kw_only=True):
    """The rollout continues."""

    name: str
    by: str = ""


class RolloutEnded(EventBase, tag=True, frozen=True, kw_only=True):
    """Every node had its turn, or it was cancelled: nodes still in hand take work again."""

    name: str
    by: str = ""
    cancelled: bool = False  # before every node had its turn
