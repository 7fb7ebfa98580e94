"""Cost of a kind of request in each row of a pool: the cheapest of the choices in the row.

A row is priced when a node is in it at the time of a request. Its cost is kept until prices change.
"""

from typing import Protocol

import numpy as np

from fairlead_placer.packing.moves import Move
from fairlead_placer.packing.rows import VACANT, Rows
from fairlead_placer.packing.shapes import Shape
from fairlead_placer.packing.states import Ints

#: Above any cost. A forbidden choice costs as much as an empty row, so that whatever is added to it, it stays
#: above this.
NEVER = VACANT // 2
#: Less than any cost: the row has not been looked at.
UNSEEN = -VACANT


class Wish(Protocol):
    """A kind of request, as costs are kept for it; compared by identity."""

    @property
    def shape(self) -> Shape:
        """Shape of the request on one node."""
        ...

    def burden(self, build: int) -> int | None:
        """Return the extra points for a node of the build; None if the request may not go there."""
        ...


class Line:
    """Costs of one kind of request: cost per row, and extra points per build."""

    __slots__ = (
        "_builds", "_room", "asked", "burdens", "choice", "cost", "move", "order", "parts", "priced", "stamp", "version", "wish",
    )  # fmt: skip

    def __init__(self, wish: Wish, move: Move) -> None:
        self.wish, self.move = wish, move
        self._builds = 0
        #: [place of a build]: points, VACANT where it may not go; None where that is 0 for all.
        self.burdens: Ints | None = None
        #: [row]: what its cheapest choice costs (UNSEEN, VACANT where it has none), and which one that is: of equal ones
        #: the fullest GPU. Rows may be empty by now.
        self._room = 64
        self.cost: Ints = np.full(self._room, UNSEEN, np.int64)
        self.choice: Ints = np.zeros(self._room, np.int64)
        #: Number of choices of the move that are in these, at the prices of that version.
        self.priced, self.version = 0, -1
        #: {choice: what it costs, as it is recorded}, at these prices.
        self.parts: dict[int, tuple[int, int]] = {}
        #: (cost, tightness, row, choice) of all rows, rising, as it is since `stamp`: a version, and how many rows there were.
        #: How often it was asked for since.
        self.order: list[tuple[int, int, int, int]] | None = None
        self.stamp: tuple[int, int] = (-1, -1)
        self.asked = 0

    def follow(self, rows: Rows) -> None:
        """Make room for rows that are new, and look at builds that are."""
        if rows.rows > self._room:
            more = 2 * rows.rows - self._room
            self._room += more
            self.cost = np.concatenate([self.cost, np.full(more, UNSEEN, np.int64)])
            self.choice = np.concatenate([self.choice, np.zeros(more, np.int64)])
        if self._builds < len(rows.builds):
            self._builds = len(rows.builds)
            burdens = [self.wish.burden(build) for build in rows.builds]
            column = np.array([VACANT if each is None else each for each in burdens], np.int64)
            self.burdens = column if column.any() else None

    def note(self, cost: Ints) -> None:
        """Record the costs of the choices that were not priced yet."""
        move, first = self.move, self.priced
        self.priced = move.length
        if move.varied:  # a row has several choices: the cheapest is written last
            order = np.lexsort((move.rests[first:], cost))[::-1]
            rows = move.rows[first:][order]
            self.cost[rows], self.choice[rows] = cost[order], order + first
        else:
            rows = move.rows[first:]
            self.cost[rows], self.choice[rows] = cost, np.arange(first, self.priced)

    def takes(self, rows: Rows, row: int) -> bool:
        """Return True if a node of the row may take the request, judged by the row alone."""
        burdens = self.burdens
        return (burdens is None or burdens[rows.each[row][4]] < NEVER) and self.move.fits(row)
