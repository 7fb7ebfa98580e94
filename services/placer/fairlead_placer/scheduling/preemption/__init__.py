"""Search for the runs that must end so that a job fits, and for the nodes that then have room. `preempt.py` has the theory.

`victim_set.py` is the entry: it prepares the search and serves jobs of several kinds of units. `candidates.py` has the
runs that may end, with their costs, `what_if.py` the nodes without them, `node_search.py` the cheapest runs to leave one
node, and `search.py` the cheapest nodes together, when runs span several of them. The package reads the state and changes
nothing.
"""
