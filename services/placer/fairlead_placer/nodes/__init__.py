"""Package for the life of nodes, one idea to a file. Nodes come and go (`coming.py`), are cordoned and drained
(`duty.py`), have taints (`taints.py`, `tainting.py`), sick GPUs (`health.py`) and a record of how runs ended on them
(`endings.py`, `blackhole.py`, `avoiding.py`); are kept empty for a while (`windows.py`) or upgraded one after another
(`rollouts.py`). Automatic actions ask the breaker first (`breaker.py`). Commands arrive at `commands.py`. The effects
of the events on the state are in `folding.py`, `planfolding.py` and, for the oldest, in evolve_nodes.py.
"""
