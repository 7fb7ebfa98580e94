"""Time at which work ends and nodes have room: by the limits of jobs, else by the past durations of such runs.

Pure: reads the state, takes the time as an argument, changes nothing (except the learned durations, which are folded).
`run_ends.py`: end of a run; `cluster/run_durations.py`, `run_ends.py`: learned run durations; `earliest_start.py`: the time a node has room for a
unit; `earliest_start.py`: the first start of a whole job, and its nodes; `explain/reasons.py`: nodes that lack one job's end only.
"""
