"""Guard: a small process on the agent's node that ends the node's work when no lease covers it any more.

The agent ends its work itself when the placer is silent for too long. An agent that is dead or hangs cannot; the guard
is for that case. It does not know the bus or the cluster, imports the standard library alone, and never touches the
work of an agent with a young lease, so that an agent may be restarted and upgraded at any time. Start at `policy.py`.
"""
