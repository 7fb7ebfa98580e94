"""Placement of jobs: nodes, GPUs, allocations and runs.

Owns the facts NodeJoined … RunEnded of the log; judges no fairness. Start at `core.py`, then `state.py` (what is
known), `evolve.py` (how events change it), `decide.py` (what to commit next).
"""
