"""MIG: division of one GPU into instances, the legal layouts, and the choice among them.

Pure arithmetic on bit masks over a GPU's memory slices, without nodes or jobs; it changes nothing. Start at `shapes.py`
(the geometry), then `models.py` (the geometry of each GPU), `layouts.py` (legality), `remains.py` (the profiles that
still fit), `demand.py` (their value), `choice.py` (the place of a request), `plans.py` (repartitioning of free slices).
"""
