"""Who deserves to run next: queues, quotas, order, the life of every job.

Start at `jobs.py` (what a live job is), then `apply/handlers.py` (what events mean), `decide/decision.py` (what is
decided, in which order) and `offers.py` (whose turn it is). `core.py` is the door for the shell.
"""
