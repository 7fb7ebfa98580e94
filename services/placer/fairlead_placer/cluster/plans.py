"""Plans for nodes: maintenance windows and rollouts; and a folded plan to repartition one GPU, and the record of plans
that failed. Data; the module changes nothing.
"""

from typing import NamedTuple

from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_schemas.units.timestamps import HOUR_NS, MINUTE_NS, SECOND_NS
from fairlead_schemas.wire.events import MigMode
from fairlead_schemas.wire.resources import MigInstance, MigPlace


class Window(NamedTuple):
    """Period between two Unix times in which these nodes shall be empty."""

    name: str
    cause: str
    by: str
    reason: str
    nodes: tuple[str, ...]
    starts_ns: int
    ends_ns: int
    notice_ns: int
    #: The drain of its nodes was ordered.
    started: bool = False


class InHand(NamedTuple):
    """A node that a rollout has drained, or is draining."""

    node: str
    #: Its boot and journal when it was empty; "" until then. Others later mean that it was worked on.
    mark: str = ""


class RolloutPlan(NamedTuple):
    """Nodes that are drained and returned, some at a time."""

    name: str
    cause: str
    by: str
    reason: str
    nodes: tuple[str, ...]
    budget_gpus: int
    nodes_max: int
    want: tuple[str, ...]
    deadline_ns: int
    stop_long: bool
    #: Nodes whose turn has not come, and those that it has in hand.
    pending: tuple[str, ...]
    in_hand: tuple[InHand, ...] = ()
    paused: bool = False


#: An agent that has not answered for so long has not understood, or cannot: the plan is given up.
LATE_NS = 300 * SECOND_NS
#: After a failure the GPU is left as it is: so long after the first, twice as long after each further one,
BACKOFF_NS = MINUTE_NS
#: up to this.
BACKOFF_MAX_NS = HOUR_NS
#: GPUs whose failures are remembered; beyond, the one that may be tried first is forgotten.
BACKOFFS_MAX = 4096


class LayoutPlan(NamedTuple):
    """Planned change of one GPU of a node."""

    gpu: str
    #: Sequence of the commit that planned it, and its time.
    sequence: int
    at_ns: int
    #: For whom; once for each instance.
    jobs: tuple[str, ...]
    mode: MigMode
    destroy: tuple[MigInstance, ...]
    create: tuple[MigPlace, ...]


class RepartitionBackoff(NamedTuple):
    """A GPU whose plans failed, one after the other."""

    node: str
    failures: int
    #: Not tried again before this time.
    until_ns: int


def after_failure(known: RepartitionBackoff | None, node: str, at_ns: int) -> RepartitionBackoff:
    """Return the record with one more failure and the next backoff."""
    failures = 1 if known is None else known.failures + 1
    wait_ns = min(BACKOFF_NS << min(failures - 1, 16), BACKOFF_MAX_NS)
    return RepartitionBackoff(node, failures, at_ns + wait_ns)


def keep_back(left: FreeResources, plan: LayoutPlan) -> None:
    """Withhold the parts of the node that the plan changes, so that no job gets them."""
    if left.cuts is not None and plan.destroy:
        left.cuts.going = frozenset(each.uuid for each in plan.destroy)
    if plan.mode:
        left.keep_back(plan.gpu)
