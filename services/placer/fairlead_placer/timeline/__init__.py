"""Time at which work ends and nodes have room: by the limits of jobs, else by the past durations of such runs.

Pure: reads the state, takes the time as an argument, changes nothing (except the learned durations, which are folded).
`ends.py`: end of a run; `spans.py`, `learning.py`: learned run durations; `openings.py`: the time a node has room for a
unit; `starts.py`: the first start of a whole job, and its nodes; `near.py`: nodes that lack one job's end only.
"""
