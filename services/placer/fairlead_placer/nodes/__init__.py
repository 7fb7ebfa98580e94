"""The room of what happens to nodes, one idea to a file: they come and go (`coming.py`), are cordoned and drained
(`duty.py`), have taints (`taints.py`, `tainting.py`), sick GPUs (`health.py`) and a record of how runs ended on them
(`endings.py`, `blackhole.py`, `avoiding.py`); are kept empty for a while (`windows.py`) or upgraded one after another
(`rollouts.py`). What acts by itself asks the breaker first (`breaker.py`). Commands arrive at `commands.py`; what the
events do to the state stands in `folding.py`, `planfolding.py` and, for the oldest, in evolve_nodes.py.
"""
