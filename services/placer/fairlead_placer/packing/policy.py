"""Port of packing policies: the cost of a node's state, in integers.

Further parts:
- demands of a request on one node, without anything else about it;
- remaining capacity of a node that a cost can depend on: one state, and columns of states;
- the typical work: which shapes arrive, and how often, learned from the stream;
- view of a pool for policies: the number of nodes in each state.

The cost of a choice is the cost of the node's state after it, less that before it. The cheapest choice is taken; ties
go to the lowest node. A cost has a fixed part and a priced part. The fixed part is kept per state for the life of the
policy. The prices of the other part may change at any time: it counts how much of each scarce thing the choice gives
up.

Counts are integers, bounded and halved from time to time, so that work which no longer comes is forgotten.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

#: A whole GPU, in thousandths.
WHOLE_MILLI = 1000


class RequestShape(NamedTuple):
    """Shape of a request: `gpu_count` GPUs, `gpu_milli` thousandths of each (1000 is a whole one; 0 GPUs and 0 for none).

    `models` are the accepted GPU models, in alphabetical order; an empty tuple means any.
    """

    cpu_milli: int
    memory_mib: int
    gpu_count: int = 0
    gpu_milli: int = 0
    models: tuple[str, ...] = ()

    @property
    def total_milli(self) -> int:
        """Demand for all GPUs together, in thousandths of a GPU."""
        return self.gpu_count * self.gpu_milli

    @property
    def is_share(self) -> bool:
        """True for a part of one GPU."""
        return self.gpu_count == 1 and self.gpu_milli < WHOLE_MILLI


type Ints = NDArray[np.int64]
type Flags = NDArray[np.bool_]


class NodeState(NamedTuple):
    """State of a node. `gpus` has the remaining thousandths of each GPU that is not full, ascending. `model` is one bit."""

    cpu: int
    memory: int
    model: int
    gpus: tuple[int, ...]


class NodeStates(NamedTuple):
    """Rows of states. `gpus` has a column for each GPU of the largest node, ascending; a GPU that nothing is left of, and
    one that the node does not have, are both 0."""

    cpu: Ints
    memory: Ints
    model: Ints
    gpus: Ints

    def rows(self, at: Ints) -> "NodeStates":
        """Return the selected rows."""
        return NodeStates(self.cpu[at], self.memory[at], self.model[at], self.gpus[at])

    @property
    def free_milli(self) -> Ints:
        """Thousandths left of all GPUs of each row."""
        return self.gpus.sum(axis=1)

    @property
    def whole(self) -> Ints:
        """Number of wholly unused GPUs of each row."""
        return (self.gpus == WHOLE_MILLI).sum(axis=1)


def fits(states: NodeStates, shape: RequestShape, models: int) -> Flags:
    """Return the flags of the states with room for the shape; `models` has the bit of each model that it accepts."""
    room = (states.cpu >= shape.cpu_milli) & (states.memory >= shape.memory_mib)
    if shape.gpu_count:
        room &= (states.model & models) != 0
        room &= (states.gpus >= shape.gpu_milli).sum(axis=1) >= shape.gpu_count
    return room


def columns_of(each: list[NodeState], gpus_max: int) -> NodeStates:
    """States as columns, with so many of GPUs."""
    gpus = np.zeros((len(each), gpus_max), np.int64)
    for row, state in enumerate(each):
        if state.gpus:
            gpus[row, -len(state.gpus) :] = state.gpus
    plain = np.array([state[:3] for state in each], np.int64).reshape(-1, 3)
    return NodeStates(plain[:, 0], plain[:, 1], plain[:, 2], gpus)


#: What one arrival adds; halving leaves a trace of it for some time.
ARRIVAL = 256
#: After so many arrivals, all counts are halved: half of what is known stems from the last so many.
HALVED_EVERY = 8192
#: Work is another when so many parts of it are.
MOVED_PARTS = 8
#: Shapes that are remembered; a new one takes the place of the rarest.
SHAPES_MAX = 512


class Arrivals[Kind]:
    """Weights of kinds of work, for one pool."""

    def __init__(self, weights: Mapping[Kind, int] | None = None, arrived: int = 0) -> None:
        #: {kind: its weight}, in the order in which they came first.
        self.weights: dict[Kind, int] = dict(weights or {})
        #: Arrivals so far.
        self.arrived = arrived

    def observe(self, shape: Kind) -> None:
        """Count one arrived request, whether or not it will find a place."""
        self.arrived += 1
        weights = self.weights
        weight = weights.get(shape)
        if weight is None and len(weights) >= SHAPES_MAX:
            del weights[min(weights, key=weights.__getitem__)]
        weights[shape] = (weight or 0) + ARRIVAL
        if self.arrived % HALVED_EVERY == 0:
            self.weights = {each: weight // 2 for each, weight in self.weights.items() if weight > 1}

    def has_moved(self, since: Mapping[Kind, int]) -> bool:
        """True when kinds are no longer as frequent as by those weights: an eighth of all is elsewhere."""
        total, known = sum(self.weights.values()), max(1, sum(since.values()))
        kinds = self.weights.keys() | since.keys()
        moved = sum(abs(self.weights.get(kind, 0) * known - since.get(kind, 0) * total) for kind in kinds)
        return moved * MOVED_PARTS > total * known


class TypicalWork(Arrivals[RequestShape]):
    """The same by shape: what policies weigh."""

    def with_gpus(self) -> list[tuple[RequestShape, int]]:
        """Return (shape, weight) of the work that asks for GPUs."""
        return [(shape, weight) for shape, weight in self.weights.items() if shape.total_milli]


class EmptyNode(NamedTuple):
    """A node as it is when nothing runs on it."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str = ""


