"""Whether the node and its GPUs are fit for work.

Facts are read in one place (`looking.py`), judged by pure functions (`checks.py`), and reported when they have held for long enough
(`watch.py`); XIDs come from the kernel's log (`kmsg.py`) and from the driver. What is tried out before work comes is the preflight
(`preflight.py` judges, `examining.py` tries, `gputest.py` computes on a GPU); nodes of a gang try each other (`meeting.py`,
`culprits.py`). `tending.py` is the shell around all of it. What codes mean stands in the contracts (fairlead_schemas/health.py).
"""
