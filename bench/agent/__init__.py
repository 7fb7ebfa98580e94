"""The agent on one node: starts compared with bare ones, many containers, a restart, rest. Start at `rows.py`."""
