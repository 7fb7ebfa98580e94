"""MIG: division of one GPU into instances, the legal layouts, and the choice among them.

Pure arithmetic on bit masks over a GPU's memory slices, without nodes or jobs; it changes nothing. Start at `models.py`
(the geometry), then `models.py` (the geometry of each GPU), `layouts.py` (legality), `layouts.py` (the profiles that
still fit), `instance_choice.py` (their value), `instance_choice.py` (the place of a request), `plans.py` (repartitioning of free slices).
"""
