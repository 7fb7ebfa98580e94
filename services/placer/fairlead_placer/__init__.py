"""Placement of jobs: nodes, GPUs, allocations and runs.

Owns the facts NodeJoined … RunEnded of the log; judges no fairness. Start at `core.py`, then `cluster/state.py` (what is
known), `apply/handlers.py` (how events change it), `decide/decision.py` (what to commit next).
"""
