"""Idle runs and their reclaims: a core that writes the log, and a watch over samples that answers the core's questions.

The two halves meet in `questions.py`. The **core** (`core.py`, over `apply/handlers.py`, `decide/decision.py`,
`decide/policy_evaluation.py`) folds the log and emits events; it holds no sample. The **watch** (`watch.py`, over
`sample_readings.py`, `idle_windows.py`) holds the contents of samples since this process started and answers the core's
questions. No state of the watch is in the log: the deciding values go into the event as its evidence. All of it is pure.
"""
