"""Placing requests in a pool one by one, by a policy, with what was worked out kept for the next request alike.

Costs are kept per row of the pool and shape; a placement makes at most one new row, and only rows that a shape has
not met yet are looked at. Learning starts that anew: often in the beginning, then every `LEARNED_EVERY` requests.
"""

from typing import NamedTuple

import numpy as np

from fairlead_placer.packing.policy import POINTS, PRICE_ONE, Policy
from fairlead_placer.packing.pool import Pool
from fairlead_placer.packing.shapes import Shape
from fairlead_placer.packing.states import Ints, choices
from fairlead_placer.packing.typical import TypicalWork

#: The typical work is looked at anew after 1, 2, 4 … requests, up to this many, and then after each so many.
LEARNED_EVERY = 512
#: Prices are set anew after so many requests.
PRICED_EVERY = 50
#: More than any cost.
_NEVER = np.iinfo(np.int64).max


class Placement(NamedTuple):
    """Where a request goes: the node, the places of its GPUs in the node's order, and the cost of it in points."""

    node: int
    gpus: tuple[int, ...]
    cost: int


class _Table:
    """Columns of integers that grow at their end."""

    def __init__(self, width: int) -> None:
        self._all = np.zeros((64, width), np.int64)
        self.length = 0

    def append(self, rows: Ints) -> None:
        """Add rows."""
        needed = self.length + len(rows)
        if needed > len(self._all):
            self._all = np.concatenate([self._all, np.zeros((needed, self._all.shape[1]), np.int64)])
        self._all[self.length : needed] = rows
        self.length = needed

    @property
    def rows(self) -> Ints:
        """All rows."""
        return self._all[: self.length]


class _Met:
    """The choices of a shape: a line for each, of row, GPU's remainder, fixed cost, slots given up."""

    def __init__(self, things: int) -> None:
        self.table = _Table(3 + things)
        #: Rows of the pool up to here were looked at, but for those that were empty then.
        self.rows = 0
        self.passed_over: Ints = np.zeros(0, np.int64)

    def unmet(self, counts: Ints) -> Ints:
        """The rows that nodes are in and that were not looked at yet; counts as looked at from now on."""
        rows = np.concatenate([self.passed_over, np.arange(self.rows, len(counts))])
        self.rows = len(counts)
        empty = counts[rows] == 0
        self.passed_over = rows[empty]
        return rows[~empty]


class Packer:
    """A pool, its policy, and the work that it has learned."""

    def __init__(self, policy: Policy, pool: Pool, work: TypicalWork | None = None) -> None:
        self.policy, self.pool = policy, pool
        self.work = work or TypicalWork()
        self._relearn()

    def place(self, shape: Shape) -> Placement | None:
        """Learn from the request, choose for it, and take what was chosen; None when no node has room."""
        self.work.observe(shape)
        seen = self.work.arrived
        if seen % LEARNED_EVERY == 0 or (seen < LEARNED_EVERY and seen & (seen - 1) == 0):
            self._relearn()
        elif seen % PRICED_EVERY == 0:
            self._reprice()
        found = self.choose(shape)
        if found is not None:
            self.pool.take(found.node, shape, found.gpus)
        return found

    def choose(self, shape: Shape) -> Placement | None:
        """The cheapest place now; None when no node has room. Takes nothing, learns nothing."""
        lines = self._met_all(shape).table.rows
        cost = lines[:, 2] + lines[:, 3:] @ self._prices
        cost[self.pool.counts[lines[:, 0]] == 0] = _NEVER
        if not len(cost) or (least := cost.min()) == _NEVER:
            return None
        best = np.flatnonzero(cost == least)
        node, remainder = min((self.pool.first_of(int(lines[at, 0])), int(lines[at, 1])) for at in best)
        return Placement(node, self._gpus(node, shape, remainder), int(least))

    def _gpus(self, node: int, shape: Shape, remainder: int) -> tuple[int, ...]:
        left = self.pool.gpus_of(node)
        if shape.gpu_count == 1:
            return (left.index(remainder),)
        fitting = sorted((each, at) for at, each in enumerate(left) if each >= shape.gpu_milli)
        return tuple(sorted(at for _, at in fitting[: shape.gpu_count]))

    def _relearn(self) -> None:
        self.pool.compact()
        self._generation = self.pool.generation
        self.policy.learn(self.pool, self.work)
        held = self.policy.held(self.pool.states)
        self._held = _Table(1 + held.slots.shape[1])
        self._held.append(np.column_stack([held.fixed, held.slots]))
        self._met: dict[Shape, _Met] = {}
        self._reprice()

    def _reprice(self) -> None:
        slots = self.pool.counts @ self._held_all()[:, 1:]
        self._prices = self.policy.prices(self.pool, self.work, slots) * POINTS // PRICE_ONE

    def _held_all(self) -> Ints:
        """Of each row of the pool: its fixed cost, and what it holds of each priced thing."""
        if self._generation != self.pool.generation:
            self._relearn()
        known = self._held.length
        if known < self.pool.rows:
            held = self.policy.held(self.pool.states.rows(np.arange(known, self.pool.rows)))
            self._held.append(np.column_stack([held.fixed, held.slots]))
        return self._held.rows

    def _met_all(self, shape: Shape) -> _Met:
        """The choices of the shape on every row of the pool that nodes are in."""
        before = self._held_all()
        met = self._met.get(shape)
        if met is None:
            met = self._met[shape] = _Met(before.shape[1] - 1)
        rows = met.unmet(self.pool.counts)
        at, remainder, after = choices(self.pool.states.rows(rows), shape, self.pool.mask(shape))
        if len(at):
            row = rows[at]
            fixed, slots = self.policy.held(after)
            if not self.policy.absolute:
                fixed = fixed - before[row, 0]
            met.table.append(np.column_stack([row, remainder, fixed, before[row, 1:] - slots]))
        return met
