"""Queue service: queues, quotas, the order of jobs, and the life of every job.

Start at `jobs.py` (live jobs), then `apply/handlers.py` (the effects of events), `decide/decision.py` (the decisions
and their order) and `offers.py` (the next job to offer). `core.py` is the entry point for the shell.
"""
