"""Use of GPUs by user and time, and its cost: exact, in integers, from events alone.

`meter.py` folds events into stays (one node's part of one attempt), `usage_store.py` keeps them as the table `gpu_usage`,
`prices.py` reads the price table, `statement.py` makes the bill of a month, `queries/usage.py` answers for it. Start at
`meter.Meter`. `fairlead_replay.recount` computes the same from an exported log, in code written apart from this.
"""
