"""Where a job strands least: fragmentation-aware packing, pure and without a word of jobs, queues or events.

Rows of alike nodes (`rows.py`) have states (`lattice.py`), a policy says what each costs (`policy.py` is the port, `policies.py` the
names, `losses.py` keeps what it said), a move says which state a job leaves (`moves.py`), and `costs.py` finds the cheapest. What
work is typical is learned from the requests themselves (`typical.py`). All scores are integers, so that every machine
chooses alike. Start at `costs.py`.
"""
