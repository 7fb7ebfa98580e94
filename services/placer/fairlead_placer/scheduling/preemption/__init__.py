"""Choice of the runs that must yield so that a job fits: the cheapest of the queue's victims, and the hole that they
leave.

`candidates` selects the eligible runs and their costs, `rooms` computes nodes without them, `buying` finds the cheapest
runs to leave one node, `spots` the cheapest nodes together, `search` both when runs span several nodes, `kinds` serves
jobs of several kinds of units, and `hole` is the entry point. The package reads the state and changes nothing.

The cheapest set loses the fewest GPU-seconds, then has the fewest runs, then the smallest domain, then the fullest
nodes by name. The queue's rules are equal here: each of its victims may be chosen alone or with others, and the queue's
order only breaks ties. A set is always minimal: without any one of its runs the job would not fit. It is the cheapest
of all if the search ends within its bounds (PATIENCE, ROOM_PATIENCE, BRANCHES_MAX). This is certain with at most 10
candidates on a node, at most 7 that span several nodes, and a few hundred nodes. Beyond the bounds it is the best set
found. For several kinds of units at once only minimality is guaranteed.
"""
