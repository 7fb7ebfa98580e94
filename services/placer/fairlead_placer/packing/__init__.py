"""Where a job strands least: fragmentation-aware packing, pure and without a word of jobs, queues or events.

A pool is told of nodes and asked to place requests (`packer.py`); policies score what each choice leaves (`policy.py` is
their port, `policies.py` their names). What work is typical is learned from the requests themselves (`typical.py`).
All scores are integers, so that every machine chooses alike. Start at `packer.py`.
"""
