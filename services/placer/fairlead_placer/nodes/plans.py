"""Plans for nodes: maintenance windows and rollouts. Data; the module changes nothing."""

from typing import NamedTuple


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


class Rollout(NamedTuple):
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
