"""Moving runs that save and go on, where that makes room for a big job that fits nowhere though enough GPUs are free.

`movable` says whose runs may be moved and what that costs, `planning` makes the plan, `carrying_out` has it done in pools
that ask for it (`defragment`). A plan for people needs the planning only.
"""
