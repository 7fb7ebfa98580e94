"""A folded plan to repartition one GPU, and the record of plans that failed."""

from typing import NamedTuple

from fairlead_placer.capacity.left import Left
from fairlead_schemas.wire.events import MigMode
from fairlead_schemas.wire.resources import MigInstance, MigPlace

SECOND_NS = 1_000_000_000
#: An agent that has not answered for so long has not understood, or cannot: the plan is given up.
LATE_NS = 300 * SECOND_NS
#: After a failure the GPU is left as it is: so long after the first, twice as long after each further one,
BACKOFF_NS = 60 * SECOND_NS
#: up to this.
BACKOFF_MAX_NS = 3600 * SECOND_NS
#: GPUs whose failures are remembered; beyond, the one that may be tried first is forgotten.
SPOILT_MAX = 4096


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


class Spoilt(NamedTuple):
    """A GPU whose plans failed, one after the other."""

    node: str
    failures: int
    #: Not tried again before this time.
    until_ns: int


def after_failure(known: Spoilt | None, node: str, at_ns: int) -> Spoilt:
    """Return the record with one more failure and the next backoff."""
    failures = 1 if known is None else known.failures + 1
    wait_ns = min(BACKOFF_NS << min(failures - 1, 16), BACKOFF_MAX_NS)
    return Spoilt(node, failures, at_ns + wait_ns)


def keep_back(left: Left, plan: LayoutPlan) -> None:
    """Withhold the parts of the node that the plan changes, so that no job gets them."""
    if left.cuts is not None and plan.destroy:
        left.cuts.going = frozenset(each.uuid for each in plan.destroy)
    if plan.mode:
        left.keep_back(plan.gpu)
