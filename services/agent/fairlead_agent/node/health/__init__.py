"""Fitness of the node and its GPUs for work.

Facts are read in one place (`collect.py`), judged by pure functions (`checks.py`), and reported when they have held for
long enough (`finding_reports.py`); XIDs come from the kernel's log (`linux/kernel_log.py`) and from the driver. The preflight runs tests
before work comes (`preflight.py` judges, `probe.py` tries, `gpu_test.py` computes on a GPU); nodes of a gang try
each other (`peer_check.py`, `fault_localization.py`). `monitor.py` is the shell around all of it. The contracts define the codes
(fairlead_schemas/wire/health.py).
"""
