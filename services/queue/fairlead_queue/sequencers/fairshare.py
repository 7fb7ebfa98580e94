"""Decayed fair share: DRF over what the queues have used in the past instead of what they hold now.

Who has used the least of late, per weight, goes first; of equals who holds less now. `past_percent` in the pool's
settings mixes the two (100, the default here: the past alone).
"""

from fairlead_queue.fairness.past_use import PastUse
from fairlead_queue.fairness.tree import Tree
from fairlead_queue.sequencers.drf import Drf


class FairShare(Drf):
    """Implements `ordering.Sequencer`."""

    def __init__(self, tree: Tree, past: PastUse, past_percent: int = 0) -> None:
        super().__init__(tree, past, past_percent or 100)
