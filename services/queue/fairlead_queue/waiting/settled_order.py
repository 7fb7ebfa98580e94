"""Outcome of the last whole look at a pool's order, kept for as long as nothing could change it.

    pool.settled = SettledOrder(...)        a review has compared every open offer with the order
    pool.settled = None                     an event could change the order (apply/order_effects.py)
    pool.settled.is_folded                  the events of that review are in the log, and no other that matters

A memo, not state: a core that starts without it decides the same, and looks at the order once more.
"""

from collections import deque
from typing import Any


class SettledOrder:
    """What a review found: the turns that it gave, and what the limits refused meanwhile."""

    __slots__ = ("fresh", "owed", "picks", "ranks", "refused", "shut")

    def __init__(
        self,
        picks: list[str],
        ranks: dict[str, int],
        fresh: set[str],
        refused: dict[Any, Any],
        owed: dict[Any, Any],
        shut: set[Any],
    ) -> None:
        #: Jobs with an open offer, in the order of their turns, without those that were placed or are helped since.
        self.picks = deque(picks)
        #: {job: rank} of the review's offers, and the jobs that its decision accepts, as long as they are not folded.
        self.ranks, self.fresh = ranks, fresh
        #: As in `decide.gates.Gates`.
        self.refused, self.owed, self.shut = refused, owed, shut

    @property
    def is_folded(self) -> bool:
        """Return True if the state is the one that the review foresaw."""
        return not self.ranks and not self.fresh

    @property
    def is_free(self) -> bool:
        """Return True if no limit and no look-ahead was in the way of any job."""
        return not self.refused and not self.shut
