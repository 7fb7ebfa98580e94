"""The guard: a small process beside the agent that ends this node's work when no lease covers it any more.

The agent ends its work itself when the placer is silent for too long. An agent that is dead or hangs cannot: that is what
the guard is for. It knows neither the bus nor the cluster, imports the standard library alone, and never touches the work of
an agent whose lease is young, so that an agent may be restarted and upgraded at any time. Start at `stale.py`.
"""
