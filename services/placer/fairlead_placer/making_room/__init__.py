"""Who must yield so that a job fits: the cheapest of those whom the queue named, and the hole that they leave.

`candidates` says who may be asked and what that costs, `rooms` what nodes would have without them, `buying` finds the
cheapest runs to leave one node, `spots` the cheapest nodes together, `search` both when runs lie on several nodes, `kinds`
is for jobs of several kinds of units, and `hole` is where others ask. Reads state, changes nothing.

What is cheapest: fewest GPU-seconds lost, then fewest runs, then the smallest domain, then the fullest nodes by name. The
queue's rules are alike here: whoever it names may be asked alone or with others, and its order decides between equals
only. A set is always minimal: without any one of its runs the job would not fit. It is the cheapest of all as long as the
search ends within its bounds (PATIENCE, ROOM_PATIENCE, BRANCHES_MAX), which it surely does where at most 10 candidates
are on a node and at most 7 lie on several (and the nodes are few hundreds); beyond, it is the best one that was
found. For several kinds of units at once it is minimal, and no more is said.
"""
