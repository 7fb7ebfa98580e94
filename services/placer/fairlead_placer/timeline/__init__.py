"""When work ends, and so when nodes have room: by the limits of jobs, else by what such runs took before.

Pure: reads the state, is given the time, changes nothing (but what is learned, which is folded). `ends.py`: when a run ends;
`spans.py`, `learning.py`: what is learned of how long runs take; `openings.py`: when one node has room for a unit;
`starts.py`: when, and where, a whole job can start first; `near.py`: nodes that lack one job's end only.
"""
