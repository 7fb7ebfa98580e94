"""Fragmentation-aware packing: the place where a job strands least. Pure, without jobs, queues or events.

Rows of alike nodes (`rows.py`) have states (`rows.py`). A policy prices each state (`policy.py` is the port,
`policies.py` has the names, `moves.py` keeps the prices). A move gives the states that a job leaves (`moves.py`), and
`costs.py` finds the cheapest. Typical work is learned from the requests themselves (`policy.py`). All scores are
integers, so that every machine chooses alike. Start at `costs.py`.
"""
