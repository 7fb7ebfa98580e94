"""What lies idle, and what is to be given back: a core that writes the log, and the watch over samples that it asks.

Two halves that meet in `questions.py`. The **core** (`core.py`, over `apply/handlers.py`, `decide/decision.py`, `decide/policy_evaluation.py`) folds the log and says events;
it holds no sample. The **watch** (`watch.py`, over `sample_readings.py`, `idle_windows.py`) holds what samples said since this process
started, answers what the core asks, and is nowhere in the log: what decided goes into the event as its evidence. Pure, all of it.
"""
