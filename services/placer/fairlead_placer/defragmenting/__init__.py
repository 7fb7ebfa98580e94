"""Defragmentation: moving runs that save and resume, to make room for a big job. Such a job fits nowhere though enough
GPUs are free.

`movable` selects the runs that may be moved and prices them, `planning` makes the plan, `carrying_out` executes it in
pools that enable it (`defragment`). A plan shown to people needs the planning only.
"""
