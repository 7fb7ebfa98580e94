"""State of the cluster: nodes, offers, runs and plans, and their free capacity. Start at `state.py`."""
