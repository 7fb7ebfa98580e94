"""Who had which GPUs for how long, and what it costs: exact, in integers, from events alone.

`meter.py` folds events into stays (one node's part of one attempt), `store.py` keeps them as the table `gpu_usage`,
`prices.py` reads the price table, `statement.py` makes the bill of a month, `queries.py` answers for it. Start at `meter.Meter`.
`fairlead_replay.recount` computes the same from an exported log, written apart from this.
"""