class Population(Protocol):
    """Nodes by what they have left; those that are alike are one row."""

    @property
    def models(self) -> dict[str, int]:
        """{GPU model: its bit's place}."""
        ...

    @property
    def machines(self) -> Mapping[EmptyNode, int]:
        """{kind of node: how many there are}."""
        ...

    @property
    def free_milli(self) -> int:
        """Free GPUs of all nodes together, in thousandths."""
        ...

    @property
    def states(self) -> NodeStates:
        """Remaining capacity of a node of each row."""
        ...

    @property
    def counts(self) -> Ints:
        """Number of nodes in each row."""
        ...

    def mask(self, shape: RequestShape) -> int:
        """The bits of the models that the shape accepts; all, where it names none."""
        ...


#: Costs are in so many parts of a thousandth of a GPU.
POINTS = 1000
#: A price of one, in parts: what is given up then costs what it is.
PRICE_ONE = 4096


class StateCosts(NamedTuple):
    """Costs of states: `fixed` in points per row; `slots` in thousandths of a GPU, per row and priced thing."""

    fixed: Ints
    slots: Ints


class Policy(Protocol):
    """Packing policy: the cost of each node state that a choice leaves behind."""

    @property
    def name(self) -> str:
        """Name under which the policy is chosen."""
        ...

    @property
    def absolute(self) -> bool:
        """True when only the state after a choice counts, not what was there before."""
        ...

    @property
    def steps(self) -> tuple[int, ...]:
        """Ascending: only how many of these the fixed part exceeds counts; none, where the fixed part itself does."""
        ...

    def learn(self, pool: Population, work: TypicalWork) -> None:
        """Learn the pool and the work again. The results of `held` change now, and only now."""
        ...

    def held(self, states: NodeStates) -> StateCosts:
        """Return the cost of each state."""
        ...

    def held_by(self, state: NodeState) -> tuple[int, list[int]]:
        """Return the cost of one state: (fixed, slots), the same figures as `held` has for it."""
        ...

    def prices(self, pool: Population, work: TypicalWork, slots: Ints) -> Ints:
        """The price of each thing now, in parts of PRICE_ONE; `slots` has what the pool holds of each altogether."""
        ...


def nothing_priced(fixed: Ints) -> StateCosts:
    """For policies without prices."""
    return StateCosts(fixed, np.zeros((len(fixed), 0), np.int64))
